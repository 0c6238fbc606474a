"""Which tokens there are, which ones break a repeat, and which ones XTC spares."""

from collections import Counter

import numpy as np
import pytest

from engine.sampling.settings import DRY_SEQUENCE_BREAKERS
from engine.sampling.token_masks import SamplerVocabulary
from engine.text.token_ids import TokenMask, set_of_ids

PIECES = [b"a", b"b.", b"\n", b" x\n y", b"", b"<eos>", "\u00e9".encode(), b"\xc3", b"ab", b"\t"]
EOS = 5


class Pieces:
    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()

    def token_bytes(self, token_id: int) -> bytes:
        self.asked[token_id] += 1
        return PIECES[token_id]

    def is_special(self, token_id: int) -> bool:
        return token_id == EOS

    def is_control(self, token_id: int) -> bool:
        return self.is_special(token_id)


def ids_of(words: TokenMask) -> list[int]:
    assert words.dtype == np.int32
    return [32 * i + b for i, word in enumerate(words.tolist()) for b in range(32) if word >> b & 1]


@pytest.fixture
def pieces() -> Pieces:
    return Pieces()


def test_xtc_spares_newlines_and_special_tokens(pieces: Pieces) -> None:
    assert ids_of(SamplerVocabulary(pieces, len(PIECES)).xtc_protected()) == [2, 3, EOS]


def test_breakers_are_tokens_that_hold_one(pieces: Pieces) -> None:
    vocabulary = SamplerVocabulary(pieces, len(PIECES))
    assert ids_of(vocabulary.dry_breakers(DRY_SEQUENCE_BREAKERS)) == [1, 2, 3, EOS, 9]
    assert ids_of(vocabulary.dry_breakers(["ab", "\u00e9"])) == [EOS, 6, 8]
    assert ids_of(vocabulary.dry_breakers([])) == [EOS]


def test_a_set_is_made_once_and_only_when_wanted(pieces: Pieces) -> None:
    vocabulary = SamplerVocabulary(pieces, len(PIECES))
    assert not pieces.asked
    for _ in range(3):
        vocabulary.xtc_protected()
        vocabulary.dry_breakers(["a", "b"])
        vocabulary.dry_breakers(["b", "a"])
    assert set(pieces.asked.values()) == {2}


def test_sets_of_breakers_do_not_pile_up(pieces: Pieces) -> None:
    vocabulary = SamplerVocabulary(pieces, len(PIECES))
    for i in range(100):
        vocabulary.dry_breakers([str(i)])
    before = pieces.asked[0]
    vocabulary.dry_breakers(["99"])
    assert pieces.asked[0] == before, "the newest is kept"
    vocabulary.dry_breakers(["0"])
    assert pieces.asked[0] == before + 1, "the oldest is not"


@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 64, 100])
def test_a_set_of_ids(vocab_size: int) -> None:
    ids = [i for i in range(vocab_size) if i % 3 == 0 or i == vocab_size - 1]
    words = set_of_ids(ids, vocab_size)
    assert words.shape == ((vocab_size + 31) // 32,)
    assert ids_of(words) == ids
    assert ids_of(set_of_ids([], vocab_size)) == []


def test_rows_behind_the_last_token_are_not_allowed(pieces: Pieces) -> None:
    whole = SamplerVocabulary(pieces, len(PIECES))
    assert whole.allowed(None) is None, "nothing has to be kept out"
    assert ids_of(some(whole.allowed([4, 8]))) == [4, 8]
    rows = [*PIECES, b"", b"", b""]
    padded = SamplerVocabulary(Rows(rows), len(rows))
    assert ids_of(some(padded.allowed(None))) == list(range(len(PIECES)))
    assert ids_of(some(padded.allowed([9, 10, 12]))) == [9]


class Rows(Pieces):
    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__()
        self.pieces = pieces

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]


def some(words: TokenMask | None) -> TokenMask:
    assert words is not None
    return words
