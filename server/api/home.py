"""GET /: for a browser a page that says what this is, for other clients the same as JSON.

Owns the route. It needs no key, so with API keys it says only that a key is needed: nothing about
the model, no version.
"""

import json
import shlex
from html import escape

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..http.host_names import host_of_header
from ..service import Service
from ..version import own_version
from .page import page_response

# The next server at this address may serve another model.
_HEADERS = {"cache-control": "no-store", "vary": "accept"}


def add_home(app: FastAPI, service: Service) -> None:
    """Adds the route, which the contract does not list: its answer is for people."""

    def read(request: Request) -> Response:
        if _prefers_html(request.headers.get("accept", "")):
            return _page(request, service)
        return JSONResponse(_summary(service), headers=_HEADERS)

    app.add_route("/", read, include_in_schema=False)


def _summary(service: Service) -> dict[str, str]:
    documents = {"docs": "/docs", "openapi": "/openapi.json"}
    if service.settings.api_keys:
        return {"name": "soliton", **documents, "authorization": "Bearer KEY"}
    return {
        "name": "soliton",
        "version": own_version(),
        "model": service.model_id,
        **documents,
    }


def _page(request: Request, service: Service) -> Response:
    has_keys = bool(service.settings.api_keys)
    body: dict[str, object] = {"prompt": "Once upon a time", "max_tokens": 24, "logprobs": 3}
    texts = {"model": "", "size": "", "format": "", "context": ""}
    if not has_keys:
        body = {"model": service.model_id, **body}
        texts = _model_texts(service)
    texts |= {
        "base": f"http://{_own_host(request)}",
        "key": " \\\n  -H 'authorization: Bearer KEY'" if has_keys else "",
        "body": shlex.quote(json.dumps(body, ensure_ascii=False)),
        # The attributes of what is shown only without keys, or only with them.
        "without_keys": "hidden" if has_keys else "",
        "with_keys": "" if has_keys else "hidden",
    }
    markup = {name: escape(text) for name, text in texts.items()}
    response = page_response("home", markup, also="img-src data:; connect-src 'self'; ")
    response.headers.update(_HEADERS)
    return response


def _model_texts(service: Service) -> dict[str, str]:
    engine = service.engine
    return {
        "model": service.model_id,
        "size": f"{_rounded(engine.config.n_params)} parameters",
        "format": engine.model.ops.format,
        "context": f"{engine.max_seq_len:,} tokens",
    }


def _rounded(count: int) -> str:
    for name, size in (("billion", 10**9), ("million", 10**6)):
        if count >= size:
            return f"{count / size:.1f} {name}"
    return f"{count:,}"


def _own_host(request: Request) -> str:
    """The host and port that the client used, as far as it says. A browser's script knows better,
    because a proxy may have changed them.
    """
    sent = request.headers.get("host", "")
    if host_of_header(sent):
        return sent
    name, port = request.scope["server"]
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


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
