"""GET /openapi.json and GET /docs: the contract, for programs and for people.

Owns the two routes. The page holds the contract and all that it needs, asks for nothing else, and
can be saved.
"""

import json

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .page import page_response


def add_documents(app: FastAPI) -> None:
    """Adds the routes, which the contract itself does not list."""
    app.add_route("/openapi.json", _read_contract, include_in_schema=False)
    app.add_route("/docs", _read_page, include_in_schema=False)


# Not coroutines, so they run in a thread: the first call takes most of a second.
def _read_contract(request: Request) -> Response:
    return JSONResponse(request.app.openapi())


def _read_page(request: Request) -> Response:
    contract = json.dumps(request.app.openapi(), separators=(",", ":"))
    # Within a script element `<` may end it.
    return page_response("docs", {"contract": contract.replace("<", "\\u003c")})
