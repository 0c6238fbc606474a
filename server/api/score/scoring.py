"""What a body of /v1/score asks for: a job for the engine, and the shape of its answer.

Raises all that can be wrong with it, before anything is queued.
"""

from typing import NamedTuple

from engine import StreamOptions

from ...answer.head import answer_head
from ...answer.logprobs import TokenNames
from ...answer.metadata import Include
from ...errors import RequestError
from ...lease.waiter import Waiter
from ...request.options import check_stream_options
from ...request.unknown_fields import check_unknown_fields
from ...schema.score import ScoreRequest
from ...service import Service
from ...stream.score import ScoreJob
from .answer import ScoreAnswer
from .tokens import read_texts

# What `include` may name: what is known of a token that was not drawn.
NAMES = (
    "token_ids", "bytes", "probs", "rank", "entropy", "margin", "special", "timings", "progress",
)  # fmt: skip


class Scoring(NamedTuple):
    """One request, ready to be queued."""

    job: ScoreJob
    answer: ScoreAnswer
    service: Service
    """Of the model that it is for."""


async def scoring(service: Service, body: ScoreRequest, waiter: Waiter) -> Scoring:
    """Raises RequestError, InvalidInputError and TemplateError."""
    warnings = await service.large_bodies.run(
        lambda: check_unknown_fields(body, body.parts(), strict=bool(body.strict)),
        waiter.n_body,
    )
    service = service.serving(body.model or None)
    check_stream_options(body)
    if body.messages is not None and (body.add_special_tokens or body.add_bos_token):
        raise RequestError(
            "add_special_tokens cannot be true with messages: the chat template writes its own "
            "special tokens",
            param="add_special_tokens",
        )
    include = Include.of(body.include, allowed=NAMES)
    read = await read_texts(service, body, n_body=waiter.n_body)
    engine = service.engine
    answer = ScoreAnswer(
        head=answer_head(
            id_prefix="score",
            object_="score.chunk" if body.stream else "score",
            model=body.model or service.model_id,
            fingerprint=engine.fingerprint,
            replica=service.replica,
        ),
        once={"warnings": warnings} if warnings else {},
        n_prompt=len(read.input_ids),
        texts=read.texts,
        names=TokenNames(engine.tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
        include=include,
        include_usage=body.stream_options is not None and bool(body.stream_options.include_usage),
    )
    job = ScoreJob(
        input_ids=read.input_ids,
        continuations=read.continuations,
        options=StreamOptions(
            return_top_tokens=body.top_logprobs or 0, isolation_key=body.cache_salt or ""
        ),
        progress=bool(body.stream) and "progress" in include,
    )
    return Scoring(job, answer, service)
