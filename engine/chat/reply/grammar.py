"""Grammars of replies: forced tool calls, and constraints that begin after the reasoning.

Owns the Lark text of every format that a ReplyReader reads. Knows only the tokens that a format
names, and compiles nothing.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...errors import InvalidInputError
from ...grammar.json_schema import enforceable
from ...grammar.spec import ConstraintSpec
from ..tools import Tool, parameters_of
from . import gemma_grammar, harmony_grammar, tagged_grammar
from .format import ReplyFormat
from .lark_text import arguments, choice, named, quoted, start, until, written
from .tool_format import ToolFormat

_REASONING = "reasoning_of_reply"
_CALL_ID = "/[0-9A-Za-z]{9}/"
_AFTER_REASONING = r"/[ \n]{0,4}/"


def tool_constraint(
    form: ReplyFormat,
    tools: Sequence[Tool],
    *,
    required: bool,
    parallel: bool,
    in_reasoning: bool,
) -> ConstraintSpec:
    """Replies in which every call is of one of `tools`, with arguments that match its schema.

    `required`: only calls; otherwise there may be text before them, or text alone. `parallel`: any
    number of calls; otherwise at most one. In either case the reply may reason first. Where a
    schema cannot be enforced in the format of the model, the arguments are JSON in their place.
    Raises InvalidInputError, with the `param` of the tool, for a schema with keywords that cannot
    be enforced at all.
    """
    tools = [
        tool._replace(parameters=enforceable(parameters_of(tool), param=tool.param))
        for tool in tools
    ]
    write = _FORMS[form.tools.style] if form.tools.around is None else _shown
    rules = write(form.tools, tools, required=required, parallel=parallel)
    spec = ConstraintSpec("lark", "\n".join(rules))
    if form.tools.style == "harmony":
        return replace(spec, before=harmony_grammar.before(form.tools, in_reasoning=in_reasoning))
    return after_reasoning(spec, form, in_reasoning=in_reasoning)


def after_reasoning(
    spec: ConstraintSpec, form: ReplyFormat, *, in_reasoning: bool
) -> ConstraintSpec:
    """The same constraint for the text after the reasoning, which is free.

    `in_reasoning`: whether the prompt has opened the reasoning; if not, the reply may open it.
    """
    if form.reasoning is None:
        return spec
    if form.tools.style == "harmony":
        thoughts, *rules = harmony_grammar.before(form.tools, in_reasoning=in_reasoning)
        final = harmony_grammar.header(form.tools, "final")
        return replace(spec, before=(f"{thoughts} {final}", *rules))
    opening, closing, label = form.reasoning
    closed = f"{_REASONING} {_AFTER_REASONING}"
    opened = f"{named(opening)} {quoted(label) if label else ''}"
    first = closed if in_reasoning else f"({opened} {closed})?"
    return replace(spec, before=(first, until(_REASONING, closing)))


def calls_or_json(
    calls: ConstraintSpec, text: ConstraintSpec, form: ReplyFormat, *, param: str | None
) -> ConstraintSpec:
    """Replies that are `calls`, a constraint of required calls in `form`, or the JSON of `text`.

    Raises InvalidInputError with `param` if `text` is another kind of constraint.
    """
    if text.kind not in ("json_object", "json_schema"):
        raise InvalidInputError(
            f"{param} cannot be combined with tools: only JSON constraints can", param=param
        )
    schema = text.value if text.kind == "json_schema" else {"type": "object"}
    rules = str(calls.value).removeprefix("start:")
    is_message = form.tools.style == "harmony"
    head = harmony_grammar.header(form.tools, "final") if is_message else ""
    answer = f"answer: {head} %json {json.dumps(schema, ensure_ascii=False)}"
    return replace(
        calls,
        value=f"start: answer | calls\n{answer}\ncalls:{rules}",
        whitespace_pattern=text.whitespace_pattern,
    )


def arguments_of(tool: Tool) -> ConstraintSpec:
    """The constraint on the arguments of one tool, to find out whether its schema is at fault."""
    return ConstraintSpec("json_schema", parameters_of(tool), param=tool.param)


def _hermes(
    form: ToolFormat, tools: Sequence[Tool], *, required: bool, parallel: bool
) -> list[str]:
    assert form.close is not None
    rest = f"call {named(form.close)}"
    return [
        start(
            rest,
            f"/\\n?/ {named(form.open)} {rest}",
            form,
            required=required,
            parallel=parallel,
        ),
        *_objects(tools, "arguments", before="\n", after="\n"),
    ]


def _bare(form: ToolFormat, tools: Sequence[Tool], *, required: bool, parallel: bool) -> list[str]:
    calls = "call (/[;,] ?/ call)*" if parallel else "call"
    # A text must not begin like a call.
    replies = calls if required else rf"{calls} | /(?:[^{{\s](?s:.*))?/"
    return [f"start: {replies}", *_objects(tools, form.arguments_key)]


def _mistral(
    form: ToolFormat, tools: Sequence[Tool], *, required: bool, parallel: bool
) -> list[str]:
    if form.is_list:
        calls = 'call (", " call)*' if parallel else "call"
        rest = f'/ ?/ "[" {calls} "]"'
        return [
            start(rest, "", form, required=required, parallel=False),
            *_objects(tools, "arguments"),
        ]
    call_id, inner = form.inner
    middle = f"{named(call_id)} {_CALL_ID} {named(inner)}" if form.has_call_id else named(inner)
    further = f"{named(form.open)} call"
    lines = [start("call", further, form, required=required, parallel=parallel), choice(tools)]
    for i, tool in enumerate(tools):
        lines.append(f"call_{i}: {quoted(tool.name)} {middle} arguments_{i}")
        lines.append(arguments(i, tool))
    return lines


def _shown(form: ToolFormat, tools: Sequence[Tool], *, required: bool, parallel: bool) -> list[str]:
    """Calls in the format of the template."""
    around = form.around
    assert around is not None
    if form.style == "named":
        middle = written(around.middle)
        rules = [choice(tools)]
        for i, tool in enumerate(tools):
            rules.append(f"call_{i}: {quoted(tool.name)} {middle} arguments_{i}")
            rules.append(arguments(i, tool))
    else:
        rules = _objects(tools, form.arguments_key)
    calls = "call"
    if parallel and around.between is not None:
        calls = f"call ({written(around.between)} call)*"
    rest = f"{written((*around.opening[1:], *around.rest_of_opening))} {calls}"
    rest = f"{rest} {written(around.closing)}".strip()
    if around.opening:
        return [start(rest, "", form, required=required, parallel=False), *rules]
    if required:
        return [f"start: {rest}", *rules]
    text = start(rest, "", form, required=False, parallel=False).replace("start:", "text:", 1)
    return [f"start: {rest} | {written(around.text_prefix)} text", text, *rules]


_FORMS: dict[str, Callable[..., list[str]]] = {
    "hermes": _hermes,
    "llama3": _bare,
    "mistral": _mistral,
    "tagged": tagged_grammar.calls,
    "gemma": gemma_grammar.calls,
    "harmony": harmony_grammar.calls,
}


def _objects(tools: Sequence[Tool], key: str, *, before: str = "", after: str = "") -> list[str]:
    """The rule `call`: an object with the name of a tool and its arguments under `key`."""
    lines = [choice(tools)]
    for i, tool in enumerate(tools):
        name = json.dumps(tool.name, ensure_ascii=False)
        # In the lexemes of JSON: a longer one would win over JSON that is allowed here.
        pieces = (before + "{", '"name"', ": ", name, ", ", f'"{key}"', ": ")
        head = " ".join(map(quoted, pieces))
        lines.append(f"call_{i}: {head} arguments_{i} {quoted('}' + after)}")
        lines.append(arguments(i, tool))
    return lines
