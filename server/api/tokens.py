"""Text <-> token ids over HTTP: /tokenize, /detokenize, /tokenizer_info, /apply-template, and
TabbyAPI's /v1/token/encode and /v1/token/decode.

Owns what these routes accept and answer. They use the tokenizer and the template alone and never
wait for the engine; long work runs in a thread, as in the generation routes.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine import Engine

from ..answer.sse import encode_long_json
from ..chat.prompt import prompt_ids
from ..errors import RequestError
from ..http.json_body import JsonRoute
from ..request.text import LONG_TEXT, check_text
from ..request.unknown_fields import Warnings, check_unknown_fields
from ..schema.errors import error_responses
from ..schema.messages import Message
from ..schema.tokens import (
    DecodedTokens,
    Detokenized,
    DetokenizeRequest,
    EncodedTokens,
    InputTokens,
    RenderedPrompt,
    TemplateFields,
    TemplateRequest,
    TokenDecodeRequest,
    TokenEncodeRequest,
    TokenizeRequest,
    TokenizerInfo,
    TokenRequest,
    Tokens,
)
from ..service import Service
from .chat.turn import template_turn
from .model_name import ModelName

_ERRORS = error_responses(400, 401, 403, 404, 413, 415, 421)
# A token id is as much work as this many characters.
_CHARACTERS_PER_TOKEN = 4
# SillyTavern's server makes the second of a model that its user has not chosen.
_NO_NAMES = ("", "undefined")


def token_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["tokens"], route_class=JsonRoute)

    @router.post("/tokenize", response_model=Tokens, responses=_ERRORS)
    async def tokenize(body: TokenizeRequest, request: Request) -> Response:
        """The token ids of a text, or of messages as the model would see them."""
        n_body = request.state.n_body
        chosen, warnings = await _chosen(service, body, n_body=n_body)
        token_ids = await _tokenized(chosen, body, n_body=n_body)
        return await _answer(
            chosen, lambda: {**_tokens(chosen.engine, body, token_ids), **warnings}, token_ids
        )

    @router.post("/detokenize", response_model=Detokenized, responses=_ERRORS)
    async def detokenize(body: DetokenizeRequest, request: Request) -> Response:
        """The text of token ids, special tokens included."""
        chosen, warnings = await _chosen(service, body, n_body=request.state.n_body)
        engine = chosen.engine
        _check_token_ids(engine, body.tokens)

        def work() -> dict[str, Any]:
            text = engine.tokenizer.decode(body.tokens)
            return {"prompt": text, "content": text, **warnings}

        return await _answer(service, work, body.tokens)

    @router.get("/tokenizer_info", responses=error_responses(401, 404, 421))
    async def tokenizer_info(model: ModelName = None) -> TokenizerInfo:
        """What a client needs to encode as this server does."""
        return _tokenizer_info(service.serving(model or None).engine)

    @router.post("/apply-template", response_model=RenderedPrompt, responses=_ERRORS)
    async def apply_template(body: TemplateRequest, request: Request) -> Response:
        """The prompt that /v1/chat/completions would make of the messages; nothing is generated."""
        n_body = request.state.n_body
        chosen, warnings = await _chosen(service, body, n_body=n_body)
        token_ids = await _chat_ids(chosen, body.messages, body, n_body=n_body)
        tokenizer = chosen.engine.tokenizer
        return await _answer(
            chosen, lambda: {"prompt": tokenizer.decode(token_ids), **warnings}, token_ids
        )

    @router.post("/v1/chat/completions/input_tokens", response_model=InputTokens, responses=_ERRORS)
    async def count_input_tokens(body: TemplateRequest, request: Request) -> Response:
        """How many tokens the prompt of a chat has."""
        n_body = request.state.n_body
        chosen, warnings = await _chosen(service, body, n_body=n_body)
        token_ids = await _chat_ids(chosen, body.messages, body, n_body=n_body)
        said = {"input_tokens": len(token_ids), "object": "response.input_tokens", **warnings}
        return await _answer(service, lambda: said, ())

    @router.post("/v1/token/encode", response_model=EncodedTokens, responses=_ERRORS)
    async def token_encode(body: TokenEncodeRequest, request: Request) -> Response:
        """TabbyAPI's /tokenize; of messages the text without the beginning of a reply."""
        n_body = request.state.n_body
        chosen, warnings = await _chosen(service, body, n_body=n_body)
        token_ids = await _encoded(chosen, body, n_body=n_body)
        return await _answer(
            chosen, lambda: {"tokens": token_ids, "length": len(token_ids), **warnings}, token_ids
        )

    @router.post("/v1/token/decode", response_model=DecodedTokens, responses=_ERRORS)
    async def token_decode(body: TokenDecodeRequest, request: Request) -> Response:
        """TabbyAPI's /detokenize."""
        chosen, warnings = await _chosen(service, body, n_body=request.state.n_body)
        engine = chosen.engine
        _check_token_ids(engine, body.tokens)
        skip = body.decode_special_tokens is False

        def work() -> dict[str, Any]:
            text = engine.tokenizer.decode(body.tokens, skip_special_tokens=skip)
            return {"text": text, **warnings}

        return await _answer(service, work, body.tokens)

    return router


