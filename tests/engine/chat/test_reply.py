"""Replies are divided in the same way however they are cut, and none of their text is lost."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine import ReplyDelta, ReplyFormat, ReplyReader, StreamResult, Tool
from tests.support.replies import (
    Part,
    one_by_one,
    parts,
    read,
    record,
    reply_format,
    results,
    tokens,
    tools,
)
from tests.support.scripted_model import END, HIDDEN, PieceVocabulary, ScriptedModel, run

F = '{"name": "f", "arguments": {"a": [1, "}"]}}'
F_ARGUMENTS = '{"a": [1, "}"]}'
CITY = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}
NULLABLE = {"type": "object", "properties": {"x": {"type": ["string", "null"]}}}
TOOLS = [Tool("f"), Tool("g"), Tool("weather", CITY), Tool("nullable", NULLABLE)]


class Case(NamedTuple):
    form: str
    reply: str
    expected: list[Part]
    in_reasoning: bool = False
    complete: bool = True


def call(index: int, name: str, arguments: str) -> list[Part]:
    return [("tool_name", index, name), ("tool_arguments", index, arguments)]


def content(text: str) -> list[Part]:
    return [("content", 0, text)]


def reasoning(text: str) -> list[Part]:
    return [("reasoning", 0, text)]


CASES = {
    "text": Case("hermes", "Hello, a < b\n and c.\n", content("Hello, a < b\n and c.\n")),
    "empty": Case("hermes", "", []),
    "white space": Case("hermes", " \n", content(" \n")),
    "reasoning": Case(
        "hermes",
        "\n<think>\nHm </thin </think\n\n</think>\n\nYes. \n",
        [*reasoning("Hm </thin </think"), *content("Yes. \n")],
    ),
    "reasoning that the prompt opened": Case(
        "hermes", "\nHm\n\nso</think>Yes", [*reasoning("Hm\n\nso"), *content("Yes")], True
    ),
    "reasoning without end": Case("hermes", "<think>Hm </th", reasoning("Hm </th")),
    "no reasoning in it": Case("hermes", "<think>\n\n</think>\n\nYes", content("Yes")),
    "a tag within the text": Case(
        "hermes", "So <think> and </think> are tags", content("So <think> and </think> are tags")
    ),
    "a tag behind half a tag": Case(
        "hermes", "<<think>Hm</think>", content("<<think>Hm</think>")
    ),
    "a call": Case("hermes", f"<tool_call>\n{F}\n</tool_call>", call(0, "f", F_ARGUMENTS)),
    "all of it": Case(
        "hermes",
        f"<think>A tool!</think>\nI look.\n\n<tool_call>\n{F}\n</tool_call>\n"
        '<tool_call>{"arguments": {}, "name": "g", "id": 7}</tool_call>\n\nDone\n',
        [
            *reasoning("A tool!"),
            *content("I look."),
            *call(0, "f", F_ARGUMENTS),
            *call(1, "g", "{}"),
            *content("Done\n"),
        ],
    ),
    "reasoning between calls": Case(
        "hermes",
        f"<tool_call>{F}</tool_call>\n<think>More.</think>\n<tool_call>{F}</tool_call>",
        [*call(0, "f", F_ARGUMENTS), *reasoning("More."), *call(1, "f", F_ARGUMENTS)],
    ),
    "no calls within the reasoning": Case(
        "hermes",
        f"<think>I write <tool_call>{F}</tool_call></think>no",
        [*reasoning(f"I write <tool_call>{F}</tool_call>"), *content("no")],
    ),
    "an unknown name": Case(
        "hermes",
        'So: <tool_call>{"name": "h", "arguments": {}}</tool_call>.\n',
        content('So: <tool_call>{"name": "h", "arguments": {}}</tool_call>.\n'),
    ),
    "a tag that opens nothing": Case(
        "hermes",
        f"<tool_call> is a tag <tool_<tool_call><tool_call>{F}</tool_call>",
        [*content("<tool_call> is a tag <tool_<tool_call>"), *call(0, "f", F_ARGUMENTS)],
    ),
    "a name that never comes": Case(
        "hermes", '<tool_call>{"name": "f', content('<tool_call>{"name": "f')
    ),
    "a cut call": Case(
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": "x</tool',
        call(0, "f", '{"a": "x</tool'),
        complete=False,
    ),
    "brackets missing": Case(
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": [1</tool_call>\n<tool_call>'
        '{"name": "g", "arguments": {"a": <b}</tool_call>',
        [*call(0, "f", '{"a": [1'), *call(1, "g", '{"a": <b}')],
    ),
    "brackets too many": Case(
        "hermes", f"<tool_call>{F}}}]\n</tool_call>", call(0, "f", F_ARGUMENTS)
    ),
    "the tag in a string": Case(
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": "\\"</tool_call>"}}</tool_call>',
        call(0, "f", '{"a": "\\"</tool_call>"}'),
    ),
    "arguments as a string": Case(
        "hermes",
        r'<tool_call>{"name": "\u0066", "arguments": "{\"a\": 1}"}</tool_call>',
        call(0, "f", '{"a": 1}'),
    ),
    "no arguments": Case("hermes", '<tool_call>{"name": "f"}</tool_call>', call(0, "f", "{}")),
    "bare": Case(
        "llama3",
        '\n{"name": "f", "parameters": {"a": 1.5}}; '
        '{"type": "function", "name": "g", "parameters": 1}',
        [*call(0, "f", '{"a": 1.5}'), *call(1, "g", "1")],
    ),
    "bare behind its tag": Case(
        "llama3", f"<|python_tag|>{F}", call(0, "f", F_ARGUMENTS)
    ),
    "bare behind the reasoning": Case(
        "llama3", f"<think>Hm</think>{F}", [*reasoning("Hm"), *call(0, "f", F_ARGUMENTS)]
    ),
    "bare with an unknown name": Case(
        "llama3", '{"name": "Anna", "age": 3}', content('{"name": "Anna", "age": 3}')
    ),
    "bare without a name": Case(
        "llama3", '{"age": 3, "name": "f"}', content('{"age": 3, "name": "f"}')
    ),
    "bare later": Case("llama3", f"So: {F}", content(f"So: {F}")),
    "bare behind half a tag": Case("llama3", f"<{F}", content(f"<{F}")),
    "code": Case("llama3", "<|python_tag|>print(1)", content("<|python_tag|>print(1)")),
    "a list": Case(
        "mistral",
        f'Well\n[TOOL_CALLS] [{F}, {{"name": "g", "arguments": {{}}}}]',
        [*content("Well"), *call(0, "f", F_ARGUMENTS), *call(1, "g", "{}")],
    ),
    "a list behind reasoning": Case(
        "mistral",
        f"[THINK]Hm[/THINK][TOOL_CALLS][{F}]",
        [*reasoning("Hm"), *call(0, "f", F_ARGUMENTS)],
    ),
    "named": Case(
        "mistral-named",
        'Well.[TOOL_CALLS]f[ARGS]{"a": "["}[TOOL_CALLS]g[CALL_ID]123[ARGS] {}',
        [*content("Well."), *call(0, "f", '{"a": "["}'), *call(1, "g", "{}")],
    ),
    "named without a tag": Case("mistral-named", '[TOOL_CALLS]f{"a": 1}', call(0, "f", '{"a": 1}')),
    "xml": Case(
        "qwen3-coder",
        "I look.\n<tool_call>\n<function=weather>\n<parameter=city>\n"
        "New\n\"York\"</par\n\n</parameter>\n"
        "<parameter=n>\n 12 \n</parameter>\n</function>\n</tool_call>\n<function=g>\n</function>\n",
        [
            *content("I look."),
            *call(0, "weather", '{"city": "New\\n\\"York\\"</par\\n", "n": 12}'),
            *call(1, "g", "{}"),
        ],
    ),
    "xml, odd values": Case(
        "qwen3-coder",
        "<function=nullable><parameter=x>null</parameter></function>"
        "<function=nullable><parameter=x>12</parameter></function>"
        "<function=weather><parameter=n>twelve</parameter></function>",
        [
            *call(0, "nullable", '{"x": null}'),
            *call(1, "nullable", '{"x": "12"}'),
            *call(2, "weather", '{"n": "twelve"}'),
        ],
    ),
    "xml, cut": Case(
        "qwen3-coder",
        "<function=weather><parameter=city>Rome</para",
        call(0, "weather", '{"city": "Rome</para'),
        complete=False,
    ),
    "xml, unknown": Case("qwen3-coder", "<function=h> x", content("<function=h> x")),
    "json within xml": Case(
        "qwen3-coder",
        '<function=weather>\n{"city": "</function>"}</function> <function=g>{}</function>\nSo.',
        [*call(0, "weather", '{"city": "</function>"}'), *call(1, "g", "{}"), *content("So.")],
    ),
    "a list between the tags": Case(
        "hermes",
        f'<tool_call>[{F}, {{"name": "g", "arguments": {{}}}}]</tool_call>\n[{{}}, done',
        [*call(0, "f", F_ARGUMENTS), *call(1, "g", "{}"), *content("[{}, done")],
    ),
    "json instead of xml": Case(
        "qwen3-coder", f"<tool_call>{F}</tool_call>", call(0, "f", F_ARGUMENTS)
    ),
}  # fmt: skip


def reader_of(case: Case, *, special: bool = False, **options: Any) -> ReplyReader:
    form = reply_format(case.form, special=special)
    return ReplyReader(form, in_reasoning=case.in_reasoning, tools=TOOLS, **options)


def without_tags(expected: list[Part]) -> list[Part]:
    """What is left of text whose tags are special tokens, which are not shown."""
    return [(kind, i, text.replace("<|python_tag|>", "")) for kind, i, text in expected]


@pytest.mark.parametrize("name", CASES)
def test_a_reply_cut_at_any_character(name: str) -> None:
    case = CASES[name]
    for cut in range(len(case.reply) + 1):
        reader = reader_of(case)
        found = read(reader, results(tokens(case.reply, [cut]), [cut]))
        assert parts(found) == case.expected
        n_calls = sum(kind == "tool_name" for kind, _, _ in case.expected)
        assert reader.n_calls == n_calls
        assert reader.call_complete == (n_calls > 0 and case.complete)


@pytest.mark.parametrize("name", CASES)
def test_a_reply_character_by_character(name: str) -> None:
    case = CASES[name]
    stream = one_by_one(tokens(case.reply, range(len(case.reply))))
    assert parts(read(reader_of(case), stream)) == case.expected


# Those in which special tokens mean what their text does.
WITH_SPECIAL = [
    name
    for name in CASES
    if name
    not in (
        *("a tag within the text", "no calls within the reasoning", "an unknown name"),
        *("a tag behind half a tag", "a tag that opens nothing"),
        *("a name that never comes", "the tag in a string"),
    )
]


@pytest.mark.parametrize("name", WITH_SPECIAL)
@pytest.mark.parametrize("shown", [False, True])
def test_tags_that_are_special_tokens(name: str, shown: bool) -> None:
    case = CASES[name]
    expected = case.expected if shown else without_tags(case.expected)
    records = tokens(case.reply, range(len(case.reply)), special=True, shown=shown)
    reader = reader_of(case, special=True, decode_special_tokens=shown)
    assert parts(read(reader, one_by_one(records))) == expected


def test_a_special_tag_that_is_spelled_out_is_text() -> None:
    case = Case("mistral", f"[TOOL_CALLS][{F}]", [])
    found = read(reader_of(case, special=True), one_by_one(tokens(case.reply)))
    assert parts(found) == content(case.reply)


def test_a_special_tag_of_a_call_ends_reasoning_and_other_calls() -> None:
    reply = '[THINK]Hm[TOOL_CALLS]f[ARGS]{"a": [TOOL_CALLS]g[ARGS]{}'
    records = tokens(reply, special=True)
    case = Case("mistral-named", reply, [])
    found = read(reader_of(case, special=True), one_by_one(records))
    assert parts(found) == [*reasoning("Hm"), *call(0, "f", '{"a": '), *call(1, "g", "{}")]


@st.composite
def cut_replies(draw: st.DrawFn) -> tuple[Case, list[int], list[list[int]], bool]:
    name = draw(st.sampled_from(sorted(CASES)))
    case = CASES[name]
    places = st.integers(0, len(case.reply))
    special = draw(st.booleans()) and name in WITH_SPECIAL
    return case, draw(st.lists(places)), [draw(st.lists(places)) for _ in range(2)], special


@settings(max_examples=200, deadline=None)
@given(cut_replies())
def test_tokens_and_results_are_cut_anywhere(
    drawn: tuple[Case, list[int], list[list[int]], bool],
) -> None:
    case, cuts, ends, special = drawn
    records = tokens(case.reply, cuts, special=special)
    expected = without_tags(case.expected) if special else case.expected
    channels = []
    for these in ends:
        found = read(reader_of(case, special=special), results(records, these))
        assert parts(found) == expected
        assert [token for delta in found for token in delta.tokens] == records
        channels.append(channels_of(found))
    assert channels[0] == channels[1], "a token's channel depends on how results were cut"


def channels_of(deltas: Sequence[ReplyDelta]) -> list[tuple[str, int]]:
    return [(delta.kind, delta.call) for delta in deltas for _ in delta.tokens]


ALPHABET = (
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "<", "</", "{", "}", '"', "\\", "\n"),
    *(" ", "a", ",", ":", "[", "]", '{"name": "f"', '"arguments": ', "<function=", "<parameter=a>"),
    *("</parameter>", "</function>", "<function=g>", "[TOOL_CALLS]", "[ARGS]", "f", F, ";"),
)


@settings(max_examples=200, deadline=None)
@example(
    form="llama3", pieces=[F, "</", "<tool_call>"], ends=[44], special=True, in_reasoning=False
)
@given(
    form=st.sampled_from(["hermes", "llama3", "mistral", "mistral-named", "qwen3-coder"]),
    pieces=st.lists(st.sampled_from(ALPHABET), max_size=20),
    ends=st.lists(st.integers(0, 100)),
    special=st.booleans(),
    in_reasoning=st.booleans(),
)
def test_whatever_is_written(
    form: str, pieces: list[str], ends: list[int], special: bool, in_reasoning: bool
) -> None:
    reply = "".join(pieces)
    case = Case(form, reply, [], in_reasoning)
    records = tokens(reply, ends, special=special)
    found = read(reader_of(case, special=special), results(records, ends))
    whole = read(reader_of(case, special=special), results(records, []))
    single = read(reader_of(case, special=special), one_by_one(records))
    assert parts(found) == parts(whole) == parts(single)
    assert channels_of(found) == channels_of(whole) == channels_of(single)
    assert [token for delta in found for token in delta.tokens] == records
    names = [text for kind, _, text in parts(found) if kind == "tool_name"]
    assert set(names) <= {"f", "g"}


def test_tokens_come_with_what_they_say() -> None:
    reply = 'Yes<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    cuts = [3, 14, 26, 43, 51, 52]
    case = Case("hermes", reply, [])
    found = read(reader_of(case), one_by_one(tokens(reply, cuts)))
    said = [
        (delta.kind, delta.text, [token.token_bytes.decode() for token in delta.tokens])
        for delta in found
    ]
    assert said[:2] == [
        ("content", "Yes", ["Yes"]),
        ("tool_name", "f", ["<tool_call>", '{"name": "f"']),
    ]
    assert {kind for kind, _, _ in said[2:]} == {"tool_arguments"}
    assert "".join(text for _, text, _ in said[2:]) == '{"a": 1}'


def test_a_token_with_a_tag_and_text_belongs_to_the_text() -> None:
    case = Case("hermes", "a</think>b", [], in_reasoning=True)
    found = read(reader_of(case), one_by_one(tokens(case.reply, [3, 6])))
    assert [(d.kind, d.text, [t.token_bytes for t in d.tokens]) for d in found] == [
        ("reasoning", "a", []),
        ("reasoning", "", [b"a</", b"thi"]),
        ("content", "b", [b"nk>b"]),
    ]


def test_arguments_come_as_they_are_written() -> None:
    reply = f"<tool_call>{F}</tool_call>"
    case = Case("hermes", reply, [])
    reader = reader_of(case)
    told = ""
    for position, result in enumerate(one_by_one(tokens(reply, range(len(reply)))), start=1):
        deltas = reader.read(result)
        told += "".join(d.text for d in deltas if d.kind == "tool_arguments")
        begun = max(0, min(position - reply.index(F_ARGUMENTS), len(F_ARGUMENTS)))
        assert told == F_ARGUMENTS[:begun]


def test_held_text_is_bounded() -> None:
    reader = reader_of(CASES["text"])
    long = '<tool_call>{"arguments": {"a": "' + "x" * 20_000
    stream = one_by_one(tokens(long))
    assert parts(read(reader, stream[:-1])) == content(long)
    reader = reader_of(CASES["text"])
    assert parts(read(reader, one_by_one(tokens("a" + " " * 600))[:-1])) != content("a")


def test_without_tools_calls_are_text() -> None:
    reader = ReplyReader(reply_format("hermes"))
    reply = f"<think>a</think><tool_call>{F}</tool_call>"
    found = read(reader, one_by_one(tokens(reply)))
    assert parts(found) == [*reasoning("a"), *content(reply[reply.index("<tool_call>") :])]


def test_a_character_of_several_tokens_and_tokens_without_text() -> None:
    first, second, nothing = record(1, "\u00e9", 0), record(2, "\u00e9", 0), record(3, "", 1)
    first, second = first._replace(token_bytes=b"\xc3"), second._replace(token_bytes=b"\xa9")
    stream = results([first, second, nothing], [0, 1])
    found = read(ReplyReader(reply_format("hermes"), tools=tools("f")), stream)
    assert parts(found) == content("\u00e9")
    assert [token for delta in found for token in delta.tokens] == [first, second, nothing]


PIECES = (
    b"Well.",
    b"\n",
    b"f",
    b'{"a":',
    b" 1}",
    b"[",
    b'{"name": "f", "arguments": ',
    b"}]",
    b"\xc3",
)


class TagVocabulary(PieceVocabulary):
    """256 ends; 257 is [TOOL_CALLS]."""

    def token_bytes(self, token_id: int) -> bytes:
        return b"[TOOL_CALLS]" if token_id == HIDDEN else super().token_bytes(token_id)

    def added_token_id(self, text: str) -> int | None:
        return HIDDEN if text == "[TOOL_CALLS]" else None


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("stop", [(), ("1}x", "]x", "ell.[", "\nT")])
@pytest.mark.parametrize("drafts", [False, True])
def test_streams_of_the_generator(shown: bool, stop: Sequence[str], drafts: bool) -> None:
    script = [0, 1, HIDDEN, 5, 6, 3, 4, 7, END]
    vocabulary = TagVocabulary(PIECES)
    generator = ScriptedModel(script).generator(vocabulary)
    generator.begin_stream_ex(
        [1], stop=stop, decode_special_tokens=shown, prediction=script[:5] if drafts else ()
    )
    stream = run(generator)
    reader = ReplyReader(
        ReplyFormat.of("[TOOL_CALLS]", vocabulary),
        tools=tools("f"),
        decode_special_tokens=shown,
    )
    found = read(reader, stream)
    assert parts(found) == [*content("Well."), *call(0, "f", '{"a": 1}')]
    assert [t.token_id for d in found for t in d.tokens] == script[:-1]
    assert reader.call_complete


def test_a_stop_string_and_a_length_may_cut_a_reply() -> None:
    script = [0, 1, HIDDEN, 5, 6, 3, 4, 7, END]
    vocabulary = TagVocabulary(PIECES)
    form = ReplyFormat.of("[TOOL_CALLS]", vocabulary)
    generator = ScriptedModel(script).generator(vocabulary)
    generator.begin_stream_ex([1], stop=[" 1}"])
    reader = ReplyReader(form, tools=tools("f"))
    assert parts(read(reader, run(generator))) == [*content("Well."), *call(0, "f", '{"a":')]
    assert not reader.call_complete
    generator.begin_stream_ex([1], max_new_tokens=4)
    reader = ReplyReader(form, tools=tools("f"))
    assert parts(read(reader, run(generator))) == content("Well.")
    assert reader.n_calls == 0


@pytest.mark.parametrize(
    ("form", "reply", "shown"),
    [
        ("hermes", '<tool_call>\n{"name": "f', []),
        ("hermes", "Well <tool", content("Well <tool")),
        ("hermes", f"<tool_call>{F}</tool_call>\n<tool", call(0, "f", F_ARGUMENTS)),
        ("llama3", '{"name": "f', content('{"name": "f')),
        ("llama3", F + '; {"name": "f', call(0, "f", F_ARGUMENTS)),
        ("qwen3-coder", "<function=wea", []),
    ],
)
def test_half_a_call_is_not_shown_where_a_reply_was_cut(
    form: str, reply: str, shown: list[Part]
) -> None:
    records = tokens(reply, range(len(reply)))
    cut = StreamResult({"eos": True, "eos_reason": "length"})
    found = read(reader_of(Case(form, reply, [])), [*one_by_one(records)[:-1], cut])
    assert parts(found) == shown
    assert [token for delta in found for token in delta.tokens] == records
