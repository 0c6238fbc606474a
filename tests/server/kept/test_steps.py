"""Steps come back from their bytes exactly."""

import math

from hypothesis import given
from hypothesis import strategies as st

from engine import StopCondition, StreamResult, Suppressed, TokenRecord, TopToken, TraceStep
from server.kept.steps import steps_from_bytes, steps_to_bytes
from server.stream.jobs import Step

numbers = st.floats(allow_nan=False)
tops = st.builds(TopToken, st.integers(0), st.binary(max_size=4), numbers, numbers, numbers)
traces = st.builds(TraceStep, st.text(max_size=4), st.integers(0), st.booleans())
records = st.builds(
    TokenRecord,
    token_id=st.integers(0),
    token_bytes=st.binary(max_size=4),
    logprob=numbers,
    p_raw=numbers,
    top=st.lists(tops, max_size=2).map(tuple),
    origin=st.sampled_from(["model", "ngram"]),
    proposed=st.none() | st.integers(0),
    trace=st.lists(traces, max_size=2).map(tuple),
    watched=st.lists(numbers, max_size=2).map(tuple),
)
taken = st.builds(Suppressed, st.text(max_size=4), st.integers(0), st.integers(0))
results = st.fixed_dictionaries(
    {"chunk": st.text(max_size=8), "tokens": st.lists(records, max_size=2).map(tuple)},
    optional={
        "eos": st.just(True),
        "eos_reason": st.sampled_from(["length", "stop_string"]),
        "stop_string": st.text(max_size=4),
        "dropped": st.lists(records, max_size=2).map(tuple),
        "dropped_text": st.text(max_size=4),
        "suppressed": st.text(max_size=4),
        "taken_back": st.lists(taken, max_size=2).map(tuple),
        "stop_condition": st.builds(StopCondition, st.just("repeat"), numbers),
    },
).map(StreamResult)
steps = st.builds(Step, st.integers(0, 9), results, numbers, st.none() | st.just("time"))


@given(st.lists(steps, max_size=4))
def test_they_are_the_same_again(steps: list[Step]) -> None:
    again = steps_from_bytes(steps_to_bytes(steps))
    assert [_shown(step) for step in again] == [_shown(step) for step in steps]


def test_a_token_takes_few_bytes() -> None:
    plain = [
        Step(0, StreamResult({"chunk": "word ", "tokens": (_record(i),)}), i / 7)
        for i in range(500)
    ]
    assert len(steps_to_bytes(plain)) < 500 * 100


def _record(i: int) -> TokenRecord:
    p = (math.sin(i) + 1) / 2
    return TokenRecord(
        i, b"word ", 5 * i, 5 * i + 5, math.log(p + 1e-9), p, p**0.5, (), False, i % 7, p * 3,
        p / 3, 1.0, "model", None, (),
    )  # fmt: skip


def _shown(step: Step) -> str:
    return repr((step.choice, step.clock, step.stop_detail, vars(step.result)))
