"""One piece of work for the engine that is no stream of its own: it waits in the queue like any
request, and has the engine to itself.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from starlette.types import Receive

from engine import AbortFlag

from ..lease.deadlines import Deadlines, TimeLimits
from ..lease.lease import EngineLease
from ..lease.served_model import ServedModel
from ..lease.waiter import attended
from .steering import Call

_logger = logging.getLogger(__name__)

T = TypeVar("T")


async def engine_call(
    lease: EngineLease,
    model: ServedModel | None,
    work: Callable[[AbortFlag], T],
    *,
    key: str,
    receive: Receive,
    limits: TimeLimits,
) -> T:
    """The result of `work`, called on the engine thread with the model, if it needs one, in memory.
    Raises what it raises, what the queue raises, and ClientDisconnect, which aborts it.
    """
    call = Call(work)

    def run(abort: AbortFlag) -> None:
        try:
            call.make(abort)
        except BaseException:  # from a library: no request may end this thread
            _logger.exception("the engine failed in a request")

    deadlines = Deadlines(limits)
    ticket = lease.submit(run, refuse=call.fail, key=key, deadline=deadlines.first, model=model)
    try:
        result: T = await attended(call.result, receive)
        return result
    finally:
        ticket.cancel()
