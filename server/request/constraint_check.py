"""Compiles the constraint of a request before the request is queued, so that a bad one is a 4xx.

Owns where the work is done: in a thread, and a new grammar in turn, for as long as its client
waits. Knows no field of a request.
"""

from dataclasses import dataclass

from engine import ConstraintSpec, Engine

from ..http.large_bodies import LargeBodies
from ..lease.deadlines import Deadlines, TimeLimits
from ..lease.trials import Trials
from ..lease.waiter import Waiter


@dataclass(frozen=True, slots=True)
class ConstraintCheck:
    """Compiles constraints for one engine."""

    engine: Engine
    large_bodies: LargeBodies
    trials: Trials
    limits: TimeLimits

    async def check(self, spec: ConstraintSpec, waiter: Waiter) -> None:
        """Compile `spec`; the engine keeps the result.

        Raises InvalidInputError for the field of `spec`, and what Trials.run raises.
        """
        work = await self.large_bodies.work(
            lambda: self.engine.constraint_work(spec, param=spec.param), waiter.n_body
        )
        if work is not None:
            await self.trials.run(work, waiter, Deadlines(self.limits, since=waiter.since).first)
