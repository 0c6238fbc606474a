"""Errors in Anthropic's shape, on the routes of its wire.

Owns its words for a status.
"""

from typing import Any

from ...answer.sse import named_event
from ...errors import error_body, error_status

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


def answered_error(envelope: dict[str, Any], status: int, request_id: str) -> dict[str, Any]:
    """The body of an answer that is an error."""
    return {**shaped(envelope, status), "request_id": request_id}


def shaped(envelope: dict[str, Any], status: int) -> dict[str, Any]:
    """The envelope {"error": {message, type, param, code}} in Anthropic's form, of that status."""
    fallback = "invalid_request_error" if status < 500 else "api_error"
    error = {**envelope["error"], "type": _TYPES.get(status, fallback)}
    if error["code"] == NO_THREADS:
        error["details"] = {"error_code": NO_THREADS, "unsupported": ["thread"]}
    return {"type": "error", "error": error}
