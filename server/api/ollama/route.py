"""POST /api/chat and /api/generate: Ollama's wire, line by line unless `stream` is false.

Answers of this wire are not kept: their streams have no numbered events.
"""

from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...answer.head import answer_head
from ...answer.logprobs import TokenNames
from ...answer.metadata import Include
from ...answer.sse import Framing, encode_json
from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter
from ...request.job import completion_jobs
from ...request.no_effect import effect_warnings, stream_option_warnings
from ...request.options import generation_options, requested_logprobs
from ...request.unknown_fields import Warnings, check_unknown_fields, warning
from ...schema.chat import ChatCompletionRequest
from ...schema.completions import CompletionRequest
from ...schema.errors import OLLAMA_ERRORS
from ...schema.ollama import OllamaAnswer as OllamaAnswerModel
from ...schema.ollama import OllamaChat, OllamaGenerate, OllamaRequest
from ...service import Service
from ...stream.jobs import CompletionJob
from ..chat.job import ReplyJob, reply_job
from ..chat.reply import PlainReader, ReplyShape
from ..chat.turn import chat_turn
from ..chat.variables import unused_variables
from ..completions.generation import text_options
from ..completions.prompts import listed_prompts, read_prompts
from ..loading import bring
from ..respond import answered
from .answer import OllamaAnswer, now
from .bodies import chat_of, chat_of_prompt, model_name, text_of

# Fields of the other routes that are about streams that are kept.
_KEEPING = ("store", "background", "metadata", "reasoning_control")
_LINES = Framing(ping=b"", media_type="application/x-ndjson")
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The answer; its lines as they come, unless `stream` is false."},
    **OLLAMA_ERRORS,
}


def ollama_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["generation"], route_class=JsonRoute)

    @router.post(
        "/api/chat",
        response_model=OllamaAnswerModel,
        response_model_exclude_unset=True,
        responses=_ANSWERS,
    )
    async def ollama_chat(body: OllamaChat, request: Request) -> Response:
        chosen, waiter = service.serving(model_name(body.model) or None), Waiter.of(request)
        if not body.messages:
            return await _loaded(chosen, body, waiter, is_chat=True)
        return await _chat(chosen, body, chat_of(body), waiter, is_chat=True)

    @router.post(
        "/api/generate",
        response_model=OllamaAnswerModel,
        response_model_exclude_unset=True,
        responses=_ANSWERS,
    )
    async def ollama_generate(body: OllamaGenerate, request: Request) -> Response:
        chosen, waiter = service.serving(model_name(body.model) or None), Waiter.of(request)
        if not body.prompt:
            return await _loaded(chosen, body, waiter, is_chat=False)
        if body.raw or body.suffix or chosen.engine.template is None:
            return await _text(chosen, body, text_of(body), waiter)
        return await _chat(chosen, body, chat_of_prompt(body), waiter, is_chat=False)

    return router


async def _chat(
    service: Service,
    asked: OllamaRequest,
    body: ChatCompletionRequest,
    waiter: Waiter,
    *,
    is_chat: bool,
) -> Response:
    warnings = _warnings(asked, body)
    n_top = requested_logprobs(body, body.top_logprobs, param="top_logprobs")
    shape = _shape(service, body, has_logprobs=bool(body.logprobs or n_top))
    options = generation_options(body, vocab_size=service.engine.config.vocab_size)
    turn = await chat_turn(service.large_bodies, body, n_body=waiter.n_body)
    prepared = await reply_job(service, body, turn, options, waiter, shape=shape, n_top=n_top)
    warnings += unused_variables(body, service.engine.template)
    return await _answered(service, body, prepared, warnings, shape, waiter, is_chat=is_chat)


async def _text(
    service: Service, asked: OllamaRequest, body: CompletionRequest, waiter: Waiter
) -> Response:
    warnings = _warnings(asked, body)
    n_top = requested_logprobs(body, body.logprobs, param="logprobs")
    shape = _shape(service, body, has_logprobs=n_top is not None)
    options = generation_options(body, vocab_size=service.engine.config.vocab_size)
    (prompt,) = await read_prompts(
        service, body, options, listed_prompts(body.prompt), default_max_tokens=1,
        suffix=body.suffix or "",
    )  # fmt: skip
    stream = replace(
        await text_options(service, body, options, waiter),
        return_top_tokens=n_top or 0,
        return_trace="trace" in shape.include,
    )
    (job,) = completion_jobs(
        service.engine, body, options, [prompt.input_ids], stream=stream, prompt_param="prompt",
        default_max_tokens=None, token_by_token=bool(body.stream) and shape.describes_tokens,
        progress=bool(body.stream) and "progress" in shape.include,
    )  # fmt: skip
    prepared = ReplyJob(job, PlainReader)
    return await _answered(service, body, prepared, warnings, shape, waiter, is_chat=False)


async def _answered(
    service: Service,
    body: ChatCompletionRequest | CompletionRequest,
    prepared: ReplyJob,
    warnings: Warnings,
    shape: ReplyShape,
    waiter: Waiter,
    *,
    is_chat: bool,
) -> Response:
    job: CompletionJob = prepared.job
    warnings += effect_warnings(body, job, service.engine.tokenizer)
    answer = OllamaAnswer(
        head=answer_head(
            id_prefix="ollama",
            object_="",
            model=body.model or service.model_id,
            fingerprint=service.engine.fingerprint,
            replica=service.replica,
        ),
        once={"warnings": warnings} if warnings else {},
        jobs=[job],
        new_reader=prepared.new_reader,
        shape=shape,
        is_chat=is_chat,
    )
    stream = service.start([job], waiter)
    return await answered(
        service, stream, answer, waiter, is_streamed=bool(body.stream), framing=_LINES
    )


def _warnings(asked: OllamaRequest, body: ChatCompletionRequest | CompletionRequest) -> Warnings:
    """Of fields that are not known, or do nothing."""
    strict = bool(body.strict)
    return [
        *check_unknown_fields(asked, asked.parts(), strict=strict),
        *check_unknown_fields(body, body.parts(), strict=strict),
        *stream_option_warnings(body),
        *(
            warning(name, "the answers of this route are not kept", strict=strict)
            for name in _KEEPING
            if getattr(body, name, None)
        ),
    ]


async def _loaded(
    service: Service, body: OllamaRequest, waiter: Waiter, *, is_chat: bool
) -> Response:
    """What a request without a prompt is answered: the model is in memory."""
    await bring(service, waiter)
    said: dict[str, Any] = {"model": body.model, "created_at": now()}
    said |= {"message": {"role": "assistant", "content": ""}} if is_chat else {"response": ""}
    said |= {"done": True, "done_reason": "load"}
    is_line = body.stream is not False
    media_type = _LINES.media_type if is_line else "application/json"
    return Response(encode_json(said) + b"\n" * is_line, media_type=media_type)


def _shape(
    service: Service, body: ChatCompletionRequest | CompletionRequest, *, has_logprobs: bool
) -> ReplyShape:
    ids = ["token_ids"] if body.return_token_ids else []
    include = Include.of([*body.includes, *ids], watches=body.watch_names)
    tokenizer = service.engine.tokenizer
    return ReplyShape(
        tokenizer=tokenizer,
        eos_token_ids=service.engine.eos_token_ids,
        names=TokenNames(tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
        logprobs=has_logprobs or include.wants_tokens,
        token_ids=False,  # they stand in the logprobs
        legacy_call=False,
        include=include,
    )
