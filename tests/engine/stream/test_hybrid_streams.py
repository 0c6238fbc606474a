"""Streams of models with recurrent layers, whose states cannot be cut back: drafts, banned strings,
rewinds, snapshots, peeks and reused prompts leave no trace in them.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import SamplingSettings, StreamingGenerator, StreamOptions, TokenRecord
from engine.abort import AbortFlag
from engine.cache.prefix import PrefixCache
from engine.cache.states import KEPT_ROWS
from engine.model.branches import BranchRow
from tests.engine.stream import test_generator_properties, test_snapshot_properties
from tests.support.any_stream import END, MAX_SEQ_LEN, Parts, Pieces, cache_of, stream_parts
from tests.support.family_models import FAMILY_MODELS
from tests.support.scripted_model import records_of, run

GREEDY = SamplingSettings(temperature=0.0)
PROMPT = [7 * i % 300 + 5 for i in range(40)]


@pytest.fixture(scope="module", params=["qwen3_5", "lfm2", "nemotron_h", "falcon_h1"])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return stream_parts(tmp_path_factory.mktemp("hybrid"), FAMILY_MODELS[request.param])


@pytest.fixture
def generator(parts: Parts) -> Iterator[StreamingGenerator]:
    generator = parts.busy()
    yield generator
    generator.close()


@pytest.mark.parametrize("seed", range(8))
def test_only_the_request_decides(parts: Parts, seed: int) -> None:
    test_generator_properties.test_only_the_request_decides(parts, seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_restored_stream_is_the_uninterrupted_one(parts: Parts, seed: int) -> None:
    test_snapshot_properties.test_a_restored_stream_is_the_uninterrupted_one(parts, seed)


def drawn(generator: StreamingGenerator, prompt: list[int]) -> list[tuple[int, float]]:
    generator.begin_stream_ex(prompt, GREEDY, max_new_tokens=20)
    return [(record.token_id, record.logprob) for record in records_of(run(generator))]


def test_a_conversation_that_goes_on_is_not_computed_again(
    parts: Parts, generator: StreamingGenerator
) -> None:
    answer = [token_id for token_id, _ in drawn(generator, PROMPT)]
    following = [*PROMPT, *answer, 9, 10, 11]
    assert drawn(generator, following) == drawn(parts.plain(), following)
    assert generator.n_cached_tokens == len(PROMPT) + len(answer) - 1


def test_a_prompt_that_differs_before_any_state_is_computed_again_and_says_so(
    parts: Parts, generator: StreamingGenerator
) -> None:
    drawn(generator, PROMPT)
    other = [*PROMPT[:12], 3, *PROMPT[13:]]
    reuse = generator.begin(other, GREEDY).prefill.reuse
    assert reuse.reason == "differs at token 12, and no state before token 12 is held or copied"
    assert (reuse.n_reused, reuse.mismatch_at) == (0, 12)
    assert drawn(generator, other) == drawn(parts.plain(), other)


def test_an_edited_message_and_a_second_answer_reuse_what_is_before(parts: Parts) -> None:
    cache = cache_of(parts.model)
    prefix = PrefixCache(cache, block=16, byte_budget=2**22)
    generator = StreamingGenerator(parts.model, prefix, Pieces(), eos_token_ids=(END,))
    options = StreamOptions(turn_starts=(18, 36), max_new_tokens=20)
    prompts = (PROMPT, PROMPT, [*PROMPT[:30], 3, *PROMPT[31:]], PROMPT)
    for prompt, n_cached in zip(prompts, (0, 36, 18, 36), strict=True):
        stream = generator.begin(prompt, GREEDY, options)
        assert stream.prefill.n_cached >= n_cached
        records: list[TokenRecord] = []
        while not (result := stream.step()).eos:
            records += result.tokens
        records += result.tokens
        found = [(record.token_id, record.logprob) for record in records]
        assert found == drawn(parts.plain(), prompt)


def test_expected_reuse_is_what_comes_true(parts: Parts) -> None:
    cache = cache_of(parts.model)
    prefix = PrefixCache(cache, block=16, byte_budget=0)
    prefix.prepare(PROMPT)
    parts.model.prefill(PROMPT, cache, after_pass=prefix.keep_state)
    for n in (38, 30, 10):
        wanted = [*PROMPT[:n], 1, 2]
        assert prefix.expected(wanted) == prefix.prepare(wanted)
        assert cache.length in (0, n)
        cache.clear()
        parts.model.prefill(PROMPT, cache)
    assert prefix.n_bytes == 0


def test_a_peek_leaves_the_stream_as_it_was(parts: Parts) -> None:
    expected = drawn(parts.plain(), PROMPT)
    for n_tokens in (2, KEPT_ROWS + 5):
        generator = parts.plain()
        stream = generator.begin(PROMPT, GREEDY)
        records = []
        for step in range(20):
            if step in (0, 1, 7):
                glimpses = stream.peek(top=2, n_tokens=n_tokens)
                best = [token.token_id for token in glimpses[0].tokens]
                known = [token_id for token_id, _ in expected[step:]]
                assert best[: len(known)] == known[: len(best)]
            result = stream.step()
            records += [(record.token_id, record.logprob) for record in result.tokens]
            if result.eos:
                break
        assert records == expected[: len(records)]
        assert len(records) > 8


def test_branches_may_be_longer_than_what_can_be_taken_back(parts: Parts) -> None:
    model, tails = parts.slow, [[i % 7, *range(1, 24)] for i in range(3)]
    alone = []
    for tail in tails:
        cache = cache_of(model)
        model.prefill(PROMPT, cache)
        alone.append([model.decode([each], cache)[0].copy() for each in tail])
    cache = cache_of(model)
    model.prefill(PROMPT, cache)
    branches = model.branches(cache, n_positions=len(tails[0]))
    for i in range(len(tails[0])):
        rows = [BranchRow(n, tail[i], len(PROMPT) + i) for n, tail in enumerate(tails)]
        found = branches.decode(rows)
        assert all(np.array_equal(found[n], alone[n][i]) for n in range(len(tails)))
        assert cache.token_ids == PROMPT
    again = [np.array(model.decode([each], cache)[0]) for each in tails[1]]
    assert np.array_equal(again, alone[1])


def test_an_aborted_prompt_leaves_what_was_whole(parts: Parts) -> None:
    model, cache, abort = parts.slow, cache_of(parts.slow), AbortFlag()

    def stop(done: int, total: int) -> None:
        if done >= 14:
            abort.set()

    assert not model.prefill(PROMPT, cache, abort=abort, on_progress=stop)
    n = cache.length
    assert 0 < n < len(PROMPT)
    model.prefill(PROMPT[n:], cache)
    other = cache_of(model)
    model.prefill(PROMPT, other)
    assert np.array_equal(model.decode([5], cache), model.decode([5], other))


@pytest.mark.parametrize(
    ("name", "quantize"),
    [("qwen3_next", "8bit"), ("nemotron_h-latent", "4bit"), ("falcon_h1", "6bit")],
)
def test_hybrids_load_as_whole_engines(tmp_path: Path, name: str, quantize: str) -> None:
    from engine import Engine
    from tests.support.tiny_models import save_model

    save_model(tmp_path, FAMILY_MODELS[name])
    engine = Engine.load(tmp_path, device="cpu", max_seq_len=MAX_SEQ_LEN, quantize=quantize)
    ids = engine.tokenizer.encode("the river was cold")
    assert len(drawn(engine.generator, ids)) > 1
