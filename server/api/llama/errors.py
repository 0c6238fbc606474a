"""Errors in llama-server's shape, on the routes that it alone has.

Owns its words for a status.
"""

from typing import Any

from ...answer.sse import encode_event
from ...errors import error_body, error_status

_PATHS = ("/completion", "/infill", "/lora-adapters", "/slots")
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
_TOO_LONG = "exceed_context_size_error"


def is_of_this_wire(path: str) -> bool:
    """Whether a path is one of llama-server's own, with a route or without."""
    return path in _PATHS or path.startswith("/slots/")


def answered_error(envelope: dict[str, Any], status: int, request_id: str = "") -> dict[str, Any]:
    """The body of an answer that is an error, of that status."""
    error = envelope["error"]
    type_ = _TYPES.get(status, error["type"])
    if error["code"] == "context_length_exceeded":
        type_ = _TOO_LONG
    said = {"code": status, "message": error["message"], "type": type_, "param": error["param"]}
    return {"error": said}


def error_event(error: Exception) -> bytes:
    """The last event of a stream that fails."""
    return encode_event(answered_error(error_body(error), error_status(error)))
