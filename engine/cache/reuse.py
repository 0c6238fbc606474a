"""The report on a prompt: how much of it was known, from where, and why not more."""

from typing import Literal, NamedTuple

Source = Literal["active", "memory", "disk", "none"]


class Reuse(NamedTuple):
    """How much of a prompt did not have to be computed, and why not more."""

    n_reused: int
    n_wanted: int
    source: Source
    """Where copies came from: "disk" if any came from there. Without copies "active" or "none"."""
    mismatch_at: int | None
    """The first position whose token differs from the cached one."""
    reason: str
    other_ids: tuple[int, ...] = ()
    """A few cached tokens from `mismatch_at` on. Anyone who shares the cache may have written them.
    """
