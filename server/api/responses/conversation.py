"""The items of a conversation, as the engine takes them: messages.

Owns what an item must have, by its kind, which items are one turn, and that all that the model is
told before the conversation is one message. Knows no template and no tokens.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...errors import RequestError
from ...request.text import check_text
from ...request.unknown_fields import Warnings, warning
from ...schema.responses import InputItem, InputPart
from .tools import LOCAL_SHELL, custom_arguments, shown_name

Turn = dict[str, Any]

SYSTEM_ROLES = ("system", "developer")
_BETWEEN = "\n\n"  # messages that are one turn
# Of a message, by its role; of reasoning; of a result.
_PARTS = {
    "assistant": ("output_text", "input_text", "text", "refusal"),
    "reasoning": ("reasoning_text", "text", "summary_text"),
}
_TEXT = ("input_text", "text", "output_text")


def conversation(
    instructions: str | None, items: Sequence[InputItem], *, strict: bool
) -> tuple[list[Turn], Warnings]:
    """The messages. Raises RequestError, naming the item at fault."""
    turns: list[Turn] = []
    if instructions:
        check_text(instructions, param="instructions")
        turns.append({"role": "system", "content": instructions})
    warnings: Warnings = []
    names: dict[str, str] = {}  # of the calls so far, by their ids
    for i, item in enumerate(items):
        turn = _turn(item, f"input[{i}]", names)
        if turn is None:
            message = "it has no text that this server can read; the model does not see it"
            warnings.append(warning(f"input[{i}]", message, strict=strict))
        elif turns and _is_same_turn(turns[-1], turn, is_first=len(turns) == 1):
            turns[-1] = _joined(turns[-1], turn)
        else:
            turns.append(turn)
    if not turns or all(turn["role"] in SYSTEM_ROLES for turn in turns):
        raise RequestError("input is empty: send a message of the user", param="input")
    if turns[-1].get("tool_calls"):
        raise RequestError(
            "input ends with a call: its result must follow, a function_call_output or the like",
            param=f"input[{len(items) - 1}]",
        )
    return turns, warnings


def _turn(item: InputItem, path: str, names: dict[str, str]) -> Turn | None:
    """None for an item that says nothing."""
    kind = item.type or "message"
    if kind == "message":
        return _message(item, path)
    if kind == "reasoning":
        return _reasoning(item, path)
    if kind in _CALLS:
        name, arguments = _CALLS[kind](item, path)
        check_text(arguments, param=path)
        id_ = _of(item, "call_id", path)
        names[id_] = name
        function = {"name": name, "arguments": arguments}
        call = {"id": id_, "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind.removesuffix("_output") in _CALLS:
        return _result(item, path, names)
    raise RequestError(
        f"{path}.type must be message, reasoning, item_reference, {', '.join(_CALLS)}, or one of "
        "these with _output: images, files and what OpenAI's own tools write are not supported",
        param=f"{path}.type",
    )


def _message(item: InputItem, path: str) -> Turn:
    if item.role is None:
        raise RequestError(f"{path}.role is missing", param=f"{path}.role")
    if item.content is None:
        raise RequestError(f"{path}.content is missing", param=f"{path}.content")
    kinds = _PARTS.get(item.role, _TEXT)
    return {"role": item.role, "content": _text(item.content, f"{path}.content", kinds)}


def _reasoning(item: InputItem, path: str) -> Turn | None:
    for name in ("content", "summary"):
        parts = getattr(item, name)
        if parts:
            text = _text(parts, f"{path}.{name}", _PARTS["reasoning"])
            return {"role": "assistant", "content": None, "reasoning_content": text}
    return None


def _function(item: InputItem, path: str) -> tuple[str, str]:
    return shown_name(_of(item, "name", path), item.namespace), _of(item, "arguments", path)


def _custom(item: InputItem, path: str) -> tuple[str, str]:
    arguments = custom_arguments(_of(item, "input", path))
    name = shown_name(_of(item, "name", path), item.namespace)
    return name, json.dumps(arguments, ensure_ascii=False)


def _shell(item: InputItem, path: str) -> tuple[str, str]:
    action = item.action
    if action is None:
        raise RequestError(f"{path}.action is missing", param=f"{path}.action")
    said = {
        "command": action.get("command"),
        "workdir": action.get("working_directory"),
        "timeout_ms": action.get("timeout_ms"),
    }
    arguments = {name: value for name, value in said.items() if value is not None}
    return LOCAL_SHELL, json.dumps(arguments, ensure_ascii=False)


_CALLS: Mapping[str, Callable[[InputItem, str], tuple[str, str]]] = {
    "function_call": _function,
    "custom_tool_call": _custom,
    "local_shell_call": _shell,
}


def _result(item: InputItem, path: str, names: Mapping[str, str]) -> Turn:
    # The result of a command has the id of its call as its own.
    field = "call_id" if item.call_id is not None or item.id is None else "id"
    id_ = _of(item, field, path)
    if id_ not in names:
        raise RequestError(
            f"{path}.{field} is not the call_id of a call before it", param=f"{path}.{field}"
        )
    if item.output is None:
        raise RequestError(f"{path}.output is missing", param=f"{path}.output")
    content = _text(item.output, f"{path}.output", _TEXT)
    return {"role": "tool", "tool_call_id": id_, "name": names[id_], "content": content}


def _text(content: str | Sequence[InputPart], path: str, kinds: Sequence[str]) -> str:
    texts = [content] if isinstance(content, str) else [*_part_texts(content, path, kinds)]
    for text in texts:
        check_text(text, param=path)
    return "\n".join(texts)


def _part_texts(parts: Sequence[InputPart], path: str, kinds: Sequence[str]) -> Iterator[str]:
    for j, part in enumerate(parts):
        where = f"{path}[{j}]"
        if part.type not in kinds:
            raise RequestError(
                f"{where}.type must be {' or '.join(kinds)}: images, audio and files are not "
                "supported",
                param=f"{where}.type",
            )
        name = "refusal" if part.type == "refusal" else "text"
        yield _of(part, name, where)


def _of(part: InputItem | InputPart, name: str, path: str) -> str:
    text: str | None = getattr(part, name)
    if text is None:
        raise RequestError(f"{path}.{name} is missing", param=f"{path}.{name}")
    check_text(text, param=f"{path}.{name}")
    return text


def _is_same_turn(one: Turn, other: Turn, *, is_first: bool) -> bool:
    role, next_ = str(one["role"]), str(other["role"])
    if role in SYSTEM_ROLES:
        return is_first and next_ in SYSTEM_ROLES
    return role != "tool" and role == next_


def _joined(one: Turn, other: Turn) -> Turn:
    joined = {**one, **other, "role": one["role"]}
    for name in ("content", "reasoning_content"):
        texts = [turn[name] for turn in (one, other) if turn.get(name)]
        if texts or name in joined:
            joined[name] = _BETWEEN.join(texts)
    calls = [*one.get("tool_calls", ()), *other.get("tool_calls", ())]
    if calls:
        joined["tool_calls"] = calls
        joined["content"] = joined["content"] or None
    return joined
