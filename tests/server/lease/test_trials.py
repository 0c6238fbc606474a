"""Grammars that clients send to a real server: one is compiled at a time, while a client waits."""

import asyncio
import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import AbortFlag, ContextLengthError
from server.lease.deadlines import Deadlines, TimeLimits
from server.lease.trials import Trials
from server.lease.waiter import Waiter
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, read_answer, wait_until

PATH = "/v1/completions"
CPU_LIMIT_S = 3.0  # what each of these takes unless it is ended
TOOLS = [
    {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "object", "properties": {"a": {}}}},
    }
]


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "prompt": "x", "max_tokens": 3, **fields}


def exploding(number: int) -> dict[str, Any]:
    return body(guided_regex="a?" * 20_000 + f"c{number}")


@contextmanager
def waiting(server: LiveServer, n: int) -> Iterator[list[socket.socket]]:
    """This many clients with such a grammar each: one is being tried, and the others wait."""
    with ExitStack() as stack:
        socks = [stack.enter_context(server.send(PATH, exploding(i))) for i in range(n)]
        wait_until(lambda: trials(server).n_waiting == n - 1 and children())
        yield socks


def trials(server: LiveServer) -> Trials:
    found: Trials = server.app.state.trials
    return found


def children() -> list[str]:
    """The trial processes of this process."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        for pid in path.read_text().split():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_text()
            except OSError:
                continue
            found += [pid] * ("trial_child" in command)
    return found


def is_idle(server: LiveServer) -> bool:
    return not trials(server).busy and not trials(server).n_waiting and not children()


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_trials_end_with_their_clients_and_are_one_at_a_time() -> None:
    before = cpu_of_children()
    with live_server(FakeEngine().as_engine) as server:
        with waiting(server, 12):
            assert len(children()) == 1
            text = server.post("/tokenize", {"model": "fake", "prompt": "long " * 4000})
            assert text.status == 200
            assert server.post(PATH, body()).status == 200
            assert trials(server).n_waiting >= 10, "nobody else waits for them"
        wait_until(lambda: is_idle(server))
    assert cpu_of_children() - before < 2 * CPU_LIMIT_S, "hardly one was tried to its end"


def test_another_key_waits_for_one_trial_only() -> None:
    with (
        live_server(FakeEngine().as_engine, api_keys=["anna", "ben"]) as server,
        ExitStack() as all_,
    ):
        for number in range(8):
            sock = all_.enter_context(server.connect())
            send(server, sock, exploding(number), key="anna")
        wait_until(lambda: trials(server).n_waiting == 7)
        answer = server.post(PATH, body(guided_regex="[ab]{3}"), authorization="Bearer ben")
        assert answer.status == 200, answer.body
        assert trials(server).n_waiting >= 4


def send(server: LiveServer, sock: socket.socket, fields: dict[str, Any], *, key: str) -> None:
    data = json.dumps(fields).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {key}\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    sock.sendall(head.encode() + data)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (PATH, body(guided_regex="[ab]{3}")),
        (PATH, body(guided_choice=["one", "two"])),
        (
            "/v1/chat/completions",
            {
                "model": "fake",
                "messages": [{"role": "user", "content": "x"}],
                "tools": TOOLS,
                "tool_choice": "required",
                "max_tokens": 3,
            },
        ),
    ],
    ids=["known", "our own", "known tools"],
)
def test_what_takes_no_time_waits_for_no_trial(path: str, fields: dict[str, Any]) -> None:
    with live_server(FakeEngine().as_engine) as server:
        assert server.post(path, fields).status == 200
        with waiting(server, 6):
            assert server.post(path, fields).status == 200
            assert trials(server).n_waiting >= 4


def test_the_bound_of_the_queue_holds_for_trials() -> None:
    with live_server(FakeEngine().as_engine, max_queue=2) as server, waiting(server, 3):
        answer = server.post(PATH, exploding(9))
        assert (answer.status, answer.error["code"]) == (429, "queue_full")


def test_the_deadline_ends_a_trial_and_the_wait_for_one() -> None:
    before = cpu_of_children()
    with live_server(FakeEngine().as_engine, queue_timeout=0.5) as server:
        with waiting(server, 2) as socks:
            for sock in socks:
                answer = read_answer(sock)
                assert (answer.status, answer.error["code"]) == (503, "queue_timeout")
        wait_until(lambda: is_idle(server))
    assert cpu_of_children() - before < CPU_LIMIT_S


async def test_the_time_in_a_trial_counts() -> None:
    now = time.monotonic()
    deadlines = Deadlines(TimeLimits(queue=5.0, request=9.0), since=now - 4.0)
    assert deadlines.queue is not None
    assert deadlines.first == deadlines.queue
    assert deadlines.queue.at == pytest.approx(now + 1.0)


def test_the_end_of_the_app_ends_a_trial() -> None:
    before = cpu_of_children()
    with live_server(FakeEngine().as_engine) as server, waiting(server, 3) as socks:
        trials(server).end()
        for sock in socks:
            answer = read_answer(sock)
            assert (answer.status, answer.error["code"]) == (503, "unavailable")
        assert server.post(PATH, exploding(9)).status == 503
        wait_until(lambda: not children())
    assert cpu_of_children() - before < CPU_LIMIT_S


async def test_an_error_of_the_work_goes_to_its_waiter_alone() -> None:
    trials = Trials(max_queue=4)
    trials.start()

    async def hears_nothing() -> Any:
        await asyncio.Event().wait()

    def failing(error: BaseException) -> Callable[[AbortFlag], None]:
        def work(abort: AbortFlag) -> None:
            raise error

        return work

    waiter = Waiter("", hears_nothing, n_body=0)
    with pytest.raises(ContextLengthError):
        await trials.run(failing(ContextLengthError(1, 1)), waiter, None)
    with pytest.raises(Exception, match="the engine failed"):
        await trials.run(failing(SystemExit(3)), waiter, None)
    done: list[int] = []
    await trials.run(lambda abort: done.append(1), waiter, None)
    assert done == [1]
    await trials.close()
