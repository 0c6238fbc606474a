"""Answers one request for generation, whole or streamed.

Owns the order of queue, first result and status line. Knows no shape of an answer.
"""

from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ..answer.shape import Answer
from ..answer.sse import SSE, Framing, streamed
from ..errors import contained
from ..lease.waiter import Waiter
from ..schema.common import GenerationRequest
from ..service import Service
from ..stream.jobs import Event
from ..stream.stream import CompletionStream
from .generation import Wire
from .keeping import keep, respond_kept

# An answer of this many tokens is written in a thread: each token may have many entries.
_MANY_TOKENS = 512


async def respond(
    service: Service, wire: Wire, body: GenerationRequest, waiter: Waiter
) -> Response:
    """Queue what the body asks for and answer in the way that it asks for.

    Raises what the wire, the queue and the engine raise.
    """
    generation = await wire.generation(service, body, waiter)
    service = generation.service
    if service.kept.keeps(body.wants_kept):
        kept = await keep(service, wire, body, generation, waiter)
        return await respond_kept(service, kept, waiter, is_stream=bool(body.stream))
    stream = service.start(generation.jobs, waiter)
    return await answered(
        service,
        stream,
        generation.answer,
        waiter,
        is_streamed=bool(body.stream),
        framing=wire.framing,
    )


async def answered(
    service: Service,
    stream: CompletionStream,
    answer: Answer,
    waiter: Waiter,
    *,
    is_streamed: bool,
    framing: Framing = SSE,
) -> Response:
    """The answer of a stream that was queued. Raises what the engine raises.

    A stream's status line waits for the first event, so that an error until then is an HTTP status.
    """
    if not is_streamed:
        events = await stream.collected(waiter.receive)
        return Response(await _whole(answer, stream, events), media_type="application/json")
    await stream.started(waiter.receive)
    try:
        encoder = contained(answer.encoder)
    except BaseException:
        stream.cancel()  # nothing else would: there is no response yet
        raise
    return streamed(
        stream,
        encoder,
        ping_interval=service.settings.ping_interval,
        readers=service.slow_readers,
        framing=framing,
    )


async def _whole(answer: Answer, stream: CompletionStream, events: Sequence[Event]) -> bytes:
    counts = stream.counts
    if counts.n_prompt + counts.n_completion < _MANY_TOKENS:
        return contained(answer.whole, stream, events)
    return await run_in_threadpool(contained, answer.whole, stream, events)
