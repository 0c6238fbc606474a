"""An engine that hangs, dies or computes nonsense is lost at once; every client gets an error."""

import asyncio
import itertools
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine import AbortFlag
from server.lease.lease import EngineLease, Ticket
from server.lease.watchdog import Silence, Watchdog
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.fault_script import Hang, Point, Spoil
from tests.support.live_server import LiveServer, live_server, read_answer, wait_until

PATH = "/v1/completions"
HANG_S = 1.5


def body(prompt: str, **fields: Any) -> dict[str, Any]:
    return {"model": "fake", "prompt": prompt, "max_tokens": 8, **fields}


@contextmanager
def losing(fake: FakeEngine) -> Iterator[tuple[LiveServer, threading.Event]]:
    """A server, and an event that is set when the engine is lost, which happens once."""
    lost = threading.Event()
    n_lost = itertools.count()
    with live_server(fake.as_engine, hang_seconds=HANG_S) as server:

        def fail() -> None:
            assert not next(n_lost)
            lost.set()

        server.lease.on_failed = fail
        yield server, lost


def assert_lost(server: LiveServer) -> None:
    assert server.get("/health/ready").status == 503
    assert server.get("/health/live").status == 200
    assert server.post(PATH, body("another")).error["code"] == "unavailable"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", [("admit", 0), ("chunk", 1), ("token", 3)], ids=str)
def test_a_hang_is_an_error_for_all_and_logged_with_the_stacks(
    place: tuple[Point, int], stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fake, hang = FakeEngine(), Hang()
    fake.faults[place] = hang
    with losing(fake) as (server, lost):
        running = server.send(PATH, body("hangs " * 10, stream=stream))
        assert hang.begun.wait(20)
        waiting = server.send(PATH, body("waits", stream=stream))
        with running, waiting:
            wait_until(lambda: server.lease.n_waiting == 1)
            first, second = read_answer(running), read_answer(waiting)
        assert lost.wait(20)
        assert_lost(server)
        assert second.status == 503
        assert second.error["code"] == "unavailable"
        if stream and place[0] == "token":
            *before, last = parse_event_stream(first.body).chunks
            assert last["error"]["code"] == "unavailable"
            text = "".join(chunk["choices"][0]["text"] for chunk in before)
            assert text == fake_reply("hangs " * 10, 3)
        else:
            assert (first.status, first.error["code"]) == (503, "unavailable")
        hang.release()
    record = next(record for record in caplog.records if record.name == "server.lease.watchdog")
    assert "the engine hangs" in record.getMessage()
    assert "thread engine:" in record.getMessage()
    assert "fault_script.py" in record.getMessage()
    assert fake.model.n_inside_max == 1


def test_an_event_loop_that_hangs_is_lost_too(caplog: pytest.LogCaptureFixture) -> None:
    fake, hang = FakeEngine(), Hang()
    fake.faults["tokenize", 0] = hang  # of a short text: on the event loop
    with losing(fake) as (server, lost), server.send(PATH, body("x")) as sock:
        assert lost.wait(30)
        hang.release()
        assert read_answer(sock).status == 503
        assert_lost(server)
    assert "the event loop hangs" in caplog.text


def test_an_engine_thread_that_dies_is_an_error_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = EngineLease.submit

    def die(abort: AbortFlag) -> None:
        raise SystemExit

    def submit_death(lease: EngineLease, work: object, **options: Any) -> Ticket:
        return submit(lease, die, **options)

    monkeypatch.setattr(EngineLease, "submit", submit_death)
    with losing(FakeEngine()) as (server, lost):
        answer = server.post(PATH, body("x", stream=True))
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        assert lost.wait(20)
        assert_lost(server)


def test_three_broken_completions_in_a_row_lose_the_engine() -> None:
    fake = FakeEngine()

    def ask(server: LiveServer, *, broken: bool) -> int:
        if broken:
            fake.faults[2] = Spoil(math.nan)
        answer = server.post(PATH, body("x"))
        if broken:
            assert answer.error["code"] == "engine_numerics"
        return answer.status

    with losing(fake) as (server, lost):
        assert [ask(server, broken=broken) for broken in (True, True, False)] == [500, 500, 200]
        assert [ask(server, broken=True) for _ in range(2)] == [500, 500]
        assert server.get("/health/ready").status == 200
        assert ask(server, broken=True) == 500
        assert lost.wait(20)
        assert_lost(server)


def test_silence_is_too_long_after_the_limit_or_many_times_what_was_normal() -> None:
    silence = Silence(60.0)
    assert not any(silence.is_too_long(0, 1.0, expected=False) for _ in range(1000)), "idle"
    assert [silence.is_too_long(1, 1.0) for _ in range(62)].index(True) == 61
    silence = Silence(60.0)
    for _ in range(5):
        assert not silence.is_too_long(1, 1.0)
    assert not silence.is_too_long(2, 1.0)
    assert [silence.is_too_long(2, 1.0) for _ in range(82)].index(True) == 80, "20 times 4 s"


def test_a_long_silence_is_forgotten() -> None:
    silence, sign = Silence(60.0), 0

    def patience() -> int:
        nonlocal sign
        sign += 1
        silence.is_too_long(sign, 1.0)
        return [silence.is_too_long(sign, 1.0) for _ in range(2000)].index(True)

    def signs(n: int) -> None:
        nonlocal sign
        for _ in range(n):
            sign += 1
            silence.is_too_long(sign, 1.0)

    assert not any(silence.is_too_long(0, 1.0) for _ in range(50))
    assert 950 < patience() <= 1000, "20 times 50 s"
    silence = Silence(60.0)
    assert not any(silence.is_too_long(0, 1.0) for _ in range(50))
    signs(600)
    assert 450 < patience() <= 500, "half of it"
    silence = Silence(60.0)
    assert not any(silence.is_too_long(0, 1.0) for _ in range(50))
    signs(3600)
    assert patience() == 60, "an hour later it is as it was at first"


async def test_a_process_that_stood_still_has_not_hung() -> None:
    # The first looks are 1000 s apart, all others come at the same time.
    clock = itertools.chain([0.0, 1000.0, 2000.0, 3000.0], itertools.repeat(3000.0))
    lease = EngineLease(max_queue=1)
    watchdog = Watchdog(lease, hang_seconds=0.4, clock=lambda: next(clock))
    looks, n_looks = threading.Event(), itertools.count()
    watchdog.on_tick = lambda: looks.set() if next(n_looks) > 5 else None
    lease.start()
    begun, gate = threading.Event(), threading.Event()

    def work(abort: AbortFlag) -> None:
        begun.set()
        gate.wait()

    lease.submit(work, refuse=lambda error: None)
    assert await asyncio.to_thread(begun.wait, 20)
    with watchdog.watching():
        await asyncio.to_thread(looks.wait, 20)
    assert looks.is_set()
    assert lease.ready, "of each pause only two ticks count"
    gate.set()
    await lease.close()
