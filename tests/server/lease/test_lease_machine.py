"""The lease as a state machine: whatever happens in whatever order, its promises hold.

The lease and its thread are the real ones; work is held until a rule releases it, and the clock
moves when a rule says so. Every promise has a negative control: a lease that breaks it, on which
the machine must fail.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine import AbortFlag
from server.errors import QueueFullError, QueueTimeoutError, UnavailableError
from server.lease.deadlines import Deadline
from server.lease.fair_queue import FairQueue
from server.lease.lease import EngineLease, Ticket
from server.lease.model_queue import ModelQueue

MAX_QUEUE = 4
KEYS = st.text("aabc", min_size=1, max_size=3)
PICK = st.integers(0, 9)


@dataclass(eq=False)
class Asked:
    """One ticket, and what became of it."""

    number: int
    key: str
    due: float | None
    gate: threading.Event = field(default_factory=threading.Event)
    fault: BaseException | None = None
    came_in: bool = False
    inside: bool = False
    given_up: bool = False
    ends: list[object] = field(default_factory=list)
    """What it was ended with: "released", or an error."""
    passed: dict[str, int] = field(default_factory=dict)
    """Turns of other keys since it began to wait."""
    ticket: Ticket = field(init=False)

    @property
    def waits(self) -> bool:
        return not (self.came_in or self.given_up or self.ends)

    def was_refused(self, error: type[Exception]) -> bool:
        return [type(end) for end in self.ends] == [error]


class World:
    """What the work sees and does; it records each broken promise at its place."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[Asked] = []
        self.n_inside = 0
        self.broken: list[str] = []

    def work(self, asked: Asked) -> Callable[[AbortFlag], None]:
        def run(_: AbortFlag) -> None:
            self._come_in(asked)
            asked.gate.wait()
            self.n_inside -= 1
            asked.inside = False
            if asked.fault is not None:
                raise asked.fault

        return run

    def _come_in(self, asked: Asked) -> None:
        self.n_inside += 1
        self._expect(self.n_inside == 1, "one owner at a time")
        self._expect(not asked.given_up, "who gave up never runs")
        self._expect(not asked.ends, "who was refused never runs")
        self._expect(asked.due is None or self.now < asked.due, "who is late never runs")
        for other in self.asked:
            if other is asked or not other.waits:
                continue
            if other.key == asked.key:
                self._expect(other.number > asked.number, "first come, first served, in a key")
            else:
                turns = other.passed[asked.key] = other.passed.get(asked.key, 0) + 1
                is_first = not any(
                    one.waits and one.key == other.key and one.number < other.number
                    for one in self.asked
                )
                self._expect(turns == 1 or not is_first, "keys take turns")
        # Its key had its turn: its other tickets wait anew.
        for other in self.asked:
            if other.key == asked.key:
                other.passed.clear()
        asked.came_in = asked.inside = True

    def _expect(self, holds: bool, promise: str) -> None:
        if not holds:
            self.broken.append(promise)


