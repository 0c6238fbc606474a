"""One running completion: results arrive from the engine thread, readers take them from any cursor.

The engine never waits for a reader. Every result is kept until the stream is dropped; that is at
most one per token of the context, so a slow reader costs memory that is bounded, and never the
engine. The event loop is woken only when a reader waits, once for all results that came since.
Whoever reads them as they come rests for a millisecond after each batch: tokens that are faster
come several at once. To wake the event loop for each of them would take the engine, which shares
its cores, a third of the speed that such small models have.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from engine import AbortFlag, EngineError, SamplingSettings, StreamingGenerator, StreamResult

from .errors import EngineFailedError, UnavailableError
from .lease import EngineLease
from .watchdog import Watchdog

_logger = logging.getLogger(__name__)

T = TypeVar("T")

# True: results have come, or the end. False: the time is over.
_Waiter = asyncio.Future[bool]

_REST_S = 0.001


@dataclass(frozen=True, slots=True)
class CompletionJob:
    """What to generate, in the engine's words."""

    input_ids: Sequence[int]
    settings: SamplingSettings
    max_new_tokens: int
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    n_top: int


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """What `usage` reports."""

    n_prompt: int
    n_cached: int
    n_completion: int


class CompletionStream:
    """A job in the queue, then in the engine, then done; its results, at any time, for any reader.

    Made on the event loop. Raises what EngineLease.submit raises.
    """

    def __init__(self, job: CompletionJob, generator: StreamingGenerator, lease: EngineLease):
        self._job = job
        self._generator = generator
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # guards the four fields below
        self._results: list[StreamResult] = []
        self._waiters: list[_Waiter] = []
        self._ended = False
        self._error: Exception | None = None
        self.counts = TokenCounts(len(job.input_ids), 0, 0)
        """Final once the stream has ended."""
        self._ticket = lease.submit(self._run, refuse=self._end)

    def cancel(self) -> None:
        """Stop: leave the queue, or have the engine leave at its next step. Harmless when done."""
        if self._ticket.cancel():
            self._end(ClientDisconnect())

    async def results(self, *, idle: float | None = None) -> AsyncIterator[Sequence[StreamResult]]:
        """All results from the first one on, as many at once as have come since the last time.

        After `idle` seconds without any, an empty sequence. Raises, after the last result, what
        ended the stream, if that was an error.
        """
        cursor = 0
        waiter: _Waiter | None = None
        with Watchdog(idle, lambda: _settle([waiter] if waiter else [], False)) as watchdog:
            while True:
                with self._lock:
                    fresh = self._results[cursor:]
                    ended = self._ended
                    waiter = None if fresh or ended else self._new_waiter()
                if waiter is not None:
                    watchdog.start()
                    woken = await waiter
                    watchdog.stop()
                    if not woken:
                        yield ()
                    continue
                cursor += len(fresh)
                if fresh:
                    yield fresh
                if ended:
                    break
                await asyncio.sleep(_REST_S)
        if self._error is not None:
            raise self._error

    async def started(self, receive: Receive) -> None:
        """Wait for the first result, so that an error until then is still an HTTP status.

        Cancels the stream and raises ClientDisconnect when the client hangs up first.
        """
        await self._attended(self._first(), receive)

    async def collected(self, receive: Receive) -> list[StreamResult]:
        """All results of the whole stream. Cancels like `started`."""
        return await self._attended(self._all(), receive)

    async def _first(self) -> None:
        async for _ in self.results():
            return

    async def _all(self) -> list[StreamResult]:
        return [result async for batch in self.results() for result in batch]

    async def _attended(self, work: Coroutine[Any, Any, T], receive: Receive) -> T:
        """Await `work` for as long as the client is there."""
        task = asyncio.create_task(work)
        hang_up = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((task, hang_up), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientDisconnect
            return task.result()
        except BaseException:
            self.cancel()
            raise
        finally:
            task.cancel()
            hang_up.cancel()
            await asyncio.gather(task, hang_up, return_exceptions=True)

    def _new_waiter(self) -> _Waiter:
        waiter: _Waiter = self._loop.create_future()
        self._waiters.append(waiter)
        return waiter

    # What follows runs on the engine thread, but for _end, which either side may call.

    def _run(self, abort: AbortFlag) -> None:
        try:
            self._generate(abort)
        except EngineError as error:
            self._end(error)
        except Exception:
            _logger.exception("the engine failed in a completion")
            self._end(EngineFailedError("the engine failed in this request"))

    def _generate(self, abort: AbortFlag) -> None:
        job, generator = self._job, self._generator
        prefill = generator.begin_stream_ex(
            job.input_ids,
            job.settings,
            max_new_tokens=job.max_new_tokens,
            stop=job.stop,
            stop_token_ids=job.stop_token_ids,
            ignore_eos=job.ignore_eos,
            return_top_tokens=job.n_top,
            abort=abort,
        )
        while True:
            result = generator.stream_ex()
            if result.eos:
                break
            self._append(result)
        self.counts = TokenCounts(prefill.n_prompt, prefill.n_cached, generator.n_completion_tokens)
        if result.eos_reason == "aborted":
            # Whoever hung up reads no more; all others were cut off by the server.
            self._end(UnavailableError("the server is shutting down"))
        else:
            self._append(result, last=True)

    def _append(self, result: StreamResult, *, last: bool = False) -> None:
        with self._lock:
            self._results.append(result)
            self._ended = last
            waiters, self._waiters = self._waiters, []
        self._wake(waiters)

    def _end(self, error: Exception) -> None:
        with self._lock:
            self._error = error
            self._ended = True
            waiters, self._waiters = self._waiters, []
        self._wake(waiters)

    def _wake(self, waiters: Sequence[_Waiter]) -> None:
        if waiters:
            self._loop.call_soon_threadsafe(_settle, waiters, True)


def _settle(waiters: Sequence[_Waiter], woken: bool) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(woken)


async def forever() -> None:
    """Wait to be cancelled."""
    await asyncio.Event().wait()


async def _disconnected(receive: Receive) -> None:
    """Return when the client has hung up. Only after the body has been read to its end."""
    while (await receive())["type"] != "http.disconnect":
        pass
