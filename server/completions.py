"""POST /v1/completions: a text in, its continuation out, whole or as it comes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine import StreamResult, TokenRecord

from .answer import respond
from .errors import RequestError
from .logprobs import legacy_logprobs
from .schema.common import RequestModel
from .schema.completions import Completion, CompletionRequest
from .schema.errors import GENERATION_ERRORS
from .schema.unsupported import check_unknown_fields
from .service import FINISH_REASONS, Service, check_text, encoded, usage
from .sse import DONE, choice_encoder, encode_event, encode_json, text_encoder
from .stream import CompletionStream

DEFAULT_MAX_TOKENS = 16


def completion_routes(service: Service) -> APIRouter:
    """The route, over one engine."""
    router = APIRouter(tags=["generation"])

    @router.post(
        "/v1/completions",
        response_model=Completion,
        responses={
            200: {"description": "The completion; with `stream: true`, its pieces as events."},
            **GENERATION_ERRORS,
        },
    )
    async def create_completion(body: CompletionRequest, request: Request) -> Response:
        warnings = check_unknown_fields(body, _parts(body))
        service.check_request(body)
        prompt = _single_prompt(body)
        input_ids = await _input_ids(service, prompt)
        job = service.job(
            body,
            input_ids,
            prompt_param="prompt",
            max_tokens=body.max_tokens,
            default_max_tokens=DEFAULT_MAX_TOKENS,
            n_top=body.logprobs or 0,
        )
        answer = _Answer(
            service=service,
            head=service.head("cmpl", "text_completion"),
            warnings={"warnings": warnings} if warnings else {},
            logprobs=_logprobs(service, prompt) if body.logprobs is not None else None,
        )
        return await respond(service, job, answer, body, request)

    return router


@dataclass(frozen=True, slots=True)
class _Answer:
    """The shape of one request's answer, whole or in chunks."""

    service: Service
    head: dict[str, Any]
    warnings: dict[str, Any]
    logprobs: Callable[[Sequence[TokenRecord]], dict[str, Any]] | None

    def whole(self, stream: CompletionStream, results: Sequence[StreamResult]) -> bytes:
        text = "".join(result.chunk for result in results)
        tokens = [token for result in results for token in result.tokens]
        choice = self._choice(text, tokens, results[-1].eos_reason)
        return encode_json(
            {**self.head, "choices": [choice], "usage": usage(stream), **self.warnings}
        )

    def encoder(self, *, include_usage: bool) -> Callable[[Sequence[StreamResult]], bytes]:
        tail: dict[str, Any] = {"usage": None} if include_usage else {}
        encode = choice_encoder(self.head, {**self.warnings, **tail})  # warnings once
        encode_next = choice_encoder(self.head, tail)
        encode_text = text_encoder(encode_next, lambda text: self._choice(text, (), None))

        def events(results: Sequence[StreamResult]) -> bytes:
            nonlocal encode
            pieces = []
            for result in results:
                # Nothing to say while text is held; nothing of a hidden token without logprobs.
                if not (result.chunk or result.eos or (result.tokens and self.logprobs)):
                    continue
                if result.eos or self.logprobs or encode is not encode_next:
                    choice = self._choice(result.chunk, result.tokens, result.eos_reason)
                    pieces.append(encode(choice))
                    encode = encode_next
                else:
                    pieces.append(encode_text(result.chunk))
            return b"".join(pieces)

        return events

    def closing(self, stream: CompletionStream, *, include_usage: bool) -> bytes:
        if not include_usage:
            return DONE
        return encode_event({**self.head, "choices": [], "usage": usage(stream)}) + DONE

    def _choice(
        self, text: str, tokens: Sequence[TokenRecord], eos_reason: str | None
    ) -> dict[str, Any]:
        return {
            "index": 0,
            "text": text,
            "logprobs": self.logprobs(tokens) if self.logprobs else None,
            "finish_reason": FINISH_REASONS[eos_reason] if eos_reason else None,
        }


def _parts(body: CompletionRequest) -> Iterable[tuple[str, RequestModel]]:
    if body.stream_options is not None:
        yield "stream_options", body.stream_options


def _single_prompt(body: CompletionRequest) -> str | list[int]:
    """The one prompt of the request: text or token ids."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return prompt
    if prompt and isinstance(prompt[0], int):
        return prompt
    if len(prompt) != 1:
        raise RequestError(
            f"prompt must be one prompt, not {len(prompt)}: the limit is 1 per request",
            param="prompt",
        )
    return cast(str | list[int], prompt[0])


async def _input_ids(service: Service, prompt: str | list[int]) -> list[int]:
    if isinstance(prompt, str):
        text = prompt
        check_text(text, param="prompt")
        return await encoded(lambda: service.engine.tokenizer.encode(text), len(text))
    return prompt


def _logprobs(
    service: Service, prompt: str | list[int]
) -> Callable[[Sequence[TokenRecord]], dict[str, Any]]:
    tokenizer = service.engine.tokenizer
    text = prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
    n_prompt_characters = len(text)
    return lambda tokens: legacy_logprobs(tokens, tokenizer, n_prompt_characters)
