"""The bytes of a stream, as strict readers see them."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sse_starlette.sse import AppStatus

from server.answer.sse import choice_encoder, text_encoder
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.live_server import LiveServer, live_server, read_answer, wait_until

PATHS = ["/v1/completions", "/v1/chat/completions"]
NASTY = "a\rb\nc\r\nd\n\ne\x00f\u0085g\u2028h\u2029i data: x\n\nid: 7\nevent: e\n\n[DONE]\ufeff é🧀"


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine) as server:
        yield server
        fake.model.decode_gate.set()


def body(path: str, **fields: Any) -> dict[str, Any]:
    prompt: dict[str, Any] = (
        {"prompt": "hello"}
        if path == PATHS[0]
        else {"messages": [{"role": "user", "content": "hello"}]}
    )
    return {"model": "fake", "max_tokens": 100, "stream": True, **prompt, **fields}


def text_of(chunks: list[Any]) -> str:
    choices = [chunk["choices"][0] for chunk in chunks]
    return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices)


@pytest.mark.parametrize("path", PATHS)
def test_the_headers_of_a_stream(server: LiveServer, path: str) -> None:
    headers = server.post(path, body(path)).headers
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "no-store" in headers["cache-control"]
    assert headers["x-accel-buffering"] == "no"
    assert headers["x-request-id"].startswith("req_")
    assert "content-encoding" not in headers


@pytest.mark.parametrize("path", PATHS)
def test_frames_are_data_lines_ended_by_two_line_feeds(
    fake: FakeEngine, server: LiveServer, path: str
) -> None:
    fake.model.script = NASTY.encode()
    raw = server.post(path, body(path, logprobs=True if "chat" in path else 2)).body
    assert re.fullmatch(rb"(data: \{[\x20-\x7e]*\}\n\n)+data: \[DONE\]\n\n", raw)
    frames = raw.decode("ascii").split("\n\n")
    assert len(frames) == len(parse_event_stream(raw).data) + 1, "a naive reader sees the same"
    assert b'", "' not in raw, "the JSON is compact"


@pytest.mark.parametrize("path", PATHS)
def test_no_text_can_break_the_framing(fake: FakeEngine, server: LiveServer, path: str) -> None:
    fake.model.script = NASTY.encode()
    parsed = parse_event_stream(server.post(path, body(path)).body)
    assert text_of(parsed.chunks) == NASTY
    assert parsed.other_fields == []
    assert parsed.comments == []


def test_a_text_alone_is_encoded_as_its_choice_is() -> None:
    def choice(text: str) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None}

    encode = choice_encoder({"id": '""', "model": "m"}, {"usage": None})
    encode_text = text_encoder(encode, choice)
    for text in ("", " a", '"', NASTY):
        assert encode_text(text) == encode(choice(text))


def test_what_the_client_names_cannot_break_the_framing(server: LiveServer) -> None:
    raw = server.post(PATHS[0], body(PATHS[0], **{"x\n\ndata: evil\r\u2028": 1})).body
    parsed = parse_event_stream(raw)
    assert parsed.chunks[0]["warnings"][0]["param"] == "x\n\ndata: evil\r\u2028"
    assert text_of(parsed.chunks) == fake_reply("hello", 100)


@pytest.mark.parametrize("path", PATHS)
def test_a_token_is_sent_before_the_next_one_is_made(
    fake: FakeEngine, server: LiveServer, path: str
) -> None:
    fake.model.token_time = 0.02
    with server.send(path, body(path, max_tokens=8)) as sock:
        received = b""
        while b"data: {" not in received:
            received += sock.recv(4096)
        assert fake.model.n_decoded < 8
        fake.model.token_time = 0.0
        while not received.endswith(b"0\r\n\r\n"):
            received += sock.recv(4096)
    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_tokens_that_are_faster_than_the_rest_share_a_block(server: LiveServer) -> None:
    with server.send(PATHS[0], body(PATHS[0])) as sock:
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += sock.recv(4096)
    blocks = chunks_of(received)
    events = parse_event_stream(b"".join(blocks)).chunks
    assert text_of(events) == fake_reply("hello", 100)
    assert len(events) >= 100
    assert len(blocks) < 100
    assert all(block.endswith(b"\n\n") for block in blocks if block), "an event is never divided"


def test_silence_is_broken_by_comments_only_when_it_lasts(fake: FakeEngine) -> None:
    path = PATHS[0]
    with live_server(fake.as_engine, ping_interval=0.05) as server:
        flowing = parse_event_stream(server.post(path, body(path, max_tokens=20)).body)
        assert flowing.comments == []
        fake.model.token_time = 0.02
        with server.send(path, body(path, max_tokens=5)) as sock:
            wait_until(lambda: fake.model.n_decoded >= 22)
            fake.model.decode_gate.clear()
            received = b""
            while b": ping\n\n" not in received:
                received += sock.recv(4096)
            fake.model.decode_gate.set()
            while not received.endswith(b"0\r\n\r\n"):
                received += sock.recv(4096)
    parsed = parse_event_stream(b"".join(chunks_of(received)))
    assert set(parsed.comments) == {"ping"}
    assert text_of(parsed.chunks) == fake_reply("hello", 5)
    assert parsed.data[-1] == "[DONE]"


def test_no_flag_of_another_server_in_the_process_cuts_a_stream(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AppStatus, "should_exit", True)
    parsed = parse_event_stream(server.post(PATHS[0], body(PATHS[0])).body)
    assert text_of(parsed.chunks) == fake_reply("hello", 100)


def test_stopping_one_server_leaves_the_other_alone(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.decode_gate.clear()
    with server.send(PATHS[0], body(PATHS[0], max_tokens=5)) as sock:
        wait_until(fake.model.in_decode.is_set)
        with live_server(FakeEngine().as_engine) as other:
            assert other.post(PATHS[0], body(PATHS[0])).body.endswith(b"data: [DONE]\n\n")
        fake.model.decode_gate.set()
        received = read_answer(sock).body
    assert text_of(parse_event_stream(received).chunks) == fake_reply("hello", 5)


def chunks_of(received: bytes) -> list[bytes]:
    """The chunks of a raw answer in chunked transfer coding; the last one is empty."""
    rest, chunks = received.partition(b"\r\n\r\n")[2], []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        chunks.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return chunks
