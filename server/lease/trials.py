"""Compiles the grammars that clients send: one at a time, in turn, while their clients wait.

Owns the worker and a request's way through it. A grammar may cost seconds of a core and half a
gigabyte, so only one is compiled at a time, and the work stops when its client has gone. Knows no
grammar and no engine: the work is a callable.
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
    """The queue of requests that wait for their grammar, and the thread that serves them."""

    def __init__(self, *, max_queue: int) -> None:
        """`max_queue`: how many requests may wait while one is served."""
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
        """Refuse all requests, later ones too, and abort the running work. From any thread."""
        self._lease.fail(UnavailableError("the server is shutting down"))

    async def close(self) -> None:
        """Like `end`, and wait for the thread, unless `end` was called before."""
        await self._lease.close()

    async def run(self, work: Work, waiter: Waiter, deadline: Deadline | None) -> None:
        """Run `work` on the thread when its turn comes.

        Raises what the work raises, what the queue raises, the deadline's error, and
        ClientDisconnect; after the last two the work is aborted, or never begins.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[None] = loop.create_future()

        def tell(error: Exception | None = None) -> None:
            loop.call_soon_threadsafe(_settle, outcome, error)

        failures: list[Exception] = []

        def do(abort: AbortFlag) -> None:
            try:
                contained(work, abort)
            except Exception as error:  # noqa: BLE001 - raised again in the request
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
