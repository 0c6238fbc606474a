"""Why an answer says what it says: its surprising tokens, marked and listed with alternatives.

Owns which tokens are marked and how they look. Knows no source of replies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from ..token_text import cells, percent, quoted
from .answer import Answer, Token
from .screen import Screen
from .styles import Style, style_of

N_MARKED = 9
_SURPRISING = 0.5  # a token at least as likely as all others together is none
_LEAST_P = 1e-12
_FEWEST_SHOWN = 3  # alternatives; more if they fit on the line


@dataclass(frozen=True)
class Marks:
    """The tokens of an answer that have numbers."""

    tokens: Sequence[Token]
    indices: tuple[int, ...]
    """Where the marked ones are, in order; mark n is indices[n - 1]."""

    @classmethod
    def of(cls, answer: Answer, most: int = N_MARKED) -> "Marks":
        """The `most` tokens that the model expected least, of those below 50 %."""
        tokens = answer.tokens
        surprising = [i for i, each in enumerate(tokens) if each.data and each.p < _SURPRISING]
        least = sorted(surprising, key=lambda index: tokens[index].p)[:most]
        return cls(tokens, tuple(sorted(least)))


def show(marks: Marks, screen: Screen) -> None:
    """The answer with its marks, then a row for each."""
    _text(marks, screen)
    screen.line()
    mean = sum(log(max(token.p, _LEAST_P)) for token in marks.tokens) / len(marks.tokens)
    screen.line(_summary(marks, perplexity=exp(-mean)), Style.FAINT)
    for number, index in enumerate(marks.indices, 1):
        _row(number, marks.tokens[index], screen)
    if marks.indices and screen.is_terminal:
        n = len(marks.indices)
        screen.line(
            f"/branch {n} draws again at [{n}]; /branch {n} 1 takes its first alternative.",
            Style.FAINT,
        )


def _text(marks: Marks, screen: Screen) -> None:
    numbers = {index: number for number, index in enumerate(marks.indices, 1)}
    screen.end_line()
    for cell in cells([token.data for token in marks.tokens]):
        style = style_of(min(marks.tokens[index].p for index in cell.tokens))
        number = next((numbers[index] for index in cell.tokens if index in numbers), None)
        if number is None:
            screen.write(cell.text, style)
        else:
            rest = cell.text.lstrip()
            screen.write(cell.text[: len(cell.text) - len(rest)])
            screen.write(f"[{number}]", Style.NUMBER)
            screen.write(rest, style)
    screen.end_line()


def _summary(marks: Marks, *, perplexity: float) -> str:
    n = len(marks.tokens)
    said = f"{n} token{'s' if n > 1 else ''}, perplexity {perplexity:.1f}. "
    if not marks.indices:
        return f"{said}None was a surprise: each had 50 % or more."
    return f"{said}The least expected, with their probability and what else was likely:"


def _row(number: int, token: Token, screen: Screen) -> None:
    others = [
        f"{place} {quoted(other.data)} {percent(other.p)}"
        for place, other in enumerate(token.alternatives, 1)
    ]
    n_shown = max(_FEWEST_SHOWN, screen.fitting(others, space="  "))
    head = f"[{number}] {quoted(token.data)} {percent(token.p)}"
    screen.entry(head, others[:n_shown], style=style_of(token.p), space="  ")
