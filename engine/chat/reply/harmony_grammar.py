"""Grammars of replies in OpenAI's Harmony format: what precedes the answer, and forced calls.

Owns the Lark text of its messages. A reply begins within a header: the prompt ends with
`<|start|>assistant`.
"""

from collections.abc import Sequence

from ..tools import Tool
from .lark_text import arguments, choice, named, quoted, until, without
from .tool_format import HARMONY_TAGS, ToolFormat
from .written import Marker

_THOUGHT = "analysis_of_reply"
_FREE = "free"


def before(form: ToolFormat, *, in_reasoning: bool) -> tuple[str, ...]:
    """Any number of messages of analysis, up to the header of the next message: a pattern, then the
    rules that it names. `in_reasoning`: whether the prompt has begun one.
    """
    rest = f"{_THOUGHT} {_next(form)}"
    thoughts = f"({header(form, 'analysis')} {rest})*"
    start = f"{rest} {thoughts}" if in_reasoning else thoughts
    return (start, until(_THOUGHT, _tag(form, "<|end|>")))


def header(form: ToolFormat, channel: str) -> str:
    """The header of a message to nobody."""
    return f"{_name(form, '<|channel|>')} {quoted(channel)} {_name(form, '<|message|>')}"


def calls(form: ToolFormat, tools: Sequence[Tool], *, required: bool, parallel: bool) -> list[str]:
    """One call, which ends the reply; `parallel` changes nothing. If no call is required, a final
    text instead, and a preamble before either.
    """
    del parallel
    rules = [choice(tools)]
    for i, tool in enumerate(tools):
        to = quoted(f"commentary to=functions.{tool.name} ")
        opening = f"{_name(form, '<|channel|>')} {to}"
        kind = f'{_name(form, "<|constrain|>")} "json" {_name(form, "<|message|>")}'
        rules += [f"call_{i}: {opening} {kind} arguments_{i}", arguments(i, tool)]
    if required:
        return ["start: call", *rules]
    preamble = f"({header(form, 'commentary')} {_FREE} {_next(form)})?"
    final = f"{header(form, 'final')} FINAL"
    end = until(_FREE, _tag(form, "<|end|>"))
    return [f"start: {preamble} (call | {final})", end, _final(form), *rules]


def _final(form: ToolFormat) -> str:
    """A terminal of text that begins no other message."""
    return f"FINAL: {without(_tag(form, '<|channel|>'))}"


def _next(form: ToolFormat) -> str:
    """The beginning of the next header."""
    return f'{_name(form, "<|start|>")} "assistant"'


def _name(form: ToolFormat, tag: str) -> str:
    return named(_tag(form, tag))


def _tag(form: ToolFormat, tag: str) -> Marker:
    return form.inner[HARMONY_TAGS.index(tag)]
