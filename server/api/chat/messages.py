"""The messages of OpenAI's chat wire, as the engine takes them.

Owns what a message must have, by its role, and that the older names of tool calls mean the same as
the newer ones. Knows no template and no tokens.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import RequestError
from ...request.text import check_text
from ...schema.messages import ContentPart, Message
from ...schema.tools import CalledFunction

# What only an assistant's message may have.
_ASSISTANT_FIELDS = ("tool_calls", "function_call", "refusal", "reasoning_content", "reasoning")


def template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Each message as the template takes it: `content` is a text, or None next to tool calls.

    A call in the older form becomes a tool call, and a message of role function the answer to it.
    Raises RequestError, naming the field.
    """
    called = 0  # index of the last call in the older form, which has no id
    rendered = []
    for i, message in enumerate(messages):
        rendered.append(_template_message(message, i, answered_id=_call_id(called)))
        called = called if message.function_call is None else i
    return rendered


def parts_text(parts: Sequence[ContentPart], *, path: str, kinds: Sequence[str]) -> list[str]:
    """The text of each part, all of which must be of one of the `kinds`."""
    return [_part_text(part, path=f"{path}[{j}]", kinds=kinds) for j, part in enumerate(parts)]


def _template_message(message: Message, i: int, *, answered_id: str) -> dict[str, Any]:
    path = f"messages[{i}]"
    _check_role(message, path)
    calls = _tool_calls(message, i)
    reasoning = _reasoning(message, path)
    content = _text(message, path)
    if content is None and not calls and (reasoning is None or message.role != "assistant"):
        raise RequestError(
            f"a message of role {message.role} needs content", param=f"{path}.content"
        )
    fields: dict[str, Any] = {
        "role": "tool" if message.role == "function" else message.role,
        "content": "" if content is None and not calls else content,
    }
    if message.name is not None:
        fields["name"] = message.name
    if calls:
        fields["tool_calls"] = calls
    if message.role == "function":
        fields["tool_call_id"] = answered_id
    elif message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if reasoning is not None:
        fields["reasoning_content"] = reasoning
    for name, text in _strings(fields):
        check_text(text, param=f"{path}.{name}")
    return fields


def _check_role(message: Message, path: str) -> None:
    if message.role != "assistant":
        for name in _ASSISTANT_FIELDS:
            if getattr(message, name):
                raise RequestError(
                    f"only messages of role assistant may have {name}", param=f"{path}.{name}"
                )
    if message.role == "tool" and message.tool_call_id is None:
        raise RequestError(
            "a message of role tool needs the tool_call_id that it answers",
            param=f"{path}.tool_call_id",
        )
    if message.role == "function" and message.name is None:
        raise RequestError(
            "a message of role function needs the name of the function", param=f"{path}.name"
        )


def _text(message: Message, path: str) -> str | None:
    content = message.content
    if content is None or isinstance(content, str):
        return message.refusal if content is None else content
    kinds = ("text", "refusal") if message.role == "assistant" else ("text",)
    return "\n".join(parts_text(content, path=f"{path}.content", kinds=kinds))


def _part_text(part: ContentPart, *, path: str, kinds: Sequence[str]) -> str:
    if part.type not in kinds:
        raise RequestError(
            f"{path} must be of type {' or '.join(kinds)}: images, audio and files are not "
            "supported",
            param=path,
        )
    text = part.refusal if part.type == "refusal" else part.text
    if text is None:
        raise RequestError(f"{path} has no {part.type}", param=f"{path}.{part.type}")
    return text


def _reasoning(message: Message, path: str) -> str | None:
    one, other = message.reasoning_content, message.reasoning
    if one is not None and other is not None and one != other:
        raise RequestError(
            "reasoning and reasoning_content are two names of one field, and their values differ: "
            "send one of them",
            param=f"{path}.reasoning",
        )
    return other if one is None else one


def _tool_calls(message: Message, i: int) -> list[dict[str, Any]]:
    calls = message.tool_calls or []
    if message.function_call is None:
        return [_tool_call(call.id, call.function) for call in calls]
    if calls:
        raise RequestError(
            "function_call is the older form of tool_calls: send one of them",
            param=f"messages[{i}].function_call",
        )
    return [_tool_call(_call_id(i), message.function_call)]


def _tool_call(id_: str, function: CalledFunction) -> dict[str, Any]:
    called = {"name": function.name, "arguments": function.arguments}
    return {"id": id_, "type": "function", "function": called}


def _call_id(i: int) -> str:
    # Nine letters and digits: templates of Mistral's models accept nothing else.
    return f"call{i:05d}"


def _strings(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every text of a message, with its path."""
    for name in ("content", "name", "tool_call_id", "reasoning_content"):
        if isinstance(fields.get(name), str):
            yield name, fields[name]
    for k, call in enumerate(fields.get("tool_calls", ())):
        yield f"tool_calls[{k}].id", call["id"]
        for name, text in call["function"].items():
            yield f"tool_calls[{k}].function.{name}", text
