"""Errors in the shape of the wire that was spoken.

Every layer answers with the usual envelope, and this turns it into another one on the routes of a
wire that has one, whichever layer it was. Knows no wire.
"""

import json
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..answer.sse import encode_json

Shape = Callable[[dict[str, Any], int, str], dict[str, Any]]
"""The other body, from the envelope {"error": {message, type, param, code}}, the status and the id
of the request.
"""


class ErrorShape:
    """ASGI middleware for the paths of one wire."""

    def __init__(
        self, app: ASGIApp, *, is_of_wire: Callable[[str], bool], shape: Shape, id_header: str = ""
    ) -> None:
        """`id_header`: where the wire's clients look for the id of a request."""
        self._app = app
        self._is_of_wire = is_of_wire
        self._shape = shape
        self._id_header = id_header

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._is_of_wire(scope["path"]):
            await self._app(scope, receive, send)
            return
        begun: Message = {}  # the start of an error, until its body is there
        body = b""

        async def send_shaped(message: Message) -> None:
            nonlocal begun, body
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if self._id_header:
                    headers[self._id_header] = headers["x-request-id"]
                if message["status"] >= 400:
                    begun = message
                    return
            elif begun:
                body += message.get("body", b"")
                if message.get("more_body"):
                    return
                await self._send(begun, body, send)
                return
            await send(message)

        await self._app(scope, receive, send_shaped)

    async def _send(self, begun: Message, body: bytes, send: Send) -> None:
        headers = Headers(raw=begun["headers"])
        if headers.get("content-type", "").startswith("application/json"):
            said = self._shape(json.loads(body), begun["status"], headers["x-request-id"])
            body = encode_json(said)
            MutableHeaders(scope=begun)["content-length"] = str(len(body))
        await send(begun)
        await send({"type": "http.response.body", "body": body, "more_body": False})
