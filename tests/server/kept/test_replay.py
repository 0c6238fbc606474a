"""A stream once more: what banned strings took back is taken back again."""

from dataclasses import replace

import pytest

from engine import Engine, SamplingSettings, StreamOptions
from server.kept.replay import replayed
from server.stream.jobs import Step

PROMPT = [5, 17, 29, 41]
GREEDY = SamplingSettings(temperature=0.0, seed=1)
OPTIONS = StreamOptions(max_new_tokens=24, ignore_eos=True, max_tokens_per_call=1)


def banned_in(engine: Engine, first: int) -> str:
    """Text of three tokens of what the model would say."""
    stream = engine.generator.begin(PROMPT, GREEDY, OPTIONS)
    records = [record for _ in range(24) if not stream.ended for record in stream.step().tokens]
    return b"".join(each.token_bytes for each in records[first : first + 3]).decode()


@pytest.mark.parametrize("first", [1, 5])
def test_a_change_right_behind_a_banned_string(tiny_engine: Engine, first: int) -> None:
    """The piece before the change is too short for the string that was banned in it."""
    options = replace(OPTIONS, banned_strings=(banned_in(tiny_engine, first),))
    stream = tiny_engine.generator.begin(PROMPT, GREEDY, options)
    steps: list[Step] = []
    while not stream.ended:
        steps.append(Step(0, stream.step(), 0.0))
        place = stream.snapshot()
        is_behind = place.rewinds and place.n_tokens > place.rewinds[-1].n_tokens
        if is_behind and len(place.segments) == 1:
            stream.set(replace(stream.settings, temperature=0.5))
    place = stream.snapshot()
    assert place.rewinds, "the string was banned"
    assert len(place.segments) == 2
    assert replayed(place, steps, tiny_engine.generator.restore)[1] is None


def test_a_branch_that_ends_at_once(tiny_engine: Engine) -> None:
    """Its only token is no part of the text, and is drawn as the branch draws."""
    generator = tiny_engine.generator
    warm = SamplingSettings(temperature=1.5, seed=1)
    parent = generator.begin(PROMPT, warm, replace(OPTIONS, max_new_tokens=5))
    steps: list[Step] = []
    while not parent.ended:
        steps.append(Step(0, parent.step(), 0.0))
    place = parent.snapshot().changed(attempt=1)
    place = place.changed(options=replace(place.options, max_new_tokens=24, ignore_eos=False))
    (first,) = generator.restore(place).step().tokens
    options = replace(place.options, stop_token_ids=(first.token_id,))
    branch = generator.restore(place.changed(options=options))
    ended = branch.step()
    assert ended.stop_token_id == first.token_id
    recorded = [*steps, Step(0, ended, 0.0)]
    assert replayed(branch.snapshot(), recorded, generator.restore)[1] is None


@pytest.mark.parametrize("origin", ["forced", "injected"])
def test_a_branch_right_behind_a_given_token(tiny_engine: Engine, origin: str) -> None:
    """With its own first token, which is given too, it is one run of such tokens."""
    generator = tiny_engine.generator
    steps: list[Step] = []
    stream = generator.begin(PROMPT, GREEDY, OPTIONS)
    for n_tokens, token_id in ((3, 50), (4, 60)):
        while stream.snapshot().n_tokens < n_tokens:
            steps.append(Step(0, stream.step(), 0.0))
        place = stream.snapshot().changed(attempt=n_tokens)
        given = place.forced(token_id) if origin == "forced" else place.injected([token_id])
        stream = generator.restore(given)
    while not stream.ended:
        steps.append(Step(0, stream.step(), 0.0))
    place = stream.snapshot()
    assert [run[:2] for run in place.given] == [(3, 5)]
    assert replayed(place, steps, generator.restore)[1] is None
