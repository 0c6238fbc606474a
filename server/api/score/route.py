"""POST /v1/score: a prompt and continuations in, how likely each of them is out."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine import StreamOptions

from ...answer.head import answer_head
from ...answer.logprobs import TokenNames
from ...answer.metadata import Include
from ...errors import RequestError
from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter
from ...request.options import check_stream_options
from ...request.unknown_fields import check_unknown_fields
from ...schema.errors import GENERATION_ERRORS
from ...schema.score import ScoreRequest, Scores
from ...service import Service
from ...stream.score import ScoreJob
from ..respond import answered
from .answer import ScoreAnswer
from .tokens import read_texts

# What `include` may name: what is known of a token that was not drawn.
NAMES = ("token_ids", "bytes", "probs", "rank", "entropy", "margin", "special", "timings")


def score_routes(service: Service) -> APIRouter:
    """The route, over one engine."""
    router = APIRouter(tags=["scoring"], route_class=JsonRoute)
    engine = service.engine

    @router.post(
        "/v1/score",
        response_model=Scores,
        responses={
            200: {"description": "The scores; with `stream: true`, each of them as an event."},
            **GENERATION_ERRORS,
        },
    )
    async def score(body: ScoreRequest, request: Request) -> Response:
        """How likely each of some continuations of one prompt is. The prompt is computed once."""
        waiter = Waiter.of(request)
        warnings = await service.large_bodies.run(
            lambda: check_unknown_fields(body, body.parts(), strict=bool(body.strict)),
            waiter.n_body,
        )
        service.check_model(body.model or None)
        check_stream_options(body)
        if body.messages is not None and (body.add_special_tokens or body.add_bos_token):
            raise RequestError(
                "add_special_tokens cannot be true with messages: the chat template writes its own "
                "special tokens",
                param="add_special_tokens",
            )
        include = Include.of(body.include, allowed=NAMES)
        read = await read_texts(service, body, n_body=waiter.n_body)
        options = StreamOptions(
            return_top_tokens=body.top_logprobs or 0, isolation_key=body.cache_salt or ""
        )
        answer = ScoreAnswer(
            head=answer_head(
                id_prefix="score",
                object_="score.chunk" if body.stream else "score",
                model=body.model or service.model_id,
                fingerprint=engine.fingerprint,
            ),
            once={"warnings": warnings} if warnings else {},
            texts=read.texts,
            names=TokenNames(engine.tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
            include=include,
            include_usage=body.stream_options is not None
            and bool(body.stream_options.include_usage),
        )
        job = ScoreJob(input_ids=read.input_ids, continuations=read.continuations, options=options)
        stream = service.start_score(job, waiter)
        return await answered(service, stream, answer, waiter, is_streamed=bool(body.stream))

    return router
