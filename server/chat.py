"""POST /v1/chat/completions: a conversation in, the next reply out, whole or as it comes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine import StreamResult, TokenRecord

from .answer import respond
from .errors import RequestError
from .logprobs import chat_logprobs
from .schema.chat import ChatCompletion, ChatCompletionRequest
from .schema.common import RequestModel
from .schema.errors import GENERATION_ERRORS
from .schema.unsupported import check_unknown_fields
from .service import FINISH_REASONS, Service, check_text, encoded, usage
from .sse import DONE, choice_encoder, encode_event, encode_json, text_encoder
from .stream import CompletionStream


def chat_routes(service: Service) -> APIRouter:
    """The route, over one engine."""
    router = APIRouter(tags=["generation"])

    @router.post(
        "/v1/chat/completions",
        response_model=ChatCompletion,
        responses={
            200: {"description": "The reply; with `stream: true`, its pieces as events."},
            **GENERATION_ERRORS,
        },
    )
    async def create_chat_completion(body: ChatCompletionRequest, request: Request) -> Response:
        warnings = check_unknown_fields(body, _parts(body))
        service.check_request(body)
        _check_top_logprobs(body)
        job = service.job(
            body,
            await _input_ids(service, body),
            prompt_param="messages",
            max_tokens=_max_tokens(body),
            default_max_tokens=None,
            n_top=body.top_logprobs or 0,
        )
        answer = _Answer(
            service=service,
            head=service.head(
                "chatcmpl", "chat.completion.chunk" if body.stream else "chat.completion"
            ),
            warnings={"warnings": warnings} if warnings else {},
            with_logprobs=bool(body.logprobs),
        )
        return await respond(service, job, answer, body, request)

    return router


@dataclass(frozen=True, slots=True)
class _Answer:
    """The shape of one request's answer, whole or in chunks."""

    service: Service
    head: dict[str, Any]
    warnings: dict[str, Any]
    with_logprobs: bool

    def whole(self, stream: CompletionStream, results: Sequence[StreamResult]) -> bytes:
        tokens = [token for result in results for token in result.tokens]
        eos_reason = results[-1].eos_reason
        assert eos_reason is not None, "a stream that was collected has ended"
        choice = {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "".join(result.chunk for result in results),
                "refusal": None,
            },
            "logprobs": self._logprobs(tokens),
            "finish_reason": FINISH_REASONS[eos_reason],
        }
        return encode_json(
            {**self.head, "choices": [choice], "usage": usage(stream), **self.warnings}
        )

    def encoder(self, *, include_usage: bool) -> Callable[[Sequence[StreamResult]], bytes]:
        """The role, the text in pieces, the reason of the end."""
        tail: dict[str, Any] = {"usage": None} if include_usage else {}
        encode = choice_encoder(self.head, tail)
        encode_text = text_encoder(encode, lambda text: _choice({"content": text}))
        # The role once, and warnings once: clients join the strings of all chunks.
        role = _choice({"role": "assistant", "content": ""})
        pieces = [encode_event({**self.head, "choices": [role], **tail, **self.warnings})]

        def events(results: Sequence[StreamResult]) -> bytes:
            for result in results:
                # Nothing to say while text is held; nothing of a hidden token without logprobs.
                if self.with_logprobs and (result.chunk or result.tokens):
                    logprobs = self._logprobs(result.tokens)
                    pieces.append(encode(_choice({"content": result.chunk}, logprobs=logprobs)))
                elif result.chunk:
                    pieces.append(encode_text(result.chunk))
                if result.eos_reason is not None:
                    finish_reason = FINISH_REASONS[result.eos_reason]
                    pieces.append(encode(_choice({}, finish_reason=finish_reason)))
            whole = b"".join(pieces)
            pieces.clear()
            return whole

        return events

    def closing(self, stream: CompletionStream, *, include_usage: bool) -> bytes:
        if not include_usage:
            return DONE
        return encode_event({**self.head, "choices": [], "usage": usage(stream)}) + DONE

    def _logprobs(self, tokens: Sequence[TokenRecord]) -> dict[str, Any] | None:
        if not self.with_logprobs:
            return None
        return chat_logprobs(tokens, self.service.engine.tokenizer)


def _choice(
    delta: dict[str, str],
    *,
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


def _parts(body: ChatCompletionRequest) -> Iterable[tuple[str, RequestModel]]:
    if body.stream_options is not None:
        yield "stream_options", body.stream_options
    for i, message in enumerate(body.messages):
        yield f"messages[{i}]", message
        if not isinstance(message.content, str):
            for j, part in enumerate(message.content):
                yield f"messages[{i}].content[{j}]", part


def _check_top_logprobs(body: ChatCompletionRequest) -> None:
    if body.top_logprobs and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs: true", param="top_logprobs")


def _max_tokens(body: ChatCompletionRequest) -> int | None:
    new, old = body.max_completion_tokens, body.max_tokens
    if new is not None and old is not None and new != old:
        raise RequestError(
            f"max_tokens is another name of max_completion_tokens; they say {old} and {new}",
            param="max_tokens",
        )
    return old if new is None else new


async def _input_ids(service: Service, body: ChatCompletionRequest) -> list[int]:
    for i, message in enumerate(body.messages):
        check_text(message.text, param=f"messages[{i}].content")
    messages = [
        {
            "role": "system" if message.role == "developer" else message.role,
            "content": message.text,
        }
        for message in body.messages
    ]
    n_characters = sum(len(message["content"]) for message in messages)
    return await encoded(lambda: service.engine.encode_chat(messages), n_characters)
