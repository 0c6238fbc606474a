"""The lease: one at a time, in order, and the next gets in only after the last one has left."""

import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from engine import AbortFlag
from server.errors import QueueFullError, QueueTimeoutError, UnavailableError
from server.lease.deadlines import Deadline
from server.lease.lease import EngineLease, Ticket
from tests.support.fake_engine import CHUNK, FakeEngine
from tests.support.live_server import live_server, wait_until


class Diary:
    """Work that records when it runs, and holds the engine until it is released."""

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

    def names(self) -> str:
        """Those that were admitted, in order."""
        return "".join(line.split()[0] for line in self.lines if line.endswith(" in"))

    def submit(
        self,
        lease: EngineLease,
        name: str,
        *,
        held: bool = False,
        key: str = "",
        deadline: Deadline | None = None,
    ) -> Ticket:
        return lease.submit(
            self.work(name, held=held), refuse=self.refuse(name), key=key, deadline=deadline
        )


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
    with pytest.raises(QueueFullError, match="has no queue"):
        diary.submit(lease, "b")
    diary.gates["a"].set()
    await lease.close()


async def test_the_engine_is_free_once_the_end_was_reported(diary: Diary) -> None:
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


async def test_closing_refuses_the_waiting_and_aborts_the_running(diary: Diary) -> None:
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


async def test_a_dead_engine_thread_is_not_ready_and_refuses_the_waiting(
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
    assert diary.lines == ["b refused", "fatal refused"]


async def test_keys_take_turns(lease: EngineLease, diary: Diary) -> None:
    diary.submit(lease, "a", held=True, key="greedy")
    wait_until(lambda: lease.busy)
    tickets = [diary.submit(lease, name, key="greedy") for name in "bc"]
    tickets.append(diary.submit(lease, "d", key="polite"))
    assert [lease.position(ticket) for ticket in tickets] == [1, 2, 0]
    diary.gates["a"].set()
    wait_until(lambda: len(diary.lines) == 8)
    assert diary.names() == "adbc"
    assert [lease.position(ticket) for ticket in tickets] == [None] * 3


async def test_in_a_full_queue_the_key_with_most_gives_way(
    lease: EngineLease, diary: Diary
) -> None:
    diary.submit(lease, "a", held=True)
    wait_until(lambda: lease.busy)
    for name in "bcd":
        diary.submit(lease, name, key="greedy")
    diary.submit(lease, "e", key="polite")
    assert diary.lines[1:] == ["d refused"], "the newest of them"
    with pytest.raises(QueueFullError, match="3 requests wait"):
        diary.submit(lease, "f", key="polite")
    diary.gates["a"].set()
    wait_until(lambda: "c out" in diary.lines)
    assert diary.names() == "abec"


async def test_a_ticket_that_is_late_when_its_turn_comes_is_refused(
    lease: EngineLease, diary: Diary
) -> None:
    diary.submit(lease, "a", held=True)
    wait_until(lambda: lease.busy)
    late = diary.submit(lease, "b", deadline=Deadline(time.monotonic(), QueueTimeoutError("b")))
    diary.submit(lease, "c", deadline=Deadline(time.monotonic() + 600, QueueTimeoutError("c")))
    diary.gates["a"].set()
    wait_until(lambda: "c out" in diary.lines)
    assert diary.lines == ["a in", "a out", "b refused", "c in", "c out"]
    assert late.admitted_at is None
    assert late.freed_at is not None


async def test_queued_tickets_are_served_when_no_more_are_admitted(
    lease: EngineLease, diary: Diary
) -> None:
    diary.submit(lease, "a", held=True)
    diary.submit(lease, "b")
    lease.stop_admitting()
    assert not lease.ready
    with pytest.raises(UnavailableError, match="shutting down"):
        diary.submit(lease, "c")
    diary.gates["a"].set()
    wait_until(lambda: "b out" in diary.lines)


async def test_a_lost_engine_refuses_all_at_once_and_admits_none(
    lease: EngineLease, diary: Diary
) -> None:
    lease.on_failed = lambda: diary.lines.append("failed")
    ticket = diary.submit(lease, "a", held=True)
    wait_until(lambda: lease.busy)
    diary.submit(lease, "b")
    for _ in range(2):
        lease.fail(UnavailableError("the engine hangs"))
    assert diary.lines == ["a in", "b refused", "a refused", "failed"]
    assert ticket.abort.is_set()
    assert not lease.ready
    with pytest.raises(UnavailableError):
        diary.submit(lease, "c")
    diary.gates["a"].set()  # it comes back after all
    wait_until(lambda: not lease.busy)
    lease.start()
    assert not lease.ready, "it is lost for good"
    assert diary.names() == "a"


async def test_a_ticket_knows_its_times(lease: EngineLease, diary: Diary) -> None:
    first, second = diary.submit(lease, "a", held=True), diary.submit(lease, "b")
    wait_until(lambda: lease.busy)
    second.cancel()
    first.cancel()
    assert first.freed_at is None
    diary.gates["a"].set()
    wait_until(lambda: first.freed_at is not None)
    for ticket in (first, second):
        assert ticket.cancelled_at is not None
        assert ticket.freed_at is not None
        assert ticket.queued_at <= ticket.cancelled_at <= ticket.freed_at
    assert first.admitted_at is not None
    assert second.admitted_at is None


async def test_the_heart_beats_with_each_ticket_and_each_step(
    lease: EngineLease, diary: Diary
) -> None:
    def look_twice(abort: AbortFlag) -> None:
        assert not abort.is_set()
        assert not abort.is_set()

    beats = []
    for name in "ab":
        lease.submit(look_twice, refuse=diary.refuse(name))
        wait_until(lambda: not lease.busy and lease.n_waiting == 0)
        beats.append(lease.heartbeat)
    assert beats == [3, 6]


@pytest.mark.parametrize("stream", [False, True])
def test_the_heart_beats_with_each_token_and_each_chunk_of_any_prompt(stream: bool) -> None:
    with live_server(FakeEngine(max_seq_len=2048).as_engine) as server:
        body = {"model": "fake", "prompt": "x", "max_tokens": 1, "stream": stream}
        counts = []
        for more in (
            {"prompt": "y", "max_tokens": 100},
            {"prompt": "z" * CHUNK * 50},
            {"prompt": "w", "negative_prompt": "n" * CHUNK * 50, "cfg_scale": 2.0},
        ):
            before = server.lease.heartbeat
            assert server.post("/v1/completions", {**body, **more}).status == 200
            wait_until(lambda: not server.lease.busy)
            counts.append(server.lease.heartbeat - before)
        assert counts[0] >= 100
        assert min(counts[1:]) >= 50
