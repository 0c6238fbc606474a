"""One job, answered whole or as it comes: what both generation routes do once the job is known.

Owns the order of queue, first result and status line. Knows no shape of an answer.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from engine import StreamResult

from .schema.common import GenerationRequest
from .service import Service
from .sse import EventStream
from .stream import CompletionJob, CompletionStream


class Answer(Protocol):
    """The shape of one request's answer, as JSON and as events."""

    def whole(self, stream: CompletionStream, results: Sequence[StreamResult]) -> bytes: ...

    def encoder(self, *, include_usage: bool) -> Callable[[Sequence[StreamResult]], bytes]:
        """Makes events of one batch of results after the other; none (b"") of some."""
        ...

    def closing(self, stream: CompletionStream, *, include_usage: bool) -> bytes:
        """The events behind those of the last result."""
        ...


async def respond(
    service: Service, job: CompletionJob, answer: Answer, body: GenerationRequest, request: Request
) -> Response:
    """Queue the job and answer it in the way that the body asks for.

    A stream's status line waits for the first result, so that an error until then is an HTTP
    status. Raises what the queue and the engine raise.
    """
    stream = service.start(job)
    if not body.stream:
        results = await stream.collected(request.receive)
        return Response(answer.whole(stream, results), media_type="application/json")
    await stream.started(request.receive)
    return EventStream(
        stream,
        answer.encoder(include_usage=body.include_usage),
        lambda: answer.closing(stream, include_usage=body.include_usage),
        ping_interval=service.settings.ping_interval,
        send_timeout=service.settings.send_timeout,
    )
