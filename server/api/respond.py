"""Answers the jobs of one request, whole or streamed: what the generation routes do once the jobs
are known.

Owns the order of queue, first result and status line. Knows no shape of an answer.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ..answer.sse import EventStream
from ..errors import contained
from ..lease.waiter import Waiter
from ..schema.common import GenerationRequest
from ..service import Service
from ..stream.jobs import CompletionJob, Event
from ..stream.stream import CompletionStream

# An answer of this many tokens is written in a thread: each token may have many entries.
_MANY_TOKENS = 512


class Answer(Protocol):
    """The shape of one request's answer, as JSON and as events."""

    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        """The answer of a stream that has ended, from all its events."""
        ...

    def encoder(self) -> Callable[[Sequence[Event]], bytes]:
        """Makes the frames of each batch in order; b"" when there is nothing to say."""
        ...

    def closing(self, stream: CompletionStream) -> bytes:
        """The frames after those of the last batch."""
        ...


async def respond(
    service: Service,
    jobs: Sequence[CompletionJob],
    answer: Answer,
    body: GenerationRequest,
    waiter: Waiter,
) -> Response:
    """Queue the jobs and answer them in the way that the body asks for.

    Raises what the queue and the engine raise.
    """
    stream = service.start(jobs, waiter)
    return await answered(service, stream, answer, waiter, is_streamed=bool(body.stream))


async def answered(
    service: Service,
    stream: CompletionStream,
    answer: Answer,
    waiter: Waiter,
    *,
    is_streamed: bool,
) -> Response:
    """The answer of a stream that was queued. Raises what the engine raises.

    A stream's status line waits for the first event, so that an error until then is an HTTP status.
    """
    if not is_streamed:
        events = await stream.collected(waiter.receive)
        return Response(await _whole(answer, stream, events), media_type="application/json")
    await stream.started(waiter.receive)
    try:
        encode = contained(answer.encoder)
    except BaseException:
        stream.cancel()  # nothing else would: there is no response yet
        raise
    return EventStream(
        stream,
        encode,
        lambda: answer.closing(stream),
        ping_interval=service.settings.ping_interval,
        readers=service.slow_readers,
    )


async def _whole(answer: Answer, stream: CompletionStream, events: Sequence[Event]) -> bytes:
    counts = stream.counts
    if counts.n_prompt + counts.n_completion < _MANY_TOKENS:
        return contained(answer.whole, stream, events)
    return await run_in_threadpool(contained, answer.whole, stream, events)
