"""How a chat template writes tool calls, read off a rendering of known calls.

Owns the calls that are tried, and which part of the rendered text is the model's reply. Knows no
tokenizer and no stream: `format` turns what is found here into markers.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ...errors import TemplateError
from ..template.template import ChatTemplate
from .tagged_shape import NAMES, NUMBERS, TEXTS, TaggedReplies, TaggedShape, tagged_shape

ARGUMENTS_KEYS = ("arguments", "parameters")

_ARGUMENTS = ({"zqkey": "zqvalue"}, {"zqother": "zqthing"})
_IDS = ("zqcalla01", "zqcallb02")  # nine characters, as templates of Mistral's models want it
_CONTENT = "zqcontent"
_WORDS = ("the name", "an argument", "its value")
_MAX_REPLY = 16 * 1024
"""Characters; a longer rendering of these calls is not examined."""
_EMPTY = ("", None)  # some templates fail on one, some on the other
_WRITTEN = tuple(
    re.compile(rf'\{{\s*"{key}"\s*:\s*"{value}"\s*\}}')
    for arguments in _ARGUMENTS
    for key, value in arguments.items()
)


class CallShape(NamedTuple):
    """The texts around the parts of calls, as the template writes them.

    json:  opening {"name": ..., "arguments": {...}} (between {...})* closing
    named: opening name middle {...} (between name middle {...})* closing
    """

    kind: Literal["json", "named"]
    opening: str
    closing: str
    between: str | None = None
    """None if the template writes one call per reply."""
    middle: str = ""
    arguments_key: str = "arguments"
    text_prefix: str = ""
    """What a text reply begins with."""


class Probe(NamedTuple):
    """What the renderings of a template show."""

    shows_tools: bool
    """Whether a prompt describes the tools."""
    reply: str | None = None
    """A reply with one call; None if the template writes no calls."""
    shape: CallShape | None = None
    """How it writes calls that are objects, or a name and an object; None if it does not."""
    tags: TaggedShape[str] | None = None
    """How it writes calls with a tag per argument; None if it does not."""

    @property
    def example(self) -> str:
        """The reply with words for people in the place of name, argument and value."""
        text = self.reply or ""
        ((key, value),) = _ARGUMENTS[0].items()
        for said, word in zip((NAMES[0], key, value), _WORDS, strict=True):
            text = text.replace(said, word)
        return text


def probe(template: ChatTemplate, ends: Sequence[str] = ()) -> Probe:
    """`ends`: texts of the tokens that end a reply."""
    shows_tools = any(NAMES[0] in (_rendered(template, [], content) or "") for content in _EMPTY)
    first = _calls(template, ends, _ARGUMENTS[:1])
    if first is None or NAMES[0] not in first:
        return Probe(shows_tools)
    second = _calls(template, ends, _ARGUMENTS)
    if second is not None and NAMES[1] not in second:
        second = None
    shape = _json_shape(first, second) or _named_shape(first, second)
    if shape is None:
        return Probe(shows_tools, first, tags=_tags(template, ends))
    text = _reply(template, ends, (), _CONTENT) or ""
    shape = _without_prefix(shape, text[: max(0, text.find(_CONTENT))])
    return Probe(shows_tools, first, shape)


def _tags(template: ChatTemplate, ends: Sequence[str]) -> TaggedShape[str] | None:
    tried: list[Sequence[Mapping[str, Any]]] = [
        [TEXTS], [NUMBERS], [{}], [TEXTS, _ARGUMENTS[1]],
    ]  # fmt: skip
    return tagged_shape(TaggedReplies(*(_calls(template, ends, calls) for calls in tried)))


def _calls(
    template: ChatTemplate, ends: Sequence[str], arguments: Sequence[Mapping[str, Any]]
) -> str | None:
    """A reply of calls with these arguments."""
    replies = (_reply(template, ends, arguments, content) for content in _EMPTY)
    return next(filter(None, replies), None)


def _without_prefix(shape: CallShape, prefix: str) -> CallShape:
    """`prefix`: what precedes a text, and perhaps calls, such as empty reasoning."""
    if not shape.opening.startswith(prefix):
        return shape._replace(text_prefix=prefix)
    return shape._replace(opening=shape.opening[len(prefix) :])


def _rendered(
    template: ChatTemplate, turn: list[dict[str, Any]], content: str | None = None
) -> str | None:
    """The prompt of a question and `turn`."""
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in TEXTS}}
    tools = [
        {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}
        for name in NAMES
    ]
    messages = [{"role": "user", "content": "zqquestion"}, *turn]
    try:
        return template.render(messages, tools=tools, add_generation_prompt=not turn)
    except TemplateError:
        return None


def _reply(
    template: ChatTemplate,
    ends: Sequence[str],
    arguments: Sequence[Mapping[str, Any]],
    content: str | None,
) -> str | None:
    """The model's part of a turn with a call for each of `arguments`, or with text alone."""
    prompt = _rendered(template, [])
    takes_text = template.takes_argument_text
    for as_text in (takes_text, not takes_text):
        turn: dict[str, Any] = {"role": "assistant", "content": content}
        if arguments:
            turn["tool_calls"] = [
                _call(i, given, as_text=as_text) for i, given in enumerate(arguments)
            ]
        whole = _rendered(template, [turn])
        if whole is None:
            continue
        said = _rendered(template, [{"role": "assistant", "content": _CONTENT}])
        reply = _own_part(whole, prompt or "", said or "", ends)
        return reply if len(reply) <= _MAX_REPLY else None
    return None


