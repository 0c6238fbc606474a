"""A client that reads the events of one stream from a socket, as many as it likes, and hangs up.

Owns what it has read. Knows no route.
"""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any


class EventReader:
    """Over the socket of a request that was sent; the head is read with the first event."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._response: http.client.HTTPResponse | None = None
        self.frames: list[bytes] = []
        """The events so far, each with its blank line; pings are left out."""
        self.is_over = False

    @property
    def response(self) -> http.client.HTTPResponse:
        """Its head, waited for."""
        if self._response is None:
            self._response = http.client.HTTPResponse(self._sock)
            self._response.begin()
        return self._response

    @property
    def has_hung_up(self) -> bool:
        return self._sock.fileno() < 0

    def read(self, n: int) -> None:
        """Wait for `n` more events, or for the end."""
        wanted = len(self.frames) + n
        while len(self.frames) < wanted and not self.is_over:
            self._next()

    def rest(self) -> list[bytes]:
        """All events, to the end."""
        while not self.is_over:
            self._next()
        self.hang_up()
        return self.frames

    def hang_up(self) -> None:
        if self._response is not None:
            self._response.close()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _next(self) -> None:
        lines: list[bytes] = []
        while True:
            line = self.response.readline()
            if not line:
                assert not lines, "the stream ends in the middle of an event"
                self.is_over = True
                return
            if line.startswith(b":"):
                continue
            if line != b"\n":
                lines.append(line)
            elif lines:
                self.frames.append(b"".join(lines) + b"\n")
                return


def chunks_of(frames: list[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON of each event but the last `[DONE]`."""
    for frame in frames:
        data = frame.split(b"data: ", 1)[1]
        if data != b"[DONE]\n\n":
            yield json.loads(data)


def texts_of(frames: list[bytes]) -> dict[int, str]:
    """What a client makes of the events: the text of each choice, what was taken back left out."""
    texts: dict[int, str] = {}
    for chunk in chunks_of(frames):
        for choice in chunk.get("choices", ()):
            said = choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            texts[choice["index"]] = texts.get(choice["index"], "") + (said or "")
        if "text_characters" in (control := chunk.get("control", {})):
            index = control["index"]
            texts[index] = texts.get(index, "")[: control["text_characters"]]
    return texts
