"""Server-Sent Events: encode one event, and the response that sends them.

Frames are `data: {json}` and a blank line, LF only, ASCII only: readers that split on "\\n\\n" or
on any Unicode line end see the same events. No id, event or retry lines: official clients choke on
them. A comment keeps an idle connection open after long silence, never between events that flow.
"""

import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from .errors import error_body
from .stream import forever

_logger = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encode_json(value: dict[str, Any]) -> bytes:
    """Compact JSON, ASCII."""
    return _encode(value).encode("ascii")


def encode_event(value: dict[str, Any]) -> bytes:
    """One event with `value` as its data."""
    return b"data: " + encode_json(value) + b"\n\n"


class EventStream(EventSourceResponse):
    """Sends encoded events until the iterator ends, the client hangs up, or it reads too slowly.

    An empty piece from `events` becomes a ping; an exception becomes an error event, and then the
    body ends without [DONE]. `on_close` is called exactly once, however the response ends.
    """

    def __init__(
        self,
        events: AsyncIterator[bytes],
        *,
        send_timeout: float | None,
        on_close: Callable[[], None],
    ) -> None:
        super().__init__(
            _with_errors(events),
            sep="\n",
            ping=0,
            send_timeout=send_timeout,
            headers={"cache-control": "no-store, no-transform"},
        )
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            _logger.info("dropped a client that did not read for %s s", self.send_timeout)
        finally:
            self._on_close()

    @staticmethod
    @override
    async def _listen_for_exit_signal() -> None:
        # The base class would cut every stream at SIGTERM, by a flag that all servers of the
        # process share. Running streams may finish: the server's own shutdown waits for them.
        await forever()


async def _with_errors(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for piece in events:
            yield piece or PING
    except Exception as error:
        _logger.warning("a stream ended early: %s", error, exc_info=True)
        yield encode_event(error_body(error))
