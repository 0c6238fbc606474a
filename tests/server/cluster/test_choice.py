"""Which replica is chosen: the one of the least expected time to the first token."""

from typing import Any

import pytest

from server.cluster.choice import Candidate, Standing, ranked
from server.cluster.prompt_steps import STEP_BYTES, prompt_of
from server.cluster.routed import Prompt

SECRET = b"s" * 32
STEPS = tuple(bytes([i] * 8) for i in range(8))
PROMPT = Prompt(STEPS, 8 * STEP_BYTES + 100)


def standing(**said: object) -> Standing:
    return Standing(**{"byte_s": 1e-4, "request_s": 1.0, **said})  # type: ignore[arg-type]


def test_a_kept_prompt_is_worth_what_computing_it_takes() -> None:
    keeps, has_nothing = standing(kept=frozenset(STEPS)), standing()
    assert ranked([Candidate(has_nothing), Candidate(keeps)], PROMPT) == [1, 0]


@pytest.mark.parametrize(("request_s", "expected"), [(0.1, [0, 1]), (1.0, [1, 0])])
def test_a_queue_outweighs_it_when_it_takes_longer(request_s: float, expected: list[int]) -> None:
    """4096 kept bytes at 0.1 ms are 0.41 s."""
    keeps = standing(kept=frozenset(STEPS), n_queued=1, request_s=request_s)
    assert ranked([Candidate(keeps), Candidate(standing())], PROMPT) == expected


def test_only_a_beginning_counts() -> None:
    middle = Candidate(standing(kept=frozenset(STEPS[1:])))
    first = Candidate(standing(kept=frozenset(STEPS[:1])))
    assert middle.n_kept(PROMPT) == 0
    assert first.n_kept(PROMPT) == STEP_BYTES
    assert ranked([middle, first], PROMPT) == [1, 0]


def test_what_was_sent_lately_counts_as_kept_and_as_queued() -> None:
    sent = Candidate(standing(), n_sent=0, sent=frozenset(STEPS))
    assert sent.n_kept(PROMPT) == 8 * STEP_BYTES
    busy = Candidate(standing(n_queued=1), n_sent=3)
    assert ranked([busy, Candidate(standing(n_queued=2))], PROMPT) == [1, 0]


def test_equals_take_turns() -> None:
    candidates = [Candidate(standing(), last=7), Candidate(standing(), last=3)]
    assert ranked(candidates, PROMPT) == [1, 0]


def test_what_measurements_differ_by_does_not_count() -> None:
    """Else the one that happened to be measured fastest would get all new conversations."""
    fast, slow = standing(byte_s=1.0e-4), standing(byte_s=1.2e-4)
    assert ranked([Candidate(fast, last=2), Candidate(slow, last=1)], PROMPT) == [1, 0]
    keeps = standing(byte_s=1.2e-4, kept=frozenset(STEPS[:1]))
    assert ranked([Candidate(fast, last=1), Candidate(keeps, last=2)], PROMPT) == [1, 0]


def test_without_measurements_those_of_the_others_count() -> None:
    slow = standing(kept=frozenset(STEPS), byte_s=1e-2, request_s=1.0, n_queued=1)
    new = Standing()
    assert ranked([Candidate(slow), Candidate(new)], PROMPT) == [0, 1]


def test_a_standing_travels() -> None:
    told = standing(kept=frozenset(STEPS), n_queued=3)
    assert Standing.from_stats(told.to_stats()) == told


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"n_queued": -1},
        {"n_queued": "3"},
        {"byte_s": float("nan")},
        {"request_s": "soon"},
        {"kept": "text"},
        {"kept": b"123"},
    ],
)
def test_nonsense_is_refused(nonsense: dict[str, object]) -> None:
    stats = {**Standing().to_stats(), **nonsense} if nonsense else {}
    with pytest.raises(ValueError, match=next(iter(nonsense), "n_queued")):
        Standing.from_stats(stats)


def test_turns_of_a_conversation_begin_alike_and_callers_do_not() -> None:
    first = {"messages": [{"role": "user", "content": "a" * 2000}]}
    reply = {"role": "assistant", "content": "b" * 700}
    parts = [{"type": "text", "text": "a" * 2000}]
    second = {"messages": [{"role": "user", "content": parts}, reply]}
    one, two = (prompt_of(body, secret=SECRET, caller="") for body in (first, second))
    assert one is not None
    assert two is not None
    assert len(one.steps) == 3
    assert two.steps[:3] == one.steps
    assert len(two.steps) > 4
    for other in (
        prompt_of(first, secret=b"t" * 32, caller=""),
        prompt_of(first, secret=SECRET, caller="another"),
        prompt_of({**first, "cache_salt": "mine"}, secret=SECRET, caller=""),
    ):
        assert other is not None
        assert not set(other.steps) & set(one.steps), "these hashes would tell what others ask"


def test_what_is_no_prompt_has_none() -> None:
    bodies: list[Any] = [None, [], {}, {"prompt": ""}, {"content": "x"}]
    for body in bodies:
        assert prompt_of(body, secret=SECRET, caller="") is None