def _call(i: int, arguments: Mapping[str, Any], *, as_text: bool) -> dict[str, Any]:
    given: Any = json.dumps(arguments) if as_text else dict(arguments)
    function = {"name": NAMES[i], "arguments": given}
    return {"id": _IDS[i], "type": "function", "function": function}


def _own_part(whole: str, prompt: str, said: str, ends: Sequence[str]) -> str:
    """`whole` without the prompt and without the end of the turn."""
    before, _, after = said.partition(_CONTENT)
    start = len(prompt) if prompt and whole.startswith(prompt) else _n_common(whole, before)
    tag = whole.rfind("<", 0, start)
    if re.fullmatch(r"<[^<>\s]*", whole[max(tag, 0) : start]):
        start = tag  # a text and a call begin with different tags
    reply = whole[start:]
    if after and reply.endswith(after):
        reply = reply[: -len(after)]
    while end := next((end for end in ends if end and reply.rstrip().endswith(end)), None):
        reply = reply.rstrip()[: -len(end)]
    return reply


def _n_common(one: str, other: str) -> int:
    """How many of the first characters are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _json_shape(first: str, second: str | None) -> CallShape | None:
    """The shape of calls that are objects with a name."""
    found = _object(first, 0)
    if found is None:
        return None
    start, end, key = found
    between = None
    if second is not None:
        one, other = _object(second, 0), _object(second, 1)
        between = second[one[1] : other[0]] if one and other else None
    return CallShape("json", first[:start], first[end:], between, arguments_key=key)


def _object(reply: str, i: int) -> tuple[int, int, str] | None:
    """Start and end of the object of a call, and the key of its arguments."""
    for match in re.finditer(r"\{", reply):
        try:
            value, end = json.JSONDecoder().raw_decode(reply, match.start())
        except (ValueError, RecursionError):
            continue
        if not isinstance(value, dict) or value.get("name") != NAMES[i]:
            continue
        for key in ARGUMENTS_KEYS:
            if value.get(key) in (_ARGUMENTS[i], json.dumps(_ARGUMENTS[i])):
                return match.start(), end, key
    return None


def _named_shape(first: str, second: str | None) -> CallShape | None:
    """The shape of calls that are a name and, somewhere after it, an object."""
    found = _name_and_object(first, 0)
    if found is None:
        return None
    start, middle, end = found
    between = None
    if second is not None:
        one, other = _name_and_object(second, 0), _name_and_object(second, 1)
        if one is None or other is None or other[0] < one[2]:
            return None
        between = second[one[2] : other[0]]
    if not middle or (not between and between is not None):
        return None
    written = (first[:start], first[end:], between or "", middle)
    if any(id_ in text for id_ in _IDS for text in written):
        return None  # the format holds the id, which the model cannot know
    return CallShape("named", first[:start], first[end:], between, middle)


def _name_and_object(reply: str, i: int) -> tuple[int, str, int] | None:
    """Where the name begins, the text between it and the object, and where the object ends."""
    start = reply.find(NAMES[i])
    name_end = start + len(NAMES[i])
    match = _WRITTEN[i].search(reply, max(0, name_end))
    if start < 0 or match is None:
        return None
    return start, reply[name_end : match.start()], match.end()
