"""POST /v1/estimate: a body of a generation route in, what it would cost out; nothing is computed.

Owns what is asked of cache, queue and pace. The body is read and checked as by the route that it is
for, so what that would refuse is refused here.
"""

import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from engine import Reuse

from ..answer.chunks import ChoicesAnswer
from ..answer.metadata import cache_fields
from ..answer.sse import encode_json
from ..answer.usage import milliseconds
from ..http.json_body import JsonRoute
from ..lease.waiter import Waiter
from ..schema.chat import ChatCompletionRequest
from ..schema.completions import CompletionRequest
from ..schema.errors import error_responses
from ..schema.estimate import Estimate
from ..service import Service
from ..stream.jobs import CompletionJob
from .chat.generation import chat_generation
from .completions.generation import completion_generation
from .generation import Generation

_BODY = {
    "content": {
        "application/json": {
            "schema": {
                "title": "EstimateRequest",
                "description": "A body of /v1/completions or, with `messages`, of "
                "/v1/chat/completions.",
                "anyOf": [
                    {"$ref": "#/components/schemas/CompletionRequest"},
                    {"$ref": "#/components/schemas/ChatCompletionRequest"},
                ],
            }
        }
    },
    "required": True,
}


def estimate_routes(service: Service) -> APIRouter:
    """The route, over one engine."""
    router = APIRouter(tags=["estimates"], route_class=JsonRoute)

    @router.post(
        "/v1/estimate",
        response_model=Estimate,
        responses=error_responses(400, 401, 403, 404, 413, 415, 421, 429, 503),
        openapi_extra={"requestBody": _BODY},
    )
    async def estimate(body: Annotated[dict[str, Any], Body()], request: Request) -> Response:
        """What a request would cost, if it came now. Nothing is computed, and no cached prompt
        becomes younger or older.
        """
        waiter = Waiter.of(request)
        jobs, answer = await _planned(service, body, waiter)
        n_tokens = sum(len(job.input_ids) for job in jobs)
        # Never on the event loop: the cache may be busy with a read from the disk.
        reuses = await service.large_bodies.work(
            lambda: _cached(service, waiter.key, jobs), n_tokens
        )
        said = _estimate(service, waiter.key, jobs, reuses, answer)
        return Response(encode_json(said), media_type="application/json")

    return router


async def _planned(service: Service, fields: dict[str, Any], waiter: Waiter) -> Generation:
    try:
        if "messages" in fields:
            chat = ChatCompletionRequest.model_validate(fields)
        else:
            completion = CompletionRequest.model_validate(fields)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**wrong, "loc": ("body", *wrong["loc"])} for wrong in errors], body=fields
        ) from None
    if "messages" in fields:
        return await chat_generation(service, chat, waiter)
    return await completion_generation(service, completion, waiter)


def _with_own_prompt(jobs: Sequence[CompletionJob]) -> list[CompletionJob]:
    """The first job of each prompt."""
    pairs = zip([None, *jobs], jobs, strict=False)
    return [job for before, job in pairs if before is None or job.input_ids is not before.input_ids]


def _cached(service: Service, key: str, jobs: Sequence[CompletionJob]) -> list[Reuse]:
    """Of each prompt."""
    return [service.expected_reuse(job, key) for job in _with_own_prompt(jobs)]


def _estimate(
    service: Service,
    key: str,
    jobs: Sequence[CompletionJob],
    reuses: list[Reuse],
    answer: ChoicesAnswer,
) -> dict[str, Any]:
    """`reuses`: of `_cached`."""
    cached = [reuse.n_reused for reuse in reuses]
    n_prompt, n_cached = sum(len(job.input_ids) for job in _with_own_prompt(jobs)), sum(cached)
    pace, first = service.pace, jobs[0]
    first_s = pace.first_token_s(len(first.input_ids) - cached[0], cached[0])
    each_s = pace.per_token_s(len(first.input_ids))
    position = service.lease.n_before(key)
    return {
        "object": "estimate",
        "model": answer.head["model"],
        "prompt_tokens": n_prompt,
        "cached_tokens": n_cached,
        "tokens_to_compute": n_prompt - n_cached,
        "max_tokens": sum(job.options.max_new_tokens or 0 for job in jobs),
        "queue": {"position": position, "wait_ms": _told(_wait_s(service, position))},
        "time_to_first_token_ms": _told(first_s),
        "time_per_token_ms": _told(each_s),
        "cache": cache_fields(reuses[0], first, service.engine.tokenizer),
        **({"warnings": answer.once["warnings"]} if "warnings" in answer.once else {}),
    }


def _wait_s(service: Service, position: int) -> float | None:
    """What those before it will take; the running one has done a part of its work."""
    if not position:
        return 0.0
    request_s, running = service.pace.request_s(), service.lease.running
    if request_s is None:
        return None
    done_s = 0.0
    if running is not None and running.admitted_at is not None:
        done_s = min(request_s, time.monotonic() - running.admitted_at)
    return position * request_s - done_s


def _told(seconds: float | None) -> float | None:
    return None if seconds is None else milliseconds(seconds)
