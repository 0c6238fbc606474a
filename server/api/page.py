"""A page in one answer: its style and script inside it, and a policy that allows nothing else.

Owns what the pages have in common. Their parts lie in pages/: NAME.html with places for the style,
the script and other markup ($style, $script, $word), NAME.css and NAME.js.
"""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from string import Template

from starlette.responses import HTMLResponse

_PAGES = Path(__file__).parent / "pages"
_KINDS = ("html", "css", "js")


def page_response(name: str, markup: Mapping[str, str], *, also: str = "") -> HTMLResponse:
    """`markup`: what stands at the other places, already escaped. `also`: directives of the policy
    for what else the page loads, each with a semicolon and a space after it.
    """
    frame, style, script = ((_PAGES / f"{name}.{kind}").read_text() for kind in _KINDS)
    headers = {
        "content-security-policy": (
            f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
            f"{also}base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    parts = {**markup, "style": style, "script": script}
    return HTMLResponse(Template(frame).substitute(parts), headers=headers)


def _source(text: str) -> str:
    """How a policy names an element of the page."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
