"""From /v1/responses to a ChatTurn, for the route that answers and the one that counts.

Owns the variables of the chat template, and the form of the answer.
"""

import re
from dataclasses import replace
from typing import Any, NamedTuple

from engine import ChatTemplate, ConstraintSpec

from ...chat.turn import ChatTurn
from ...errors import RequestError
from ...request.constraint import constraint_of
from ...request.unknown_fields import Warnings, warning
from ...schema.constraint import ConstraintFields
from ...schema.responses import PromptOfResponse
from .conversation import conversation
from .history import items_of
from .tools import ReadTools, response_tools

# Templates use either name.
_THINKING = ("enable_thinking", "thinking")


class ReadTurn(NamedTuple):
    """What a body asks for."""

    turn: ChatTurn
    tools: ReadTools
    warnings: Warnings


def read_turn(body: PromptOfResponse, *, n_body: int, strict: bool = False) -> ReadTurn:
    """The turn of a body of `n_body` bytes, whose input is whole. Raises RequestError."""
    tools = response_tools(body, strict=strict)
    messages, warnings = conversation(body.instructions, items_of(body.input), strict=strict)
    n_characters = sum(len(message["content"] or "") for message in messages)
    turn = ChatTurn(
        messages=messages,
        n_characters=max(n_body, n_characters),
        tools=tools.use,
        wanted=_wanted(body),
        variables=_variables(body),
    )
    return ReadTurn(turn, tools, [*tools.warnings, *warnings])


def unused_variables(
    body: PromptOfResponse, template: ChatTemplate | None, *, strict: bool
) -> Warnings:
    """Warnings for what the model's template does not use; errors if the request is strict."""
    if template is None:
        return []
    known = set(re.findall(r"\w+", template.source))
    effort, verbosity = _effort(body), body.text.verbosity if body.text is not None else None
    asked = []
    if effort not in (None, "none") and "reasoning_effort" not in known:
        asked.append("reasoning.effort")
    if verbosity not in (None, "medium") and "verbosity" not in known:
        asked.append("text.verbosity")
    message = "the model's chat template does not use it; it had no effect"
    return [warning(param, message, strict=strict) for param in asked]


def _variables(body: PromptOfResponse) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    effort = _effort(body)
    if effort == "none":
        variables |= dict.fromkeys(_THINKING, False)
    elif effort is not None:
        variables["reasoning_effort"] = effort
    if body.text is not None and body.text.verbosity is not None:
        variables["verbosity"] = body.text.verbosity
    return variables


def _effort(body: PromptOfResponse) -> str | None:
    return body.reasoning.effort if body.reasoning is not None else None


def _wanted(body: PromptOfResponse) -> ConstraintSpec | None:
    other = constraint_of(body) if isinstance(body, ConstraintFields) else None
    form = body.text.format if body.text is not None else None
    if form is None or form.type == "text":
        return other
    if other is not None:
        raise RequestError(
            f"text.format and {other.param} ask for different constraints: send one of them",
            param=other.param,
        )
    if form.type == "json_object":
        return ConstraintSpec("json_object", param="text.format")
    if form.schema_ is None:
        raise RequestError("text.format.schema is missing", param="text.format.schema")
    fields = body if isinstance(body, ConstraintFields) else ConstraintFields()
    spec = constraint_of(fields.model_copy(update={"json_schema": form.schema_}))
    assert spec is not None, "a schema asks for something"
    return replace(spec, param="text.format.schema")
