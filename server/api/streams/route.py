"""GET /v1/streams, GET and DELETE /v1/streams/{id}, and the events of one, from any event on."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ...answer.sse import EventStream, encode_long_json
from ...errors import RequestError
from ...kept.kept import Kept
from ...schema.errors import error_responses
from ...schema.streams import KeptStreamDetail, StreamDeleted, StreamList
from ...service import Service
from ..keeping import or_error
from ..paging import After, Limit, Order, page
from .found import found_stream
from .shown import detail, summary

_ERRORS = error_responses(400, 401, 403, 404, 421)
# Without a blank line behind it: official clients would read an empty event.
_PING = b": ping\n"


class KeptEvents(Response):
    """For the contract."""

    media_type = "text/event-stream"


def stream_routes(service: Service) -> APIRouter:
    """The routes, over the kept streams."""
    router = APIRouter(tags=["streams"])

    @router.get("/v1/streams", response_model=StreamList, responses=_ERRORS)
    async def list_streams(
        request: Request, limit: Limit = 20, after: After = None, order: Order = "desc"
    ) -> dict[str, Any]:
        """The kept streams of the caller."""
        pairs = [
            (kept, stream)
            for kept in service.kept.answers(_caller(request))
            for stream in kept.streams
        ]
        return page(
            pairs,
            id_of=lambda pair: pair[1].id,
            shown=lambda pair: summary(service.kept, *pair),
            limit=limit,
            after=after,
            order=order,
        )

    @router.get(
        "/v1/streams/{stream_id}",
        response_model=KeptStreamDetail,
        responses={**_ERRORS, **error_responses(409)},
    )
    async def get_stream(stream_id: str, request: Request) -> Response:
        """One stream, with its text and its tokens."""
        kept, stream = found_stream(service, _caller(request), stream_id)
        about, steps = summary(service.kept, kept, stream), stream.steps()
        tokenizer = service.of_engine(kept.request.fingerprint).engine.tokenizer

        def written() -> bytes:
            return encode_long_json(detail(stream, steps, about, tokenizer))

        return Response(await run_in_threadpool(written), media_type="application/json")

    @router.delete("/v1/streams/{stream_id}", response_model=StreamDeleted, responses=_ERRORS)
    async def delete_stream(stream_id: str, request: Request) -> dict[str, Any]:
        """End the stream, with the other choices of its answer, and forget it."""
        service.kept.delete(service.kept.answer(_caller(request), stream_id))
        return {"id": stream_id, "object": "stream.deleted", "deleted": True}

    @router.get(
        "/v1/streams/{stream_id}/events",
        response_model=None,
        response_class=KeptEvents,
        responses={200: {"description": "The events."}, **_ERRORS},
    )
    async def stream_events(
        stream_id: str,
        request: Request,
        starting_after: Annotated[
            int | None, Query(ge=0, description="The number of the last event that is known.")
        ] = None,
        last_event_id: Annotated[
            str | None, Header(max_length=32, description="The same, from a browser.")
        ] = None,
    ) -> Response:
        """The events of the answer as its route sent them, each with its number as `id`, from one
        on and as they come.
        """
        kept = service.kept.answer(_caller(request), stream_id)
        after = starting_after if starting_after is not None else _number(last_event_id)
        n_events = kept.log.n_events
        if after > n_events:
            raise RequestError(
                f"starting_after must be at most {n_events}, the events so far, not {after}",
                param="starting_after",
            )
        return EventStream(or_error(_numbered(service, kept, after), kept))

    return router


async def _numbered(service: Service, kept: Kept, after: int) -> AsyncIterator[bytes]:
    async for frames in kept.log.read_numbered(after, idle=service.settings.ping_interval):
        yield frames or _PING


def _number(text: str | None) -> int:
    if text is None:
        return 0
    if not text.isascii() or not text.isdigit():
        raise RequestError("last-event-id must be the number of an event", param="last-event-id")
    return int(text)


def _caller(request: Request) -> str:
    return str(request.scope["state"]["caller"])
