"""What goes wrong in the fake engine, and where: planted by a test, the same in every run.

A place is a named point and a number: chunk k of a prompt or token k of a completion; for all other
points, the k-th passage from now on. Each fault happens once.
"""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Point = Literal[
    "render",  # a conversation becomes text, on the event loop or a worker thread
    "tokenize",  # a text becomes ids, on the same threads
    "admit",  # a request has the engine; from here on, on the engine thread
    "chunk",  # of the prompt, before it is computed
    "token",  # of the completion, before its logits are there
    "detokenize",  # an id becomes bytes
    "pause",  # a stream gives the engine away, and has said so
    "cleanup",  # all has been generated, and the stream ends
    "send",  # a piece of an answer goes to the socket
]


@dataclass(frozen=True, slots=True)
class Sleep:
    """It takes this much longer, and checks no flag meanwhile, as native code does."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hang:
    """It does not return until `release` is called."""

    begun: threading.Event = field(default_factory=threading.Event)
    _gate: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        self.begun.set()
        self._gate.wait()

    def release(self) -> None:
        self._gate.set()


@dataclass(frozen=True, slots=True)
class Spoil:
    """A logit becomes this, or all of them; only at a token."""

    value: float
    all: bool = False


Fault = BaseException | Sleep | Hang | Spoil


class FaultScript:
    """`script["chunk", 2] = MemoryError()`; a number alone means a token."""

    def __init__(self) -> None:
        self._due: dict[tuple[Point, int], Fault] = {}
        self._n_passed: Counter[Point] = Counter()

    def __setitem__(self, place: int | tuple[Point, int], fault: Fault) -> None:
        point, number = place if isinstance(place, tuple) else ("token", place)
        if point not in ("chunk", "token"):
            number += self._n_passed[point]
        self._due[point, number] = fault

    @property
    def is_over(self) -> bool:
        """Whether everything that was planted has happened."""
        return not self._due

    def pass_(self, point: Point, number: int | None = None) -> Spoil | None:
        """Called at each point; `number` is that of the chunk or token."""
        if number is None:
            number = self._n_passed[point]
            self._n_passed[point] += 1
        fault = self._due.pop((point, number), None) if self._due else None
        if isinstance(fault, BaseException):
            raise fault
        if isinstance(fault, Sleep):
            time.sleep(fault.seconds)
        elif isinstance(fault, Hang):
            fault.wait()
        elif isinstance(fault, Spoil):
            return fault
        return None

    def sending(self, app: "ASGIApp") -> "ASGIApp":
        """`app`, which passes "send" with each piece of a body."""

        async def wrapped(scope: "Scope", receive: "Receive", send: "Send") -> None:
            async def sends(message: "Message") -> None:
                if message["type"] == "http.response.body" and message.get("body"):
                    self.pass_("send")
                await send(message)

            await app(scope, receive, sends if scope["type"] == "http" else send)

        return wrapped
