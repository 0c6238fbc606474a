"""What a kept answer consists of: its request, and its streams with their tokens.

Owns how little memory the tokens of a stream take once it has ended.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine import Snapshot, snapshot_from_bytes, snapshot_to_bytes

from ..stream.jobs import Begun, Step, event_bytes
from .steps import steps_from_bytes, steps_to_bytes
from .unpacking import undamaged


class Packed(NamedTuple):
    """A stream in little memory."""

    place: bytes = b""
    steps: bytes = b""


def packing(place: Snapshot | None, steps: Sequence[Step]) -> Callable[[], Packed]:
    """What makes the bytes, on any thread."""

    def pack() -> Packed:
        return Packed(
            b"" if place is None else snapshot_to_bytes(place),
            steps_to_bytes(steps) if steps else b"",
        )

    return pack


@dataclass(slots=True)
class Origin:
    """Where a branch left its parent."""

    parent: str
    """Its id."""
    at: int
    """Tokens of the parent's completion that are this stream's too."""


@dataclass(slots=True)
class KeptStream:
    """One choice of a kept answer: a stream of its own."""

    id: str
    index: int
    prompt_ids: Sequence[int]
    origin: Origin | None = None
    children: list[str] = field(default_factory=list)
    begun: Begun | None = None
    finish: str | None = None
    """Why it ended, in the engine's words, or "error"."""
    n_tokens: int = 0
    """Generated so far, also those that ended the text."""
    n_bytes: int = 0
    """About how much memory its tokens take."""
    _steps: list[Step] = field(default_factory=list)
    _packed: Packed = field(default_factory=Packed)

    def steps(self, n_tokens: int | None = None) -> list[Step]:
        """So far; of one that has ended, perhaps only those with the first `n_tokens` tokens.
        Raises StreamStateError if they are damaged.
        """
        packed = self._packed.steps
        with undamaged():
            return [*(steps_from_bytes(packed, n_tokens) if packed else ()), *self._steps]

    def add(self, step: Step) -> None:
        self._steps.append(step)
        self.n_bytes += event_bytes(step)
        self.n_tokens += len(step.result.tokens) + len(step.result.dropped)
        if step.result.eos:
            self.finish = step.stop_detail or step.result.eos_reason

    def go_back(self, steps: Sequence[Step]) -> None:
        """Only `steps` are left."""
        self._steps, self._packed = [], Packed()
        self.n_bytes = self.n_tokens = 0
        for step in steps:
            self.add(step)

    @property
    def place(self) -> Snapshot | None:
        """Where it ended, or waits to be taken up; None before, and if it never began. Raises
        StreamStateError if it is damaged.
        """
        place = self._packed.place
        with undamaged():
            return snapshot_from_bytes(place) if place else None

    @property
    def is_packed(self) -> bool:
        return self._packed != Packed()

    def pack(self, place: Snapshot | None) -> None:
        """Keep what it is in little memory, now that it has ended at `place`."""
        self.load(self.packed(place)())
        self._steps = []

    def packed(self, place: Snapshot | None) -> Callable[[], Packed]:
        """What makes its bytes, on any thread: those of this moment, when it is at `place`."""
        if self.is_packed and not self._steps:
            ready = self._packed
            return lambda: ready
        return packing(place, self.steps())

    def load(self, packed: Packed) -> None:
        """Be what the bytes say."""
        self._packed = packed
        self.n_bytes = len(packed.steps) + len(packed.place)

    def unpack(self, *, keeps_steps: bool) -> None:
        """Grow again, with the steps so far or from the beginning."""
        self.go_back(self.steps() if keeps_steps else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for."""

    key: str
    """The caller's: nobody else sees the answer."""
    wire: str
    """The name of the wire that `body` and the answer are of."""
    body: bytes
    """JSON in zlib."""
    model: str
    created: int
    is_background: bool
    is_stored: bool
    """Whether the request itself asked to keep it."""
