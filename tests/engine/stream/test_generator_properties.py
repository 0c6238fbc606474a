"""Any options together: what must hold of every stream, and that only the options decide.

A generator with everything (drafts, copies of past keys and values, small chunks, streams that are
aborted, left or fail in between) is compared with one that has nothing and is made anew for each
request.
"""

import math
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import chisquare

from engine import AbortFlag, SamplingSettings, StreamingGenerator
from engine.sampling.request import SampleResult
from tests.support.any_stream import (
    CONVERSATIONS,
    Outcome,
    Parts,
    all_records,
    assert_holds,
    busy_outcome,
    cache_of,
    outcome,
    some_prompt,
    some_request,
    some_strings,
    stream_parts,
    streamed,
    turned,
)
from tests.support.scripted_model import END, PieceVocabulary, ScriptedModel, records_of, run


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return stream_parts(tmp_path_factory.mktemp("properties"))


class Disturbance(NamedTuple):
    """What happens between two requests."""

    kind: str  # abort, leave, fail
    n_steps: int
    prompt: list[int]
    isolation_key: str


def some_disturbance(rng: Random) -> Disturbance:
    return Disturbance(
        rng.choice(["abort", "leave", "fail"]),
        rng.randint(0, 6),
        some_prompt(rng),
        rng.choice(["", "someone"]),
    )


def disturb(generator: StreamingGenerator, disturbance: Disturbance) -> None:
    kind, n_steps, prompt, isolation_key = disturbance
    abort = AbortFlag()
    if n_steps == 0 and kind == "abort":
        abort.set()
    fuse = iter(range(n_steps))

    def hook(sampled: SampleResult) -> None:
        if kind == "fail" and next(fuse, None) is None:
            raise RuntimeError("planted")

    generator.begin_stream_ex(
        prompt,
        SamplingSettings(seed=1),
        max_new_tokens=8,
        abort=abort,
        on_token=hook,
        banned_strings=["ab"],
        isolation_key=isolation_key,
        max_tokens_per_call=1,
    )
    try:
        for _ in range(n_steps):
            if generator.stream_ex().eos:
                return
        abort.set()
        if kind != "leave":
            generator.stream_ex()
    except RuntimeError:
        assert kind == "fail"


@pytest.mark.parametrize("seed", range(60))
def test_only_the_request_decides(parts: Parts, seed: int) -> None:
    rng = Random(seed)
    generator = parts.busy()
    for _ in range(4):
        request = some_request(rng)
        plain = parts.plain()
        free = outcome(plain, streamed(plain, request))
        text = free.text if isinstance(free, Outcome) else ""
        request.options["stop"] = some_strings(rng, text)
        request.options["banned_strings"] = [turned(s) for s in some_strings(rng, text)]

        plain = parts.plain()
        results = streamed(plain, request)
        expected = outcome(plain, results)
        token_ids = []
        if not isinstance(results, str):
            assert_holds(plain, request, results)
            token_ids = [record.token_id for record in all_records(results)]
        if rng.random() < 0.4:
            disturb(generator, some_disturbance(rng))
        assert busy_outcome(generator, request, token_ids) == expected


def assert_fits(counts: dict[Any, int], p: dict[Any, float]) -> None:
    assert set(counts) <= set(p)
    n = sum(counts.values())
    observed, expected = zip(*[(counts.get(key, 0), n * p[key]) for key in p], strict=True)
    assert chisquare(observed, expected).pvalue > 1e-4


def shares(row: Any, *, top: int) -> dict[int, float]:
    """Of the `top` likeliest tokens, renormalised."""
    best = np.argsort(-row, kind="stable")[:top]
    masses = np.exp(row[best].astype(np.float64) - row.max())
    return dict(zip(best.tolist(), (masses / masses.sum()).tolist(), strict=True))


@pytest.mark.parametrize("n_right", [0, 1, 2])
def test_draws_behind_a_draft_follow_the_plain_distribution(parts: Parts, n_right: int) -> None:
    """Two tokens, of which the first `n_right` were proposed as the model likes them best."""
    prompt, top = list(CONVERSATIONS[0][:9]), 3
    model, cache = parts.model, cache_of(parts.model)
    p: dict[Any, float] = {}
    best: list[int] = []
    model.prefill(prompt[:-1], cache)
    for first, p_first in shares(model.decode(prompt[-1:], cache)[0].copy(), top=top).items():
        row = np.asarray(model.decode([first], cache)[0])
        p.update({(first, t): p_first * share for t, share in shares(row, top=top).items()})
        best = best or [first, int(row.argmax())]
        cache.rollback(cache.length - 1)
    generator = parts.busy()
    counts: dict[tuple[int, ...], int] = {}
    n_accepted = 0
    for seed in range(1500):
        generator.begin_stream_ex(
            prompt,
            SamplingSettings(top_k=top, seed=seed),
            max_new_tokens=2,
            ignore_eos=True,
            prediction=[*best[:n_right], 5, 6],
        )
        results = run(generator)
        n_accepted += sum(result.n_accepted for result in results)
        pair = tuple(record.token_id for record in all_records(results))
        counts[pair] = counts.get(pair, 0) + 1
    assert_fits(counts, p)
    assert (n_accepted > 300) == (n_right > 0)


def test_draws_in_place_of_a_banned_string_follow_the_rest_of_the_distribution() -> None:
    pieces = [b"bad", b"one", b"worse", b"two", b"three"]
    generator = ScriptedModel([range(5), END]).generator(PieceVocabulary(pieces))
    counts: dict[int, int] = {}
    n_suppressed = 0
    for seed in range(2000):
        generator.begin_stream_ex(
            [1],
            SamplingSettings(top_k=5, temperature=2.0, seed=seed),
            banned_strings=["bad", "WORSE"],
            max_new_tokens=1,
        )
        results = run(generator)
        (record,) = records_of(results)
        counts[record.token_id] = counts.get(record.token_id, 0) + 1
        n_suppressed += any(result.suppressed for result in results)
    masses = {rank: math.exp(-rank / 2) for rank in (1, 3, 4)}
    assert_fits(counts, {rank: mass / sum(masses.values()) for rank, mass in masses.items()})
    assert n_suppressed > 1000


def test_the_busy_generator_is_busy(parts: Parts) -> None:
    """A check of the tests above: drafts come true, and copies are used."""
    generator = parts.busy()
    origins, sources = set(), set()
    for seed in range(12):
        prompt = [*CONVERSATIONS[seed % 2], *[seed] * (seed % 3)]
        prefill = generator.begin_stream_ex(prompt, SamplingSettings(temperature=0.0))
        sources.add(prefill.reuse.source)
        origins |= {record.origin for record in all_records(run(generator))}
    assert {"draft_model", "model"} <= origins
    assert {"memory", "none"} <= sources
