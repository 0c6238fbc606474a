"""One table from exception to wire error; the same body before the first byte and inside a stream.

Owns status, type, code and headers of every error. Knows no route and no engine state. A message
may show names of fields and wrong numbers or names, but not prompts, messages or keys.
"""

import errno
import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from engine import ContextLengthError, EngineError, InvalidInputError, NumericsError, TemplateError

_logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class ServerError(Exception):
    """An error that the server itself raises; `param` names the field at fault, if one is."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class RequestError(ServerError):
    """The request is well-formed JSON but cannot be served as it is."""


class ModelNotFoundError(ServerError):
    """The request names a model that this server does not have."""


class AuthenticationError(ServerError):
    """No API key, or a wrong one."""


class NotAdminError(ServerError):
    """Only an admin key allows that."""


class ForbiddenOriginError(ServerError):
    """A web page sent the request, and not one that may use this server."""


class MisdirectedError(ServerError):
    """The request is for a host that is not this server."""


class QueueFullError(ServerError):
    """The queue for the engine is full."""


class QueueTimeoutError(ServerError):
    """The request has waited for the engine as long as it may."""


class DeadlineError(ServerError):
    """A time limit passed before the first token, or before the last one."""


class UnavailableError(ServerError):
    """The engine takes no work: starting, shutting down, or gone."""


class LoadFailedError(ServerError):
    """The model's weights could not be brought into memory; the next request tries again."""


class UnreadLimitError(ServerError):
    """More of an answer is unread than the server keeps."""


class EngineFailedError(ServerError):
    """The engine broke in this request; the log has the cause, the client does not."""


class StreamNotFoundError(ServerError):
    """No stream of that id is kept for this caller."""


class StreamStateError(ServerError):
    """The stream is not in a state in which that can be done."""


class TooManyControlsError(ServerError):
    """As many controls wait for the next token of a stream as may."""


class StreamCancelledError(ServerError):
    """A kept stream was ended by its client before its end."""


class NotServedError(ServerError):
    """Other servers do that, and this one does not."""


class EncodedBodyError(HTTPException):
    """The body is compressed. The framework lets only HTTPExceptions out while it reads a body."""

    def __init__(self, encoding: str) -> None:
        detail = f"the body must not be compressed: content-encoding {encoding} is not supported"
        # By this header a client knows what it may send instead (RFC 9110, 15.5.16).
        super().__init__(415, detail, {"accept-encoding": "identity"})


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """How one class of exceptions looks on the wire."""

    status: int
    type: str
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    retry_s: float | None = None
    """Seconds after which a client may try again. The header says up to half as long again, so that
    clients that were refused together do not come back together.
    """


# An exception is looked up by its class, then by its bases, nearest first.
ERROR_TABLE: dict[type[Exception], ErrorRow] = {
    RequestError: ErrorRow(400, "invalid_request_error"),
    InvalidInputError: ErrorRow(400, "invalid_request_error"),
    ContextLengthError: ErrorRow(400, "invalid_request_error", "context_length_exceeded"),
    TemplateError: ErrorRow(400, "invalid_request_error", "chat_template_error"),
    AuthenticationError: ErrorRow(
        401, "authentication_error", "invalid_api_key", {"www-authenticate": "Bearer"}
    ),
    NotAdminError: ErrorRow(403, "permission_error", "admin_key_needed"),
    ForbiddenOriginError: ErrorRow(403, "permission_error", "origin_not_allowed"),
    ModelNotFoundError: ErrorRow(404, "invalid_request_error", "model_not_found"),
    StreamNotFoundError: ErrorRow(404, "invalid_request_error", "stream_not_found"),
    StreamStateError: ErrorRow(
        409, "invalid_request_error", "wrong_state", {"x-should-retry": "false"}
    ),
    StreamCancelledError: ErrorRow(499, "invalid_request_error", "stream_cancelled"),
    UnreadLimitError: ErrorRow(400, "invalid_request_error", "unread_limit"),
    MisdirectedError: ErrorRow(421, "invalid_request_error", "host_not_allowed"),
    QueueFullError: ErrorRow(429, "rate_limit_error", "queue_full", retry_s=1.0),
    TooManyControlsError: ErrorRow(429, "rate_limit_error", "too_many_controls", retry_s=1.0),
    ClientDisconnect: ErrorRow(499, "invalid_request_error", "client_disconnected"),
    QueueTimeoutError: ErrorRow(503, "unavailable_error", "queue_timeout", retry_s=2.0),
    UnavailableError: ErrorRow(503, "unavailable_error", "unavailable", retry_s=2.0),
    LoadFailedError: ErrorRow(503, "unavailable_error", "model_not_loaded", retry_s=5.0),
    DeadlineError: ErrorRow(504, "timeout_error", headers={"x-should-retry": "false"}),
    NotServedError: ErrorRow(
        501, "not_implemented_error", "not_implemented", {"x-should-retry": "false"}
    ),
    NumericsError: ErrorRow(500, "server_error", "engine_numerics", {"x-should-retry": "false"}),
    EngineFailedError: ErrorRow(500, "server_error", "engine_error"),
    EngineError: ErrorRow(500, "server_error", "engine_error"),
    MemoryError: ErrorRow(503, "unavailable_error", "out_of_memory", retry_s=2.0),
    Exception: ErrorRow(500, "server_error", "internal_error"),
}

# By code: the exception's own message is for the log.
_OWN_MESSAGES = {
    "internal_error": "internal error",
    "out_of_memory": "not enough memory for this request right now",
}

