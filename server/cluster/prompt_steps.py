"""A prompt as hashes of its beginnings, which tell nobody what it says.

Owns the text by which two requests are compared, and how it is hashed. The text is what the request
itself spells, in the order in which chat templates render it: tools, instructions, messages. Two
requests that spell a beginning alike get the same tokens for it, whatever the template is, so the
door needs no model. Hashes are of 512 bytes each and of everything before them.

They are keyed with a secret of the cluster and with whose the prompt is: prompts of different
callers or salts have nothing in common, as in the cache, and nobody can try out texts.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from .routed import Prompt

STEP_BYTES = 512
HASH_BYTES = 8
# Steps of a long prompt: beyond, they would cost more than they say.
_MOST_STEPS = 1024

# Where a text is, on one wire or another, in the order of a rendered prompt.
_FIRST = ("tools", "functions", "system", "instructions")
_THEN = ("input_extra", "input_prefix", "prefix", "context", "messages", "input", "prompt")


def prompt_of(body: Any, *, secret: bytes, caller: str) -> Prompt | None:
    """What a body brings to compute; None if it is no request to generate. `secret`: of the
    cluster, at most 64 bytes; `caller`: whose request it is.
    """
    if not isinstance(body, dict) or not any(body.get(name) for name in _THEN):
        return None
    pieces = (*_spelled(body, _FIRST), *_spelled(body, _THEN))
    text = "\0".join(pieces).encode("utf-8", "surrogatepass")
    whose = f"{caller}\0{body.get('cache_salt') or ''}\0{body.get('model') or ''}"
    return Prompt(steps_of(text, secret=secret, whose=whose), len(text))


def steps_of(text: bytes, *, secret: bytes, whose: str) -> tuple[bytes, ...]:
    """The hashes of all beginnings of a whole number of steps."""
    running = hashlib.blake2b(whose.encode("utf-8", "surrogatepass"), key=secret)
    n_steps = min(len(text) // STEP_BYTES, _MOST_STEPS)
    steps = []
    for start in range(0, n_steps * STEP_BYTES, STEP_BYTES):
        running.update(text[start : start + STEP_BYTES])
        steps.append(running.digest()[:HASH_BYTES])
    return tuple(steps)


def _spelled(body: dict[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        value = body.get(name)
        if not value:
            continue
        if name in ("messages", "input") and isinstance(value, list):
            for item in value:
                yield from _message(item)
        else:
            yield _text(value)


def _message(item: Any) -> Iterator[str]:
    """A message is the same whether its text is a string or in parts."""
    if not isinstance(item, dict):
        yield _text(item)
        return
    yield str(item.get("role", ""))
    content = item.get("content")
    for part in content if isinstance(content, list) else (content,):
        text = part.get("text") if isinstance(part, dict) else None
        yield text if isinstance(text, str) else _text(part)
    # Ids differ from turn to turn, and templates do not show them.
    rest = {k: v for k, v in item.items() if k not in ("role", "content", "id", "status")}
    if rest:
        yield _text(rest)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
