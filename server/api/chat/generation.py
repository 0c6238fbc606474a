"""What a body of /v1/chat/completions asks for: jobs for the engine, and the shape of their answer.

Raises all that can be wrong with it, before anything is queued.
"""

from typing import Any

from engine import Engine

from ...answer.choices import check_choices, spread
from ...answer.chunks import ChoicesAnswer
from ...answer.head import answer_head
from ...answer.logprobs import TokenNames
from ...answer.metadata import Include
from ...errors import RequestError
from ...lease.waiter import Waiter
from ...request.no_effect import effect_warnings
from ...request.options import check_stream_options, generation_options, requested_logprobs
from ...request.text import LONG_TEXT, check_text
from ...request.unknown_fields import check_unknown_fields
from ...schema.chat import ChatCompletionRequest
from ...service import Service
from ..generation import Generation
from .answer import ChatChoices
from .job import reply_job
from .messages import parts_text
from .reply import ReplyShape
from .turn import chat_turn, content_length
from .variables import unused_variables

_WHOLE, _CHUNK = "chat.completion", "chat.completion.chunk"  # objects of the wire


async def chat_generation(
    service: Service, body: ChatCompletionRequest, waiter: Waiter
) -> Generation:
    """Raises RequestError, InvalidInputError and TemplateError."""
    bodies, n_body = service.large_bodies, waiter.n_body
    warnings = await bodies.run(
        lambda: check_unknown_fields(body, body.parts(), strict=bool(body.strict)),
        n_body,
    )
    service = service.serving(body.model or None)
    engine = service.engine
    check_stream_options(body)
    _check_top_logprobs(body)
    n_top = requested_logprobs(body, body.top_logprobs, param="top_logprobs")
    n = 1 if body.n is None else body.n
    check_choices(n, 1, param="n")
    shape = _shape(engine, body, has_logprobs=bool(body.logprobs or n_top))
    options = generation_options(body, vocab_size=engine.config.vocab_size)
    turn = await chat_turn(bodies, body, n_body=n_body)
    prepared = await reply_job(
        service,
        body,
        turn,
        options,
        waiter,
        shape=shape,
        n_top=n_top,
        prediction=await _prediction_ids(service, body),
    )
    job = prepared.job
    warnings += effect_warnings(body, job, engine.tokenizer)
    warnings += unused_variables(body, engine.template)
    jobs = await bodies.run(lambda: spread([job], n), n * n_body)
    once: dict[str, Any] = {"prompt_token_ids": job.input_ids} if shape.token_ids else {}
    warnings += service.storing_warnings(body)
    answer = ChoicesAnswer(
        head=answer_head(
            id_prefix="chatcmpl",
            object_=_WHOLE,
            model=body.model or service.model_id,
            fingerprint=engine.fingerprint,
            replica=service.replica,
        ),
        once={**once, "warnings": warnings} if warnings else once,
        jobs=jobs,
        n=n,
        new_choices=lambda: ChatChoices(jobs, prepared.new_reader, shape),
        chunk_object=_CHUNK,
        include=shape.include,
        include_usage=body.include_usage,
        continuous_usage=body.continuous_usage,
    )
    return Generation(jobs, answer, service)


def _shape(engine: Engine, body: ChatCompletionRequest, *, has_logprobs: bool) -> ReplyShape:
    include = Include.of(body.includes, watches=body.watch_names)
    return ReplyShape(
        tokenizer=engine.tokenizer,
        eos_token_ids=engine.eos_token_ids,
        names=TokenNames(engine.tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
        logprobs=has_logprobs or include.wants_tokens,
        token_ids=bool(body.return_token_ids),
        legacy_call=body.has_functions,
        include=include,
    )


def _check_top_logprobs(body: ChatCompletionRequest) -> None:
    if body.top_logprobs and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs: true", param="top_logprobs")


async def _prediction_ids(service: Service, body: ChatCompletionRequest) -> list[int]:
    """Token ids of the text that the reply will probably repeat."""
    if body.prediction is None:
        return []
    content = body.prediction.content
    tokenizer = service.engine.tokenizer

    def encode() -> list[int]:
        if isinstance(content, str):
            text = content
        else:
            text = "".join(parts_text(content, path="prediction.content", kinds=("text",)))
        check_text(text, param="prediction.content")
        return tokenizer.encode(text, add_special_tokens=False, parse_special=False)

    return await service.large_bodies.run(encode, content_length(content), inline_below=LONG_TEXT)
