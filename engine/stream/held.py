"""Tokens that wait for their text to become safe, in step with the text itself.

Owns the rule which token is released with which text, and which tokens a banned string takes back.
Knows records and text; knows no model and no sampler.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ..text.text_stream import TextMark, TextStream
from .result import TokenRecord


class Release(NamedTuple):
    """What one call shows, and at the end what it drops."""

    text: str
    tokens: tuple[TokenRecord, ...]
    dropped: tuple[TokenRecord, ...] = ()
    dropped_text: str = ""
    stop_string: str | None = None


class TakenBack(NamedTuple):
    """What a banned string has undone."""

    text: str
    first: TokenRecord
    n_tokens: int


class HeldTokens:
    """The tokens of one completion that have not been shown, and its text."""

    def __init__(self, stop: Sequence[str], banned: Sequence[str]) -> None:
        self._text = TextStream(stop, banned)
        self._held: deque[TokenRecord] = deque()
        self._n_out = 0  # tokens that are not held any more
        self._floor = 0  # tokens in front of the place that was last gone back to
        # Of the text before each held token, where banned strings are looked for at all.
        self._marks: deque[TextMark] | None = deque() if banned else None

    @property
    def has_stop(self) -> bool:
        """Whether the text holds a stop string."""
        return self._text.stop_match is not None

    @property
    def has_ban(self) -> bool:
        """Whether the text holds a banned string: then `take_back` is due."""
        return self._text.ban_match is not None

    def push(self, data: bytes) -> tuple[int, int]:
        """Add the bytes of the next token to the text; the characters that they are part of.

        `hold` follows.
        """
        if self._marks is not None:
            self._marks.append(self._text.mark())
        return self._text.push(data)

    def hold(self, record: TokenRecord) -> None:
        """The token whose bytes were pushed last."""
        self._held.append(record)

    def take_back(self) -> TakenBack:
        """Forget all from the token on in which the banned string begins."""
        assert self._text.ban_match is not None
        assert self._marks is not None
        index = self._taken_from(self._text.ban_match.start)
        self._floor = self._n_out + index
        first, mark = self._held[index], self._marks[index]
        n_tokens = len(self._held) - index
        for _ in range(n_tokens):
            self._held.pop()
            self._marks.pop()
        return TakenBack(self._text.rollback(mark), first, n_tokens)

    def release(self) -> Release:
        """The text that is safe now, with the tokens whose text is out whole."""
        return Release(self._text.release(self._kept_from()), self._released())

    def finish(self, stop_token: TokenRecord | None) -> Release:
        """All that is left: shown, or dropped behind a stop."""
        text, dropped_text = self._text.finish()
        # A stop string may complete only now: an incomplete character becomes U+FFFD at the end.
        match = self._text.stop_match
        tokens = self._released(cut=match.start if match else None)
        dropped = (*self._held, stop_token) if stop_token else tuple(self._held)
        return Release(text, tokens, dropped, dropped_text, match.string if match else None)

    def _kept_from(self) -> int | None:
        """The character from which on text is held because it may be taken back; None: no text is.

        Where a banned string may have begun its token may go, not only the half behind that, and a
        stop string that had begun in front of the token then goes on.
        """
        if self._marks is None or (start := self._text.ban_start) is None:
            return None
        index = self._taken_from(start)
        return self._marks[index].stop_start if index < len(self._held) else None

    def _taken_from(self, character: int) -> int:
        """The index of the held token that goes first when a banned string begins at `character`;
        behind them all when that is a token to come.

        It is none in front of the place that was last gone back to. A beginning there was given up
        for a later one and comes back when that is taken back: whether it is out by then depends on
        where calls ended, and the text must not.
        """
        floor = self._floor - self._n_out
        for i, record in enumerate(self._held):
            if i >= floor and record.text_end > max(character, record.text_start):
                return i
        return len(self._held)

    def _released(self, *, cut: int | None = None) -> tuple[TokenRecord, ...]:
        """Remove from the held tokens, in order, those whose text has been released whole.

        With `cut`, the character where a stop string begins, the token that it divides comes too.
        """
        held, n_released = self._held, self._text.n_released
        released = []
        while held:
            record = held[0]
            divided = cut is not None and record.text_start < cut
            if record.text_end > n_released and not divided:
                break
            released.append(held.popleft())
            self._n_out += 1
            if self._marks is not None:
                self._marks.popleft()
        return tuple(released)
