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
from . import harmony_grammar
from .format import ReplyFormat, ToolFormat
from .lark_text import ANY, arguments, choice, is_token, named, pattern, quoted, until, written

_REASONING = "reasoning_of_reply"
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
    number of calls; otherwise at most one. In either case the reply may reason first. A model of
    style qwen3-coder must write its arguments as JSON between the same tags, because no schema can
    be enforced on values in plain text. Raises InvalidInputError, with the `param` of the tool, for
    a schema with keywords that cannot be enforced.
    """
    for tool in tools:
        enforceable(parameters_of(tool), param=tool.param)
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
        start, *rules = harmony_grammar.before(form.tools, in_reasoning=in_reasoning)
        final = harmony_grammar.header(form.tools, "final")
        return replace(spec, before=(f"{start} {final}", *rules))
    opening, closing = form.reasoning
    closed = f"{_REASONING} {_AFTER_REASONING}"
    start = closed if in_reasoning else f"({named(opening)} {closed})?"
    return replace(spec, before=(start, until(_REASONING, closing)))


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


def _tagged(
    form: ToolFormat, tools: Sequence[Tool], *, required: bool, parallel: bool
) -> list[str]:
    assert form.close is not None
    rest = f"call {named(form.close)}"
    return [
        _start(rest, f"/\\n?/ {named(form.open)} {rest}", form, required, parallel),
        *_objects(tools, "arguments", before="\n", after="\n"),
    ]


def _bare(form: ToolFormat, tools: Sequence[Tool], *, required: bool, parallel: bool) -> list[str]:
    calls = "call (/[;,] ?/ call)*" if parallel else "call"
    # A text must not begin like a call.
    start = calls if required else rf"{calls} | /(?:[^{{\s](?s:.*))?/"
    return [f"start: {start}", *_objects(tools, form.arguments_key)]


def _mistral(
    form: ToolFormat, tools: Sequence[Tool], *, required: bool, parallel: bool
) -> list[str]:
    if form.is_list:
        calls = 'call (", " call)*' if parallel else "call"
        rest = f'/ ?/ "[" {calls} "]"'
        return [
            _start(rest, "", form, required, parallel=False),
            *_objects(tools, "arguments"),
        ]
    _, inner = form.inner
    lines = [_start("call", f"{named(form.open)} call", form, required, parallel)]
    lines.append(choice(tools))
    for i, tool in enumerate(tools):
        lines.append(f"call_{i}: {quoted(tool.name)} {named(inner)} arguments_{i}")
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
        return [_start(rest, "", form, required, parallel=False), *rules]
    if required:
        return [f"start: {rest}", *rules]
    text = _start(rest, "", form, required=False, parallel=False).replace("start:", "text:", 1)
    return [f"start: {rest} | {written(around.text_prefix)} text", text, *rules]


_FORMS: dict[str, Callable[..., list[str]]] = {
    "hermes": _tagged,
    "qwen3-coder": _tagged,
    "llama3": _bare,
    "mistral": _mistral,
    "harmony": harmony_grammar.calls,
}


def _start(first: str, further: str, form: ToolFormat, required: bool, parallel: bool) -> str:
    """`first`: what follows the first opening tag; `further`: a whole call after that."""
    calls = f"{first} ({further})*" if parallel else first
    opening = named(form.open)
    if required:
        return f"start: {opening} {calls}"
    if is_token(form.open):
        return f"start: {ANY} ({opening} {calls})?"
    free = f"FREE: {ANY} & ~/(?s:.*){pattern(form.open.text)}(?s:.*)/"
    return f"start: FREE | free {calls}\n{until('free', form.open)}\n{free}"


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
