"""One piece of work for the engine that is no stream of its own: it waits in the queue like any
request, and has the engine to itself.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.types import Receive

from engine import AbortFlag, EngineError

from ..errors import EngineFailedError, ServerError, is_out_of_memory
from ..lease.deadlines import Deadlines, TimeLimits
from ..lease.lease import EngineLease
from ..lease.waiter import attended

_logger = logging.getLogger(__name__)

T = TypeVar("T")


async def engine_call(
    lease: EngineLease,
    work: Callable[[AbortFlag], T],
    *,
    key: str,
    receive: Receive,
    limits: TimeLimits,
) -> T:
    """The result of `work`, called on the engine thread. Raises what it raises, what the queue
    raises, and ClientDisconnect, which aborts it.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def fail(error: Exception) -> None:
        loop.call_soon_threadsafe(_settle, result, None, error)

    def run(abort: AbortFlag) -> None:
        try:
            value = work(abort)
        except (EngineError, ServerError) as error:
            fail(error)
        except BaseException as error:  # from a library: no request may end this thread
            if is_out_of_memory(error):
                fail(MemoryError(str(error)))
            else:
                _logger.exception("the engine failed in a request")
                fail(EngineFailedError("the engine failed in this request"))
        else:
            loop.call_soon_threadsafe(_settle, result, value, None)

    deadlines = Deadlines(limits)
    ticket = lease.submit(run, refuse=fail, key=key, deadline=deadlines.first)
    try:
        return await attended(result, receive)
    finally:
        ticket.cancel()


def _settle(result: "asyncio.Future[Any]", value: Any, error: Exception | None) -> None:
    if result.done():
        return
    if error is None:
        result.set_result(value)
    else:
        result.set_exception(error)
