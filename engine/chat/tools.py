"""Tools that a model may call, and how a prompt describes them to a model without tool support.

Owns the tool as the engine knows it, and the text of tools, calls and results for templates that
have no place for them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# In OpenAI's API a function without `parameters` takes no arguments.
NO_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}


class Tool(NamedTuple):
    """A function that the model may call."""

    name: str
    parameters: Mapping[str, Any] | None = None
    """JSON schema of its arguments; None if it takes none."""
    description: str | None = None
    param: str | None = None
    """The `param` of an error in the schema, such as tools[2].function.parameters."""


def parameters_of(tool: Tool) -> dict[str, Any]:
    """The schema of the arguments, which are always an object."""
    schema = NO_PARAMETERS if tool.parameters is None else tool.parameters
    # OpenAPI's `nullable` would allow null instead.
    known = {name: value for name, value in schema.items() if name != "nullable"}
    return known if "type" in known else {"type": "object", **known}


def template_tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The tools as chat templates take them. What a tool does not say is left to the template."""
    return [{"type": "function", "function": _described(tool, tool.parameters)} for tool in tools]


def describe_tools(tools: Sequence[Tool], example: str = "") -> str:
    """A system text that lists the tools and how to call them: one JSON object between tags, or as
    in the `example` of a call.
    """
    described = [_described(tool, parameters_of(tool)) for tool in tools]
    lines = "\n".join(json.dumps(function, ensure_ascii=False) for function in described)
    functions = f"You can call these functions, one JSON object per line:\n{lines}\n\n"
    if example:
        return f"{functions}To call one, write its name and its arguments in this form:\n{example}"
    return (
        f"{functions}"
        "To call one, write its name and its arguments as a JSON object between tags:\n"
        "<tool_call>\n"
        '{"name": "the name", "arguments": {"an argument": "its value"}}\n'
        "</tool_call>\n"
        "Write nothing between the tags but that object, and one pair of tags per call."
    )


def spelled_calls(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages in which calls and their results are text, for a template that knows neither.

    A call is written as `describe_tools` asks for it. Results become a turn of the user, one for
    all consecutive results, because such templates may want the turns to alternate.
    """
    spelled: list[dict[str, Any]] = []
    follows_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result and follows_result:
            spelled[-1]["content"] += "\n" + _spelled_result(message)
        elif is_result:
            spelled.append({"role": "user", "content": _spelled_result(message)})
        else:
            spelled.append(_with_calls(message))
        follows_result = is_result
    return spelled


def _with_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [_spelled_call(call["function"]) for call in message.get("tool_calls", ())]
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    if calls:
        rest["content"] = "\n".join([*filter(None, [message["content"]]), *calls])
    return rest


def listed_calls(messages: Sequence[Mapping[str, Any]], tag: str) -> list[dict[str, Any]]:
    """Messages in which calls are text, a list after a tag, for a template that only knows tools
    and results.
    """
    listed: list[dict[str, Any]] = []
    for message in messages:
        calls = [call["function"] for call in message.get("tool_calls", ())]
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        if calls:
            objects = ", ".join(map(_object, calls))
            rest["content"] = f"{message['content'] or ''}{tag}[{objects}]"
        listed.append(rest)
    return listed


def _spelled_call(function: Mapping[str, str]) -> str:
    return f"<tool_call>\n{_object(function)}\n</tool_call>"


def _object(function: Mapping[str, str]) -> str:
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'{{"name": {name}, "arguments": {function["arguments"] or "{}"}}}'


def _spelled_result(message: Mapping[str, Any]) -> str:
    return f"<tool_response>\n{message['content']}\n</tool_response>"


def _described(tool: Tool, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    about = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {name: value for name, value in about.items() if value is not None}
