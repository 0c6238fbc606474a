"""Answers a request whose answer is kept: the client is the first reader of its log.

Owns what a connection means to a kept stream: unless it is in the background, the client that began
it ends it by hanging up.
"""

import zlib
from collections.abc import AsyncIterator

from starlette.responses import Response

from ..answer.sse import PING, EventStream
from ..errors import ServerError
from ..kept.kept import Kept
from ..kept.streams import KeptStream, Origin, Request
from ..lease.waiter import Waiter, attended
from ..request.storing import checked_metadata
from ..schema.common import GenerationRequest
from ..service import Service
from .generation import Generation, Wire


async def keep(
    service: Service,
    wire: Wire,
    body: GenerationRequest,
    generation: Generation,
    waiter: Waiter,
    origin: Origin | None = None,
) -> Kept:
    """Queue the jobs, and keep what comes of them. Raises QueueFullError and UnavailableError."""
    jobs, answer, service = generation
    text = await service.large_bodies.run(
        lambda: body.model_dump_json(exclude_unset=True, by_alias=True), waiter.n_body
    )
    request = Request(
        key=waiter.key,
        wire=wire.name,
        body=zlib.compress(text.encode()),
        model=str(answer.head["model"]),
        fingerprint=service.engine.fingerprint,
        created=int(answer.head["created"]),
        is_background=bool(body.background),
        is_stored=bool(body.store),
    )
    streams = [
        KeptStream(
            answer.id if len(jobs) == 1 else f"{answer.id}-{job.index}", i, job.input_ids, origin
        )
        for i, job in enumerate(jobs)
    ]
    kept = Kept(answer.id, request, streams)
    kept.metadata = checked_metadata(body.metadata)
    stream = service.start(jobs, waiter, is_steered=True)
    kept.start(stream, answer, max_bytes=service.settings.max_unread_bytes)
    service.kept.add(kept)
    return kept


async def respond_kept(
    service: Service, kept: Kept, waiter: Waiter, *, is_stream: bool
) -> Response:
    """The answer to whom it was begun for. Raises the error that ended it before its first byte."""
    log = kept.log
    try:
        await attended(log.begun() if is_stream else log.whole(), waiter.receive)
    except BaseException:
        kept.leave()
        raise
    has_failed = kept.error is not None and (not is_stream or log.n_events == 1)
    if has_failed and kept.error is not None:
        service.kept.delete(kept)  # nobody knows its id
        raise kept.error
    if not is_stream:
        return Response(zlib.decompress(kept.whole), media_type="application/json")
    pieces = or_error(_first_reader(service, kept), kept)
    return EventStream(pieces, on_left=kept.leave)


async def or_error(pieces: AsyncIterator[bytes], kept: Kept) -> AsyncIterator[bytes]:
    """The pieces of an answer; if the server shuts down before the last one, or what is stored of
    them is damaged, an error event without a number.
    """
    try:
        async for piece in pieces:
            yield piece
    except ServerError as error:
        yield kept.error_event(error)


async def _first_reader(service: Service, kept: Kept) -> AsyncIterator[bytes]:
    ping = service.settings.ping_interval
    async for frames in kept.log.read(idle=ping):
        yield frames or PING
