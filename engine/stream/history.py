"""How a completion came to be, beyond its tokens: what a snapshot of it holds.

Owns the running form of a snapshot's segments, given tokens and rewinds, and what they say about
the next token. Knows no token ids but those that were banned, no sampler and no text.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from .options import StreamOptions
from .snapshot import (
    CallBan,
    GivenOrigin,
    GivenRun,
    Rewind,
    Segment,
    Snapshot,
    clipped,
    with_segment,
)

# Of the number of the attempt at a position the low bits count the tokens blocked there.
_BLOCKED_BITS = 16


def attempt_number(segment: Segment, n_blocked: int) -> int:
    """Of the attempt at a token in whose place `n_blocked` others were tried."""
    return (segment.attempt << _BLOCKED_BITS) + n_blocked


class History:
    """Positions are counted in tokens of the completion."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.segments = snapshot.segments
        self.given = list(snapshot.given)
        self.rewinds = list(snapshot.rewinds)
        self.call_bans = {each.n_tokens: each.token_ids for each in snapshot.call_bans}
        self._blocked: dict[int, list[int]] = {}
        for rewind in self.rewinds:
            self._block(rewind)

    def segment_at(self, n_tokens: int) -> Segment:
        """The one in which the token after `n_tokens` is drawn."""
        return next(each for each in reversed(self.segments) if each.start <= n_tokens)

    def constrained_from(self, n_tokens: int) -> int:
        """Where the constraint that holds after `n_tokens` tokens began."""
        return self._since(n_tokens, lambda options: options.constraint)

    def judged_from(self, n_tokens: int) -> int:
        """Where the conditions that hold after `n_tokens` tokens began."""
        return self._since(n_tokens, lambda options: options.stop_when)

    def blocked(self, n_tokens: int) -> Sequence[int]:
        """The tokens that led to a banned string after `n_tokens` tokens."""
        return self._blocked.get(n_tokens, ()) if self._blocked else ()

    def floor(self, n_tokens: int) -> int:
        """How many of the first `n_tokens` tokens no banned string takes back: those before the
        last rewind point, those up to the last that a caller chose between two steps, and those
        that the constraint is not about.
        """
        is_constrained = self.segment_at(n_tokens).options.constraint is not None
        free = self.constrained_from(n_tokens) if is_constrained else 0
        rewinds = (each.n_tokens for each in reversed(self.rewinds) if each.n_tokens <= n_tokens)
        runs = [run.stop for run in clipped(self.given, n_tokens) if run.origin != "hook"]
        return max(next(rewinds, 0), *runs[-1:], free)

    def origin(self, n_tokens: int) -> GivenOrigin | None:
        """Who chose the token after `n_tokens`; None if it was drawn."""
        runs = (run.origin for run in self.given if run.start <= n_tokens < run.stop)
        return next(runs, None)

    def give(self, n_tokens: int, origin: GivenOrigin) -> None:
        """The token after `n_tokens` was chosen, not drawn."""
        if self.given and self.given[-1].stop == n_tokens and self.given[-1].origin == origin:
            self.given[-1] = self.given[-1]._replace(stop=n_tokens + 1)
        else:
            self.given.append(GivenRun(n_tokens, n_tokens + 1, origin))

    def change(self, segment: Segment) -> None:
        self.segments = with_segment(self.segments, segment)

    def rewind(self, n_tokens: int, token_id: int) -> None:
        """A banned string took back all but `n_tokens` tokens; `token_id` was the next.

        What follows is drawn with the settings in force now.
        """
        self.rewinds.append(Rewind(n_tokens, token_id))
        self._block(self.rewinds[-1])
        self.given = list(clipped(self.given, n_tokens))
        self.call_bans = {n: ids for n, ids in self.call_bans.items() if n < n_tokens}
        last = self.segments[-1]
        if last.start > n_tokens:
            self.segments = with_segment(self.segments, replace(last, start=n_tokens))

    def all_call_bans(self) -> tuple[CallBan, ...]:
        return tuple(CallBan(n, ids) for n, ids in sorted(self.call_bans.items()))

    def _since(self, n_tokens: int, option: Callable[[StreamOptions], object]) -> int:
        """The first token from which on an option is what it is after `n_tokens` tokens."""
        value, start = option(self.segment_at(n_tokens).options), n_tokens
        for each in reversed(self.segments):
            if each.start <= n_tokens:
                if option(each.options) != value:
                    break
                start = each.start
        return start

    def _block(self, rewind: Rewind) -> None:
        # After this position another text follows, in which nothing is known to be bad yet.
        n_tokens, token_id = rewind
        self._blocked = {n: ids for n, ids in self._blocked.items() if n <= n_tokens}
        self._blocked.setdefault(n_tokens, []).append(token_id)
