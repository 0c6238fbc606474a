"""POST /v1/estimate: a body of another route in, what it would cost out; nothing is computed.

Owns what is asked of cache, queue and pace. The body is read and checked as by the route that it is
for, so what that would refuse is refused here.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body
from starlette.requests import Request
from starlette.responses import Response

from engine import Reuse

from ..answer.metadata import cache_fields
from ..answer.sse import encode_json
from ..answer.usage import milliseconds
from ..http.json_body import JsonRoute
from ..lease.waiter import Waiter
from ..schema.chat import ChatCompletionRequest
from ..schema.completions import CompletionRequest
from ..schema.errors import error_responses
from ..schema.estimate import Estimate
from ..schema.responses import ResponsesRequest
from ..schema.score import ScoreRequest
from ..service import Service
from ..stream.jobs import CompletionJob
from .chat.generation import chat_generation
from .completions.generation import completion_generation
from .generation import Generation
from .responses.fields import check_prompt_fields
from .responses.generation import responses_generation
from .responses.history import with_history
from .score.scoring import scoring
from .streams.overrides import validated

_BODY = {
    "content": {
        "application/json": {
            "schema": {
                "title": "EstimateRequest",
                "description": "A body of /v1/score, if it has `continuations`; of "
                "/v1/responses, if it has `input`; of /v1/chat/completions, if it has `messages`; "
                "else of /v1/completions.",
                "anyOf": [
                    {"$ref": "#/components/schemas/ScoreRequest"},
                    {"$ref": "#/components/schemas/CompletionRequest"},
                    {"$ref": "#/components/schemas/ChatCompletionRequest"},
                    {"$ref": "#/components/schemas/ResponsesRequest"},
                ],
            }
        }
    },
    "required": True,
}


def estimate_routes(service: Service) -> APIRouter:
    """The route."""
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
        estimated = _of_scores if "continuations" in body else _of_generation
        said = await estimated(service, body, waiter)
        return Response(encode_json(said), media_type="application/json")

    return router


async def _of_generation(
    service: Service, fields: dict[str, Any], waiter: Waiter
) -> dict[str, Any]:
    jobs, answer, service = await _planned(service, fields, waiter)
    n_tokens = sum(len(job.input_ids) for job in jobs)
    # Never on the event loop: the cache may be busy with a read from the disk.
    reuses = await service.large_bodies.work(lambda: _cached(service, waiter.key, jobs), n_tokens)
    cached = [reuse.n_reused for reuse in reuses]
    n_prompt, n_cached = sum(len(job.input_ids) for job in _with_own_prompt(jobs)), sum(cached)
    pace, first = service.pace, jobs[0]
    first_s = pace.first_token_s(len(first.input_ids) - cached[0], cached[0])
    return {
        **_head(answer.head),
        "prompt_tokens": n_prompt,
        "cached_tokens": n_cached,
        "tokens_to_compute": n_prompt - n_cached,
        "cache": cache_fields(reuses[0], first, service.engine.tokenizer),
        "max_tokens": sum(job.options.max_new_tokens or 0 for job in jobs),
        "queue": _queue(service, waiter.key),
        "time_to_first_token_ms": _told(first_s),
        "time_per_token_ms": _told(pace.per_token_s(len(first.input_ids))),
        **_warnings(answer.once),
    }


async def _of_scores(service: Service, fields: dict[str, Any], waiter: Waiter) -> dict[str, Any]:
    job, answer, service = await scoring(service, validated(ScoreRequest, fields), waiter)
    n_prompt, n_continuation = len(job.input_ids), sum(map(len, job.continuations))
    reuse = await service.large_bodies.work(
        lambda: service.expected_reuse(job, waiter.key), n_prompt
    )
    n_cached = reuse.n_reused
    return {
        **_head(answer.head),
        "prompt_tokens": n_prompt,
        "cached_tokens": n_cached,
        # The first token of a continuation needs no pass of its own.
        "tokens_to_compute": n_prompt - n_cached + n_continuation - len(job.continuations),
        "cache": cache_fields(reuse, job, service.engine.tokenizer),
        "continuation_tokens": n_continuation,
        "max_tokens": 0,
        "queue": _queue(service, waiter.key),
        "time_to_first_token_ms": None,
        "time_per_token_ms": None,
        "time_ms": _told(service.pace.scores_s(job, n_cached)),
        **_warnings(answer.once),
    }


async def _planned(service: Service, fields: dict[str, Any], waiter: Waiter) -> Generation:
    if "input" in fields:
        body = validated(ResponsesRequest, fields)
        check_prompt_fields(body)
        return await responses_generation(service, *await with_history(service, body, waiter))
    if "messages" in fields:
        return await chat_generation(service, validated(ChatCompletionRequest, fields), waiter)
    return await completion_generation(service, validated(CompletionRequest, fields), waiter)


def _with_own_prompt(jobs: Sequence[CompletionJob]) -> list[CompletionJob]:
    """The first job of each prompt."""
    pairs = zip([None, *jobs], jobs, strict=False)
    return [job for before, job in pairs if before is None or job.input_ids is not before.input_ids]


def _cached(service: Service, key: str, jobs: Sequence[CompletionJob]) -> list[Reuse]:
    """Of each prompt."""
    return [service.expected_reuse(job, key) for job in _with_own_prompt(jobs)]


def _head(head: Mapping[str, Any]) -> dict[str, Any]:
    return {"object": "estimate", "model": head["model"]}


def _warnings(once: Mapping[str, Any]) -> dict[str, Any]:
    return {"warnings": once["warnings"]} if "warnings" in once else {}


def _queue(service: Service, key: str) -> dict[str, Any]:
    position = service.lease.n_before(key, service.model)
    return {"position": position, "wait_ms": _told(_wait_s(service, position))}


def _wait_s(service: Service, position: int) -> float | None:
    """What those before it will take, and loading the model; the running one has done a part of its
    work.
    """
    load_s = _load_s(service)
    if not position:
        return load_s
    request_s, running = service.pace.request_s(), service.lease.running
    if request_s is None:
        return None
    done_s = 0.0
    if running is not None and running.admitted_at is not None:
        done_s = min(request_s, time.monotonic() - running.admitted_at)
    return position * request_s - done_s + load_s


def _load_s(service: Service) -> float:
    """What bringing the model into memory will take, if it took as long as the last time."""
    model, shelf = service.model, service.shelf
    if model.is_loaded:
        return 0.0
    return model.loads.seconds + (0.0 if shelf.is_free(model) else shelf.turn_left)


def _told(seconds: float | None) -> float | None:
    return None if seconds is None else milliseconds(seconds)
