"""Bodies as JSON Schema reads them: a number without a fraction is an integer, as 16.0 is.

Languages with one kind of number may write it so. The request models are strict, so such numbers
become integers here, where the text is parsed. Text is UTF-8 without a byte order mark. No object
may repeat a key: a proxy might read the other value.

The values of a large body are counted before it is parsed, and it is parsed and checked in a
thread.
"""

import email.message
import json
from collections.abc import Callable, Coroutine
from typing import Any, cast

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from ..errors import RequestError
from .body_size import excess
from .large_bodies import LARGE_BODY, LargeBodies


class JsonRoute(APIRoute):
    """A route whose body is read in that way. `request.state.n_body` is its length in bytes."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        model = None if self.body_field is None else self.body_field.field_info.annotation

        async def handle_json(request: Request) -> Response:
            request = _JsonRequest(request.scope, request.receive)
            if model is None:
                return await handle(request)
            bodies: LargeBodies = request.app.state.large_bodies
            try:
                await request.read(cast(type[BaseModel], model), bodies)
                return await handle(request)
            finally:
                bodies.done_with(request.n_body)

        return handle_json


class _JsonRequest(Request):
    n_body = 0
    _value: BaseModel | None = None

    async def read(self, model: type[BaseModel], bodies: LargeBodies) -> None:
        """Receive the body, and parse a large one into a `model`.

        Raises RequestError and RequestValidationError.
        """
        body = await self.body()
        self.n_body = self.state.n_body = len(body)
        if len(body) >= LARGE_BODY and _is_json(self.headers.get("content-type", "")):
            self._value = await bodies.work(lambda: _read_large(body, model), len(body))

    @override
    async def json(self) -> Any:
        return _parsed(await self.body()) if self._value is None else self._value


def check_size(text: bytes, *, name: str, param: str | None = None) -> None:
    """Raise RequestError for JSON text with too many values to parse; `name` says what it is."""
    too_much = excess(text)
    if too_much is not None:
        raise RequestError(
            f"{name} holds {too_much}; send less in one request",
            param=param,
            code="too_many_values",
        )


def _read_large(body: bytes, model: type[BaseModel]) -> BaseModel:
    check_size(body, name="the body")
    try:
        value = _parsed(body)
    except json.JSONDecodeError as error:
        location, context = ("body", error.pos), {"error": error.msg}
        wrong = {"type": "json_invalid", "loc": location, "ctx": context}
        raise RequestValidationError([wrong]) from None
    except RecursionError:
        raise RequestError(
            "the body is nested too deeply: keep it to a few hundred levels of lists and objects",
            code="invalid_json",
        ) from None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        # Few errors: validation of a list stops at its first wrong item.
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**wrong, "loc": ("body", *wrong["loc"])} for wrong in errors], body=value
        ) from None


def _parsed(body: bytes) -> Any:
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise json.JSONDecodeError("the text is not UTF-8", "", error.start) from error
    return json.loads(text, parse_float=_number, object_pairs_hook=_object)


def _is_json(content_type: str) -> bool:
    """Decides as FastAPI does."""
    message = email.message.Message()
    message["content-type"] = content_type
    subtype = message.get_content_subtype()
    is_application = message.get_content_maintype() == "application"
    return is_application and (subtype == "json" or subtype.endswith("+json"))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise json.JSONDecodeError("an object repeats a key", "", 0)
    return values


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value
