"""Errors in TabbyAPI's shape: a sentence under `detail`."""

from typing import Any

_PATHS = ("/v1/lora", "/v1/loras", "/v1/templates", "/v1/download")
_FOLDERS = ("/v1/model/", "/v1/lora/", "/v1/template/", "/v1/sampling/", "/v1/auth/")


def is_of_this_wire(path: str) -> bool:
    """Whether a path is one that TabbyAPI alone has, with a route or without."""
    return path in _PATHS or path.startswith(_FOLDERS)


def answered_error(envelope: dict[str, Any], status: int, request_id: str) -> dict[str, Any]:
    """The body of an answer that is an error."""
    return {"detail": envelope["error"]["message"]}