class LeaseMachine(RuleBasedStateMachine):
    lease_class = EngineLease
    patience = 20.0  # against hanging; a lease at rest is seen at once

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.lease = self.lease_class(max_queue=MAX_QUEUE, clock=lambda: self.world.now)
        self.failures = 0
        self.lease.on_failed = self._note_failure
        self.admits = self.lives = True
        self.lease.start()

    def _note_failure(self) -> None:
        self.failures += 1

    # Rules.

    @rule(keys=KEYS, patience=st.sampled_from([None, None, 1.0]))
    def enqueue(self, keys: str, patience: float | None) -> None:
        for key in keys:
            self.enqueue_one(key, patience)
            self.until(self.at_rest)

    def enqueue_one(self, key: str, patience: float | None) -> None:
        before = self.waiting
        keys = [asked.key for asked in before]
        was_full = self.lease.n_waiting + self.lease.busy > MAX_QUEUE
        refusal = self.submit(key, patience)
        if refusal is None:
            assert self.admits, "nobody is let in any more"
            displaced = [one for one in before if one.ends]
            assert len(displaced) == was_full
            for one in displaced:
                assert one.was_refused(QueueFullError)
                assert keys.count(one.key) == most(keys) >= keys.count(key) + 2
                assert not [o for o in before if o.key == one.key and o.number > one.number]
        elif isinstance(refusal, QueueFullError):
            assert was_full, "refused although there was room"
            assert keys.count(key) + 2 > most(keys), "by one with more"
        else:
            assert not self.admits

    def submit(self, key: str, patience: float | None) -> Exception | None:
        """The error of the refusal, if any."""
        world = self.world
        due = None if patience is None else world.now + patience
        asked = Asked(len(world.asked), key, due)
        world.asked.append(asked)  # beforehand: it may be admitted before submit returns
        try:
            asked.ticket = self.lease.submit(
                world.work(asked),
                refuse=asked.ends.append,
                released=lambda: asked.ends.append("released"),
                key=key,
                deadline=None if due is None else Deadline(due, QueueTimeoutError("late")),
            )
        except (QueueFullError, UnavailableError) as error:
            world.asked.remove(asked)
            return error
        return None

    @precondition(lambda self: self.waiting)
    @rule(pick=PICK)
    def give_up(self, pick: int) -> None:
        asked = self.waiting[pick % len(self.waiting)]
        asked.given_up = True
        assert asked.ticket.cancel()
        assert not asked.ticket.cancel(), "only once"

    @precondition(lambda self: self.waiting)
    @rule(pick=PICK)
    def withdraw(self, pick: int) -> None:
        asked = self.waiting[pick % len(self.waiting)]
        asked.given_up = True
        assert asked.ticket.withdraw()
        assert not asked.ticket.abort.is_set()

    @precondition(lambda self: self.owner)
    @rule()
    def hang_up_inside(self) -> None:
        asked = self.inside()
        assert not asked.ticket.withdraw()
        assert not asked.ticket.cancel()
        assert asked.ticket.abort.is_set()
        assert self.lease.busy, "the flag alone frees nothing"

    @precondition(lambda self: self.owner)
    @rule(breaks=st.lists(st.sampled_from([False, False, True]), min_size=1, max_size=3))
    def finish(self, breaks: list[bool]) -> None:
        for is_broken in breaks:
            if (asked := self.owner) is not None:
                if is_broken:
                    asked.fault = RuntimeError("broken")
                self.finish_one(asked)
                self.until(self.at_rest)

    def finish_one(self, asked: Asked) -> None:
        was_aborted = asked.ticket.abort.is_set()
        asked.gate.set()
        self.until(lambda: asked.ends)
        assert not asked.ticket.cancel(), "it is too late to give up"
        assert asked.ticket.abort.is_set() == was_aborted

    @rule()
    def pass_time(self) -> None:
        self.world.now += 1.0

    @precondition(lambda self: len(self.world.asked) > 5)
    @rule()
    def drain(self) -> None:
        self.lease.stop_admitting()
        self.admits = False

    @precondition(lambda self: len(self.world.asked) > 7)
    @rule()
    def close(self) -> None:
        closing = threading.Thread(target=lambda: asyncio.run(self.lease.close()))
        inside = self.owner
        was_alive = self.lives
        waiting = self.waiting
        closing.start()
        if inside is not None and was_alive:
            # Somebody may have hung up before, so the flag alone does not show that it has begun.
            self.until(lambda: inside.ticket.abort.is_set() and not self.lease.n_waiting)
            assert closing.is_alive(), "it waits for the engine"
            inside.gate.set()
        closing.join(self.patience)
        assert not closing.is_alive()
        self.admits = self.lives = False
        assert all(one.was_refused(UnavailableError) for one in waiting)

    @precondition(lambda self: len(self.world.asked) > 7)
    @rule(dies=st.booleans())
    def lose_the_engine(self, dies: bool) -> None:
        inside, waiting, was_alive = self.owner, self.waiting, self.lives
        error: Exception
        if dies and inside is not None and was_alive:
            inside.fault = SystemExit()
            inside.gate.set()
            self.until(lambda: self.failures)
        else:
            error = UnavailableError("hangs")
            self.lease.fail(error)
            assert all(one.ends == [error] for one in waiting)
            if was_alive and inside is not None:
                assert inside.ends == [error], "although the engine has not left"
        if was_alive:
            assert self.failures == 1
            assert all(one.was_refused(UnavailableError) for one in waiting)
        self.admits = self.lives = False

    @precondition(lambda self: not self.lives and self.owner)
    @rule()
    def leave_after_all(self) -> None:
        asked = self.inside()
        asked.gate.set()
        self.until(lambda: not asked.inside)

    # Promises.

    @invariant()
    def holds(self) -> None:
        self.until(self.at_rest)
        world, lease = self.world, self.lease
        assert not world.broken
        assert world.n_inside <= 1
        assert lease.ready == self.admits
        assert lease.n_waiting == len(self.waiting) <= MAX_QUEUE
        positions = sorted(
            position
            for asked in world.asked
            if (position := lease.position(asked.ticket)) is not None
        )
        assert positions == list(range(len(self.waiting)))
        assert self.failures <= 1
        for asked in world.asked:
            assert len(asked.ends) + asked.given_up <= 1, "ended once"
            times = (asked.ticket.queued_at, asked.ticket.admitted_at, asked.ticket.freed_at)
            assert sorted(known := [one for one in times if one is not None]) == known
            assert asked.came_in == (asked.ticket.admitted_at is not None)

    def at_rest(self) -> bool:
        """Everyone who can be admitted is, and everyone who has left knows the end."""
        inside = self.world.n_inside
        is_served = not self.waiting or (bool(inside) and self.lives)
        told = all(one.inside or one.ends for one in self.world.asked if one.came_in)
        return bool(self.world.broken) or (is_served and told and self.lease.busy >= bool(inside))

    @property
    def waiting(self) -> list[Asked]:
        return [asked for asked in self.world.asked if asked.waits]

    @property
    def owner(self) -> Asked | None:
        return next((asked for asked in self.world.asked if asked.inside), None)

    def inside(self) -> Asked:
        assert self.owner is not None
        return self.owner

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + self.patience
        while not condition():
            assert time.monotonic() < deadline, "a ticket was stranded"
            time.sleep(0.0001)

    def teardown(self) -> None:
        for asked in self.world.asked:
            asked.gate.set()
        asyncio.run(self.lease.close())


