"""The looks of the terminal: what each kind of text is drawn with.

The colours are those of the user's own theme, so they suit light and dark backgrounds. None of them
says something alone: a token that is unlikely is underlined, too.
"""

from enum import Enum


class Style(Enum):
    """A kind of text. The value: parameters of "select graphic rendition" (ECMA-48)."""

    PLAIN = ""
    PROMPT = "1;36"
    FAINT = "2"
    REASONING = "2;3"
    ERROR = "31"
    NUMBER = "1"
    LESS_LIKELY = "36"
    UNLIKELY = "1;4;35"

    def paint(self, text: str) -> str:
        return f"\x1b[{self.value}m{text}\x1b[0m" if self.value and text else text


def style_of(p: float) -> Style:
    """Of a token with this probability."""
    if p >= 0.5:
        return Style.PLAIN
    return Style.LESS_LIKELY if p >= 0.1 else Style.UNLIKELY
