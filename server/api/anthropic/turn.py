"""From Anthropic's wire to a ChatTurn, for the route that answers and the one that counts.

Owns which tools may be used, whether the model thinks, and the form of the answer.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine import ChatTemplate, ConstraintSpec, Tool

from ...chat.tools import OfferedTool, ToolChoice, ToolUse, tool_use
from ...chat.turn import ChatTurn
from ...errors import RequestError
from ...request.constraint import constraint_of
from ...request.unknown_fields import Warnings, warning
from ...schema.anthropic import MessagesRequest, PromptOfMessages
from .conversation import conversation
from .results import Results, referenced

# Templates use either name.
_THINKING = ("enable_thinking", "thinking")
# What thinking blocks may hold. A summary is all of it here.
_DISPLAYS = ("omitted", "summarized")


def turn_of(
    body: PromptOfMessages, *, n_body: int, drops_header: bool, strict: bool
) -> tuple[ChatTurn, Warnings]:
    """The turn of a body of `n_body` bytes, and what of it had no effect. Raises RequestError."""
    offered = _offered(body)
    tools = _tool_use(body, offered)
    results = Results(tools={one.tool.name: one.tool for one in offered}, strict=strict)
    messages, goes_on, warnings = conversation(body, results, drops_header=drops_header)
    turn = ChatTurn(
        messages=messages,
        n_characters=n_body,
        tools=tools,
        wanted=_wanted(body),
        variables=variables_of(body),
        add_generation_prompt=not goes_on,
        continue_final_message=goes_on,
    )
    return turn, warnings


def _offered(body: PromptOfMessages) -> list[OfferedTool]:
    """All tools of the body. Raises RequestError, naming the field."""
    offered = []
    for i, tool in enumerate(body.tools or ()):
        path = f"tools[{i}]"
        if tool.type not in (None, "custom"):
            raise RequestError(
                f"{path}.type: this server runs no tools, and knows none by a type of Anthropic's: "
                "leave it out, or send a tool with a name and an input_schema",
                param=f"{path}.type",
            )
        one = Tool(tool.name, tool.input_schema, tool.description, f"{path}.input_schema")
        offered.append(OfferedTool(one, path, strict=bool(tool.strict)))
    return offered


def _tool_use(body: PromptOfMessages, offered: Sequence[OfferedTool]) -> ToolUse:
    """What the model is shown of the tools, and may call: of those that are deferred, the ones that
    a result refers to may be called, and stand there. Raises RequestError, naming the field.
    """
    choice = body.tool_choice
    is_parallel = choice is None or not choice.disable_parallel_tool_use
    if choice is not None and choice.type == "tool" and choice.name is None:
        raise RequestError("tool_choice.name is missing", param="tool_choice.name")
    deferred = {tool.name for tool in body.tools or () if tool.defer_loading}
    hidden = deferred - referenced(body.messages) if deferred else deferred
    known = [one for one in offered if one.tool.name not in hidden]
    use = tool_use(known, _choice(body), parallel=is_parallel, param="tools")
    return replace(use, shown=tuple(tool for tool in use.shown if tool.name not in deferred))


def variables_of(body: PromptOfMessages) -> dict[str, Any]:
    """Variables of the chat template. Without `thinking` the model does not think, as Anthropic's
    clients expect.
    """
    thinks = body.thinking is not None and body.thinking.type != "disabled"
    variables: dict[str, Any] = dict.fromkeys(_THINKING, thinks)
    if body.output_config is not None and body.output_config.effort is not None:
        variables["reasoning_effort"] = body.output_config.effort
    return variables


def unused(body: PromptOfMessages, template: ChatTemplate | None, *, strict: bool) -> Warnings:
    """Warnings for what the model or its template does not use; errors if the request is strict."""
    known = set(re.findall(r"\w+", template.source)) if template is not None else set()
    no_place = "the model's chat template does not use it; it had no effect"
    found = []
    if body.thinking is not None and body.thinking.type != "disabled":
        if known.isdisjoint(_THINKING):
            found.append(("thinking", no_place))
        if body.thinking.budget_tokens is not None:
            found.append(
                ("thinking.budget_tokens", "the model thinks as long as it does; it had no effect")
            )
        if body.thinking.display not in (None, *_DISPLAYS):
            found.append(("thinking.display", "thinking blocks hold all that the model thinks"))
    effort = body.output_config.effort if body.output_config is not None else None
    if effort is not None and "reasoning_effort" not in known:
        found.append(("output_config.effort", no_place))
    return [warning(param, message, strict=strict) for param, message in found]


def _choice(body: PromptOfMessages) -> ToolChoice | None:
    choice = body.tool_choice
    if choice is None:
        return ToolChoice("tool_choice")
    if choice.type == "none":
        return None
    names = (choice.name,) if choice.type == "tool" and choice.name is not None else None
    return ToolChoice("tool_choice", required=choice.type in ("any", "tool"), names=names)


def _wanted(body: PromptOfMessages) -> ConstraintSpec | None:
    if not isinstance(body, MessagesRequest):
        return None
    places = {"output_format": body.output_format}
    if body.output_config is not None:
        places["output_config.format"] = body.output_config.format
    asked = [(param, form) for param, form in places.items() if form is not None]
    other = constraint_of(body)
    if len(asked) + (other is not None) > 1:
        raise RequestError(
            "two fields say what form the answer has: send one of them", param=asked[-1][0]
        )
    if not asked:
        return other
    param, form = asked[0]
    spec = constraint_of(body.model_copy(update={"json_schema": form.schema_}))
    assert spec is not None, "a schema asks for something"
    return replace(spec, param=f"{param}.schema")
