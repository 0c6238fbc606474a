"""Bodies as JSON Schema reads them: a number without a fraction is an integer, as 16.0 is.

Languages with one kind of number may write it so. The models of requests are strict, so the
difference ends here, where the text is read. Text is UTF-8 without a mark in front, and no object
has a key twice: of two values a proxy might read the other one.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override


class JsonRoute(APIRoute):
    """A route whose body is read in that way."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


class _JsonRequest(Request):
    @override
    async def json(self) -> Any:
        try:
            text = str(await self.body(), "utf-8")
        except UnicodeDecodeError as error:
            raise json.JSONDecodeError("it is not UTF-8", "", error.start) from error
        return json.loads(text, parse_float=_number, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise json.JSONDecodeError("an object has a key twice", "", 0)
    return values


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value
