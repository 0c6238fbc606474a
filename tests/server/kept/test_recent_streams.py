"""The streams that are there unpacked besides: which ones, and that their memory is bounded."""

import pytest

from engine import SamplingSettings, Snapshot, StreamOptions, StreamResult
from server.kept.recent import RecentStreams
from server.kept.streams import KeptStream
from server.stream.jobs import Step


def test_the_ones_used_last_stay_unpacked() -> None:
    recent = RecentStreams(max_bytes=3 * _packed(RecentStreams(10**9)).n_unpacked_bytes)
    first, second, third = (_packed(recent) for _ in range(3))
    assert first.steps()  # read again, so the second one goes first
    fourth = _packed(recent)
    is_there = [each.n_unpacked_bytes > 0 for each in (first, second, third, fourth)]
    assert is_there == [True, False, True, True]
    assert recent.n_bytes == sum(each.n_unpacked_bytes for each in (first, third, fourth))


def test_one_that_let_go_is_the_same() -> None:
    recent = RecentStreams(max_bytes=10**6)
    stream = _packed(recent)
    place, steps = stream.place, stream.steps()
    stream.let_go()
    assert stream.place == place
    assert [(each.clock, vars(each.result)) for each in stream.steps()] == [
        (each.clock, vars(each.result)) for each in steps
    ]
    assert stream.n_unpacked_bytes, "it was read"


@pytest.mark.parametrize("max_bytes", [0, 100])
def test_one_that_is_too_large_does_not_stay(max_bytes: int) -> None:
    recent = RecentStreams(max_bytes)
    stream = _packed(recent)
    assert len(stream.steps()) == 5
    assert stream.n_unpacked_bytes == recent.n_bytes == 0


def test_one_that_goes_on_is_not_counted() -> None:
    recent = RecentStreams(max_bytes=10**6)
    stream = _packed(recent)
    stream.unpack(keeps_steps=True)
    assert len(stream.steps()) == 5
    assert stream.n_unpacked_bytes == recent.n_bytes == 0
    recent.forget(stream)
    assert recent.n_bytes == 0


def _packed(recent: RecentStreams) -> KeptStream:
    """A stream of five steps that has ended."""
    stream = KeptStream("id", 0, [1, 2])
    stream.on_unpacked = lambda: recent.used(stream)
    for i in range(5):
        stream.add(Step(0, StreamResult({"chunk": f"word {i} "}), i / 7))
    stream.pack(Snapshot.new([1, 2], SamplingSettings(seed=1), StreamOptions()))
    return stream
