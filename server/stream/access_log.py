"""The access log: one line per request when it has ended, with its id, status, tokens and times.

Owns the line. It shows nothing of a body, a header or a query; of the path and the method only
characters that cannot be mistaken for another field or line. Nothing runs per token.
"""

import logging
import re
import time
from collections.abc import Iterator
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import error_body
from .stream import CompletionStream

_logger = logging.getLogger(__name__)
_logger.setLevel(logging.INFO)  # asked for by name: --log-level does not silence it

_LONGEST = 128
_UNSAFE = re.compile(r"[^!-~]|[\"'\\=]")


class AccessLog:
    """The outermost ASGI middleware. A route that generates puts its CompletionStream into
    `scope["state"]["stream"]`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        arrived = time.perf_counter()
        try:
            await self._app(scope, receive, send)
        finally:
            seconds = time.perf_counter() - arrived
            # Not kept longer: an idle connection keeps the scope of its last request.
            stream: CompletionStream | None = state.pop("stream", None)
            try:
                if stream is not None:
                    await stream.left()
            finally:
                _logger.info("%s", " ".join(_fields(scope, state, stream, seconds)))


def log_refused(status: int) -> None:
    """The line for what the connection refused before it was a request."""
    _logger.info("id=- method=- path=- status=%d", status)


def _fields(
    scope: Scope, state: dict[str, Any], stream: CompletionStream | None, seconds: float
) -> Iterator[str]:
    yield f"id={state.get('request_id', '-')}"
    yield f"method={_safe(scope['method'])}"
    yield f"path={_safe(scope['raw_path'].decode('latin-1'))}"
    # The connection may have answered in place of the app.
    yield f"status={state.get('refused') or state.get('status') or '-'}"
    if stream is not None:
        ticket, counts, clocks = stream.ticket, stream.counts, stream.clocks
        left_queue = ticket.admitted_at or ticket.freed_at or time.monotonic()
        yield f"prompt={counts.n_prompt} cached={counts.n_cached}"
        yield f"completion={counts.n_completion} end={_end(stream)}"
        yield f"queue_ms={_ms(left_queue - ticket.queued_at)}"
        yield f"prefill_ms={_ms(clocks.prefill_s)} decode_ms={_ms(clocks.decode_s)}"
    yield f"total_ms={_ms(seconds)}"


def _end(stream: CompletionStream) -> str:
    """Why the generation ended: the engine's words for each choice, or the code of an error."""
    if stream.was_abandoned:
        return "client_disconnected"
    if stream.error is not None:
        error = error_body(stream.error)["error"]
        return str(error["code"] or error["type"])
    return ",".join(dict.fromkeys(end.eos_reason for end in stream.ends))


def _safe(text: str) -> str:
    return _UNSAFE.sub("?", text[:_LONGEST]) + ("…" if len(text) > _LONGEST else "")


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"
