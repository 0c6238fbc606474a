"""A parser of text/event-stream after the WHATWG standard, in full and in twenty lines."""

import json
import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ParsedStream:
    """What a browser would see: the data of each event, and whatever else was on the wire."""

    data: list[str] = field(default_factory=list)
    other_fields: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)

    @property
    def chunks(self) -> list[Any]:
        """The JSON of all events before [DONE]."""
        return [json.loads(data) for data in self.data if data != "[DONE]"]


def parse_event_stream(body: bytes) -> ParsedStream:
    parsed = ParsedStream()
    lines: list[str] = []
    *complete, rest = re.split(r"\r\n|\r|\n", body.decode("utf-8"))
    assert rest == "", "the stream ends in the middle of a line"
    for line in complete:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if lines:
                parsed.data.append("\n".join(lines))
            lines = []
        elif not name:
            parsed.comments.append(value)
        elif name == "data":
            lines.append(value)
        else:
            parsed.other_fields.append(line)
    assert not lines, "the stream ends in the middle of an event"
    return parsed
