"""GET /: sends a browser to the page at /ui, and tells other clients what this is, as JSON.

Owns the route. It needs no key, so with API keys it says only that a key is needed: nothing about
the model, no version.
"""

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from ..service import Service
from ..version import own_version

# The next server at this address may serve another model.
_HEADERS = {"cache-control": "no-store", "vary": "accept"}


def add_home(app: FastAPI, service: Service) -> None:
    """Adds the route, which the contract does not list: its answer is for people."""

    async def read(request: Request) -> Response:
        if _prefers_html(request.headers.get("accept", "")):
            # Relative, because a proxy may have put a prefix before the path.
            return RedirectResponse("ui", 307, headers=_HEADERS)
        return JSONResponse(_summary(service), headers=_HEADERS)

    app.add_route("/", read, include_in_schema=False)


def _summary(service: Service) -> dict[str, str]:
    documents = {"ui": "/ui", "docs": "/docs", "openapi": "/openapi.json"}
    if service.settings.api_keys:
        return {"name": "soliton", **documents, "authorization": "Bearer KEY"}
    return {
        "name": "soliton",
        "version": own_version(),
        "model": service.model_id,
        **documents,
    }


def _prefers_html(accept: str) -> bool:
    """Whether an Accept header likes HTML better than JSON (RFC 9110, 12.5.1)."""
    ranges = dict(map(_range, accept.lower().split(",")))
    return _quality(ranges, "text/html") > _quality(ranges, "application/json")


def _range(text: str) -> tuple[str, float]:
    """("text/html", 0.9) for "text/html;q=0.9"."""
    kind, *parameters = (part.strip() for part in text.split(";"))
    weights = [part.removeprefix("q=") for part in parameters if part.startswith("q=")]
    try:
        return kind, float(weights[0]) if weights else 1.0
    except ValueError:
        return kind, 0.0


def _quality(ranges: dict[str, float], kind: str) -> float:
    wider = f"{kind.partition('/')[0]}/*"
    return next((ranges[name] for name in (kind, wider, "*/*") if name in ranges), 0.0)
