"""Ids carry the name of the replica that keeps what they name.

Owns where a request can name such an id. The digits of an id begin with the name: see
`server.answer.head`. So nobody needs a table of ids.
"""

import re
import secrets
from typing import Any

NAME_DIGITS = 8
_OTHER_DIGITS = 32 - NAME_DIGITS
_ID = re.compile(
    r"(?:chatcmpl-|cmpl-|score-|ollama-|msg_|resp_|rs_|fc_|fco_|ctc_|ctco_|lsh_|lsho_)"
    rf"([0-9a-f]{{{NAME_DIGITS}}})[0-9a-f]{{{_OTHER_DIGITS}}}(?:[-_].*)?"
)
NAME = re.compile(rf"[0-9a-f]{{{NAME_DIGITS}}}")
# Fields of a body that name what was kept: another answer, or a stream.
_FIELDS = ("previous_response_id", "id", "stream_id", "response_id")


def new_name() -> str:
    """The name of a replica: other replicas have others."""
    return secrets.token_hex(NAME_DIGITS // 2)


def named_replica(path: str, body: Any) -> str:
    """The name of the replica that keeps what a request is about; empty if it may be any.

    `body`: of the request, parsed; None if there is none.
    """
    for part in path.split("/"):
        if match := _ID.fullmatch(part):
            return match[1]
    if not isinstance(body, dict):
        return ""
    named = [body.get(name) for name in _FIELDS]
    items = body.get("input")
    if isinstance(items, list):
        named += [
            item.get("id")
            for item in items
            if isinstance(item, dict) and item.get("type") == "item_reference"
        ]
    matches = (_ID.fullmatch(name) for name in named if isinstance(name, str))
    return next((match[1] for match in matches if match), "")
