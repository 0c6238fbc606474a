"""Which replica answers first: the least expected time to the first token.

Owns the formula. A replica computes one sequence at a time, so a request waits for those before
it, and then for as much of its prompt as is not kept:

    expected = requests before it * mean seconds of a request + bytes to compute * seconds per byte

Knows no Ray: the bench simulates with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from .prompt_steps import HASH_BYTES, STEP_BYTES
from .routed import Prompt

# Until a replica has measured its own: a thousand bytes in 10 ms, a request in a second.
DEFAULT_BYTE_S = 1e-5
DEFAULT_REQUEST_S = 1.0
# How far the measurements of equal replicas differ: by this factor, and by what nobody notices.
_NOISE = 1.25
_NOISE_S = 0.002


@dataclass(frozen=True, slots=True)
class Standing:
    """What a replica says of itself, by `to_stats`."""

    n_queued: int = 0
    """Requests in it that wait for the engine or are in it."""
    byte_s: float | None = None
    """Seconds in which it computes a byte of a prompt; None before it has measured any."""
    request_s: float | None = None
    """Seconds that a request spends in its engine, the mean."""
    kept: frozenset[bytes] = frozenset()
    """The steps of prompts that it keeps computed."""

    def to_stats(self) -> dict[str, Any]:
        """For Ray's routing statistics, which `from_stats` reads."""
        return {
            "n_queued": self.n_queued,
            "byte_s": self.byte_s,
            "request_s": self.request_s,
            "kept": b"".join(sorted(self.kept)),
        }

    @classmethod
    def from_stats(cls, stats: Mapping[str, Any]) -> "Standing":
        """Raises ValueError if they are not what `to_stats` returns."""
        n_queued, kept = stats.get("n_queued"), stats.get("kept")
        byte_s, request_s = stats.get("byte_s"), stats.get("request_s")
        if not isinstance(n_queued, int) or n_queued < 0:
            raise ValueError(f"n_queued must be a count, not {n_queued!r}")
        if not _is_seconds(byte_s) or not _is_seconds(request_s):
            raise ValueError(f"byte_s and request_s must be seconds: {byte_s!r}, {request_s!r}")
        if not isinstance(kept, bytes) or len(kept) % HASH_BYTES:
            raise ValueError("kept must be whole hashes")
        starts = range(0, len(kept), HASH_BYTES)
        hashes = frozenset(kept[start : start + HASH_BYTES] for start in starts)
        return cls(n_queued, byte_s, request_s, hashes)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica, as the one who chooses knows it."""

    standing: Standing
    n_sent: int = 0
    """Requests that this chooser sent and that have not ended."""
    sent: frozenset[bytes] = frozenset()
    """The steps of prompts that it sent lately, of which the replica has not told yet."""
    n_ended: int = 0
    """Requests that this chooser sent and that ended since the replica counted what it has."""
    last: int = 0
    """When it was chosen last, as a count of choices."""

    def n_kept(self, prompt: Prompt) -> int:
        """Bytes of the prompt that it need not compute."""
        for i, step in enumerate(prompt.steps):
            if step not in self.standing.kept and step not in self.sent:
                return i * STEP_BYTES
        return len(prompt.steps) * STEP_BYTES


def expected_s(candidate: Candidate, prompt: Prompt, *, byte_s: float, request_s: float) -> float:
    """Seconds to the first token. `byte_s`, `request_s`: where the replica has none of its own."""
    standing = candidate.standing
    n_before = max(candidate.n_sent, standing.n_queued - candidate.n_ended)
    computing = (prompt.n_bytes - candidate.n_kept(prompt)) * (standing.byte_s or byte_s)
    return n_before * (standing.request_s or request_s) + computing


def ranked(candidates: Sequence[Candidate], prompt: Prompt) -> list[int]:
    """The indices of the candidates, the best first. Of those that differ by no more than what a
    measurement does, that which keeps most, then that which was chosen longest ago.
    """
    byte_s = _mean([c.standing.byte_s for c in candidates], DEFAULT_BYTE_S)
    request_s = _mean([c.standing.request_s for c in candidates], DEFAULT_REQUEST_S)

    costs = [expected_s(c, prompt, byte_s=byte_s, request_s=request_s) for c in candidates]
    as_good = min(costs, default=0.0) * _NOISE + _NOISE_S

    def order(i: int) -> tuple[float, int, int]:
        one = candidates[i]
        return max(costs[i], as_good), -one.n_kept(prompt), one.last

    return sorted(range(len(candidates)), key=order)


def _mean(values: Sequence[float | None], default: float) -> float:
    known = [value for value in values if value]
    return sum(known) / len(known) if known else default


def _is_seconds(value: Any) -> TypeGuard[float | None]:
    return value is None or (isinstance(value, float) and 0 <= value < float("inf"))
