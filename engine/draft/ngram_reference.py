"""Finds where the last tokens of a sequence occurred before, and drafts what followed there.

The definition of the index in csrc/ngram_index.h, the oracle of its tests, and its replacement on
machines without the native code. Owns the tokens of the running sequence and the recent outputs of
earlier ones. Knows no model.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

ORDERS = (8, 3)  # how many of the last tokens are looked up, the longer sequence first
MAX_CANDIDATES = 64  # occurrences to compare, newest first
MAX_MATCH = 32  # longer matches count as this long
MIN_SHARE = 0.4  # a draft ends when a smaller share of the occurrences agrees with it
BYTES_PER_TOKEN = 40  # the most that the native index takes
MIN_RECENT = 256  # tokens; with less room no output is kept

_SEPARATOR = -1  # different from any token


class _History:
    """Tokens, and where in them each sequence of `ORDERS` tokens ends."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        self.tokens.append(token)
        for key in self._last_keys():
            self._ends[key].append(len(self.tokens) - 1)

    def truncate(self, size: int) -> None:
        while len(self.tokens) > size:
            for key in self._last_keys():
                self._ends[key].pop()
            self.tokens.pop()

    def ends(self, key: tuple[int, ...], *, before: int) -> list[int]:
        """At most MAX_CANDIDATES positions below `before` at which `key` ends, newest first."""
        ends = reversed(self._ends.get(key, ()))
        return list(islice((end for end in ends if end < before), MAX_CANDIDATES))

    def _last_keys(self) -> list[tuple[int, ...]]:
        return [tuple(self.tokens[-n:]) for n in ORDERS if len(self.tokens) >= n]


class _Matches(NamedTuple):
    length: int
    ends: list[int]  # of the longest matches, newest first
    history: _History


class NgramIndex:
    """One running sequence: `begin`, then `extend` or `find`, `rollback` to an earlier size."""

    def __init__(self, recent_bytes: int) -> None:
        """`recent_bytes`: memory for the recent outputs."""
        self._own = _History()
        self._recent = _History()
        self._max_recent = recent_bytes // BYTES_PER_TOKEN

    def __len__(self) -> int:
        return len(self._own.tokens)

    def recent_size(self) -> int:
        """Tokens of the recent outputs, with one separator per output."""
        return len(self._recent.tokens)

    def begin(self, tokens: Sequence[int], /) -> None:
        """Forgets the running sequence; `tokens` begin the next one."""
        self._own = _History(tokens)

    def extend(self, tokens: Sequence[int], /) -> None:
        """The running sequence continues with `tokens`."""
        for token in tokens:
            self._own.append(token)

    def rollback(self, size: int, /) -> None:
        """Forgets all tokens from `size` on."""
        self._own.truncate(size)

    def find(self, n: int, tokens: Sequence[int] = ()) -> tuple[int, bool, tuple[int, ...]] | None:
        """The length of the longest match of the last tokens, whether it is in a recent output, and
        a draft: what followed it. None if there is no draft. The running sequence continues with
        `tokens` first.

        A match in the recent outputs counts only if it is longer than any in the sequence. The
        draft has at most `n` tokens and at most twice the length of the match. Fewer than three
        equal tokens are no match.
        """
        self.extend(tokens)
        own = self._own.tokens
        for order in ORDERS:
            if len(own) < order:
                continue
            key = tuple(own[-order:])
            matches = self._longest(self._own, self._own.ends(key, before=len(own) - 1))
            recent = self._recent.ends(key, before=len(self._recent.tokens))
            matches = max(
                matches, self._longest(self._recent, recent), key=lambda matches: matches.length
            )
            if matches.length:
                is_recent = matches.history is self._recent
                draft = self._follow(matches, min(n, 2 * matches.length))
                return (matches.length, is_recent, draft) if draft else None
        return None

    def keep(self, n_prompt: int, /) -> None:
        """The sequence from `n_prompt` on becomes the newest of the recent outputs.

        If there is no room, the oldest are dropped until half of it is free. Only the end is kept
        of an output that takes more than that.
        """
        output = self._own.tokens[n_prompt:]
        if not output or self._max_recent < MIN_RECENT:
            return
        half = self._max_recent // 2
        kept = output[-(half - 1) :]
        if self.recent_size() + len(kept) + 1 > self._max_recent:
            newest = self._recent.tokens[-half:]
            begin = newest.index(_SEPARATOR) if _SEPARATOR in newest else len(newest)
            self._recent = _History(newest[begin:])
        for token in [_SEPARATOR, *kept]:
            self._recent.append(token)

    def _longest(self, history: _History, ends: list[int]) -> _Matches:
        lengths = [self._match_length(history, end) for end in ends]
        length = max(lengths, default=0)
        longest = [end for end, its in zip(ends, lengths, strict=True) if its == length]
        return _Matches(length, longest, history)

    def _match_length(self, history: _History, end: int) -> int:
        own, last = self._own.tokens, len(self._own.tokens) - 1
        most = min(MAX_MATCH, last + 1, end + 1)
        return next((n for n in range(most) if history.tokens[end - n] != own[last - n]), most)

    def _follow(self, matches: _Matches, n: int) -> tuple[int, ...]:
        """Token by token, what most of the matches continue with; a tie goes to the newest. Matches
        that continued with another token no longer count.
        """
        draft: list[int] = []
        ends, share = matches.ends, 1.0
        while len(draft) < n:
            nexts = [(end, self._next(matches.history, end, draft)) for end in ends]
            voters = [(end, token) for end, token in nexts if token != _SEPARATOR]
            if not voters:
                break
            votes: dict[int, int] = {}  # in the order of the newest
            for _, token in voters:
                votes[token] = votes.get(token, 0) + 1
            most = max(votes, key=lambda token: votes[token])
            share *= votes[most] / len(voters)
            if share < MIN_SHARE:
                break
            ends = [end for end, token in voters if token == most]
            draft.append(most)
        return tuple(draft)

    def _next(self, history: _History, end: int, draft: list[int]) -> int:
        """The token after a match and as many tokens as the draft has. The draft itself follows the
        end of the running sequence.
        """
        position = end + 1 + len(draft)
        beyond = position - len(history.tokens)
        if beyond < 0:
            return history.tokens[position]
        return draft[beyond] if history is self._own else _SEPARATOR
