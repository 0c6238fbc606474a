"""What a kept answer consists of: its request, and its streams with their tokens.

Owns how little memory the tokens of a stream take once it has ended.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine import Snapshot, snapshot_from_bytes, snapshot_to_bytes

from ..stream.jobs import Begun, CompletionJob, Step, event_bytes
from ..stream.pause import Pause
from .steps import steps_from_bytes, steps_to_bytes
from .unpacking import undamaged


class Packed(NamedTuple):
    """A stream in little memory."""

    place: bytes = b""
    steps: bytes = b""


class Unpacked(NamedTuple):
    """The same, as it is used."""

    place: Snapshot | None
    steps: Sequence[Step]
    n_bytes: int
    """About how much memory the steps take."""

    @classmethod
    def of(cls, packed: Packed) -> "Unpacked":
        """Raises StreamStateError if it is damaged."""
        with undamaged():
            place = snapshot_from_bytes(packed.place) if packed.place else None
            steps = steps_from_bytes(packed.steps) if packed.steps else []
            return cls(place, steps, sum(map(event_bytes, steps)))


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
    on_unpacked: Callable[[], None] = lambda: None
    """Called when what is packed was read, and when it has been packed: it stays there unpacked,
    too, until `let_go`.
    """
    _packed: Packed = field(default_factory=Packed)
    _unpacked: Unpacked | None = None

    def steps(self) -> list[Step]:
        """So far. Raises StreamStateError if they are damaged."""
        return [*(self._read().steps if self.is_packed else ()), *self._steps]

    def add(self, step: Step) -> None:
        self._steps.append(step)
        self.n_bytes += event_bytes(step)
        self.n_tokens += len(step.result.tokens) + len(step.result.dropped)
        if step.result.eos:
            self.finish = step.stop_detail or step.result.eos_reason

    def go_back(self, steps: Sequence[Step]) -> None:
        """Only `steps` are left."""
        self._steps, self._packed = [], Packed()
        if self._unpacked is not None:
            self._hold(None)
        self.n_bytes = self.n_tokens = 0
        for step in steps:
            self.add(step)

    @property
    def place(self) -> Snapshot | None:
        """Where it ended, or waits to be taken up; None before, and if it never began. Raises
        StreamStateError if it is damaged.
        """
        if self._unpacked is not None:
            return self._unpacked.place
        place = self._packed.place
        with undamaged():
            return snapshot_from_bytes(place) if place else None

    @property
    def is_packed(self) -> bool:
        return self._packed != Packed()

    def pack(self, place: Snapshot | None) -> None:
        """Keep what it is in little memory, now that it has ended at `place`."""
        if self.is_packed and not self._steps:
            return
        unpacked = Unpacked(place, self.steps(), self.n_bytes)
        self.load(packing(place, unpacked.steps)())
        self._steps = []
        self._hold(unpacked)

    @property
    def n_unpacked_bytes(self) -> int:
        """About how much memory it takes besides, until `let_go`."""
        return self._unpacked.n_bytes if self._unpacked else 0

    def let_go(self) -> None:
        """Keep the packed form only."""
        self._unpacked = None

    def packed(self, place: Snapshot | None) -> Callable[[], Packed]:
        """What makes its bytes, on any thread: those of this moment, when it is at `place`."""
        if self.is_packed and not self._steps:
            ready = self._packed
            return lambda: ready
        return packing(place, self.steps())

    def packed_in(self, pause: Pause, jobs: Sequence[CompletionJob]) -> Callable[[], Packed]:
        """The same of an answer of these jobs that is paused."""
        if self.index in pause.places:
            return self.packed(pause.places[self.index])
        if self.begun is not None:
            return self.packed(pause.run.place)
        job = jobs[self.index]
        return packing(job.snapshot, job.inherited)

    def load(self, packed: Packed) -> None:
        """Be what the bytes say."""
        self._packed, self._unpacked = packed, None
        self.n_bytes = len(packed.steps) + len(packed.place)

    def unpack(self, *, keeps_steps: bool) -> None:
        """Grow again, with the steps so far or from the beginning."""
        self.go_back(self.steps() if keeps_steps else ())

    def _read(self) -> Unpacked:
        """What is packed. Raises StreamStateError if it is damaged."""
        unpacked = self._unpacked or Unpacked.of(self._packed)
        self._hold(unpacked)
        return unpacked

    def _hold(self, unpacked: Unpacked | None) -> None:
        self._unpacked = unpacked
        self.on_unpacked()


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
    """The name in its answer."""
    fingerprint: str
    """Of the engine that computes it."""
    created: int
    is_background: bool
    is_stored: bool
    """Whether the request itself asked to keep it."""
