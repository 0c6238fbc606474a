"""Text on the terminal as it comes: wrapped between words, in styles; unchanged in a pipe.

Owns the cursor's column. A word is shown letter by letter while it grows; when it crosses the
margin it moves to the next line. A dumb terminal cannot take letters back, so there a word is shown
when it is complete. The last column stays free: whether a cursor behind it counts as in the next
line differs between terminals.
"""

import os
from collections.abc import Sequence
from itertools import groupby
from typing import TextIO

from ...settings import TerminalKind
from ..terminal import printable
from .styles import Style
from .width import char_width, text_width

_USUAL_COLUMNS = 80
_FEWEST_COLUMNS = 12
_TAB = 8
# Where the second column of an entry begins.
_INDENT, _NARROW_INDENT = 24, 4


class Screen:
    """Writes to one stream, stdout."""

    def __init__(self, stream: TextIO, kind: TerminalKind) -> None:
        self.is_terminal = stream.isatty()
        self._stream = stream
        self._has_colors = kind.has_colors
        self._can_erase = kind.has_escapes
        self._out: list[tuple[Style, str]] = []
        self._column = 0  # where the unfinished word begins, the space before it aside
        self._gap = 0  # columns of space before it
        self._word: list[tuple[Style, str]] = []  # its characters
        self._shown = 0  # columns that it takes on the screen, the space included

    @property
    def width(self) -> int:
        """Columns that are used. Asked anew each time: the user may resize the terminal."""
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        return max(columns or _USUAL_COLUMNS, _FEWEST_COLUMNS) - 1

    def paint(self, text: str, style: Style) -> str:
        """`text` for a place that does not go through `write`."""
        return style.paint(text) if self._has_colors else text

    def write(self, text: str, style: Style = Style.PLAIN) -> None:
        """Show `text` after what is there. Never adds a line break at its end."""
        if not self.is_terminal:
            self._stream.write(text)
            self._column = int(not text.endswith("\n")) if text else self._column
        else:
            width = self.width
            for char in printable(text):
                self._put(char, style, width)
        self._flush()

    def line(self, text: str = "", style: Style = Style.PLAIN) -> None:
        """`text` on lines of its own."""
        self.end_line()
        self.write(text, style)
        self.break_line()

    def entry(self, head: str, parts: Sequence[str], *, style: Style, space: str = " ") -> None:
        """A term and what belongs to it, as in a table of two columns; below each other if the
        terminal is narrow. No part is broken; `space` stands between two.
        """
        indent = _INDENT if self.width >= 2 * _INDENT else _NARROW_INDENT
        self.end_line()
        self.write(head, style)
        column = text_width(head)
        if column + 2 > indent and self.is_terminal:
            self.break_line()
            column = 0
        self.write(" " * max(2, indent - column))
        column = indent
        for part in parts:
            before = "" if column == indent else space
            if column + text_width(before + part) > self.width and self.is_terminal:
                self.break_line()
                self.write(" " * indent)
                before, column = "", indent
            self.write(before + part)
            column += text_width(before + part)
        self.break_line()

    def fitting(self, parts: Sequence[str], *, space: str) -> int:
        """How many of the parts of an entry fit on one line."""
        left = self.width - _INDENT
        for n, part in enumerate(parts):
            left -= text_width(part) + (len(space) if n else 0)
            if left < 0:
                return n
        return len(parts)

    def end_line(self) -> None:
        """The next text begins a line."""
        self._finish_word(self.width)
        if self._column or self._gap:
            self.break_line()

    def break_line(self) -> None:
        self.write("\n")

    def _put(self, char: str, style: Style, width: int) -> None:
        if char == "\n":
            self._finish_word(width)
            self._new_line()
        elif char in " \t":
            self._finish_word(width)
            column = self._column + self._gap
            self._gap += 1 if char == " " else _TAB - column % _TAB
        else:
            columns = char_width(char)
            if self._word and columns and self._may_break(columns):
                self._finish_word(width)
            self._word.append((style, char))
            if self._can_erase:
                self._grow(style, char, columns, width)

    def _may_break(self, columns: int) -> bool:
        """Whether a line may end between the word and a character: around every wide one."""
        last = next((char for _, char in reversed(self._word) if char_width(char)), "")
        return columns == 2 or (last != "" and char_width(last) == 2)

    def _grow(self, style: Style, char: str, columns: int, width: int) -> None:
        """Show one more character of the unfinished word."""
        if self._column + (self._shown or self._gap) + columns > width:
            if self._shown:
                self._out.append((Style.PLAIN, f"\x1b[{self._shown}D\x1b[K"))
            self._place(width)
            return
        if not self._shown:
            self._emit(Style.PLAIN, " " * self._gap)
            self._shown = self._gap
        self._emit(style, char)
        self._shown += columns

    def _finish_word(self, width: int) -> None:
        if self._word and not self._can_erase:
            self._place(width)
        if self._word:
            self._column += self._shown
            self._word, self._gap, self._shown = [], 0, 0

    def _place(self, width: int) -> None:
        """Show the word, of which nothing is shown, on this line or on the next."""
        wanted = sum(char_width(char) for _, char in self._word)
        if self._column and self._column + self._gap + wanted > width:
            self._new_line()
        gap = min(self._gap, width - 1)
        self._emit(Style.PLAIN, " " * gap)
        self._shown = gap
        word = self._word
        for index, (style, char) in enumerate(word):
            columns = char_width(char)
            if self._column + self._shown + columns > width:  # wider than a line
                self._word = word[index:]
                self._new_line()
            self._emit(style, char)
            self._shown += columns

    def _new_line(self) -> None:
        self._emit(Style.PLAIN, "\n")
        self._column = self._gap = self._shown = 0

    def _emit(self, style: Style, text: str) -> None:
        self._out.append((style, text))

    def _flush(self) -> None:
        for style, run in groupby(self._out, key=lambda each: each[0]):
            self._stream.write(self.paint("".join(text for _, text in run), style))
        self._out.clear()
        self._stream.flush()
