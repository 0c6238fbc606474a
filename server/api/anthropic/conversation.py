"""The messages of Anthropic's wire, as the engine takes them.

Owns which blocks a message may hold, by its role, and that turns of one role in a row are one turn.
Knows no template and no tokens.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import RequestError
from ...request.text import check_text
from ...request.unknown_fields import Warnings
from ...schema.anthropic import AnthropicMessage, Block, PromptOfMessages
from .results import Results, text_of

_KINDS = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    "system": ("text",),
}
# Claude Code's system prompt begins with a block of it that differs from request to request: the
# prompt would never be found in the cache.
_CHANGING_HEADER = "x-anthropic-billing-header"


class Conversation(NamedTuple):
    """What the template gets."""

    messages: list[dict[str, Any]]
    goes_on: bool
    """Whether the reply continues the last message, which is the assistant's."""
    warnings: Warnings


def conversation(body: PromptOfMessages, results: Results, *, drops_header: bool) -> Conversation:
    """`drops_header`: leave out an agent's header that changes with every request.

    Raises RequestError, naming the block at fault.
    """
    turns: list[dict[str, Any]] = []
    warnings = results.warnings
    system = _system(body, drops_header=drops_header, warnings=warnings)
    if system:
        turns.append({"role": "system", "content": system})
    for i, message in enumerate(body.messages):
        for turn in _turns(message, f"messages[{i}].content", results):
            if turns and _is_same_turn(turns[-1], turn):
                turns[-1] = _joined(turns[-1], turn)
            else:
                turns.append(turn)
    last = turns[-1]
    if last["role"] == "assistant" and last.get("tool_calls"):
        raise RequestError(
            "the last message uses a tool: a message of role user with its tool_result must follow",
            param=f"messages[{len(body.messages) - 1}]",
        )
    return Conversation(turns, last["role"] == "assistant", warnings)


def _system(body: PromptOfMessages, *, drops_header: bool, warnings: Warnings) -> str:
    if body.system is None or isinstance(body.system, str):
        texts = [] if not body.system else [("system", body.system)]
    else:
        texts = [(f"system[{i}].text", block.text) for i, block in enumerate(body.system)]
    kept = []
    for path, text in texts:
        check_text(text, param=path)
        if drops_header and text.startswith(_CHANGING_HEADER):
            line, _, text = text.partition("\n")
            message = (
                f"its first line, {line.partition(':')[0]}, was left out: it changes with every "
                "request, and no prompt would be found in the cache"
            )
            warnings.append({"param": path, "action": "ignored", "message": message})
        if text:
            kept.append(text)
    return "\n".join(kept)


def _turns(message: AnthropicMessage, path: str, results: Results) -> Iterator[dict[str, Any]]:
    """The template's messages for one of the wire: results of tools are messages of their own."""
    if isinstance(message.content, str):
        check_text(message.content, param=path)
        yield {"role": message.role, "content": message.content}
        return
    if not message.content:
        raise RequestError(f"{path} is empty: a message needs a block", param=path)
    blocks = [(f"{path}[{j}]", block) for j, block in enumerate(message.content)]
    for where, block in blocks:
        _check_kind(block, message.role, where)
    if message.role == "assistant":
        yield _assistant_turn(blocks, results.names)
        return
    for where, block in blocks:
        if block.type == "tool_result":
            yield results.turn(block, where)
    texts = [text_of(block, "text", where) for where, block in blocks if block.type == "text"]
    if texts:
        yield {"role": message.role, "content": "\n".join(texts)}


def _assistant_turn(blocks: Sequence[tuple[str, Block]], names: dict[str, str]) -> dict[str, Any]:
    texts: dict[str, list[str]] = {"text": [], "thinking": []}
    calls = []
    for path, block in blocks:
        if block.type in texts:
            texts[block.type].append(text_of(block, block.type, path))
        elif block.type == "tool_use":
            id_, name = text_of(block, "id", path), text_of(block, "name", path)
            names[id_] = name
            arguments = json.dumps(block.input or {}, ensure_ascii=False)
            check_text(arguments, param=f"{path}.input")
            function = {"name": name, "arguments": arguments}
            calls.append({"id": id_, "type": "function", "function": function})
    text = "\n".join(texts["text"])
    turn: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    if calls:
        turn["tool_calls"] = calls
    if texts["thinking"]:
        turn["reasoning_content"] = "\n".join(texts["thinking"])
    return turn


def _check_kind(block: Block, role: str, path: str) -> None:
    if block.type not in _KINDS[role]:
        raise RequestError(
            f"{path} must be of type {' or '.join(_KINDS[role])} in a message of role {role}: "
            "images, documents and the tools that Anthropic runs are not supported",
            param=path,
        )


def _is_same_turn(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    role = str(one["role"])
    return role in ("user", "assistant") and role == other["role"]


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    joined = {**one, **other}
    for name in ("content", "reasoning_content"):
        texts = [turn[name] for turn in (one, other) if turn.get(name)]
        if texts or name in joined:
            joined[name] = "\n".join(texts)
    calls = [*one.get("tool_calls", ()), *other.get("tool_calls", ())]
    if calls:
        joined["tool_calls"] = calls
        joined["content"] = joined["content"] or None
    return joined
