"""Streams far beyond a window, whose keys and values are held for the last positions only: word for
word what they are with all of them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Engine, SamplingSettings
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.stream.generator import StreamingGenerator
from engine.stream.options import StreamOptions
from engine.stream.sequence import CachedSequence
from engine.stream.stream import Stream
from tests.engine.draft.test_speculation import load_drafting
from tests.support.tiny_models import VOCAB_SIZE, save_model

ROUND = 1024  # positions that are held of layers with a window
MAX_SEQ_LEN = 3000
N_TOKENS = 1500
PROMPT = [5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6, 7]
SAMPLED = SamplingSettings(temperature=1.0, seed=4)
# Random models repeat themselves, so n-grams are drafted.
COOL = SamplingSettings(temperature=0.4, seed=5)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("windows") / "model"
    save_model(path, "mistral-window", max_position_embeddings=4096)
    save_model(path / "draft", "mistral-window", max_position_embeddings=4096)
    return path


class Served:
    """A model with one cache, and what generates from it, without drafts."""

    def __init__(self, engine: Engine, cache: KVCache, *, n_bytes: int = 0) -> None:
        self.model, self.cache, self.has_copies = engine.model, cache, n_bytes > 0
        self.generator = StreamingGenerator(
            engine.model,
            PrefixCache(cache, byte_budget=n_bytes),
            engine.tokenizer,
            eos_token_ids=engine.eos_token_ids,
        )


@pytest.fixture(scope="module")
def loaded(path: Path) -> Engine:
    return Engine.load(path, device="cpu", dtype="float32", max_seq_len=MAX_SEQ_LEN)


@pytest.fixture(scope="module")
def whole(loaded: Engine) -> Served:
    """One that holds everything."""
    cache = KVCache(loaded.config, loaded.model.ops, max_seq_len=MAX_SEQ_LEN, pass_rows=MAX_SEQ_LEN)
    assert not cache.goes_round
    return Served(loaded, cache)


@pytest.fixture(scope="module", params=[0, 2**26], ids=["no copies", "copies"])
def served(loaded: Engine, request: pytest.FixtureRequest) -> Served:
    cache = KVCache(loaded.config, loaded.model.ops, max_seq_len=MAX_SEQ_LEN)
    assert {n for _, n, _ in cache.shapes} == {ROUND}
    return Served(loaded, cache, n_bytes=request.param)


def begun(
    engine: Engine | Served,
    settings: SamplingSettings = SAMPLED,
    prompt: Sequence[int] = PROMPT,
    **options: Any,
) -> Stream:
    options = {"ignore_eos": True, "max_new_tokens": N_TOKENS, **options}
    return engine.generator.begin(prompt, settings, StreamOptions(**options))


def ids_of(stream: Stream, n: int = N_TOKENS) -> list[int]:
    """The next tokens, at least `n` unless the stream ends."""
    ids: list[int] = []
    while len(ids) < n and not stream.ended:
        ids += [token.token_id for token in stream.step().tokens]
    return ids


@pytest.mark.parametrize(
    ("speculate", "settings"), [("ngram", COOL), ("draft", SAMPLED)], ids=["ngram", "draft"]
)
def test_drafts_change_nothing(
    path: Path, whole: Served, speculate: str, settings: SamplingSettings
) -> None:
    drafting = load_drafting(path, speculate=speculate, max_seq_len=MAX_SEQ_LEN)
    stream = begun(drafting, settings)
    written = ids_of(begun(whole, settings))
    assert ids_of(stream) == written
    assert sum(count.accepted for count in stream.draft_counts.values()) > 0
    # Passes of up to 64 rows, some of which are taken back.
    predicted = [token_id if place % 200 else 3 for place, token_id in enumerate(written)]
    assert ids_of(begun(drafting, settings, prediction=predicted)) == written
    # The draft model begins again from a prompt far behind its own end.
    again, expected = (ids_of(begun(each, settings), 40) for each in (drafting, whole))
    assert again[:40] == expected[:40]


def test_banned_strings_are_taken_back_across_the_seam(whole: Served, served: Served) -> None:
    banned = [chr(i) + chr(j) for i in range(97, 123) for j in (101, 97, 116)]
    found, expected = (begun(each, banned_strings=banned) for each in (served, whole))
    assert ids_of(found) == ids_of(expected)
    assert found.n_completion_tokens == expected.n_completion_tokens > ROUND


def test_a_stream_goes_back_as_far_as_it_likes(whole: Served, served: Served) -> None:
    stream, expected = begun(served), ids_of(begun(whole))
    assert ids_of(stream) == expected
    stream = begun(served)
    ids_of(stream, 1400)
    for mark in (1380, 1100, 400, 30, 900, 2):
        if mark > stream.mark():
            ids_of(stream, mark - stream.mark())
        stream.rollback(mark)
        found, first = ids_of(stream, 20), stream.n_inherited_tokens
        assert found == expected[first : first + len(found)]


def test_a_prompt_that_is_cut_anywhere(whole: Served, served: Served) -> None:
    prompt = np.random.default_rng(3).integers(5, VOCAB_SIZE, 2000).tolist()
    begun(served, prompt=prompt, max_new_tokens=1).step()
    for cut in (1900, 900, 70, 1999):
        text = [*prompt[:cut], 5, 6]
        stream = begun(served, prompt=text)
        reuse = stream.prefill.reuse
        if served.has_copies or cut > MAX_SEQ_LEN / 2:
            assert reuse.n_reused == cut
        else:
            assert reuse.n_reused == 0
            assert reuse.reason == f"the window before token {cut} is neither held nor copied"
        assert ids_of(stream, 5)[:5] == ids_of(begun(whole, prompt=text), 5)[:5]
        ids_of(begun(served, prompt=prompt, max_new_tokens=1), 1)


def test_scores_of_long_continuations_follow_the_same_prompt(whole: Served, served: Served) -> None:
    random = np.random.default_rng(4)
    prompt = random.integers(5, VOCAB_SIZE, 1300).tolist()
    long, short = (random.integers(5, VOCAB_SIZE, n).tolist() for n in (1200, 3))
    found, expected = (each.generator.begin_scoring(prompt) for each in (served, whole))
    for continuation in (short, long, short, long):
        assert found.score(continuation) == expected.score(continuation)


def test_tokens_far_back_are_forgotten_by_computing_again(
    whole: Served, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    ids = np.random.default_rng(5).integers(5, VOCAB_SIZE, 1800).tolist()
    rows = []
    for each in (served, whole):
        cache, model = each.cache, each.model
        cache.clear()
        model.prefill(ids[:-1], cache)
        sequence = CachedSequence(model, cache, ids)
        sequence.truncate(400)
        rows.append(np.array(sequence.forward([3])))
        assert cache.token_ids == [*ids[:400], 3]
        cache.clear()
    assert np.array_equal(rows[0], rows[1])
    said = [record.getMessage() for record in caplog.records]
    assert said == ["going back to token 399: computing from token 0 again"]
