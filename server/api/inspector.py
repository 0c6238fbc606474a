"""GET /ui: the page that shows what a stream says of its tokens. Owns the routes of its files.

The files lie in ui/ and are sent as they are: no build step, nothing from another machine. They
hold nothing of the model, so they need no key; the page asks for one when a route wants it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

_FOLDER = Path(__file__).parent / "ui"
_PAGE = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    # A newer server at this address may have other files; the tag makes asking cheap.
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it is sent."""

    data: bytes
    headers: Mapping[str, str]


def add_inspector(app: FastAPI) -> None:
    """Adds the routes, which the contract does not list: they are for people."""
    files = {path.name: _file(path) for path in _FOLDER.iterdir() if path.suffix in _TYPES}

    async def read_page(request: Request) -> Response:
        return _sent(files[_PAGE], request)

    async def read_file(request: Request) -> Response:
        file = files.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        return _sent(file, request)

    async def without_slash(_: Request) -> Response:
        # Relative, because a proxy may have put a prefix before the path.
        return RedirectResponse("../ui", 307)

    app.add_route("/ui", read_page, include_in_schema=False)
    app.add_route("/ui/", without_slash, include_in_schema=False)
    app.add_route("/ui/{name}", read_file, include_in_schema=False)


def _file(path: Path) -> _File:
    data = path.read_bytes()
    tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    return _File(data, {**_HEADERS, "content-type": _TYPES[path.suffix], "etag": tag})


def _sent(file: _File, request: Request) -> Response:
    if request.headers.get("if-none-match") == file.headers["etag"]:
        return Response(status_code=304, headers=dict(file.headers))
    return Response(file.data, headers=dict(file.headers))
