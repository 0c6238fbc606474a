"""A caller's messages, made ready for a template: checked, copied, in the roles that it knows.

Owns the roles, the refusal of values that are not JSON or not Unicode, and the forms of messages in
which templates differ. Knows no token.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypedDict

from ..errors import InvalidInputError
from .template.template import ChatTemplate

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MAX_DEPTH = 64

_SYSTEM = ("system", "developer")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_ASKS_FOR_NONE = re.compile(r"\bcontent['\"\])]*\s*(?:is|==|!=)\s*(?:not\s+)?none\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Everything that a template gets from a caller, as plain JSON values."""

    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]]
    documents: Sequence[dict[str, Any]]
    variables: Mapping[str, Any]
    add_generation_prompt: bool

    def rendered_by(self, template: ChatTemplate) -> str:
        """The prompt text. Raises TemplateError."""
        return template.render(
            self.messages,
            tools=self.tools,
            documents=self.documents,
            add_generation_prompt=self.add_generation_prompt,
            variables=self.variables,
        )


class Rendering(TypedDict, total=False):
    """What a prompt is made of in addition to its messages: the keywords of `Engine.encode_chat`
    and `render_chat`.
    """

    tools: Sequence[Mapping[str, Any]] | None
    """Tools, in OpenAI's format."""
    documents: Sequence[Mapping[str, Any]] | None
    """Documents, for templates that read them."""
    add_generation_prompt: bool
    """Whether the prompt begins the assistant's turn (the default)."""
    continue_final_message: bool
    """Whether the prompt ends with the text of the last message, whose turn stays open. Then no
    other turn begins.
    """
    template_kwargs: Mapping[str, Any]
    """Variables that the template may read, such as enable_thinking."""


def conversation(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    template_kwargs: Mapping[str, Any] = MappingProxyType({}),
) -> Conversation:
    """The keywords are those of Rendering.

    Raises InvalidInputError, with the path in `param`, for an unknown role, a value that is not
    JSON, text that is not valid Unicode, and a variable that the caller may not set.
    """
    for name in template_kwargs:
        if name in template.reserved:
            raise InvalidInputError(
                f"chat_template_kwargs may not set {name!r}", param="chat_template_kwargs"
            )
    source = template.tool_source if tools else template.source
    plain = [_plain(message, f"messages[{i}]") for i, message in enumerate(messages)]
    for i, message in enumerate(plain):
        _check_role(message, f"messages[{i}]")
    adapted = [_adapted(message, source, template) for message in plain]
    return Conversation(
        messages=adapted if template.takes_later_system else _without_later_system(adapted),
        tools=[_plain(tool, f"tools[{i}]") for i, tool in enumerate(tools or ())],
        documents=[_plain(item, f"documents[{i}]") for i, item in enumerate(documents or ())],
        variables=_plain(template_kwargs, "chat_template_kwargs"),
        add_generation_prompt=add_generation_prompt and not continue_final_message,
    )


def _plain(value: Any, path: str, depth: int = 0) -> Any:
    """A copy in JSON types. Other objects could have methods, which a template could call."""
    if depth > MAX_DEPTH:
        raise InvalidInputError(f"{path[:80]}… is nested too deeply", param=path.split(".")[0])
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {
            _text(key, path): _plain(item, f"{path}{_step(key)}", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise InvalidInputError(
        f"{path} is a {type(value).__name__}, which is not a JSON type", param=path
    )


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(f"{path} has the key {value!r}, which is not a string", param=path)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{path} holds a lone surrogate, which is not a valid character", param=path
        ) from error
    return str(value)


def _step(key: Any) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r:.40}]"


def _check_role(message: Any, path: str) -> None:
    if not isinstance(message, dict):
        raise InvalidInputError(f"{path} must be an object", param=path)
    # Only known roles: templates build control tokens from them.
    if message.get("role") not in ROLES:
        raise InvalidInputError(
            f"{path}.role must be one of {', '.join(ROLES)}, not {message.get('role')!r:.80}",
            param=f"{path}.role",
        )


def _adapted(message: dict[str, Any], source: str, template: ChatTemplate) -> dict[str, Any]:
    """The message in the form that this template expects."""
    adapted = {**message, "role": _role(message["role"], source)}
    if adapted.get("content") is None and not _ASKS_FOR_NONE.search(source):
        adapted["content"] = ""  # most templates would write "None"
    thought = next((message[key] for key in _REASONING if message.get(key) is not None), None)
    if thought is not None:
        adapted |= {"reasoning_content": thought, "thinking": message.get("thinking", thought)}
    calls = message.get("tool_calls")
    if not calls:
        adapted.pop("tool_calls", None)  # some templates only check whether the key exists
    elif isinstance(calls, list) and not template.takes_argument_text:
        adapted["tool_calls"] = [_with_object(call) for call in calls]
    return adapted


def _without_later_system(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages for a template that knows a system message only as the first one: the user tells
    a later one, in one turn with the user's own words beside it.
    """
    placed: list[dict[str, Any]] = []
    is_open = False  # whether the last turn ends with a system message that the user tells
    for message in messages:
        role = message["role"]
        is_later = bool(placed) and role in _SYSTEM
        if is_later:
            role = placed[-1]["role"] if placed[-1]["role"] in _SYSTEM else "user"
        if (is_later or is_open) and placed[-1]["role"] == role:
            joined = _joined(placed[-1].get("content"), message.get("content"))
            placed[-1] = {**placed[-1], "content": joined}
        else:
            placed.append({**message, "role": role})
        is_open = is_later and role == "user"
    return placed


def _joined(one: Any, other: Any) -> Any:
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n\n{other}"
    return [*_parts(one), *_parts(other)]


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _role(role: str, source: str) -> str:
    if role == "developer" and not _names(source, "developer"):
        return "system"
    if role == "function" and (_names(source, "tool") or not _names(source, "function")):
        return "tool"
    return role


def _names(source: str, role: str) -> bool:
    return f"'{role}'" in source or f'"{role}"' in source


def _with_object(call: Any) -> Any:
    """A tool call with its arguments as an object, if they are the JSON of one."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        parsed = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    if not isinstance(parsed, dict):
        return call
    parsed = _plain(parsed, "messages")  # escapes may hide a lone surrogate
    return {**call, "function": {**function, "arguments": parsed}}
