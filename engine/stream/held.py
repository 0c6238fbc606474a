"""Tokens that wait until their text is safe to show.

Owns which token is released with which text, and which tokens a banned string takes back. Knows
records and text; knows no model and no sampler.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ..text.text_stream import TextMark, TextStream
from .result import TokenRecord

_MOST_BYTES = 4  # of a character


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
        self._longest = max(map(len, (*stop, *banned)), default=0)
        self._text = TextStream(stop, banned)
        self._held: deque[TokenRecord] = deque()
        self._n_out = 0  # tokens that have been released
        self._floor = (
            0  # tokens that no banned string takes back: those before the last rewind point
        )
        # Marks of the text before each held token; None without banned strings.
        self._marks: deque[TextMark] | None = deque() if banned else None

    @property
    def has_stop(self) -> bool:
        """Whether the text holds a stop string."""
        return self._text.stop_match is not None

    @property
    def has_ban(self) -> bool:
        """Whether the text holds a banned string; the caller must then call `take_back`."""
        return self._text.ban_match is not None

    @property
    def n_shown(self) -> int:
        """Tokens whose whole text has been released."""
        return self._n_out

    @property
    def n_characters_shown(self) -> int:
        return self._text.n_released

    @property
    def n_held(self) -> int:
        return len(self._held)

    def resume(self, shown: Sequence[bytes]) -> None:
        """Begin after tokens with the bytes `shown`, which have been released."""
        first, needed = len(shown), _MOST_BYTES * self._longest
        while first and needed > 0:
            first -= 1
            needed -= len(shown[first])
        self._text.skip(b"".join(shown[:first]))
        for data in shown[first:]:  # a string may have begun in them
            self._text.push(data, is_given=True)
        self._text.skip_release(self._text.mark().n_characters)
        self._n_out = len(shown)

    def with_strings(
        self, stop: Sequence[str], banned: Sequence[str], shown: Sequence[bytes]
    ) -> "HeldTokens":
        """The same tokens and text, searched for other strings; `shown`: the bytes of the tokens
        that were released. A string that is complete already does not count.
        """
        other = HeldTokens(stop, banned)
        other.resume(shown)
        other.keep(self._floor)
        for record in self._held:
            other.push(record.token_bytes, is_given=True)
            other.hold(record)
        other._text.skip_release(self._text.n_released)
        return other

    def keep(self, n_tokens: int) -> None:
        """No banned string takes back any of the first `n_tokens` tokens of the completion."""
        self._floor = n_tokens

    def push(self, data: bytes, *, is_given: bool = False) -> tuple[int, int]:
        """Add the bytes of the next token to the text; returns the span of characters that they are
        part of. Call `hold` with its record next. `is_given`: no string is found that ends in it.
        """
        if self._marks is not None:
            self._marks.append(self._text.mark())
        return self._text.push(data, is_given=is_given)

    def hold(self, record: TokenRecord) -> None:
        """Hold the token whose bytes were pushed last."""
        self._held.append(record)

    def take_back(self) -> TakenBack:
        """Forget the token in which the banned string begins, and all tokens after it."""
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
        """The text that is safe now, with the tokens whose whole text is released."""
        return Release(self._text.release(self._kept_from()), self._released())

    def finish(self, stop_token: TokenRecord | None) -> Release:
        """All that is left: to show, or to drop after a stop."""
        text, dropped_text = self._text.finish()
        # A stop string may complete only now: an incomplete character becomes U+FFFD at the end.
        match = self._text.stop_match
        tokens = self._released(cut=match.start if match else None)
        dropped = (*self._held, stop_token) if stop_token else tuple(self._held)
        return Release(text, tokens, dropped, dropped_text, match.string if match else None)

    def _kept_from(self) -> int | None:
        """The first character that is held because it may be taken back; None if no text is.

        If a banned string may have begun, its whole token may be taken back, not only the part
        after that; a stop string that had begun before the token then continues.
        """
        if self._marks is None or (start := self._text.ban_start) is None:
            return None
        index = self._taken_from(start)
        return self._marks[index].stop_start if index < len(self._held) else None

    def _taken_from(self, character: int) -> int:
        """The index of the first held token to take back when a banned string begins at
        `character`; the number of held tokens if that token is still to come.

        Never before the last rewind point. A beginning there was given up for a later one, and is
        found again when that one is taken back. Whether it has been released by then depends on
        where calls ended, and the text must not depend on that.
        """
        floor = self._floor - self._n_out
        for i, record in enumerate(self._held):
            if i >= floor and record.text_end > max(character, record.text_start):
                return i
        return len(self._held)

    def _released(self, *, cut: int | None = None) -> tuple[TokenRecord, ...]:
        """Remove from the held tokens, in order, those whose whole text has been released.

        With `cut`, the character where a stop string begins, also the token that it divides.
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
