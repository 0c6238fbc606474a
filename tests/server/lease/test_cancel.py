"""A client that hangs up frees the engine within one step, and the next request does not notice."""

import random
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import CHUNK, FakeEngine, fake_reply
from tests.support.live_server import LiveServer, live_server, read_answer, wait_until

PATH = "/v1/completions"


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine(max_seq_len=8192)


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine) as server:
        yield server
        # No work waits at a closed gate when the server stops.
        fake.model.prefill_gate.set()
        fake.model.decode_gate.set()
    assert fake.model.n_inside_max <= 1, "two callers were inside the engine at once"


def body(prompt: str, **fields: Any) -> dict[str, Any]:
    return {"model": "fake", "prompt": prompt, **fields}


def assert_next_is_exact(server: LiveServer, prompt: str = "the next request") -> None:
    answer = server.post(PATH, body(prompt, max_tokens=30))
    assert answer.json["choices"][0]["text"] == fake_reply(prompt, 30)


def hang_up(sock: socket.socket, *, reset: bool) -> None:
    """Close the connection, with FIN or, as a crashed client does, with RST."""
    if reset:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def is_cancelled(server: LiveServer) -> bool:
    running = server.running
    return running is None or running.abort.is_set()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reset", [False, True])
def test_a_hang_up_in_the_queue_leaves_the_queue(
    fake: FakeEngine, server: LiveServer, stream: bool, reset: bool
) -> None:
    fake.model.decode_gate.clear()
    with server.send(PATH, body("first", max_tokens=3)) as first:
        wait_until(fake.model.in_decode.is_set)
        second = server.send(PATH, body("second", max_tokens=3, stream=stream))
        wait_until(lambda: server.lease.n_waiting == 1)
        hang_up(second, reset=reset)
        wait_until(lambda: server.lease.n_waiting == 0)
        fake.model.decode_gate.set()
        assert read_answer(first).json["choices"][0]["text"] == fake_reply("first", 3)
    assert_next_is_exact(server)
    assert fake.model.n_prompts == 2, "the second prompt never reached the engine"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reset", [False, True])
def test_a_hang_up_in_prefill_ends_it_at_the_next_chunk(
    fake: FakeEngine, server: LiveServer, stream: bool, reset: bool
) -> None:
    fake.model.prefill_gate.clear()
    sock = server.send(PATH, body("x" * CHUNK * 100, max_tokens=3, stream=stream))
    wait_until(fake.model.in_prefill.is_set)
    hang_up(sock, reset=reset)
    wait_until(lambda: is_cancelled(server))
    fake.model.prefill_gate.set()
    wait_until(lambda: not server.lease.busy)
    assert fake.model.n_decoded == 0, "no token was generated for a client that is gone"
    assert_next_is_exact(server)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reset", [False, True])
def test_a_hang_up_in_decode_ends_it_after_the_running_step(
    fake: FakeEngine, server: LiveServer, stream: bool, reset: bool
) -> None:
    fake.model.token_time = 0.01
    sock = server.send(PATH, body("first", max_tokens=4000, stream=stream))
    wait_until(lambda: fake.model.n_decoded >= 3)
    fake.model.decode_gate.clear()
    wait_until(lambda: fake.model.held_in_decode)
    n_decoded = fake.model.n_decoded
    hang_up(sock, reset=reset)
    wait_until(lambda: is_cancelled(server))
    assert server.lease.busy, "the engine is held until it has left native code"
    fake.model.decode_gate.set()
    wait_until(lambda: not server.lease.busy)
    assert fake.model.n_decoded == n_decoded + 1, "the step that ran was the last"
    fake.model.token_time = 0.0
    assert_next_is_exact(server)


def test_the_next_request_gets_in_only_after_the_engine_has_left_the_aborted_one(
    fake: FakeEngine, server: LiveServer
) -> None:
    fake.model.decode_gate.clear()
    first = server.send(PATH, body("first", max_tokens=100))
    wait_until(fake.model.in_decode.is_set)
    with server.send(PATH, body("second", max_tokens=5)) as second:
        wait_until(lambda: server.lease.n_waiting == 1)
        first.close()
        wait_until(lambda: is_cancelled(server))
        assert fake.model.n_prompts == 1
        fake.model.decode_gate.set()
        assert read_answer(second).json["choices"][0]["text"] == fake_reply("second", 5)


@pytest.mark.parametrize("stream", [False, True])
def test_clients_at_once_are_served_in_turn(
    fake: FakeEngine, server: LiveServer, stream: bool
) -> None:
    fake.model.token_time = 0.0005
    prompts = [f"prompt number {i}" for i in range(6)]
    texts: dict[str, str] = {}

    def ask(prompt: str) -> None:
        answer = server.post(PATH, body(prompt, max_tokens=40, stream=stream))
        chunks = parse_event_stream(answer.body).chunks if stream else [answer.json]
        texts[prompt] = "".join(chunk["choices"][0]["text"] for chunk in chunks)

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {prompt: fake_reply(prompt, 40) for prompt in prompts}


def test_a_storm_of_hang_ups_loses_nothing(fake: FakeEngine, server: LiveServer) -> None:
    chance = random.Random(5)
    fake.model.token_time = 0.0002
    for round_ in range(60):
        sock = server.send(
            PATH, body(f"storm {round_} " * 5, max_tokens=20, stream=chance.random() < 0.5)
        )
        wait_until(lambda: chance.random() < 0.3)
        hang_up(sock, reset=chance.random() < 0.5)
        if round_ % 10 == 9:
            assert_next_is_exact(server, f"after round {round_}")
    wait_until(lambda: not server.lease.busy and server.lease.n_waiting == 0)
    assert server.lease.ready


def test_shutting_down_lets_a_running_stream_end(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.decode_gate.clear()
    with server.send(PATH, body("first", max_tokens=20, stream=True)) as sock:
        wait_until(fake.model.in_decode.is_set)
        server.stop()
        fake.model.decode_gate.set()
        assert read_answer(sock).body.endswith(b"data: [DONE]\n\n")


def test_the_real_model_says_the_same_after_a_hang_up(bundled_engine: Engine) -> None:
    ask = {"model": "soliton-default", "prompt": "The little dog", "max_tokens": 40, "seed": 3}
    with live_server(bundled_engine) as server:
        alone = server.post(PATH, ask).json["choices"][0]["text"]
        for prompt in ("The little dog ran", "Something else altogether, and long: " * 20):
            sock = server.send(PATH, {**ask, "prompt": prompt, "max_tokens": 400, "stream": True})
            assert sock.recv(200).startswith(b"HTTP/1.1 200")
            sock.close()
            assert server.post(PATH, ask).json["choices"][0]["text"] == alone
