"""OpenAI's chat events as a client reads them: lines, deltas, tokens, errors.

Owns how events are understood. Knows no connection.
"""

import json
from collections.abc import Iterator
from math import exp
from typing import Any

from ..terminal import CommandError
from .answer import N_ALTERNATIVES, Alternative, Piece, Statistics, Token

_LISTS = ("reasoning_content", "content", "tool_calls")


def events(stream: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON of each `data:` line up to `[DONE]`. LF alone ends a line: JSON may hold U+2028."""
    rest = b""
    for block in stream:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                return
            if line.startswith(b"data:"):
                yield _json_object(data)


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise CommandError(f"the server sent an event that is not JSON: {data[:80]!r}") from error
    if not isinstance(value, dict):
        raise CommandError(f"the server sent an event that is not an object: {data[:80]!r}")
    return value


def pieces(event: dict[str, Any]) -> Iterator[Piece]:
    """What an event adds to the reply. Raises CommandError if it tells of an error."""
    if "error" in event:
        raise CommandError(f"the server reported an error: {message_of(event)}")
    for choice in event.get("choices") or []:
        delta, logprobs = choice.get("delta") or {}, choice.get("logprobs") or {}
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
        content = delta.get("content") or ""
        lists = {name: [_token(each) for each in logprobs.get(name) or []] for name in _LISTS}
        if reasoning or lists["reasoning_content"]:
            yield Piece(reasoning, tuple(lists["reasoning_content"]), True)
        if content or lists["content"] or lists["tool_calls"]:
            yield Piece(content, (*lists["content"], *lists["tool_calls"]))


def read_numbers(event: dict[str, Any], numbers: Statistics) -> None:
    """Take what an event says about the reply into `numbers`."""
    for choice in event.get("choices") or []:
        if "seed" in choice:
            numbers.seed = choice["seed"]
        if choice.get("finish_reason"):
            detail = choice.get("stop_detail") or {}
            numbers.end = detail.get("kind") or choice["finish_reason"]
    if usage := event.get("usage"):
        numbers.n_prompt = usage.get("prompt_tokens")
        numbers.n_tokens = usage.get("completion_tokens")
        numbers.n_cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    if speculation := event.get("speculation"):
        numbers.n_drafted = speculation.get("drafted")
        numbers.n_accepted = speculation.get("accepted")


def message_of(body: Any) -> str:
    """The message of an error."""
    error = body.get("error", body) if isinstance(body, dict) else body
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


def _token(entry: dict[str, Any]) -> Token:
    own = _identity(entry)
    others = [each for each in entry.get("top_logprobs") or [] if _identity(each) != own]
    return Token(
        _bytes(entry),
        _p(entry),
        tuple(
            Alternative(each.get("token_id"), _bytes(each), _p(each))
            for each in others[:N_ALTERNATIVES]
        ),
    )


def _identity(entry: dict[str, Any]) -> Any:
    return entry["token_id"] if "token_id" in entry else entry.get("token")


def _bytes(entry: dict[str, Any]) -> bytes:
    data = entry.get("bytes")
    return str(entry.get("token", "")).encode() if data is None else bytes(data)


def _p(entry: dict[str, Any]) -> float:
    return float(entry["p_raw"]) if "p_raw" in entry else exp(min(0.0, entry.get("logprob", 0.0)))
