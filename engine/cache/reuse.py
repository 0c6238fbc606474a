"""What a prompt reuses: what is known of it before anything is copied, and the report about it.

Owns the report's words. Knows no memory and no file.
"""

from typing import Literal, NamedTuple

from .tree import Block, Match, unpacked

Source = Literal["active", "memory", "disk", "none"]

# How many differing cached tokens to report.
N_OTHER = 8


class Reuse(NamedTuple):
    """How much of a prompt did not have to be computed, and why not more."""

    n_reused: int
    n_wanted: int
    source: Source
    """Where copies came from: "disk" if any came from there. Without copies "active" or "none"."""
    mismatch_at: int | None
    """The first position whose token differs from the cached one. With recurrent layers, less than
    what is before it may be reused.
    """
    reason: str
    other_ids: tuple[int, ...] = ()
    """A few cached tokens from `mismatch_at` on. Anyone who shares the cache may have written them.
    """


class Lookup(NamedTuple):
    """What is known of a prompt, before anything is copied or forgotten."""

    wanted: list[int]
    root: bytes
    found: Match
    """The longest beginning of `wanted` among the copies."""
    n_active: int
    """How much of `wanted` the active sequence begins with; 0 if it is foreign."""
    n_known: int
    """How much need not be computed. It may be less than `n_active` where layers have a window or
    states: they are held for the last positions only, and there may be no copies of others.
    """
    blocks: range
    """Which of the copies to use."""
    state: bytes | None
    """The key of the copied states to use."""
    active_other: tuple[int, ...]
    """A few tokens that the active sequence has after these."""
    is_foreign: bool
    """Whether the active sequence has another isolation key."""
    has_states: bool
    """Whether the model has recurrent layers."""

    @property
    def path(self) -> list[Block]:
        """The copies from the root to the last one to use; empty if none is used."""
        return self.found.path[: self.blocks.stop] if self.blocks else []

    @property
    def n_alike(self) -> int:
        """How much of `wanted` begins a sequence whose keys and values are there."""
        return max(self.n_active, self.found.n_tokens)

    def reuse(self, n: int, source: Source) -> Reuse:
        """The report, once the cache holds the first `n` of the wanted tokens."""
        n_wanted = len(self.wanted)
        if self.has_states and n < self.n_alike:
            return self._short_of_states(n, source)
        other_ids = self._other_ids(n)
        if n == n_wanted:
            reason = "all of the prompt is known" if n else "nothing wanted"
        elif n < self.n_known:
            reason = f"the copy of token {n} could not be read"
        elif n < self.n_active:
            reason = f"the window before token {self.n_active} is neither held nor copied"
        elif other_ids:
            return Reuse(n, n_wanted, source, n, f"differs at token {n}", other_ids)
        elif n:
            reason = "prompt is longer"
        else:
            reason = "isolation key differs" if self.is_foreign else "nothing cached"
        return Reuse(n, n_wanted, source, None, reason)

    def _short_of_states(self, n: int, source: Source) -> Reuse:
        """Keys and values would reach further than the states."""
        at, n_wanted = self.n_alike, len(self.wanted)
        other_ids = self._other_ids(at) if at < n_wanted else ()
        if n < self.n_known:
            reason = f"the copies before token {self.n_known} could not be read"
        elif n:
            reason = f"the state nearest before token {at} is at {n}"
        else:
            reason = f"no state before token {at} is held or copied"
        if other_ids:
            reason = f"differs at token {at}, and {reason}"
        return Reuse(n, n_wanted, source, at if other_ids else None, reason, other_ids)

    def _other_ids(self, n: int) -> tuple[int, ...]:
        """A few tokens that followed the first `n` elsewhere."""
        other_ids = self.active_other if n == self.n_active else ()
        if not other_ids and n == self.found.n_tokens:
            other_ids = unpacked(self.found.other)[:N_OTHER]
        return other_ids
