"""GET /openapi.json and GET /docs: the contract, for programs and for people.

Owns the two routes. The page holds the contract and all that it needs, asks for nothing else, and
can be saved. Its parts lie in pages/.
"""

import hashlib
import json
from base64 import b64encode
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

_PAGES = Path(__file__).parent / "pages"


def add_documents(app: FastAPI) -> None:
    """Adds the routes, which the contract itself does not list."""
    app.add_route("/openapi.json", _read_contract, include_in_schema=False)
    app.add_route("/docs", _read_page, include_in_schema=False)


# Not coroutines, so they run in a thread: the first call takes most of a second.
def _read_contract(request: Request) -> Response:
    return JSONResponse(request.app.openapi())


def _read_page(request: Request) -> Response:
    contract = json.dumps(request.app.openapi(), separators=(",", ":"))
    frame, style, script = _parts()
    # Within a script element `<` may end it.
    page = frame.replace("{contract}", contract.replace("<", "\\u003c"))
    headers = {
        "content-security-policy": (
            f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return HTMLResponse(page, headers=headers)


def _parts() -> tuple[str, str, str]:
    """The page with its style and its script in it; the style; the script."""
    frame, style, script = (
        (_PAGES / name).read_text() for name in ("docs.html", "docs.css", "docs.js")
    )
    return frame.replace("{style}", style).replace("{script}", script), style, script


def _source(text: str) -> str:
    """By which a policy knows an element of the page."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
