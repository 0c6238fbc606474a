"""Browsers of other origins: Starlette's CORS, with refusals in the shape of all other errors."""

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from typing_extensions import override

from .errors import RequestError, error_response


class Cors(CORSMiddleware):
    """ASGI middleware."""

    @override
    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        refusal = error_response(RequestError("CORS: the origin or the method is not allowed"))
        refusal.headers.update(
            {
                name: value
                for name, value in response.headers.items()
                if name not in ("content-length", "content-type")
            }
        )
        return refusal
