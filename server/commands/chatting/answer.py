"""An answer as it comes and as it stays: text, tokens with their probabilities, statistics.

Owns the shapes that the sources of replies and the terminal have in common. Knows neither.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ..token_text import Cell, cells

N_ALTERNATIVES = 5
"""How many of the most probable tokens are asked for in each place."""

Message = dict[str, Any]


class Alternative(NamedTuple):
    """Another token that might have stood in a token's place."""

    token_id: int | None
    """None if the server does not say it."""
    data: bytes
    p: float
    """The model's own probability."""


class Token(NamedTuple):
    """One token of an answer."""

    data: bytes
    """What it adds to the text; empty for a mark around reasoning."""
    p: float
    """The model's own probability."""
    alternatives: tuple[Alternative, ...] = ()
    """Without the token itself, most probable first."""


class Piece(NamedTuple):
    """What a reply adds at a time."""

    text: str
    tokens: tuple[Token, ...] = ()
    """Empty if the source gives no probabilities."""
    is_reasoning: bool = False

    def cells(self) -> list[Cell]:
        """Its text cut where tokens meet; in one cell if the tokens are not exactly its text."""
        parts = cells([token.data for token in self.tokens])
        if "".join(part.text for part in parts) == self.text:
            return parts
        return [Cell(self.text, tuple(range(len(self.tokens))))]


@dataclass
class Statistics:
    """What is known about a reply. None: the source does not say it."""

    n_prompt: int | None = None
    n_cached: int | None = None
    n_tokens: int | None = None
    """Of the whole completion, with those that a branch inherited."""
    n_inherited: int = 0
    n_drafted: int | None = None
    n_accepted: int | None = None
    seed: int | None = None
    context: int | None = None
    end: str | None = None
    """Why it ended."""
    first_s: float | None = None
    """From the question to the first text."""
    rest_s: float = 0.0
    """From there to the end."""

    @property
    def tokens_per_second(self) -> float | None:
        """After the first token; None if there were not enough to tell."""
        n_later = (self.n_tokens or 0) - self.n_inherited - 1
        return n_later / self.rest_s if n_later > 0 and self.rest_s > 0 else None


class Reply(Protocol):
    """A reply that is being generated. Iterating raises KeyboardInterrupt when the user stopped it,
    CommandError when it fails. `close` stops the work for it.
    """

    statistics: Statistics
    """Complete after the last piece."""

    @property
    def place(self) -> object:
        """What `Source.branch` needs of this answer; None if it cannot be branched."""

    def __iter__(self) -> Iterator[Piece]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Answer:
    """An answer, whole or stopped."""

    pieces: tuple[Piece, ...]
    statistics: Statistics
    place: object = None
    was_stopped: bool = False

    @property
    def text(self) -> str:
        """Without reasoning."""
        return "".join(piece.text for piece in self.pieces if not piece.is_reasoning)

    @property
    def tokens(self) -> list[Token]:
        """All of them, those of reasoning too: the index counts as in the completion."""
        return [token for piece in self.pieces for token in piece.tokens]


@dataclass(frozen=True)
class ChatSettings:
    """How answers are generated."""

    sampling: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the model's defaults, by name."""
    max_tokens: int | None = None


class Source(Protocol):
    """Where replies come from."""

    model: str

    @property
    def why_no_branch(self) -> str:
        """What to tell the user about an answer that has no `place`."""

    def ask(self, messages: Sequence[Message], settings: ChatSettings) -> Reply: ...

    def branch(
        self, answer: Answer, at: int, token_id: int | None, settings: ChatSettings
    ) -> Reply:
        """The answer's first `at` tokens, then `token_id`, then what follows. Without it another
        draw. The reply begins with the tokens that it inherits. The seed stays the answer's.
        """

    def check(self, sampling: Mapping[str, Any]) -> None:
        """Raises CommandError for a value that is not allowed, if that is known beforehand."""

    def defaults(self) -> Mapping[str, Any]:
        """The settings that hold where none is given; empty if they are not known."""

    def close(self) -> None: ...
