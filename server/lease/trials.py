"""What compiles the grammars that clients send: one at a time, in turn, for who still waits.

Owns the worker and the way of a request through it. A grammar may cost seconds of a processor and
half a gigabyte, so nobody has a second one tried meanwhile, and what nobody waits for any more
ends. Knows no grammar, and no engine but its work.
"""

import asyncio
from collections.abc import Callable

from engine import AbortFlag

from ..errors import UnavailableError, contained
from .deadlines import Deadline
from .lease import EngineLease
from .waiter import Waiter, attended

Work = Callable[[AbortFlag], None]


class Trials:
    """Requests that wait for their grammar, each under its key, and the thread that serves them."""

    def __init__(self, *, max_queue: int) -> None:
        """`max_queue`: how many may wait while one is served."""
        self._lease = EngineLease(max_queue=max_queue, thread_name="trials")

    @property
    def busy(self) -> bool:
        return self._lease.busy

    @property
    def n_waiting(self) -> int:
        return self._lease.n_waiting

    def start(self) -> None:
        self._lease.start()

    def end(self) -> None:
        """Refuse all, those that come later too; what runs is told to end. From any thread."""
        self._lease.fail(UnavailableError("the server is shutting down"))

    async def close(self) -> None:
        """As `end`, and the thread has ended too, unless somebody called that before."""
        await self._lease.close()

    async def run(self, work: Work, waiter: Waiter, deadline: Deadline | None) -> None:
        """Have `work` done when it is its turn. Raises what it raises, what the queue raises, the
        deadline's error, and ClientDisconnect; in these cases the work ends, or never begins.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[None] = loop.create_future()

        def tell(error: Exception | None = None) -> None:
            loop.call_soon_threadsafe(_settle, outcome, error)

        failures: list[Exception] = []

        def do(abort: AbortFlag) -> None:
            try:
                contained(work, abort)
            except Exception as error:  # noqa: BLE001 - it is the waiter's
                failures.append(error)

        ticket = self._lease.submit(
            do,
            refuse=tell,
            released=lambda: tell(*failures),
            key=waiter.key,
            deadline=deadline,
        )
        try:
            async with asyncio.timeout_at(None if deadline is None else deadline.at):
                await attended(outcome, waiter.receive)
        except TimeoutError:
            assert deadline is not None
            raise deadline.error from None
        finally:
            ticket.cancel()


def _settle(outcome: "asyncio.Future[None]", error: Exception | None) -> None:
    if outcome.done():
        return
    if error is None:
        outcome.set_result(None)
    else:
        outcome.set_exception(error)
