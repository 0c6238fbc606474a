"""A parser of text/event-stream by the WHATWG standard, and what tests want to know of a body."""

import codecs
import json
import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ParsedStream:
    """What a browser would see: the data of each event, and anything else on the wire."""

    data: list[str] = field(default_factory=list)
    other_fields: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)

    @property
    def chunks(self) -> list[Any]:
        """The JSON of all events before [DONE]."""
        return [json.loads(data) for data in self.data if data != "[DONE]"]


class EventStreamParser:
    """Reads a stream in pieces, cut anywhere: also inside a character or between CR and LF. Lines
    without a blank line after them are not an event.
    """

    def __init__(self) -> None:
        self.parsed = ParsedStream()
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._line = ""
        self._data: list[str] = []
        self._is_start = True
        self._after_return = False

    @property
    def is_between_events(self) -> bool:
        return not self._line and not self._data

    def feed(self, piece: bytes) -> None:
        for line in self._lines(self._decode(piece)):
            self._read(line)

    def _lines(self, text: str) -> list[str]:
        if not text:
            return []
        if self._is_start:
            text = text.removeprefix("\ufeff")
            self._is_start = False
        if self._after_return:
            text = text.removeprefix("\n")  # the LF of a CR LF does not end another line
        self._after_return = text.endswith("\r")
        *complete, self._line = re.split(r"\r\n|\r|\n", self._line + text)
        return complete

    def _read(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if self._data:
                self.parsed.data.append("\n".join(self._data))
            self._data = []
        elif not name:
            self.parsed.comments.append(value)
        elif name == "data":
            self._data.append(value)
        else:
            self.parsed.other_fields.append(line)


def parse_event_stream(body: bytes) -> ParsedStream:
    body.decode()  # raises where a browser would put replacement characters
    parser = EventStreamParser()
    parser.feed(body)
    assert parser.is_between_events, "the stream ends in the middle of an event"
    return parser.parsed