async def _tokenized(service: Service, body: TokenizeRequest, *, n_body: int) -> list[int]:
    """The ids of the one thing that the request names."""
    given = [name for name in ("prompt", "content", "messages") if getattr(body, name) is not None]
    if len(given) != 1:
        raise RequestError("send exactly one of prompt, content and messages", param="prompt")
    add_special = body.add_special if body.add_special_tokens is None else body.add_special_tokens
    if body.messages is not None:
        if add_special:
            raise RequestError(
                "add_special_tokens cannot be true with messages: the chat template writes its own "
                "special tokens",
                param="add_special_tokens",
            )
        return await _chat_ids(service, body.messages, body, n_body=n_body)
    text = body.content if body.prompt is None else body.prompt
    assert text is not None, "one is given"
    if add_special is None:
        add_special = body.prompt is not None
    return await _text_ids(
        service, text, param=given[0], add_special=add_special,
        parse_special=body.parse_special is not False,
    )  # fmt: skip


async def _encoded(service: Service, body: TokenEncodeRequest, *, n_body: int) -> list[int]:
    """The ids of the text, or of the messages."""
    if (body.text is None) == (body.prompt is None):
        raise RequestError("send exactly one of text and prompt", param="text")
    if isinstance(body.text, list):
        fields = TemplateFields(add_generation_prompt=False)
        return await _chat_ids(service, body.text, fields, n_body=n_body)
    text = body.prompt if body.text is None else body.text
    assert text is not None, "one is given"
    return await _text_ids(
        service, text, param="prompt" if body.text is None else "text",
        add_special=body.add_bos_token is not False,
        parse_special=body.encode_special_tokens is not False,
    )  # fmt: skip


async def _text_ids(
    service: Service, text: str, *, param: str, add_special: bool, parse_special: bool
) -> list[int]:
    check_text(text, param=param)
    tokenizer = service.engine.tokenizer
    return await service.large_bodies.run(
        lambda: tokenizer.encode(text, add_special_tokens=add_special, parse_special=parse_special),
        len(text),
        inline_below=LONG_TEXT,
    )


async def _chat_ids(
    service: Service, messages: Sequence[Message], fields: TemplateFields, *, n_body: int
) -> list[int]:
    turn = await template_turn(service.large_bodies, fields, messages, n_body=n_body)
    return await prompt_ids(service, turn)


def _tokens(engine: Engine, body: TokenizeRequest, token_ids: list[int]) -> dict[str, Any]:
    tokenizer = engine.tokenizer
    tokens: list[Any] = token_ids
    if body.with_pieces:
        tokens = [{"id": id_, "piece": _piece(tokenizer.token_bytes(id_))} for id_ in token_ids]
    return {
        "count": len(token_ids),
        "max_model_len": engine.max_seq_len,
        "tokens": tokens,
        "token_strs": [*map(tokenizer.spelled, token_ids)] if body.return_token_strs else None,
    }


def _piece(token_bytes: bytes) -> str | list[int]:
    try:
        return token_bytes.decode()
    except UnicodeDecodeError:
        return list(token_bytes)


def _tokenizer_info(engine: Engine) -> TokenizerInfo:
    tokenizer = engine.tokenizer
    special = tokenizer.special_tokens
    return TokenizerInfo(
        # The class of transformers that reads any tokenizer.json.
        tokenizer_class="PreTrainedTokenizerFast",
        vocab_size=tokenizer.vocab_size,
        model_max_length=engine.max_seq_len,
        bos_token=special.get("bos_token"),
        bos_token_id=tokenizer.bos_token_id,
        eos_token=special.get("eos_token"),
        eos_token_ids=list(engine.eos_token_ids),
        pad_token=special.get("pad_token"),
        unk_token=special.get("unk_token"),
        add_bos_token=tokenizer.adds_bos,
        chat_template=engine.template.source if engine.template else None,
    )


async def _chosen(
    service: Service, body: TokenRequest, *, n_body: int
) -> tuple[Service, dict[str, Any]]:
    """Which model is meant, and the fields that had no effect, of the body and of what a chat's
    prompt is made of.

    Raises ModelNotFoundError, and with `strict` RequestError for such a field.
    """
    chosen = service.serving(None if body.model in _NO_NAMES else body.model)

    def check() -> Warnings:
        return check_unknown_fields(body, body.parts(), strict=bool(body.strict))

    warnings = await service.large_bodies.run(check, n_body)
    return chosen, {"warnings": warnings} if warnings else {}


def _check_token_ids(engine: Engine, token_ids: Sequence[int]) -> None:
    vocab_size = engine.config.vocab_size
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        raise RequestError(
            f"tokens holds an id outside the vocabulary, 0 to {vocab_size - 1}", param="tokens"
        )


async def _answer(
    service: Service, work: Callable[[], dict[str, Any]], token_ids: Sequence[int]
) -> Response:
    """The answer that `work` makes of the tokens."""
    n_characters = _CHARACTERS_PER_TOKEN * len(token_ids)
    body = await service.large_bodies.run(
        lambda: encode_long_json(work()), n_characters, inline_below=LONG_TEXT
    )
    return Response(body, media_type="application/json")
