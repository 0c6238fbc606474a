"""Ids of what belongs to a response: each names the response and its place there.

So an answer and its events, made apart, name the same things, and an id is found without a list of
all ids.
"""

import re
import string
from hashlib import blake2b

RESPONSE = "resp_"

_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
}
_ALPHANUMERIC = string.ascii_letters + string.digits
# Nine letters and digits: templates of Mistral's models accept nothing else.
_CALL_LENGTH = 9
_ID = re.compile(r"[a-z]{2,4}_([0-9a-f]{32})_(?:in)?\d{1,6}")


def output_id(response_id: str, kind: str, index: int) -> str:
    """Of the item `index` of the output."""
    return f"{_PREFIXES[kind]}_{response_id.removeprefix(RESPONSE)}_{index}"


def input_id(response_id: str, kind: str, index: int) -> str:
    """Of the item `index` of the input, if it has none."""
    return f"{_PREFIXES[kind]}_{response_id.removeprefix(RESPONSE)}_in{index}"


def response_of(id_: str) -> str | None:
    """The response that has the item; None for an id that was not made here."""
    match = _ID.fullmatch(id_)
    return None if match is None else f"{RESPONSE}{match[1]}"


def call_id(response_id: str, index: int) -> str:
    """Of the call that is item `index` of the output; the result is sent with it."""
    digest = blake2b(f"{response_id}/{index}".encode(), digest_size=_CALL_LENGTH).digest()
    return "".join(_ALPHANUMERIC[byte % len(_ALPHANUMERIC)] for byte in digest)
