"""The outermost layer of the app: what holds for every request, whatever its route.

Every answer carries an x-request-id, no body is read beyond the limit, and an exception that nobody
expected becomes the usual error envelope and one line in the log with that id.
"""

import logging
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import error_response, http_error_response

_logger = logging.getLogger(__name__)


class Boundary:
    """ASGI middleware: request id, body limit, last resort."""

    def __init__(self, app: ASGIApp, *, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{uuid.uuid4().hex}"
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._within_limit(scope, receive, send_with_id)
        except Exception as error:
            _logger.exception("unexpected error in request %s", request_id)
            if started:
                raise
            await error_response(error)(scope, receive, send_with_id)

    async def _within_limit(self, scope: Scope, receive: Receive, send: Send) -> None:
        too_large = HTTPException(413, headers={"connection": "close"})
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._max_body_bytes:
            await http_error_response(too_large)(scope, receive, send)
            return
        n_read = 0

        async def receive_within_limit() -> Message:
            nonlocal n_read
            message = await receive()
            n_read += len(message.get("body", b""))
            if n_read > self._max_body_bytes:
                raise too_large
            return message

        await self._app(scope, receive_within_limit, send)