def most(keys: list[str]) -> int:
    return max(map(keys.count, keys), default=0)


SETTINGS: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "stateful_step_count": 25,
    "suppress_health_check": list(HealthCheck),
}


def test_the_lease_keeps_its_promises() -> None:
    options = settings(max_examples=80, phases=(Phase.generate,), **SETTINGS)
    run_state_machine_as_test(LeaseMachine, settings=options)


# Negative controls.


class LetsTheNextInOnCancel(EngineLease):
    """As a plain lock around a thread does."""

    def cancel(self, ticket: Ticket) -> bool:
        was_running = ticket is self._running
        waited = super().cancel(ticket)
        if was_running:
            threading.Thread(target=self._serve, daemon=True).start()
        return waited


class WakesNobody(EngineLease):
    """Looks at the queue only after a ticket; one that comes to an idle engine is stranded."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        notify_all = self._changed.notify_all
        self._changed.notify_all = lambda: None if self.ready else notify_all()  # type: ignore[method-assign]


def is_free(_: object) -> bool:
    return True


class ServesTheLastFirst(EngineLease):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._queue = ModelQueue(is_free, _LastFirst)


class _LastFirst(FairQueue[Ticket]):
    def pop(self) -> Ticket:
        key = next(iter(self._waiting), "")
        item, _ = self._waiting[key].popitem()
        self._forget(key)
        return item


class KnowsNoKeys(EngineLease):
    def submit(self, *args: Any, key: str = "", **options: Any) -> Ticket:
        return super().submit(*args, **options)


class ServesALoudKeyTwice(EngineLease):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._queue = ModelQueue(is_free, _Loud)


class _Loud(FairQueue[Ticket]):
    def pop(self) -> Ticket:
        loudest = max(self._waiting, key=lambda key: len(self._waiting[key]))
        self._waiting.move_to_end(loudest, last=False)
        self._last_key = None
        return super().pop()


class ForgetsDeadlines(EngineLease):
    def submit(self, *args: Any, deadline: Any = None, **options: Any) -> Ticket:
        return super().submit(*args, **options)


class ForgetsWhoGaveUp(EngineLease):
    """Says yes and leaves the ticket in the queue."""

    def withdraw(self, ticket: Ticket) -> bool:
        return self.position(ticket) is not None


class LetsOneMoreWait(EngineLease):
    def __init__(self, *, max_queue: int, **options: Any) -> None:
        super().__init__(max_queue=max_queue + 1, **options)


class AdmitsWhileItDrains(EngineLease):
    def stop_admitting(self) -> None:
        pass


class StrandsWhoWaitsWhenItCloses(EngineLease):
    def _clear_queue(self) -> list[Ticket]:
        return []


class GoesOnWhenTheEngineIsLost(EngineLease):
    """Refuses them all, and lets the next newcomer in."""

    def fail(self, error: Exception) -> None:
        super().fail(error)
        self._state = type(self._state).OPEN


class TellsTheEndTwice(EngineLease):
    """Forgets that the running ticket was already refused."""

    def _serve_one(self, ticket: Ticket) -> None:
        super()._serve_one(ticket)
        if ticket.abort.is_set():
            ticket.released()


CONTROLS = [
    LetsTheNextInOnCancel, WakesNobody, ServesTheLastFirst, KnowsNoKeys, ServesALoudKeyTwice,
    ForgetsDeadlines, ForgetsWhoGaveUp, LetsOneMoreWait, AdmitsWhileItDrains,
    StrandsWhoWaitsWhenItCloses, GoesOnWhenTheEngineIsLost, TellsTheEndTwice,
]  # fmt: skip


@pytest.mark.parametrize("broken", CONTROLS)
def test_the_machine_catches_a_lease_that(broken: type[EngineLease]) -> None:
    class Broken(LeaseMachine):
        lease_class = broken
        patience = 0.3

    options = settings(max_examples=200, phases=(Phase.generate,), **SETTINGS)
    with pytest.raises((AssertionError, Flaky)):
        run_state_machine_as_test(Broken, settings=options)
