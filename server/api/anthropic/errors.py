"""Errors in Anthropic's shape, on the routes of its wire.

Owns its words for a status. Every layer answers with the usual envelope, and this turns it into the
other one, whichever layer it was.
"""

import json
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...answer.sse import encode_json
from ...errors import error_body, error_status
from .events import named_event

PATH = "/v1/messages"
"""Of this wire's routes, and the beginning of it."""

NO_THREADS = "thread_unsupported_request"
"""Code of the error at which Anthropic's clients send whole conversations from then on."""

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_event(error: Exception) -> bytes:
    """The last event of a stream that fails."""
    said = shaped(error_body(error), error_status(error))
    return named_event("error", {"error": said["error"]})


def is_of_this_wire(path: str) -> bool:
    """Whether a path is one of Anthropic's wire, with a route or without."""
    return path == PATH or path.startswith(f"{PATH}/")


class AnthropicErrors:
    """ASGI middleware. It also names the request's id as Anthropic's clients look for it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not is_of_this_wire(path):
            await self._app(scope, receive, send)
            return
        begun: Message = {}  # the start of an error, until its body is there
        body = b""

        async def send_shaped(message: Message) -> None:
            nonlocal begun, body
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["request-id"] = headers.get("x-request-id", "")
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
            said = shaped(json.loads(body), begun["status"])
            body = encode_json({**said, "request_id": headers["request-id"]})
            MutableHeaders(scope=begun)["content-length"] = str(len(body))
        await send(begun)
        await send({"type": "http.response.body", "body": body, "more_body": False})


def shaped(envelope: dict[str, Any], status: int) -> dict[str, Any]:
    """The envelope {"error": {message, type, param, code}} in Anthropic's form, of that status."""
    fallback = "invalid_request_error" if status < 500 else "api_error"
    error = {**envelope["error"], "type": _TYPES.get(status, fallback)}
    if error["code"] == NO_THREADS:
        error["details"] = {"error_code": NO_THREADS, "unsupported": ["thread"]}
    return {"type": "error", "error": error}
