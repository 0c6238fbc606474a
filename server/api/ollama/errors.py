"""Errors in Ollama's shape: a sentence, and nothing to switch on."""

from typing import Any

from ...answer.sse import encode_json
from ...errors import error_body


def is_of_this_wire(path: str) -> bool:
    """Whether a path is one of Ollama's wire, with a route or without.

    Some clients of OpenAI's wire ask for /api/v1.
    """
    return path.startswith("/api/") and not path.startswith("/api/v1/")


def answered_error(envelope: dict[str, Any], status: int, request_id: str) -> dict[str, Any]:
    """The body of an answer that is an error."""
    return {"error": envelope["error"]["message"]}


def error_line(error: Exception) -> bytes:
    """The last line of a stream that fails."""
    return encode_json(answered_error(error_body(error), 0, "")) + b"\n"
