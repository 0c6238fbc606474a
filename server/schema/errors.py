"""The error envelope and the error answers that the routes document."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from .anthropic_answer import AnthropicError
from .llama_slots import LlamaError
from .ollama import OllamaError
from .tabby import TabbyError


class ErrorDetail(BaseModel):
    """What went wrong. `code` is the string to switch on, `param` the field at fault."""

    model_config = ConfigDict(extra="forbid")

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(BaseModel):
    """Every error: the body before the first byte, the last event of a stream after it."""

    model_config = ConfigDict(extra="forbid")

    error: ErrorDetail


_DESCRIPTIONS = {
    400: "The request is wrong: `param` names the field; code `context_length_exceeded` when "
    "prompt and completion do not fit the context.",
    401: "The API key is missing or wrong.",
    403: "A web page sent the request, and its origin may not use the server; or an admin key is "
    "needed (`admin_key_needed`).",
    404: "No such model (`model_not_found`) or no such route (`not_found`).",
    409: "The stream is not in a state in which that can be done (`wrong_state`).",
    413: "The body is larger than the server takes.",
    415: "The body is not application/json, or it is compressed.",
    421: "The Host header names no host of this server.",
    429: "The queue is full, or too many controls wait for the stream (`too_many_controls`); "
    "`retry-after-ms` says when to try again.",
    500: "The engine failed in this request.",
    501: "This server, or its model, does not do that.",
    503: "The engine takes no work at the moment, or the request has waited for it too long "
    "(`queue_timeout`); `retry-after` says when to try again.",
    504: "The first token (`first_token_timeout`) or the last one (`request_timeout`) came too "
    "late.",
}

Responses = dict[int | str, dict[str, Any]]


# Not `"model": ErrorResponse`: FastAPI would build a validator for each status of each route. Only
# one route does, so that FastAPI lists the schema: MODELLED_ERRORS.
_CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}}


def error_responses(*statuses: int) -> Responses:
    """The documented error answers of a route."""
    return {
        status: {"description": _DESCRIPTIONS[status], "content": _CONTENT} for status in statuses
    }


_ANTHROPIC = {"application/json": {"schema": {"$ref": "#/components/schemas/AnthropicError"}}}
_OLLAMA = {"application/json": {"schema": {"$ref": "#/components/schemas/OllamaError"}}}

MODELLED_ERRORS: Responses = {421: {"description": _DESCRIPTIONS[421], "model": ErrorResponse}}

GENERATION_ERRORS = error_responses(400, 401, 403, 404, 413, 415, 421, 429, 500, 503, 504)
# As above: FastAPI lists the schema for the one that has it as its model.
ANTHROPIC_ERRORS: Responses = {
    status: {**said, "content": _ANTHROPIC} for status, said in GENERATION_ERRORS.items()
} | {421: {"description": _DESCRIPTIONS[421], "model": AnthropicError}}
OLLAMA_ERRORS: Responses = {
    status: {**said, "content": _OLLAMA} for status, said in GENERATION_ERRORS.items()
} | {421: {"description": _DESCRIPTIONS[421], "model": OllamaError}}


def _errors_of(model: type[BaseModel], *statuses: int) -> Responses:
    """As above, for a wire with a shape of its own."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}
    said: Responses = {
        status: {"description": _DESCRIPTIONS[status], "content": content} for status in statuses
    }
    return said | {421: {"description": _DESCRIPTIONS[421], "model": model}}


def llama_errors(*statuses: int) -> Responses:
    """The documented error answers of a route that llama-server alone has."""
    return _errors_of(LlamaError, *statuses)


def tabby_errors(*statuses: int) -> Responses:
    """The same of TabbyAPI."""
    return _errors_of(TabbyError, *statuses)


LLAMA_ERRORS = llama_errors(*GENERATION_ERRORS)  # type: ignore[arg-type]  # all are numbers
