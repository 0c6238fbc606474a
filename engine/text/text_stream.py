"""Bytes of tokens in, text that is safe to show out.

Owns the text of one completion: UTF-8 (a character split over tokens is held until it is whole),
stop strings (text that may become one is held) and banned strings (text is held from the token in
which one may begin, because that token may be taken back). Knows bytes and characters; knows no
tokens, no tokenizer and no torch. No token is decoded twice, so nothing can be lost or doubled
between two calls.
"""

import codecs
from collections.abc import Sequence
from typing import NamedTuple

from .matcher import StringMatcher


class TextMatch(NamedTuple):
    """A stop string or banned string that was found in the completion."""

    string: str
    """As the request spells it."""
    start: int


class TextMark(NamedTuple):
    """A place in the text; `rollback` can return to it until text after it is released."""

    incomplete: bytes
    n_characters: int
    stop_start: int
    """Where a stop string may have begun; `n_characters` if nowhere."""
    stop_node: int
    ban_node: int


class TextStream:
    """The text of one completion as it grows.

    Invariant: released + held text is the UTF-8 decoding of all pushed bytes (malformed bytes
    become U+FFFD, as Unicode recommends: one per maximal ill-formed part); after a stop string,
    released text ends where that string begins. The string that ends first counts, be it a stop or
    a ban; the text after it is not searched.
    """

    def __init__(self, stop: Sequence[str] = (), banned: Sequence[str] = ()) -> None:
        """Neither contains an empty string. Banned strings are found in upper or lower case."""
        self._incomplete = b""  # the beginning of a character, not in the text yet
        self._stops = StringMatcher(stop) if stop else None
        self._bans = StringMatcher(banned, ignore_case=True) if banned else None
        self._held = ""
        self._n_characters = 0
        self.n_released = 0
        self.stop_match: TextMatch | None = None
        self.ban_match: TextMatch | None = None

    @property
    def ban_start(self) -> int | None:
        """Where a banned string may have begun, perhaps in an incomplete character; None if
        nowhere.
        """
        if self._bans is None or not (self._bans.n_partial or self._incomplete):
            return None
        return self._n_characters - self._bans.n_partial

    def push(self, data: bytes, *, is_given: bool = False) -> tuple[int, int]:
        """Takes the bytes of one token. Returns the characters [start, end) that they are part of.

        A character split over tokens belongs to each of them. Without bytes start equals end.
        `is_given`: no string is found that ends in these bytes; one may begin in them.
        """
        start = self._n_characters
        if not data:
            return start, start
        self._take(data, is_given=is_given)
        return start, self._n_characters + bool(self._incomplete)

    def skip(self, data: bytes) -> None:
        """Takes bytes that were released long ago: no string begins in them."""
        text, n_taken = codecs.utf_8_decode(self._incomplete + data, "replace", False)
        self._incomplete = (self._incomplete + data)[n_taken:]
        self._n_characters += len(text)
        self.n_released = self._n_characters

    def skip_release(self, before: int) -> None:
        """Counts the text up to character `before` as released, whatever is safe."""
        self._held = self._held[before - self.n_released :]
        self.n_released = before

    def release(self, before: int | None = None) -> str:
        """The text that has become safe since the last call, if given only up to character
        `before`.
        """
        n_safe = len(self._held)
        if self.stop_match is not None:
            n_safe = self.stop_match.start - self.n_released
        elif self._stops is not None:
            n_safe -= self._stops.n_partial
        if before is not None:
            n_safe = max(0, min(n_safe, before - self.n_released))
        safe, self._held = self._held[:n_safe], self._held[n_safe:]
        self.n_released += len(safe)
        return safe

    def finish(self) -> tuple[str, str]:
        """Ends the completion. Returns the rest of its text, and the text dropped from a stop
        string on.

        Without a stop string nothing is dropped: held text is released, an incomplete character as
        U+FFFD.
        """
        self._bans = None  # nothing can be taken back any more
        self._take(b"", final=True)
        released = self.release()
        if self.stop_match is None:
            # Nothing more can complete a stop string.
            released, self._held = released + self._held, ""
            self.n_released = self._n_characters
        dropped, self._held = self._held, ""
        return released, dropped

    def mark(self) -> TextMark:
        return TextMark(
            self._incomplete,
            self._n_characters,
            self._n_characters - (self._stops.n_partial if self._stops else 0),
            self._stops.mark() if self._stops else 0,
            self._bans.mark() if self._bans else 0,
        )

    def rollback(self, mark: TextMark) -> str:
        """Forgets everything after `mark` and returns its text."""
        n_kept = mark.n_characters - self.n_released
        if n_kept < 0:
            raise ValueError(f"text after character {mark.n_characters} has been released")
        self._held, forgotten = self._held[:n_kept], self._held[n_kept:]
        self._incomplete = mark.incomplete
        self._n_characters = mark.n_characters
        self.stop_match = self.ban_match = None
        if self._stops is not None:
            self._stops.rollback(mark.stop_node)
        if self._bans is not None:
            self._bans.rollback(mark.ban_node)
        return forgotten

    def _take(self, data: bytes, *, final: bool = False, is_given: bool = False) -> None:
        if self._incomplete:
            data = self._incomplete + data
        # The incremental decoder of `codecs` does the same, but through four Python functions.
        text, n_taken = codecs.utf_8_decode(data, "replace", final)
        self._incomplete = data[n_taken:]
        if self._stops is not None or self._bans is not None:
            self._search(text, is_given)
        self._held += text
        self._n_characters += len(text)

    def _search(self, text: str, is_given: bool) -> None:
        if is_given:
            for matcher in filter(None, (self._stops, self._bans)):
                for character in text:
                    matcher.step(character)
            return
        for end, character in enumerate(text, start=self._n_characters + 1):
            if self.stop_match is not None or self.ban_match is not None:
                break
            if self._stops is not None and (string := self._stops.step(character)) is not None:
                self.stop_match = TextMatch(string, end - len(string))
            elif self._bans is not None and (string := self._bans.step(character)) is not None:
                self.ban_match = TextMatch(string, end - len(string))
