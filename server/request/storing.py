"""Whether an answer is kept: what a request says about it, and what it may say."""

from collections.abc import Mapping
from typing import Any

from ..errors import RequestError
from ..schema.common import GenerationRequest
from .unknown_fields import Warnings, warning

MAX_PAIRS = 16
MAX_NAME = 64
MAX_VALUE = 512


def storing_warnings(body: GenerationRequest, *, is_kept: bool, can_keep: bool) -> Warnings:
    """A warning for `store` where nothing is kept. Raises RequestError for a stream that cannot go
    on in the background.
    """
    if is_kept:
        checked_metadata(body.metadata)
        return []
    if body.background:
        instead = "send store: true" if can_keep else "this server keeps none (--keep-streams none)"
        raise RequestError(
            f"background is for streams that are kept: {instead}", param="background"
        )
    if body.wants_kept:
        message = "this server keeps no streams (--keep-streams none)"
        param = "store" if body.store else "reasoning_control"
        return [warning(param, message, strict=bool(body.strict))]
    return []


def checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """As OpenAI allows it. Raises RequestError."""
    pairs = dict(metadata or {})
    if len(pairs) > MAX_PAIRS:
        raise RequestError(
            f"metadata holds {len(pairs)} pairs; the limit is {MAX_PAIRS}", param="metadata"
        )
    for name, value in pairs.items():
        if len(name) > MAX_NAME or not isinstance(value, str) or len(value) > MAX_VALUE:
            raise RequestError(
                f"metadata must map names of up to {MAX_NAME} characters to strings of up to "
                f"{MAX_VALUE}",
                param="metadata",
            )
    return pairs
