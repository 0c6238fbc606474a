"""A request that was put down in the middle, as plain data: another process can take it up.

Owns what is in it. Nothing of the engine is: a place has what the engine needs to go on exactly.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine import Snapshot

from .jobs import Clocks, Event, JobEnd, TokenCounts


class Past(NamedTuple):
    """What a request had come to before its running job."""

    counts: TokenCounts = TokenCounts()
    clocks: Clocks = Clocks()
    ends: tuple[JobEnd, ...] = ()


class Run(NamedTuple):
    """What the running job had come to, besides its events."""

    place: Snapshot | None = None
    """None: it goes on from its beginning, and has no events."""
    start: float = 0.0
    """When it began in the engine, in seconds since the request was queued."""
    first_clock: float | None = None
    """When its first token came."""
    n_drafted: int = 0
    n_accepted: int = 0
    held: str = ""
    """Text that waits for the rest of its token."""


class Pause(NamedTuple):
    """All of it."""

    past: Past
    run: Run
    places: Mapping[int, Snapshot]
    """Where the jobs before ended, by position."""
    events: Sequence[Event]
    """Of all jobs, so far."""
