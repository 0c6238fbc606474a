"""POST /v1/completions: texts in, their continuations out, whole or as they come.

Owns what a body asks for; knows no shape of an answer.
"""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...answer.choices import check_choices, spread
from ...answer.logprobs import TokenNames
from ...answer.metadata import Include
from ...errors import RequestError
from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter
from ...request.options import requested_logprobs
from ...request.unknown_fields import check_unknown_fields
from ...schema.completions import Completion, CompletionRequest
from ...schema.errors import GENERATION_ERRORS
from ...service import Service
from ...stream.jobs import CompletionJob
from ..respond import respond
from .answer import CompletionAnswer
from .choice import ChoiceShape
from .prompts import listed_prompts, read_prompts

DEFAULT_MAX_TOKENS = 16


def completion_routes(service: Service) -> APIRouter:
    """The route, over one engine."""
    router = APIRouter(tags=["generation"], route_class=JsonRoute)

    @router.post(
        "/v1/completions",
        response_model=Completion,
        responses={
            200: {"description": "The completion; with `stream: true`, its pieces as events."},
            **GENERATION_ERRORS,
        },
    )
    async def create_completion(body: CompletionRequest, request: Request) -> Response:
        waiter = Waiter.of(request)
        warnings = check_unknown_fields(body, body.parts(), strict=bool(body.strict))
        service.check_request(body)
        n, n_candidates = _choices(body)
        shape = _shape(service, body)
        listed = listed_prompts(body)
        check_choices(n_candidates, len(listed), param="best_of" if n_candidates > n else "n")
        prompts = await read_prompts(service, body, listed, default_max_tokens=DEFAULT_MAX_TOKENS)
        constraint = await service.constraint(body, waiter)
        negative_ids = await service.negative_ids(body)

        def make_jobs() -> list[CompletionJob]:
            of_prompts = service.jobs(
                body,
                [prompt.input_ids for prompt in prompts],
                prompt_param="prompt",
                default_max_tokens=DEFAULT_MAX_TOKENS,
                n_top=shape.logprobs or 0,
                constraint=constraint,
                prompt_top=shape.prompt_top,
                negative_ids=negative_ids,
                trace="trace" in shape.include,
                token_by_token=bool(body.stream) and not shape.is_text_alone,
                progress=bool(body.stream) and "progress" in shape.include,
            )
            return spread(of_prompts, n_candidates)

        # The settings of every choice are checked again, with its seed.
        n_choices = len(prompts) * n_candidates
        jobs = await service.beside(make_jobs, n_choices * request.state.n_body)
        warnings += service.effect_warnings(body, jobs[0])
        answer = CompletionAnswer(
            head=service.head(body, "cmpl", "text_completion"),
            warnings={"warnings": warnings} if warnings else {},
            prompts=prompts,
            jobs=jobs,
            n=n,
            shape=shape,
            include_usage=body.include_usage,
            continuous_usage=body.continuous_usage,
        )
        return await respond(service, jobs, answer, body, waiter)

    return router


def _choices(body: CompletionRequest) -> tuple[int, int]:
    """How many choices per prompt are wanted, and how many are generated to choose from."""
    n = 1 if body.n is None else body.n
    check_choices(n, 1, param="n")
    if body.best_of is None:
        return n, n
    if body.best_of < n:
        raise RequestError(f"best_of must be n, {n}, or more, not {body.best_of}", param="best_of")
    if body.stream and body.best_of > n:
        raise RequestError("best_of cannot be streamed: the best is known last", param="best_of")
    return n, body.best_of


def _shape(service: Service, body: CompletionRequest) -> ChoiceShape:
    if body.echo and body.suffix:
        raise RequestError("echo and suffix cannot be combined", param="echo")
    include = Include.of(body.includes)
    n_top = requested_logprobs(body, body.logprobs, param="logprobs")
    return ChoiceShape(
        service=service,
        names=TokenNames(service.engine.tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
        echo=bool(body.echo),
        logprobs=0 if n_top is None and include.wants_tokens else n_top,
        prompt_logprobs=body.prompt_logprobs,
        token_ids=bool(body.return_token_ids),
        include=include,
    )
