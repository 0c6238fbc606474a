"""Healed first tokens, against a walk over the whole vocabulary."""

import numpy as np
import pytest

from engine import InvalidInputError
from engine.grammar.compiler import ConstraintCompiler
from engine.grammar.spec import ConstraintSpec
from engine.text.prefix_index import PrefixIndex
from engine.text.token_ids import set_of_ids
from tests.support.vocabularies import NAMES, Vocabulary, ids_in, vocabulary


@pytest.fixture(scope="module", params=NAMES)
def vocab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return vocabulary(request.param, tmp_path_factory.mktemp("tokenizer"))


def starting_with(vocab: Vocabulary, prefix: bytes) -> list[int]:
    return [
        token_id
        for token_id in range(vocab.size)
        if (data := vocab.tokenizer.token_bytes(token_id))
        and not vocab.tokenizer.is_control(token_id)
        and data.startswith(prefix)
    ]


def test_every_token_heals_to_the_tokens_that_begin_like_it(vocab: Vocabulary) -> None:
    index = PrefixIndex(vocab.tokenizer, vocab.size)
    rng = np.random.default_rng(0)
    some = rng.choice(vocab.size, size=min(300, vocab.size), replace=False)
    prefixes = {vocab.tokenizer.token_bytes(int(token_id)) for token_id in some}
    prefixes |= {b"", b" ", b"t", b"\xff", b"\xc3", b"no token begins like this"}
    for prefix in prefixes:
        expected = starting_with(vocab, prefix)
        assert sorted(index.ids_starting_with(prefix).tolist()) == expected
        assert ids_in(index.mask(prefix)) == expected
        keys = index.keys_starting_with(prefix)
        ids = index.ids_starting_with(prefix).tolist()
        assert keys == [vocab.tokenizer.token_bytes(token_id) for token_id in ids]


def test_control_tokens_never_heal(vocab: Vocabulary) -> None:
    healed = set(PrefixIndex(vocab.tokenizer, vocab.size).ids_starting_with(b"").tolist())
    assert not any(vocab.tokenizer.is_control(token_id) for token_id in healed)
    assert not healed & {
        token_id for token_id in range(vocab.size) if not vocab.tokenizer.token_bytes(token_id)
    }


def test_a_mask_has_one_word_for_32_tokens() -> None:
    assert set_of_ids([0, 31, 32, 63], 64).tolist() == [1 - 2**31, 1 - 2**31]
    assert set_of_ids([64], 65).tolist() == [0, 0, 1]
    assert set_of_ids([], 33).tolist() == [0, 0]
    assert set_of_ids([1], 33).dtype == np.int32


CHOICES = ("he", "hello", "he said", "there", "ther\u00e9", " hope")


@pytest.mark.parametrize("prefix", [b"h", b" ", b"t", b"", b"l", b"<"])
def test_only_the_bytes_behind_the_prefix_belong_to_the_text(
    vocab: Vocabulary, prefix: bytes
) -> None:
    compiler = ConstraintCompiler(vocab.tokenizer, vocab.size, vocab.eos)
    constraint = compiler.compile(ConstraintSpec("choices", CHOICES))
    before = constraint.mask().copy()
    allowed = ids_in(constraint.mask_after(PrefixIndex(vocab.tokenizer, vocab.size), prefix))
    assert allowed == [
        token_id
        for token_id in starting_with(vocab, prefix)
        if any(
            choice.encode().startswith(vocab.tokenizer.token_bytes(token_id)[len(prefix) :])
            for choice in CHOICES
        )
    ]
    assert constraint.mark() == 0
    assert np.array_equal(constraint.mask(), before)
    for token_id in starting_with(vocab, prefix):
        rest = vocab.tokenizer.token_bytes(token_id)[len(prefix) :]
        if token_id in allowed:
            constraint.accept_bytes(rest)
            assert constraint.mark() == 1
            assert constraint.is_complete == (rest.decode(errors="replace") in CHOICES)
            constraint.rollback(0)
        else:
            with pytest.raises(InvalidInputError, match="is not allowed by the constraint here"):
                constraint.accept_bytes(rest)
        assert np.array_equal(constraint.mask(), before)


def test_a_healed_token_may_hold_the_whole_text(vocab: Vocabulary) -> None:
    compiler = ConstraintCompiler(vocab.tokenizer, vocab.size, vocab.eos)
    constraint = compiler.compile(ConstraintSpec("regex", "(?:\u00e9|ab)c"))
    constraint.accept_bytes("\u00e9".encode()[:1])
    constraint.accept_bytes("\u00e9".encode()[1:])
    assert not constraint.is_complete
    with pytest.raises(InvalidInputError):
        constraint.accept_bytes(b"cc")
    with pytest.raises(InvalidInputError):
        constraint.accept_bytes(b"\xff")
    constraint.accept_bytes(b"c")
    assert constraint.is_over
    assert ids_in(constraint.mask()) == sorted(vocab.eos)
    constraint.rollback(1)
    constraint.accept_bytes(b"")
    assert constraint.mark() == 2
    constraint.rollback(0)
    constraint.accept_bytes(b"abc")
    assert constraint.is_over
