"""Finds strings in text that arrives one character at a time.

Owns the automaton (Aho-Corasick) and its state. Knows characters; knows no tokens, nor what a found
string means.
"""

from collections import deque
from collections.abc import Sequence


class StringMatcher:
    """Finds whichever of several strings is completed first.

    If several end together, the longest wins, which begins leftmost. The result depends only on the
    characters, never on how tokens divide them.
    """

    def __init__(self, strings: Sequence[str], *, ignore_case: bool = False) -> None:
        """`strings`: none is empty."""
        self._next: list[dict[str, int]] = [{}]
        self._depth: list[int] = [0]
        self._found: list[str | None] = [None]
        self._fail: list[int] = [0]
        self._ignore_case = ignore_case
        self._node = 0
        for string in strings:
            self._insert(string)
        self._link()

    @property
    def n_partial(self) -> int:
        """How many of the last characters may be the beginning of a string."""
        return self._depth[self._node]

    def step(self, character: str) -> str | None:
        """Takes one character. Returns the string that it completes, if any."""
        if self._ignore_case:
            character = _folded(character)
        node = self._node
        while node and character not in self._next[node]:
            node = self._fail[node]
        self._node = node = self._next[node].get(character, 0)
        return self._found[node]

    def mark(self) -> int:
        return self._node

    def rollback(self, mark: int) -> None:
        self._node = mark

    def _insert(self, string: str) -> None:
        node = 0
        for character in string:
            if self._ignore_case:
                character = _folded(character)
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
        """Breadth first: a node's failure link is its longest proper suffix in the trie."""
        queue = deque(self._next[0].values())
        while queue:
            node = queue.popleft()
            for character, child in self._next[node].items():
                fail = self._fail[node]
                while fail and character not in self._next[fail]:
                    fail = self._fail[fail]
                self._fail[child] = self._next[fail].get(character, 0)
                # A node's own string is longer than any that ends at a suffix of it.
                self._found[child] = self._found[child] or self._found[self._fail[child]]
                queue.append(child)


def _folded(character: str) -> str:
    """The character in lower case; it stays as it is if that would be several characters."""
    lower = character.lower()
    return lower if len(lower) == 1 else character
