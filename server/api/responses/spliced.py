"""Logprobs that are sent several times and encoded once.

OpenAI's events repeat them: beside the delta, and with the text, the part, the item and the
response when these are complete. Owns that an item holds a mark in their place, and that the mark
becomes what was encoded.
"""

import uuid
from typing import Any

from ...answer.sse import encode_json
from .output import OpenItem


class SplicedLogprobs:
    """Those of one stream."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._encoded: dict[int, list[bytes]] = {}  # by the index of the item, entry after entry

    def take(self, item: OpenItem, logprobs: list[dict[str, Any]]) -> bytes:
        """The entries, which have been added to the item, as a JSON list."""
        encoded = encode_json(logprobs)
        if logprobs:
            self._encoded.setdefault(item.index, []).append(encoded[1:-1])
            item.logprobs[:] = [{"mark": self._mark_of(item.index)}]
        return encoded

    def put_into(self, frame: bytes) -> bytes:
        """The frame with entries in place of the marks."""
        for index, entries in self._encoded.items():
            mark = encode_json({"mark": self._mark_of(index)})
            frame = frame.replace(mark, b",".join(entries))
        return frame

    def _mark_of(self, index: int) -> str:
        return f"{self._mark}-{index}"
