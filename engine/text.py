"""Bytes of tokens in, text that is safe to show out.

Owns two state machines of one completion: UTF-8 (a character split over tokens is held until it is
whole) and stop strings (text that might become one is held). Knows bytes and characters; knows no
tokens, no tokenizer and no torch. Token texts are never decoded twice, so nothing can be lost or
doubled between two calls.
"""

import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A stop string in the completion; `start` is its first character's index."""

    string: str
    start: int


class StopMatcher:
    """Finds the first of several strings to be completed, one character at a time (Aho-Corasick).

    The string that ends first wins, and of those that end together the longest: this depends on the
    characters alone, never on how tokens cut them.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth: list[int] = [0]
        self._found: list[str | None] = [None]
        self._fail: list[int] = [0]
        self._node = 0
        for string in strings:
            self._insert(string)
        self._link()

    @property
    def n_partial(self) -> int:
        """How many of the last characters might be the beginning of a stop string."""
        return self._depth[self._node]

    def step(self, character: str) -> str | None:
        """Take one character; the stop string that it completes, if any."""
        node = self._node
        while node and character not in self._next[node]:
            node = self._fail[node]
        self._node = node = self._next[node].get(character, 0)
        return self._found[node]

    def _insert(self, string: str) -> None:
        node = 0
        for character in string:
            child = self._next[node].get(character)
            if child is None:
                child = self._next[node][character] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[node] + 1)
                self._found.append(None)
                self._fail.append(0)
            node = child
        self._found[node] = string

    def _link(self) -> None:
        """Breadth first: a node's failure link is the longest proper suffix that is in the trie."""
        queue = deque(self._next[0].values())
        while queue:
            node = queue.popleft()
            for character, child in self._next[node].items():
                fail = self._fail[node]
                while fail and character not in self._next[fail]:
                    fail = self._fail[fail]
                self._fail[child] = self._next[fail].get(character, 0)
                # A node's own string is longer than any that ends at its suffix.
                self._found[child] = self._found[child] or self._found[self._fail[child]]
                queue.append(child)


class TextStream:
    """The text of one completion as it grows.

    Invariant: released + held text is the UTF-8 decoding of all pushed bytes (malformed bytes
    become U+FFFD, as Unicode recommends: one per maximal ill-formed part); after a stop string,
    released text ends where that string begins.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._matcher = StopMatcher(stop) if stop else None
        self._held = ""
        self._n_characters = 0
        self.n_released = 0
        self.stop_match: StopMatch | None = None

    def push(self, data: bytes) -> tuple[int, int]:
        """Take the bytes of one token; the characters [start, end) that they are part of.

        A character split over tokens belongs to each of them. With no bytes start equals end.
        """
        start = self._n_characters
        if not data:
            return start, start
        self._take(self._decoder.decode(data))
        incomplete = self._decoder.getstate()[0] != b""
        return start, self._n_characters + incomplete

    def release(self) -> str:
        """The text that has become safe since the last call."""
        if self.stop_match is not None:
            n_safe = self.stop_match.start - self.n_released
        else:
            n_safe = len(self._held) - (self._matcher.n_partial if self._matcher else 0)
        safe, self._held = self._held[:n_safe], self._held[n_safe:]
        self.n_released += len(safe)
        return safe

    def finish(self) -> tuple[str, str]:
        """End the completion: the rest of its text, and the text dropped behind a stop string.

        Without a stop string nothing is dropped: held text is released, an incomplete character as
        U+FFFD.
        """
        self._take(self._decoder.decode(b"", final=True))
        released = self.release()
        if self.stop_match is None:
            # Nothing more can complete a stop string.
            released, self._held = released + self._held, ""
            self.n_released = self._n_characters
        dropped, self._held = self._held, ""
        return released, dropped

    def _take(self, text: str) -> None:
        if self._matcher is not None and self.stop_match is None:
            for index, character in enumerate(text, start=self._n_characters + 1):
                string = self._matcher.step(character)
                if string is not None:
                    self.stop_match = StopMatch(string, index - len(string))
                    break
        self._held += text
        self._n_characters += len(text)
