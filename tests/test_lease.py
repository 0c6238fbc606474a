"""The lease: one at a time, in order, and nobody gets in before the last one has left."""

import threading
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import AbortFlag
from server.errors import QueueFullError, UnavailableError
from server.lease import EngineLease, Ticket
from tests.live_server import wait_until


class Diary:
    """Work that writes down when it runs, and holds the engine until it is let go."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.inside = 0
        self.inside_max = 0
        self.gates: dict[str, threading.Event] = {}

    def work(self, name: str, *, held: bool = False) -> Callable[[AbortFlag], None]:
        gate = self.gates[name] = threading.Event()
        if not held:
            gate.set()

        def run(abort: AbortFlag) -> None:
            self.inside += 1
            self.inside_max = max(self.inside_max, self.inside)
            self.lines.append(f"{name} in")
            gate.wait()
            self.lines.append(f"{name} out{' aborted' if abort.is_set() else ''}")
            self.inside -= 1

        return run

    def refuse(self, name: str) -> Callable[[Exception], None]:
        return lambda error: self.lines.append(f"{name} refused")

    def submit(self, lease: EngineLease, name: str, *, held: bool = False) -> Ticket:
        return lease.submit(self.work(name, held=held), refuse=self.refuse(name))


@pytest.fixture
async def lease() -> AsyncIterator[EngineLease]:
    lease = EngineLease(max_queue=3)
    lease.start()
    yield lease
    await lease.close()


@pytest.fixture
def diary() -> Diary:
    return Diary()


async def test_tickets_are_served_in_order_of_arrival(lease: EngineLease, diary: Diary) -> None:
    diary.submit(lease, "a", held=True)
    wait_until(lambda: diary.lines == ["a in"])
    for name in "bcd":
        diary.submit(lease, name)
    diary.gates["a"].set()
    wait_until(lambda: len(diary.lines) == 8)
    assert diary.lines == [f"{name} {way}" for name in "abcd" for way in ("in", "out")]


async def test_a_cancelled_waiter_leaves_at_once_and_never_runs(
    lease: EngineLease, diary: Diary
) -> None:
    diary.submit(lease, "a", held=True)
    wait_until(lambda: lease.busy)
    second, _ = diary.submit(lease, "b"), diary.submit(lease, "c")
    assert second.cancel(), "b waited, so it will never run"
    assert lease.n_waiting == 1
    assert not second.cancel(), "cancelling again changes nothing"
    diary.gates["a"].set()
    wait_until(lambda: "c out" in diary.lines)
    assert diary.lines == ["a in", "a out", "c in", "c out"]


async def test_a_cancelled_holder_keeps_the_engine_until_it_has_left(
    lease: EngineLease, diary: Diary
) -> None:
    first = diary.submit(lease, "a", held=True)
    wait_until(lambda: lease.busy)
    diary.submit(lease, "b")
    assert not first.cancel(), "a runs: it ends by itself, having seen its flag"
    assert first.abort.is_set()
    assert lease.busy, "the flag alone frees nothing"
    assert diary.lines == ["a in"]
    diary.gates["a"].set()
    wait_until(lambda: "b out" in diary.lines)
    assert diary.lines == ["a in", "a out aborted", "b in", "b out"]


async def test_a_full_queue_refuses_and_a_place_given_up_is_free_again(
    lease: EngineLease, diary: Diary
) -> None:
    diary.submit(lease, "a", held=True)
    tickets = [diary.submit(lease, name) for name in "bcd"]
    with pytest.raises(QueueFullError, match="3 requests wait"):
        diary.submit(lease, "e")
    tickets[1].cancel()
    diary.submit(lease, "e")
    diary.gates["a"].set()
    wait_until(lambda: "e out" in diary.lines)
    assert not any(line.startswith("c") for line in diary.lines)


async def test_without_a_queue_one_may_run_and_none_wait(diary: Diary) -> None:
    lease = EngineLease(max_queue=0)
    lease.start()
    diary.submit(lease, "a", held=True)
    with pytest.raises(QueueFullError):
        diary.submit(lease, "b")
    diary.gates["a"].set()
    await lease.close()


async def test_whoever_is_told_the_end_finds_the_engine_free(diary: Diary) -> None:
    lease = EngineLease(max_queue=0)
    lease.start()
    told: list[bool] = []
    lease.submit(
        diary.work("a"), refuse=diary.refuse("a"), released=lambda: told.append(lease.busy)
    )
    wait_until(lambda: told)
    assert told == [False]
    assert diary.lines == ["a in", "a out"]
    await lease.close()


async def test_closing_refuses_who_waits_and_aborts_who_runs(diary: Diary) -> None:
    lease = EngineLease(max_queue=3)
    lease.start()
    ticket = diary.submit(lease, "a", held=True)
    wait_until(lambda: lease.busy)
    diary.submit(lease, "b")
    threading.Timer(0.05, diary.gates["a"].set).start()
    await lease.close()
    assert ticket.abort.is_set()
    assert diary.lines == ["a in", "b refused", "a out aborted"]
    assert not lease.ready
    with pytest.raises(UnavailableError):
        diary.submit(lease, "c")


async def test_a_lease_that_was_not_started_takes_no_work(diary: Diary) -> None:
    with pytest.raises(UnavailableError):
        diary.submit(EngineLease(max_queue=1), "a")


async def test_a_lease_can_be_started_again(diary: Diary) -> None:
    lease = EngineLease(max_queue=1)
    for name in "ab":
        lease.start()
        diary.submit(lease, name)
        wait_until(lambda name=name: f"{name} out" in diary.lines)  # type: ignore[misc]
        await lease.close()


async def test_work_that_raises_leaves_the_engine_to_the_next(
    lease: EngineLease, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(abort: AbortFlag) -> None:
        raise RuntimeError("broken")

    lease.submit(broken, refuse=diary.refuse("broken"))
    diary.submit(lease, "b")
    wait_until(lambda: "b out" in diary.lines)
    assert "must not raise" in caplog.text
    assert lease.ready


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_dead_engine_thread_is_not_ready_and_refuses_who_waits(
    lease: EngineLease, diary: Diary
) -> None:
    died = threading.Event()

    def fatal(abort: AbortFlag) -> None:
        diary_gate.wait()
        died.set()
        raise SystemExit

    diary_gate = threading.Event()
    lease.submit(fatal, refuse=diary.refuse("fatal"))
    diary.submit(lease, "b")
    diary_gate.set()
    wait_until(lambda: died.is_set() and not lease.ready and diary.lines)
    assert diary.lines == ["b refused"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["cancel", "finish", "submit"]), st.integers(0, 9))))
def test_any_order_of_events_keeps_one_owner_and_strands_nobody(
    events: list[tuple[str, int]],
) -> None:
    lease, diary = EngineLease(max_queue=100), Diary()
    lease.start()
    tickets: dict[str, Ticket] = {}
    gone: set[str] = set()
    for event, number in events:
        name = f"t{number}"
        if event == "submit" and name not in tickets:
            tickets[name] = diary.submit(lease, name, held=True)
        elif event == "cancel" and name in tickets and tickets[name].cancel():
            gone.add(name)
        elif event == "finish" and name in tickets:
            diary.gates[name].set()
    for gate in diary.gates.values():
        gate.set()
    served = [name for name in tickets if name not in gone]
    wait_until(lambda: sum(" out" in line for line in diary.lines) == len(served))
    assert [line.split()[0] for line in diary.lines if line.endswith(" in")] == served
    assert diary.inside_max <= 1
    assert lease.n_waiting == 0
