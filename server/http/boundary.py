"""The outermost layer of the app: what applies to every request, whatever its route.

Every response carries an x-request-id, the client's own if it is well-formed, and the time until
it began. No body is read beyond the limit or decompressed. HEAD is answered like GET. An unexpected
exception becomes the usual error envelope and a line in the log with that id. A callback reports
every request that has ended.
"""

import logging
import re
import time
import uuid
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import EncodedBodyError, error_response, is_out_of_memory

_logger = logging.getLogger(__name__)

# Encodings that an error may name; it repeats nothing else that a client sent.
_ENCODINGS = frozenset({"br", "compress", "deflate", "gzip", "x-compress", "x-gzip", "zstd"})

# An id of a client: printable ASCII without spaces, so that it stays one word in a header and in
# the log.
_CLIENT_ID = re.compile(rb"[!-~]{1,128}")


class Boundary:
    """ASGI middleware: request id, body limit, last resort.

    `scope["state"]` has the `request_id`, and in the end the `status` of the answer, 0 without one.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_body_bytes: int,
        on_answered: Callable[[Scope, int, float], None],
    ) -> None:
        """`on_answered` receives the scope, the status and the seconds of each finished request."""
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._on_answered = on_answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _client_id(scope) or f"req_{uuid.uuid4().hex}"
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # the protocol knows that it was HEAD: no body
        arrived = time.perf_counter()
        status = 0  # until the answer starts

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                elapsed = time.perf_counter() - arrived
                headers["openai-processing-ms"] = str(round(1000 * elapsed))
            await send(message)

        try:
            await self._app(scope, self._guarded(scope, receive), send_with_id)
        except Exception as error:
            if is_out_of_memory(error):
                _logger.warning("out of memory in request %s: %s", request_id, error)
            else:
                _logger.exception("unexpected error in request %s", request_id)
            if status:
                raise
            await error_response(error)(scope, receive, send_with_id)
        finally:
            state["status"] = status
            self._on_answered(scope, status, time.perf_counter() - arrived)

    def _guarded(self, scope: Scope, receive: Receive) -> Receive:
        """A `receive` that refuses a body when the app reads it, so that the error response passes
        through all layers and gets their headers.
        """
        headers = Headers(scope=scope)
        too_large = HTTPException(413, headers={"connection": "close"})
        length = headers.get("content-length", "")
        n_said = int(length[:20]) if length.isdecimal() else 0
        encoding = _encoding_of(headers)
        n_read = 0

        async def receive_guarded() -> Message:
            nonlocal n_read
            if encoding:
                raise EncodedBodyError(encoding)
            if n_said > self._max_body_bytes:
                raise too_large
            message = await receive()
            n_read += len(message.get("body", b""))
            if n_read > self._max_body_bytes:
                raise too_large
            return message

        return receive_guarded


def _client_id(scope: Scope) -> str:
    """The x-request-id of the client; "" unless it sent exactly one that is well-formed."""
    sent = [value for name, value in scope["headers"] if name == b"x-request-id"]
    return sent[0].decode("ascii") if len(sent) == 1 and _CLIENT_ID.fullmatch(sent[0]) else ""


def _encoding_of(headers: Headers) -> str:
    """The body's content encodings; "" for none."""
    names = ",".join(headers.getlist("content-encoding")).lower().split(",")
    packed = [name for each in names if (name := each.strip()) not in ("", "identity")]
    return ", ".join(name if name in _ENCODINGS else "(unknown)" for name in packed[:4])
