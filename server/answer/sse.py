"""Server-Sent Events: encode one event, and the response that sends them.

Frames are `data: {json}` and a blank line, LF only, ASCII only: readers that split on "\\n\\n" or
on any Unicode line end see the same events. No id, event or retry lines, which official clients
choke on, but for events with names on the wires whose clients expect them. A comment keeps an idle
connection open after long silence, never between events that flow.
"""

import json
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

from sse_starlette.sse import EventSourceResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from ..errors import contained, error_body, is_callers_own
from ..http.slow_readers import SlowReaders
from ..lease.waiter import forever
from ..stream.stream import CompletionStream
from .shape import Encoder

_logger = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
_ITEMS_AT_ONCE = 4096

# Values are made by this server: they hold no cycle.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def encode_json(value: dict[str, Any] | list[Any]) -> bytes:
    """Compact JSON, ASCII."""
    return _encode(value).encode("ascii")


def encode_long_json(value: dict[str, Any]) -> bytes:
    """As encode_json, for long lists: in pieces, because one call holds the GIL to its end."""
    fields = (f"{_encode(name)}:{_in_pieces(item)}" for name, item in value.items())
    return f"{{{','.join(fields)}}}".encode("ascii")


def _in_pieces(value: Any) -> str:
    if not isinstance(value, list) or len(value) <= _ITEMS_AT_ONCE:
        return _encode(value)
    starts = range(0, len(value), _ITEMS_AT_ONCE)
    pieces = (_encode(value[start : start + _ITEMS_AT_ONCE])[1:-1] for start in starts)
    return f"[{','.join(pieces)}]"


def encode_event(value: dict[str, Any]) -> bytes:
    """One event with `value` as its data."""
    return b"data: " + encode_json(value) + b"\n\n"


def named_event(name: str, said: dict[str, Any]) -> bytes:
    """One event with a name, for wires whose clients expect it; its data has the name as `type`."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode_json({"type": name, **said}))


def error_event(error: Exception) -> bytes:
    """The last event of a stream that fails, as it is on OpenAI's routes."""
    return encode_event(error_body(error))


@dataclass(frozen=True, slots=True)
class Framing:
    """How a wire writes a stream, besides its events."""

    ping: bytes = PING
    """What is sent after long silence; nothing if it is empty."""
    media_type: str = "text/event-stream"


SSE = Framing()


def choice_encoder(head: dict[str, Any], tail: dict[str, Any]) -> Callable[[dict[str, Any]], bytes]:
    """Encodes a choice as the event `{**head, "choices": [choice], **tail}`.

    Only the choice differs from one token to the next, so all the rest is encoded here, once.
    """
    before = b"data: " + encode_json({**head, "choices": []})[:-2]
    after = b"]" + (b"," if tail else b"") + encode_json(tail)[1:] + b"\n\n"
    return lambda choice: before + encode_json(choice) + after


def text_encoder(
    encode: Callable[[dict[str, Any]], bytes], choice_of: Callable[[str], dict[str, Any]]
) -> Callable[[str], bytes]:
    """Encodes as `encode(choice_of(text))`, for choices that differ in their text alone.

    Encoding the string takes a tenth of the time of encoding the choice.
    """
    mark = uuid.uuid4().hex
    before, after = encode(choice_of(mark)).split(b'"%s"' % mark.encode())
    return lambda text: before + encode_basestring_ascii(text).encode("ascii") + after


class EventStream(EventSourceResponse):
    """Sends pieces of an event stream until they end or the client hangs up, or is dropped for not
    reading. `on_left` is called then, however the response ends; it is sent inside of `sending`.
    """

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        *,
        on_left: Callable[[], None] = lambda: None,
        sending: AbstractContextManager[None] | None = None,
        media_type: str = "text/event-stream",
    ) -> None:
        headers = {"cache-control": "no-store, no-transform"}
        super().__init__(pieces, ping=0, headers=headers, media_type=media_type)
        self._on_left = on_left
        self._sending = sending or nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._sending:
                await super().__call__(scope, receive, send)
        finally:
            self._on_left()

    @override
    async def _stream_response(self, send: Send) -> None:
        # The base class frames each piece anew, and opens a cancel scope for it. The connection
        # itself watches how long a client leaves one unread.
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        async for piece in self.body_iterator:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @staticmethod
    @override
    async def _listen_for_exit_signal() -> None:
        # The base class would cut every stream at SIGTERM, by a flag that all servers of the
        # process share. Running streams may finish: the server's own shutdown waits for them.
        await forever()


def prepare_streams() -> None:
    """Does what the first stream would otherwise wait for: sse-starlette imports the part of anyio
    that the event loop needs when it is first used in one. Call it there.
    """
    EventStream(_never_sent())


async def _never_sent() -> AsyncIterator[bytes]:
    yield b""


def streamed(
    stream: CompletionStream,
    encoder: Encoder,
    *,
    ping_interval: float | None,
    readers: SlowReaders,
    framing: Framing = SSE,
) -> EventStream:
    """The events of a stream as they come. After `ping_interval` seconds of silence a ping is
    sent; an error becomes the last event. The stream is cancelled, however the response ends.
    """
    return EventStream(
        _pieces(stream, encoder, ping_interval if framing.ping else None, framing.ping),
        on_left=stream.cancel,
        sending=readers.sending(stream),
        media_type=framing.media_type,
    )


async def _pieces(
    stream: CompletionStream,
    encoder: Encoder,
    ping_interval: float | None,
    ping: bytes,
) -> AsyncIterator[bytes]:
    try:
        async for events in stream.results(idle=ping_interval):
            piece = contained(encoder.frames, events) if events else ping
            if events and stream.ends_with(events[-1]):
                piece += contained(encoder.closing, stream)  # ready together, sent together
            if piece:
                yield piece
    except Exception as error:
        if not is_callers_own(error):
            text = "the stream of request %s ended early: %s"
            _logger.warning(text, stream.request_id, error, exc_info=True)
        yield encoder.failed(error)
