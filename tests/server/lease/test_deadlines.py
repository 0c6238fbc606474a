"""What takes too long ends with a status before the first byte and with an event after it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine import AbortFlag
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import CHUNK, FakeEngine, fake_reply
from tests.support.live_server import Answer, LiveServer, live_server, read_answer, wait_until

PATH = "/v1/completions"
LIMIT = 1.0  # enough to reach the engine, on a machine with other work


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    fake = FakeEngine(max_seq_len=8192)
    yield fake
    # No work waits at a closed gate when the server stops.
    fake.model.prefill_gate.set()
    fake.model.decode_gate.set()
    assert fake.model.n_inside_max <= 1


def body(prompt: str, **fields: Any) -> dict[str, Any]:
    return {"model": "fake", "prompt": prompt, **fields}


def assert_next_is_exact(server: LiveServer) -> None:
    answer = server.post(PATH, body("the next request", max_tokens=30))
    assert answer.json["choices"][0]["text"] == fake_reply("the next request", 30)
    wait_until(lambda: not server.lease.busy)
    assert server.lease.n_waiting == 0


def assert_late(answer: Answer, code: str) -> None:
    assert (answer.status, answer.error["code"]) == (504, code)
    assert answer.error["type"] == "timeout_error"
    assert f"{LIMIT:g} s" in answer.error["message"]
    assert answer.headers["x-should-retry"] == "false"


@contextmanager
def engine_held(server: LiveServer) -> Iterator[None]:
    """Another request has the engine, without a limit."""
    gate = threading.Event()

    def hold(_: AbortFlag) -> None:
        gate.wait()

    server.lease.submit(hold, refuse=lambda _: None)
    wait_until(lambda: server.lease.busy)
    try:
        yield
        assert server.lease.busy
    finally:
        gate.set()


def last_error(answer: Answer) -> dict[str, Any]:
    """The error that ended a stream which had begun."""
    assert answer.status == 200
    parsed = parse_event_stream(answer.body)
    assert "[DONE]" not in parsed.data
    error: dict[str, Any] = parsed.chunks[-1]["error"]
    assert not any("error" in chunk for chunk in parsed.chunks[:-1])
    return error


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_waits_too_long_gets_an_error_and_never_runs(
    fake: FakeEngine, stream: bool
) -> None:
    with live_server(fake.as_engine, queue_timeout=LIMIT) as server:
        with engine_held(server):
            answer = server.post(PATH, body("second", max_tokens=3, stream=stream))
        assert (answer.status, answer.error["code"]) == (503, "queue_timeout")
        assert answer.error["type"] == "unavailable_error"
        assert f"{LIMIT:g} s" in answer.error["message"]
        assert int(answer.headers["retry-after-ms"]) > 0
        assert_next_is_exact(server)
    assert fake.model.n_prompts == 1, "the next one's"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["first_token_timeout", "request_timeout"])
def test_a_limit_counts_the_time_in_the_queue(fake: FakeEngine, kind: str, stream: bool) -> None:
    limits: dict[str, Any] = {kind: LIMIT}
    with live_server(fake.as_engine, **limits) as server:
        with engine_held(server):
            assert_late(server.post(PATH, body("second", max_tokens=3, stream=stream)), kind)
        assert_next_is_exact(server)
    assert fake.model.n_prompts == 1, "the next one's"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["first_token_timeout", "request_timeout"])
def test_a_prefill_that_takes_too_long_ends_at_its_next_chunk(
    fake: FakeEngine, kind: str, stream: bool
) -> None:
    limits: dict[str, Any] = {kind: LIMIT}
    with live_server(fake.as_engine, **limits) as server:
        fake.model.prefill_gate.clear()
        with server.send(PATH, body("x" * CHUNK * 100, max_tokens=3, stream=stream)) as sock:
            wait_until(lambda: server.running is not None and server.running.abort.is_set())
            assert server.lease.busy, "until the engine has left"
            fake.model.prefill_gate.set()
            assert_late(read_answer(sock), kind)
        assert fake.model.n_decoded == 0
        assert_next_is_exact(server)


def test_a_late_first_token_after_the_first_byte_is_an_event(fake: FakeEngine) -> None:
    with live_server(fake.as_engine, first_token_timeout=LIMIT) as server:
        fake.model.decode_gate.clear()
        ask = body("x" * CHUNK * 3, max_tokens=3, stream=True, return_progress=True)
        with server.send(PATH, ask) as sock:
            wait_until(lambda: server.running is not None and server.running.abort.is_set())
            fake.model.decode_gate.set()
            assert last_error(read_answer(sock))["code"] == "first_token_timeout"
        assert_next_is_exact(server)


def test_a_stream_that_takes_too_long_ends_with_the_error(fake: FakeEngine) -> None:
    with live_server(fake.as_engine, request_timeout=LIMIT) as server:
        fake.model.token_time = 0.005
        answer = server.post(PATH, body("endless", max_tokens=4000, stream=True))
        assert last_error(answer)["code"] == "request_timeout"
        chunks = parse_event_stream(answer.body).chunks[:-1]
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
        assert text == fake_reply("endless", len(text)), "what was said is exact"
        fake.model.token_time = 0.0
        assert_next_is_exact(server)


def test_a_whole_answer_that_takes_too_long_is_a_status(fake: FakeEngine) -> None:
    with live_server(fake.as_engine, request_timeout=LIMIT) as server:
        fake.model.token_time = 0.005
        assert_late(server.post(PATH, body("endless", max_tokens=4000)), "request_timeout")
        fake.model.token_time = 0.0
        assert_next_is_exact(server)


def test_a_first_token_in_time_is_all_that_its_limit_asks_for(fake: FakeEngine) -> None:
    with live_server(fake.as_engine, first_token_timeout=LIMIT) as server:
        fake.model.token_time = 0.005
        answer = server.post(PATH, body("slow", max_tokens=300))
        assert answer.json["choices"][0]["text"] == fake_reply("slow", 300)
