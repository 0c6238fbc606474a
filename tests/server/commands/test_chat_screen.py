"""What a terminal shows of text that comes in pieces: the same as of text that comes at once."""

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TextIO

import pyte
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from server.commands.chatting.screen import Screen
from server.commands.chatting.styles import Style
from server.commands.chatting.width import char_width, text_width
from server.settings import TerminalKind

FULL, DUMB = TerminalKind(True, True), TerminalKind(False, False)
ROWS = 60


@contextmanager
def pseudo_terminal(columns: int) -> Iterator[tuple[TextIO, int]]:
    """A terminal's stream, and where what is written to it can be read."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    try:
        with os.fdopen(theirs, "w", encoding="utf-8", buffering=1) as stream:
            yield stream, ours
    finally:
        os.close(ours)


def shown(pieces: Sequence[str], columns: int, kind: TerminalKind) -> list[str]:
    """The lines of a terminal after `pieces`."""
    drawn = pyte.Screen(columns, ROWS)
    with pseudo_terminal(columns) as (stream, ours):
        screen = Screen(stream, kind)
        feed = pyte.ByteStream(drawn)
        for index, piece in enumerate(pieces):
            screen.write(piece, Style.UNLIKELY if index % 2 else Style.PLAIN)
            feed.feed(written(stream, ours))
        screen.end_line()
        feed.feed(written(stream, ours))
    return [line.rstrip() for line in drawn.display]


def written(stream: TextIO, ours: int) -> bytes:
    """All that has come since the last call. The system hands it over piece by piece."""
    stream.write("\x00")  # the last of it
    stream.flush()
    data = b""
    while not data.endswith(b"\x00"):
        data += os.read(ours, 65536)
    return data[:-1]


def split(text: str, cuts: Sequence[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(places)]


TEXTS = st.lists(
    st.sampled_from(["a", "word", "hello,", "extraordinarily", "獅子", "🙂", "é", "\n", "  ", "-"]),
    max_size=30,
).flatmap(lambda words: st.sampled_from([" ".join(words), "".join(words), "\n".join(words)]))


@given(TEXTS, st.lists(st.integers(0, 200), max_size=12), st.integers(14, 40))
@example("and could barely all day long", [9, 10, 11, 12], 12)
@example("x" * 100, [50, 60, 70], 14)
def test_pieces_dumb_or_not_look_like_the_whole(text: str, cuts: list[int], columns: int) -> None:
    whole = shown([text], columns, DUMB)
    pieces = split(text, cuts)
    assert shown(pieces, columns, FULL) == whole
    assert shown(pieces, columns, DUMB) == whole
    assert "".join("".join(whole).split()) == "".join(text.split()), "nothing is lost"
    assert all(text_width(line.rstrip()) < columns for line in whole)


@given(st.lists(st.sampled_from(["a", "word", "hello,", "wonderful"]), max_size=30))
def test_no_word_is_broken(words: list[str]) -> None:
    lines = shown([f"{word} " for word in words], 14, FULL)
    assert " ".join(lines).split() == words


def test_a_line_is_as_full_as_it_can_be() -> None:
    lines = shown(["aaa bbb ccc ddd eee fff"], 16, FULL)
    assert lines[:2] == ["aaa bbb ccc ddd", "eee fff"]


def test_indented_lines_keep_their_indent() -> None:
    lines = shown(["if x:\n    y()\n\tz()\n"], 40, FULL)
    assert lines[:3] == ["if x:", "    y()", "        z()"]


def test_a_resized_terminal_is_wrapped_at_its_new_margin() -> None:
    with pseudo_terminal(40) as (stream, _):
        screen = Screen(stream, FULL)
        assert screen.width == 39
        fcntl.ioctl(stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
        assert screen.width == 19


@pytest.mark.parametrize(
    ("char", "width"), [("a", 1), ("é", 1), ("\u0301", 0), ("獅", 2), ("🙂", 2), ("\u200d", 0)]
)
def test_widths(char: str, width: int) -> None:
    assert char_width(char) == width