# The engine names its own options; a client knows them by the fields of the request.
_FIELDS = {
    "input_ids": "prompt",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "negative_ids": "negative_prompt",
    "return_prompt_tokens": "prompt_logprobs",
    "return_top_tokens": "top_logprobs",
}

# Of fields that an error lists.
_MOST_NAMES = 5
_NAME_LENGTH = 64

# Messages of other errors when there is no memory for a thread or a library.
_NO_MEMORY = ("can't start new thread", "failed to map segment", "annot allocate memory")

_HTTP_ROWS: dict[int, tuple[str, str]] = {
    400: ("invalid_json", "the body is not valid JSON"),
    404: ("not_found", "no such route"),
    405: ("method_not_allowed", "this route does not support that method"),
    413: ("body_too_large", "the request body is larger than this server takes"),
    415: ("unsupported_media_type", "the body must be JSON, sent as content-type application/json"),
}


def error_body(error: Exception) -> dict[str, Any]:
    """The envelope for an exception: {"error": {message, type, param, code}}."""
    row = _row(error)
    message = _OWN_MESSAGES.get(row.code or "") or str(error)
    code = error.code if isinstance(error, ServerError) and error.code else row.code
    return _envelope(message, type_=row.type, param=_field(error), code=code)


def error_response(error: Exception) -> Response:
    """The HTTP answer for an exception that was raised before the first byte."""
    row = _row(error)
    retry = {} if row.retry_s is None else _retry_headers(row.retry_s)
    return _response(row.status, error_body(error), {**row.headers, **retry})


def http_error_response(error: HTTPException, *, hint: str = "") -> Response:
    """The answer for what the web framework refuses: no route, wrong method, too large. `hint`: the
    end of the message.
    """
    fallback = (f"http_{error.status_code}", "the request could not be read")
    code, message = _HTTP_ROWS.get(error.status_code, fallback)
    if isinstance(error, EncodedBodyError):
        code, message = "unsupported_encoding", error.detail
    body = _envelope(message + hint, type_="invalid_request_error", param=None, code=code)
    return _response(error.status_code, body, dict(error.headers or {}))


def validation_error_response(error: RequestValidationError) -> Response:
    """The answer for a body that does not fit the schema: 400, naming the first field at fault."""
    if isinstance(error.body, bytes):
        # Nothing was parsed, so the content type was not JSON.
        return http_error_response(HTTPException(415))
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        reason = first["ctx"]["error"]
        message, param, code = f"the body is not valid JSON: {reason}", None, "invalid_json"
    else:
        param, code = _param(first["loc"][1:]), None
        # No "input" here: echoing the value would repeat secrets, and NaN cannot be written.
        message = f"{param or 'body'}: {first['msg']}"
        if first["type"] == "missing":
            message = f"{param or 'body'} is missing"
            if len(first["loc"]) == 2:
                message += _sent_instead(error.body)
    return _response(
        400, _envelope(message, type_="invalid_request_error", param=param, code=code), {}
    )


def contained(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a call, whose failure is always an Exception, the end of one request.

    A Rust library that panics raises a BaseException; on the event loop that would end more than
    the request.
    """
    try:
        return call(*args, **kwargs)
    except Exception:
        raise
    except BaseException as error:
        _logger.exception("a library failed in a request")
        raise EngineFailedError("the engine failed in this request") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error means that memory is short right now, whatever its class."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError | ImportError):
        return any(words in str(error) for words in _NO_MEMORY)
    return isinstance(error, MemoryError)


async def handle_error(request: Request, error: Exception) -> Response:
    if isinstance(error, MemoryError):
        _logger.warning("out of memory in request %s: %s", request.state.request_id, error)
    return error_response(error)


async def handle_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return http_error_response(error)


async def handle_validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return validation_error_response(error)


def error_status(error: Exception) -> int:
    """The status of the answer that `error_body` is the body of."""
    return _row(error).status


def is_callers_own(error: Exception) -> bool:
    """Whether the request is at fault, and not something that an operator could mend."""
    return _row(error).status < 500


def _field(error: Exception) -> str | None:
    """The field at fault, if one is."""
    if isinstance(error, InvalidInputError):
        return _FIELDS.get(error.param or "", error.param)
    return error.param if isinstance(error, ServerError) else None


def _row(error: Exception) -> ErrorRow:
    if is_out_of_memory(error):
        return ERROR_TABLE[MemoryError]
    return next(ERROR_TABLE[class_] for class_ in type(error).__mro__ if class_ in ERROR_TABLE)


def _retry_headers(seconds: float) -> dict[str, str]:
    milliseconds = round(1000 * seconds * random.uniform(1.0, 1.5))
    # The standard header takes whole seconds only: rounded up.
    return {"retry-after": str(-(-milliseconds // 1000)), "retry-after-ms": str(milliseconds)}


def _envelope(
    message: str, *, type_: str, param: str | None, code: str | None
) -> dict[str, dict[str, str | None]]:
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}


def _response(status: int, body: dict[str, Any], headers: dict[str, str]) -> Response:
    return Response(json.dumps(body), status, headers, media_type="application/json")


def _sent_instead(body: Any) -> str:
    """The names of the body's fields: on another route, the missing one may have one of them."""
    names = [name[:_NAME_LENGTH] for name in body] if isinstance(body, dict) else []
    if not names:
        return ""
    more = ", …" if len(names) > _MOST_NAMES else ""
    return f"; sent: {', '.join(names[:_MOST_NAMES])}{more}"


def _param(location: tuple[int | str, ...]) -> str | None:
    """("messages", 0, "content") -> "messages[0].content"; None for the body as a whole."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path or None
