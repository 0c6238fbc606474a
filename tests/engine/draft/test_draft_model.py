"""Drafts by a model: always from a complete cache, and only while it is sure."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import AbortFlag, Engine, ModelLoadError, Tokenizer
from engine.cache.kv import KVCache
from engine.checkpoint.config_json import model_config
from engine.draft.drafter import Drafter
from engine.draft.model import ModelDrafter, check_same_vocabulary
from engine.draft.ngram import NgramDrafter
from engine.draft.speculator import MAX_DRAFT, Speculator
from engine.model.model import Model
from engine.sampling.logits import Logits
from tests.support.drafted import FixedCosts
from tests.support.tiny_models import VOCAB_SIZE, save_model

MAX_SEQ_LEN = 96


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Model:
    return Engine.load(tiny_model, device="cpu", dtype="float32", max_seq_len=MAX_SEQ_LEN).model


def cache_of(model: Model) -> KVCache:
    return KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)


def drafter_of(
    model: Model,
    cache: KVCache | None = None,
    *,
    vocab_size: int = VOCAB_SIZE,
    min_confidence: float = 0.0,
) -> ModelDrafter:
    return ModelDrafter(
        model,
        cache or cache_of(model),
        FixedCosts((1.0, 1.1, 1.2, 1.5, 2.0)),
        vocab_size=vocab_size,
        min_confidence=min_confidence,
    )


def greedy(model: Model, token_ids: Sequence[int], n: int) -> tuple[int, ...]:
    """What the model goes on with, each token computed alone."""
    cache, tokens = cache_of(model), list(token_ids)
    for token in tokens[:-1]:
        model.decode([token], cache)
    for _ in range(n):
        tokens.append(int(np.argmax(model.decode(tokens[-1:], cache)[0])))
    return tuple(tokens[len(token_ids) :])


def logits_after(model: Model, cache: KVCache, token_id: int) -> Logits:
    logits: Logits = model.decode([token_id], cache)[0].copy()
    cache.rollback(cache.length - 1)
    return logits


ids = st.integers(0, VOCAB_SIZE - 1)
steps = st.lists(
    st.tuples(st.integers(1, 15), st.integers(0, 15), st.lists(ids, max_size=3), st.integers(0, 8)),
    min_size=1,
    max_size=5,
)


@given(prompt=st.lists(ids, min_size=1, max_size=30), steps=steps)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_cache_is_that_of_a_fresh_run_after_anything(
    model: Model, prompt: list[int], steps: list[tuple[int, int, list[int], int]]
) -> None:
    cache = cache_of(model)
    drafter = drafter_of(model, cache)
    drafter.begin(prompt)
    tokens = prompt.copy()
    for n, n_accepted, others, n_back in steps:
        prospect = drafter.prospect(n)
        if prospect is None:
            break
        draft = drafter.draft(min(n, prospect.n_max))
        assert draft == greedy(model, tokens, len(draft)), "from all that was accepted"
        fresh = cache_of(model)
        model.prefill(cache.token_ids, fresh)
        if cache.length < MAX_SEQ_LEN:
            assert (
                logits_after(model, cache, 5).tobytes() == logits_after(model, fresh, 5).tobytes()
            )
        for token in [*draft[:n_accepted], *others][: MAX_SEQ_LEN - len(tokens)]:
            drafter.accept(token)
            tokens.append(token)
        mark = max(len(tokens) - n_back, 1)
        drafter.rollback(mark)
        del tokens[mark:]


def test_a_draft_accepted_whole_leaves_no_hole(model: Model) -> None:
    cache = cache_of(model)
    drafter = drafter_of(model, cache)
    drafter.begin([1, 2, 3])
    for _ in range(4):
        draft = drafter.draft(4)
        for token in [*draft, 7]:
            drafter.accept(token)
    tokens = [*cache.token_ids]
    drafter.draft(1)
    assert cache.token_ids[: len(tokens)] == tokens
    assert cache.length == 3 + 4 * 5
    assert drafter.draft(3) == greedy(model, cache.token_ids[:23], 3)


def test_the_cache_is_reused_by_common_prefix(model: Model) -> None:
    cache = cache_of(model)
    drafter = drafter_of(model, cache)
    drafter.begin(list(range(40)))
    drafter.draft(2)
    drafter.begin([*range(30), 99, 98])
    assert cache.token_ids == list(range(30))
    assert drafter.draft(3) == greedy(model, [*range(30), 99, 98], 3)


def test_drafts_end_with_the_context(model: Model) -> None:
    drafter = drafter_of(model)
    for n_prompt, expected in [(MAX_SEQ_LEN - 3, 4), (MAX_SEQ_LEN, 1)]:
        drafter.begin([1] * n_prompt)
        prospect = drafter.prospect(15)
        assert prospect is not None
        assert prospect.n_max == expected
        assert len(drafter.draft(expected)) == expected
    drafter.begin([1] * (MAX_SEQ_LEN + 1))
    assert drafter.prospect(15) is None, "the model that verifies has the longer context"


def test_what_a_draft_costs_is_told(model: Model) -> None:
    drafter = drafter_of(model)
    drafter.begin([1] * 50)
    told = []
    for n_missing in (0, 1, 2, 16, 20):
        drafter.begin([1] * 50)
        drafter.draft(1)
        for token in [2] * n_missing:
            drafter.accept(token)
        prospect = drafter.prospect(15)
        assert prospect is not None
        told.append(prospect.first)
        assert prospect.each == 1.0
    assert told == [1.0, 1.0, 1.1, 2.0, 3.2]


def test_what_its_passes_took_is_observed(model: Model) -> None:
    drafter = drafter_of(model)
    drafter.begin([1] * 50)
    drafter.draft(3)
    for token in (2, 3, 4):
        drafter.accept(token)
    drafter.draft(2)
    assert isinstance(drafter.row_costs, FixedCosts)
    assert drafter.row_costs.passes == [1, 1, 1, 3, 1], "a long prompt is no pass of few rows"


def test_a_drafter_that_was_wrong_rests(model: Model) -> None:
    drafter = drafter_of(model)
    drafter.begin([1] * 50)
    prospect = drafter.prospect(15)
    assert prospect is not None
    assert prospect.acceptance.is_probed()
    n_rested = 0
    while drafter.prospect(15) is None:
        n_rested += 1
    assert n_rested == 8


def test_an_abort_ends_the_catching_up(model: Model) -> None:
    drafter, abort = drafter_of(model), AbortFlag()
    drafter.begin(list(range(60)), abort)
    abort.set()
    assert drafter.draft(4) == ()
    drafter.begin(list(range(60)), None)
    assert drafter.draft(4) == greedy(model, range(60), 4)


class StubModel:
    """Its most likely token is the last one plus 1, with a given probability for each token."""

    def __init__(self, model: Model, confidence: Sequence[float]) -> None:
        self.config = model.config
        self.ops = model.ops
        self.max_seq_len = model.max_seq_len
        self.confidence = confidence
        self.n_passes = 0

    def decode(self, token_ids: Sequence[int], cache: KVCache) -> Logits:
        cache.append(token_ids)
        self.n_passes += 1
        logits = np.zeros((len(token_ids), VOCAB_SIZE), dtype=np.float32)
        for row, token in zip(logits, token_ids, strict=True):
            share = self.confidence[token + 1]
            row[token + 1] = np.log(share / (1.0 - share) * (VOCAB_SIZE - 1))
        return logits


@pytest.mark.parametrize(("share", "n"), [(0.5, 5), (0.3, 2), (0.01, 2), (float("nan"), 2)])
def test_a_draft_ends_before_a_token_that_is_not_sure(model: Model, share: float, n: int) -> None:
    # 0.9 * 0.9 * 0.5 * 0.9 * 0.9 = 0.33 is likely enough, 0.9 * 0.9 * 0.3 = 0.24 is not.
    stub = StubModel(model, [0.9, 0.9, 0.9, share, 0.9, 0.9, 0.9])
    drafter = drafter_of(cast(Model, stub), min_confidence=0.29)
    drafter.begin([0])
    assert drafter.draft(5) == (1, 2, 3, 4, 5)[:n]
    assert stub.n_passes == min(n + 1, 5)


def test_ids_that_the_other_model_has_not_are_not_drafted(model: Model) -> None:
    stub = StubModel(model, [0.9] * VOCAB_SIZE)
    drafter = drafter_of(cast(Model, stub), vocab_size=4)
    drafter.begin([1])
    assert max(drafter.draft(8)) < 4


def test_a_token_that_the_draft_model_has_not_ends_drafting_until_it_is_gone(model: Model) -> None:
    drafter = drafter_of(model, vocab_size=VOCAB_SIZE + 64)
    drafter.begin([1, 2])
    drafter.accept(VOCAB_SIZE + 3)
    assert drafter.draft(4) == ()
    drafter.accept(5)
    assert drafter.draft(4) == ()
    drafter.rollback(2)
    assert drafter.draft(4) == greedy(model, [1, 2], 4)


def test_another_vocabulary_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    config, tokenizer = model_config(tiny_model), Tokenizer.load(tiny_model, VOCAB_SIZE)
    check_same_vocabulary(config, tokenizer, config, None)
    check_same_vocabulary(config, tokenizer, config, tokenizer)
    save_model(tmp_path, vocab_size=VOCAB_SIZE + 64)
    padded = model_config(tmp_path)
    check_same_vocabulary(config, tokenizer, padded, Tokenizer.load(tmp_path, padded.vocab_size))
    with pytest.raises(ModelLoadError, match="384 embedding rows, the model has 320; both need"):
        check_same_vocabulary(config, tokenizer, padded, None)
    file = tmp_path / "tokenizer.json"
    file.write_text(file.read_text("utf-8").replace("<|user|>", "<|human|>"), "utf-8")
    other = Tokenizer.load(tmp_path, padded.vocab_size)
    with pytest.raises(ModelLoadError, match=r"token 2 is b'<\|human\|>', in the model b'<\|user"):
        check_same_vocabulary(config, tokenizer, config, other)


def test_verified_drafts_give_what_plain_decoding_gives(model: Model, tmp_path: Path) -> None:
    save_model(tmp_path, seed=0, num_hidden_layers=2)
    draft_model = Engine.load(tmp_path, device="cpu", dtype="float32", max_seq_len=64).model
    other = drafter_of(draft_model)
    same = drafter_of(model)  # right every time
    prompt = [5, 6, 7, 5, 6, 7, 5]
    sets: list[list[Drafter]] = [[other], [same], [NgramDrafter()], [NgramDrafter(), other, same]]
    for drafters in sets:
        speculator = Speculator(drafters, FixedCosts((50.0, 50.1, 50.2, 50.4, 50.8)))
        speculator.begin(prompt)
        cache, output, last = cache_of(model), list[int](), prompt[-1]
        model.prefill(prompt[:-1], cache)
        while len(output) < 60:
            draft = speculator.propose(min(MAX_DRAFT, 59 - len(output))).token_ids
            likeliest = np.argmax(model.decode([last, *draft], cache), axis=1).tolist()
            n_accepted = 0
            while n_accepted < len(draft) and draft[n_accepted] == likeliest[n_accepted]:
                n_accepted += 1
            speculator.observe(len(draft), n_accepted)
            cache.rollback(cache.length - len(draft) + n_accepted)
            for last in likeliest[: n_accepted + 1]:
                speculator.accept(last)
                output.append(last)
        assert tuple(output) == greedy(model, prompt, 60)
        if same in drafters:
            assert speculator.stats.sum.accepted > 30
