"""A stream is read the same wherever the network cuts it: by a browser, by openai-python and by
readers that look for the blank line themselves.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from openai._streaming import SSEDecoder

from tests.support.event_stream import EventStreamParser, parse_event_stream
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live_server

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "logprobs": True}
SCRIPT = 'é\n\n🧀"\r\ndata: x'.encode()
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": ("/v1/completions", {"prompt": "hello"}),
    "completion with logprobs": ("/v1/completions", {"prompt": "hello", "logprobs": 2}),
    "chat with usage": (
        "/v1/chat/completions",
        {**CHAT, "stream_options": {"include_usage": True}},
    ),
    "broken off": ("/v1/completions", {"prompt": "hello"}),
}


def browser(pieces: Sequence[bytes]) -> list[str]:
    parser = EventStreamParser()
    for piece in pieces:
        parser.feed(piece)
    assert parser.is_between_events
    return parser.parsed.data


def openai_python(pieces: Sequence[bytes]) -> list[str]:
    return [event.data for event in SSEDecoder().iter_bytes(iter(pieces))]


def blank_line(pieces: Sequence[bytes]) -> list[str]:
    """Reads as benchmarks do: each read is decoded by itself, an event is the text before a blank
    line, and a rest that is already whole JSON is used at once.
    """
    events, rest = [], ""
    for piece in pieces:
        *complete, rest = (rest + piece.decode()).split("\n\n")
        if _is_whole(rest):
            complete, rest = [*complete, rest], ""
        events += [event.strip() for event in complete if event.strip()]
    assert not rest.strip()
    assert all(event.startswith("data: ") for event in events)
    return [event.removeprefix("data: ") for event in events]


def _is_whole(event: str) -> bool:
    data = event.removeprefix("data: ").strip()
    try:
        return data == "[DONE]" or bool(json.loads(data))
    except ValueError:
        return False


READERS: list[Callable[[Sequence[bytes]], list[str]]] = [browser, openai_python, blank_line]


@pytest.fixture(scope="module")
def streams() -> dict[str, bytes]:
    fake = FakeEngine()
    fake.model.script = SCRIPT
    bodies = {}
    with live_server(fake.as_engine) as server:
        for name, (path, fields) in REQUESTS.items():
            if name == "broken off":
                fake.model.faults[4] = RuntimeError("broken")
            bodies[name] = server.post(path, {"model": "fake", "stream": True, **fields}).body
    return bodies


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", REQUESTS)
def test_no_cut_changes_what_is_read(
    streams: dict[str, bytes], name: str, reader: Callable[[Sequence[bytes]], list[str]]
) -> None:
    stream = streams[name]
    expected = parse_event_stream(stream).data
    assert len(expected) > 3
    assert reader([stream]) == expected
    assert reader([stream[i : i + 1] for i in range(len(stream))]) == expected
    for cut in range(1, len(stream)):
        assert reader([stream[:cut], stream[cut:]]) == expected, f"cut at byte {cut}"


def test_the_streams_end_as_they_should(streams: dict[str, bytes]) -> None:
    for name, stream in streams.items():
        last = parse_event_stream(stream).data[-1]
        assert ("error" in json.loads(last)) if name == "broken off" else (last == "[DONE]")


@pytest.mark.parametrize("reader", [browser, openai_python])
def test_comments_are_no_events_wherever_they_are_cut(
    streams: dict[str, bytes], reader: Callable[[Sequence[bytes]], list[str]]
) -> None:
    first, rest = streams["completion"].split(b"\n\n", 1)
    stream = b": ping\n\n" + first + b"\n\n: ping\n\n" + rest
    expected = parse_event_stream(stream).data
    assert expected == parse_event_stream(streams["completion"]).data
    for cut in range(1, len(stream)):
        assert reader([stream[:cut], stream[cut:]]) == expected, f"cut at byte {cut}"


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: a\r\ndata: b\r\n\r\n", ["a\nb"]),
        (b"data: a\rdata:b\r\r", ["a\nb"]),
        (b"data\n\ndata\ndata\n\ndata:", ["", "\n"]),
        (b"data:  two spaces\n\n", [" two spaces"]),
        (b": comment\n\nid: 1\n\nevent: e\ndata: x\n\n", ["x"]),
        (b"data: \xc3\xa9\xff\n\n", ["é\ufffd"]),
        (b"data: no blank line\n", []),
        (b"data : other field\n\n", []),
    ],
)
def test_the_parser_reads_as_the_standard_says(stream: bytes, data: list[str]) -> None:
    for cut in range(len(stream)):
        parser = EventStreamParser()
        parser.feed(stream[:cut])
        parser.feed(stream[cut:])
        assert parser.parsed.data == data
