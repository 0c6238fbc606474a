"""Starlette's CORS for browsers, with refusals in the usual error envelope."""

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from typing_extensions import override

from ..errors import RequestError, error_response

# Allows a page from the internet to call a server in its reader's private network.
_PRIVATE_NETWORK = "access-control-allow-private-network"


class Cors(CORSMiddleware):
    """ASGI middleware."""

    @override
    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        refusal = error_response(RequestError(f"CORS: {self._reason(request_headers)}"))
        refusal.headers.update(
            {
                name: value
                for name, value in response.headers.items()
                if name not in ("content-length", "content-type", _PRIVATE_NETWORK)
            }
        )
        return refusal

    def _reason(self, request_headers: Headers) -> str:
        if not self.is_allowed_origin(request_headers["origin"]):
            return "pages of this origin may not use the server; the option allow_origins adds one"
        return f"the method must be one of {', '.join(self.allow_methods)}"
