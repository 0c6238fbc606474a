"""Replies in the formats of the families: as their templates write them, cut anywhere."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import (
    ChatTemplate,
    ReplyDelta,
    ReplyFormat,
    ReplyReader,
    StreamResult,
    TokenRecord,
    Tool,
)
from tests.support.family_templates import FAMILIES
from tests.support.replies import (
    FIRST_TAG,
    Part,
    TagTokenizer,
    one_by_one,
    parts,
    read,
    results,
    tokens,
)

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "units": {"type": "array"},
        "more": {"type": "object"},
    },
}
TOOLS = [Tool("weather", WEATHER), Tool("stop")]
ARGUMENTS = {
    "city": 'Rom\n"<{',
    "days": 3,
    "units": ["C", True, None],
    "more": {"a": 1.5, "b": "<"},
}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("weather", ARGUMENTS),
    ("stop", {}),
    ("weather", {"city": "12"}),
]
MANY = [name for name in FAMILIES if name not in ("harmony", "granite-3")]
"""Families whose template writes several calls."""
THINKING = [name for name, family in FAMILIES.items() if family.open_thought]


@cache
def form_of(name: str, *, special: bool = False) -> ReplyFormat:
    family = FAMILIES[name]
    template = ChatTemplate(family.template, special_tokens={}, where=name)
    return ReplyFormat.of_template(template, TagTokenizer(family.tags if special else ()))


def written(name: str, n_calls: int, content: str = "") -> str:
    """A reply as the template writes it."""
    if name == "granite-3":
        objects = [{"name": tool, "arguments": given} for tool, given in CALLS[:n_calls]]
        return f"{content}<|tool_call|>{json.dumps(objects)}"
    family = FAMILIES[name]
    template = ChatTemplate(family.template, special_tokens={}, where=name)
    shown = [{"type": "function", "function": {"name": tool.name}} for tool in TOOLS]
    calls = [
        {"id": f"callcall{i}", "function": {"name": tool, "arguments": family.arguments(given)}}
        for i, (tool, given) in enumerate(CALLS[:n_calls])
    ]
    question = {"role": "user", "content": "?"}
    turn = {"role": "assistant", "content": content, "tool_calls": calls}
    prompt = template.render([question], tools=shown)
    whole = template.render([question, turn], tools=shown, add_generation_prompt=False)
    return whole.removeprefix(prompt).removesuffix("<|end|>")


def records_of(name: str, reply: str, cuts: Sequence[int], *, special: bool) -> list[TokenRecord]:
    return tokens(reply, cuts, special=special, tags=FAMILIES[name].tags)


def reader_of(name: str, *, special: bool, in_reasoning: bool = False) -> ReplyReader:
    return ReplyReader(form_of(name, special=special), in_reasoning=in_reasoning, tools=TOOLS)


def values_of(said: Sequence[Part]) -> list[tuple[str, int, object]]:
    """Arguments as values, since a template may space them in its own way."""
    return [
        (kind, call, json.loads(text) if kind == "tool_arguments" else text)
        for kind, call, text in said
    ]


def expected(n_calls: int) -> list[tuple[str, int, object]]:
    return [
        part
        for i, (name, arguments) in enumerate(CALLS[:n_calls])
        for part in (("tool_name", i, name), ("tool_arguments", i, arguments))
    ]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_format_is_recognised(name: str) -> None:
    family = FAMILIES[name]
    for special in (False, True):
        form = form_of(name, special=special)
        assert (form.tools.style, form.tools.in_template) == (
            family.style,
            "if tools" in family.template,
        )
        assert not form.tools.is_unreadable
        assert (form.reasoning is not None) == bool(family.open_thought)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("n_calls", [1, 2, 3])
@pytest.mark.parametrize("name", [*MANY, "granite-3"])
def test_calls_are_read_as_the_template_writes_them(name: str, n_calls: int, special: bool) -> None:
    reply = written(name, n_calls)
    records = records_of(name, reply, range(len(reply)), special=special)
    for step in (1, 3, 1_000):
        reader = reader_of(name, special=special)
        found = read(reader, results(records, range(0, len(reply), step)))
        assert values_of(parts(found)) == expected(n_calls)
        assert reader.call_complete
        assert [token for delta in found for token in delta.tokens] == records


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", [*MANY, "granite-3"])
def test_a_text_and_reasoning_may_stand_in_front_of_calls(name: str, special: bool) -> None:
    family = FAMILIES[name]
    reply = "I look.\n" + written(name, 1)
    said = [("content", 0, "I look."), *expected(1)]
    if family.open_thought:
        reply = f"{family.open_thought}Hm <b>{family.close_thought}\n\n{reply}"
        said = [("reasoning", 0, "Hm <b>"), *said]
    records = records_of(name, reply, range(len(reply)), special=special)
    found = read(reader_of(name, special=special), one_by_one(records))
    assert values_of(parts(found)) == said


@pytest.mark.parametrize("name", THINKING)
@pytest.mark.parametrize("special", [False, True])
def test_the_prompt_may_have_opened_the_reasoning(name: str, special: bool) -> None:
    family = FAMILIES[name]
    form = form_of(name, special=special)
    tokenizer = TagTokenizer(family.tags if special else ())
    header = "<|start|>assistant" if name == "harmony" else "|assistant\n"
    assert not form.opens_in_reasoning(tokenizer.encode(header))
    if special or "|" not in family.open_thought:  # else that is a token of TagTokenizer
        assert form.opens_in_reasoning(tokenizer.encode(header + family.open_thought))
    final = "<|channel|>final<|message|>" if name == "harmony" else ""
    reply = f"Hm{family.close_thought}{final}Yes"
    records = records_of(name, reply, (), special=special)
    reader = reader_of(name, special=special, in_reasoning=True)
    said = parts(read(reader, one_by_one(records)))
    assert said == [("reasoning", 0, "Hm"), ("content", 0, "Yes")]


@pytest.mark.parametrize("name", MANY)
def test_an_unknown_name_is_text(name: str) -> None:
    reply = written(name, 1).replace("weather", "other")
    reader = reader_of(name, special=False)
    found = read(reader, results(tokens(reply), range(0, len(reply), 2)))
    assert {kind for kind, _, _ in parts(found)} == {"content"}
    assert not reader.n_calls


@pytest.mark.parametrize(
    ("name", "reply", "arguments"),
    [
        # The opening tag is missing; two are closed at once; JSON stands in place of the arguments.
        ("qwen3-coder", "<function=weather><parameter=city>a</parameter></function>",
         {"city": "a"}),
        ("glm", "<tool_call>weather<arg_key>city</arg_key><arg_value>a</arg_value></tool_call>",
         {"city": "a"}),
        ("qwen3-coder", "<tool_call>\n<function=weather>\n</tool_call>", {}),
        ("glm", '<tool_call>weather\n{"city": "</tool_call>"}\n</tool_call>',
         {"city": "</tool_call>"}),
        ("glm", '<tool_call>{"name": "weather", "arguments": {"days": 1}}</tool_call>',
         {"days": 1}),
        ("glm", "<tool_call>weather<arg_key>days</arg_key><arg_value>NaN</arg_value></tool_call>",
         {"days": "NaN"}),
        # JSON's own quotes, no quotes, other spellings, white space.
        ("gemma", '<|tool_call>call:weather{"city": "a\\"}\n", days: 3}<tool_call|>',
         {"city": 'a"}\n', "days": 3}),
        ("gemma", "<|tool_call>call:weather{city:Rom a, more:{a:None,b:True}}<tool_call|>",
         {"city": "Rom a", "more": {"a": None, "b": True}}),
        ("gemma", '<|tool_call> weather{<|"|>city<|"|> : <|"|>a:b<|"|>, units:[]}<tool_call|>',
         {"city": "a:b", "units": []}),
    ],
)  # fmt: skip
def test_calls_that_are_written_a_little_differently(
    name: str, reply: str, arguments: dict[str, object]
) -> None:
    found = read(reader_of(name, special=False), one_by_one(tokens(reply, range(len(reply)))))
    assert values_of(parts(found)) == [
        ("tool_name", 0, "weather"),
        ("tool_arguments", 0, arguments),
    ]


REFERRING = {
    "type": "object",
    "properties": {"kind": {"$ref": "#/$defs/Kind"}, "n": {"$ref": "#/$defs/N"}, "any": {}},
    "$defs": {"Kind": {"enum": ["1", "two"]}, "N": {"type": ["integer", "null"]}},
}


@pytest.mark.parametrize(
    ("name", "key", "middle", "end"),
    [
        ("glm", "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
        ("qwen3-coder", "<parameter=", ">\n", "\n</parameter>\n"),
    ],
)
def test_references_say_what_is_text(name: str, key: str, middle: str, end: str) -> None:
    given = {"kind": "1", "n": 2, "any": [1]}
    opening, closing = {
        "glm": ("<tool_call>weather\n", "</tool_call>"),
        "qwen3-coder": ("<function=weather>\n", "</function>"),
    }[name]
    values = (f"{key}{each}{middle}{value}{end}" for each, value in given.items())
    reader = ReplyReader(form_of(name), tools=[Tool("weather", REFERRING)])
    found = read(reader, one_by_one(tokens(f"{opening}{''.join(values)}{closing}")))
    assert values_of(parts(found)) == [("tool_name", 0, "weather"), ("tool_arguments", 0, given)]


def test_half_a_call_is_not_shown_where_a_reply_was_cut() -> None:
    cut = StreamResult({"eos": True, "eos_reason": "length"})
    for name, reply, said in (
        ("glm", "<tool_call>weat", ""),
        ("gemma", "<|tool_call>call:weat", ""),
        ("harmony", "<|channel|>commentary to=functions.weat", ""),
        ("glm", "<tool_call>weather<arg_key>city</arg_key><arg_value>a</arg", '{"city": "a</arg'),
        ("gemma", '<|tool_call>call:weather{city:<|"|>Rom<|', '{"city": "Rom<|'),
        ("gemma", "<|tool_call>call:weather{days:1", '{"days": 1'),
    ):  # fmt: skip
        stream = one_by_one(tokens(reply, range(len(reply))))
        reader = reader_of(name, special=False)
        found = parts(read(reader, [*stream[:-1], cut]))
        assert found == ([("tool_name", 0, "weather"), ("tool_arguments", 0, said)] if said else [])
        assert not reader.call_complete


COMMON = (
    *("weather", "city", "stop", "Rom", "12", "<", "</", ">", "\n", " ", "{", "}", "[", "]", '"'),
    *(",", ":", "\\", '{"city": "a"}', "<function=stop>", "</function>", "<parameter=city>"),
    *("</parameter>", "call:stop{", " to=functions.stop", "json", "analysis"),
)
PIECES = {
    name: (*family.tags, *family.call_tags, written(name, 1), family.open_thought, *COMMON)
    for name, family in FAMILIES.items()
}


@st.composite
def streams(draw: st.DrawFn) -> tuple[str, list[TokenRecord], list[int], bool, bool]:
    name = draw(st.sampled_from(sorted(FAMILIES)))
    reply = "".join(draw(st.lists(st.sampled_from(PIECES[name]), max_size=12)))
    special = draw(st.booleans())
    cuts = draw(st.lists(st.integers(0, max(1, len(reply)))))
    records = records_of(name, reply, cuts, special=special)
    return name, records, cuts, special, draw(st.booleans())


@settings(max_examples=300, deadline=None)
@given(streams())
def test_every_prefix_agrees_with_the_whole(
    drawn: tuple[str, list[TokenRecord], list[int], bool, bool],
) -> None:
    name, records, ends, special, in_reasoning = drawn
    whole, single, cut = (
        reader_of(name, special=special, in_reasoning=in_reasoning) for _ in range(3)
    )
    found = read(whole, results(records, []))
    said = parts(found)
    for stream, reader in ((one_by_one(records), single), (results(records, ends), cut)):
        deltas: list[ReplyDelta] = []
        for result in stream:
            deltas += reader.read(result)
            assert is_prefix(parts(deltas), said)
        assert parts(deltas) == said
        assert [token for delta in deltas for token in delta.tokens] == records
        assert channels_of(deltas) == channels_of(found)
        assert (reader.n_calls, reader.call_complete) == (whole.n_calls, whole.call_complete)
    assert {text for kind, _, text in said if kind == "tool_name"} <= {"weather", "stop"}


def channels_of(deltas: Sequence[ReplyDelta]) -> list[tuple[str, int]]:
    return [(delta.kind, delta.call) for delta in deltas for _ in delta.tokens]


def is_prefix(some: Sequence[Part], whole: Sequence[Part]) -> bool:
    """Whether the text of `whole` goes on where `some` ends."""
    if not some:
        return True
    *before, (kind, call, text) = some
    n = len(before)
    return (
        before == list(whole[:n]) and whole[n][:2] == (kind, call) and whole[n][2].startswith(text)
    )


# Harmony

H_CALL = (
    '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"days": 1}<|call|>'
)
H_CASES: dict[str, tuple[str, list[Part]]] = {
    "final": ("<|channel|>final<|message|>Yes.\n<|return|>", [("content", 0, "Yes.\n")]),
    "analysis, then final": (
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Yes",
        [("reasoning", 0, "Hm"), ("content", 0, "Yes")],
    ),
    "analysis twice": (
        "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B",
        [("reasoning", 0, "A\n\nB")],
    ),
    "a call": (H_CALL, [("tool_name", 0, "weather"), ("tool_arguments", 0, '{"days": 1}')]),
    "the recipient before the channel": (
        " to=functions.weather<|channel|>commentary json<|message|>{}",
        [("tool_name", 0, "weather"), ("tool_arguments", 0, "{}")],
    ),
    "a call in the analysis": (
        "<|channel|>analysis to=functions.stop code<|message|> {}<|call|>",
        [("tool_name", 0, "stop"), ("tool_arguments", 0, "{}")],
    ),
    "no arguments": (
        "<|channel|>commentary to=functions.stop<|message|><|call|>",
        [("tool_name", 0, "stop"), ("tool_arguments", 0, "{}")],
    ),
    "preamble and call": (
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary<|message|>"
        f"I look.<|end|><|start|>assistant{H_CALL}",
        [("reasoning", 0, "Hm"), ("content", 0, "I look."), ("tool_name", 0, "weather"),
         ("tool_arguments", 0, '{"days": 1}')],
    ),
    "several calls": (
        f"{H_CALL}<|start|>assistant{H_CALL}",
        [("tool_name", 0, "weather"), ("tool_arguments", 0, '{"days": 1}'),
         ("tool_name", 1, "weather"), ("tool_arguments", 1, '{"days": 1}')],
    ),
    "the tag of a channel in place of its end": (
        "<|channel|>analysis<|message|>Hm<|channel|>final<|message|>Yes<|return|>",
        [("reasoning", 0, "Hm"), ("content", 0, "Yes")],
    ),
    "no header": ("Just text.", [("content", 0, "Just text.")]),
}  # fmt: skip


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("case", H_CASES)
def test_harmony(case: str, special: bool) -> None:
    reply, said = H_CASES[case]
    records = records_of("harmony", reply, range(len(reply)), special=special)
    for stream in (one_by_one(records), results(records, []), results(records, range(0, 99, 7))):
        assert parts(read(reader_of("harmony", special=special), stream)) == said


@pytest.mark.parametrize("special", [False, True])
def test_a_message_to_an_unknown_recipient_is_text(special: bool) -> None:
    header = "<|channel|>commentary to=functions.other <|constrain|>json<|message|>"
    records = records_of("harmony", header + "{}<|call|>", (), special=special)
    ((kind, _, text),) = parts(read(reader_of("harmony", special=special), one_by_one(records)))
    assert kind == "content"
    assert "to=functions.other" in text
    assert text.endswith("{}")


def test_what_ends_a_reply() -> None:
    tags = FAMILIES["harmony"].tags
    end, call, stop = (FIRST_TAG + tags.index(tag) for tag in ("<|end|>", "<|call|>", "<|return|>"))
    form = form_of("harmony", special=True)
    assert form.ends([end, 7]) == (7, call, stop)
    assert form_of("glm", special=True).ends([9, 7]) == (9, 7)
    family = FAMILIES["gemma"]
    template = ChatTemplate(family.template, special_tokens={}, where="gemma")
    tokenizer = TagTokenizer((*family.tags, "<|tool_response>"))
    ends = ReplyFormat.of_template(template, tokenizer).ends([1])
    assert ends == (1, FIRST_TAG + len(family.tags))
