"""Formats of calls are read off the chat template, and replies in them are read and forced."""

import json
import logging
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine import (
    DEFAULT_MODEL,
    ChatTemplate,
    Engine,
    ReplyDelta,
    ReplyFormat,
    ReplyReader,
    StreamResult,
    Tokenizer,
    TokenRecord,
    tool_constraint,
)
from engine.grammar.compiler import ConstraintCompiler
from tests.engine.chat.test_tool_grammar import TOOLS, assert_calls, deltas_of, drawn
from tests.support import call_templates
from tests.support.call_templates import READABLE
from tests.support.chat_templates import ALL
from tests.support.replies import (
    FIRST_TAG,
    TagTokenizer,
    parts,
    read,
    record,
    results,
    tokens,
    tools,
)

CALLS = [("weather", {"city": "Rom } ]", "n": [1, {"a": "</b>"}]}), ("stop", {})]
QUESTION = {"role": "user", "content": "?"}
SPECIAL = ["<tool_calls>", "</tool_calls>", "<call>", "<sep>", "</call>", "<calls>", "</calls>"]


def template_of(source: str) -> ChatTemplate:
    return ChatTemplate(source, special_tokens={}, where="test")


def form_of(name: str, special: Sequence[str] = ()) -> ReplyFormat:
    return ReplyFormat.of_template(template_of(READABLE[name]), TagTokenizer(special))


def reply_of(source: str, n_calls: int, content: str = "") -> str:
    """What the model would have written for this turn, by its own template."""
    template = template_of(source)
    shown = [{"type": "function", "function": {"name": name}} for name, _ in CALLS]
    calls = [
        {
            "id": f"callcall{i}",
            "function": {
                "name": name,
                "arguments": json.dumps(arguments) if template.takes_argument_text else arguments,
            },
        }
        for i, (name, arguments) in enumerate(CALLS[:n_calls])
    ]
    turn = {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})
    prompt = template.render([QUESTION], tools=shown)
    whole = template.render([QUESTION, turn], tools=shown, add_generation_prompt=False)
    return whole.removeprefix(prompt).removesuffix("<|end|>")


def said_in(reply: str, form: ReplyFormat, ends: Sequence[int]) -> list[tuple[str, int, object]]:
    """Arguments as values, since a template may space them in its own way."""
    reader = ReplyReader(form, tools=tools("weather", "stop"))
    deltas = read(reader, results(tokens(reply, range(len(reply))), ends))
    assert reader.call_complete == (reader.n_calls > 0)
    return values_of(deltas)


def values_of(deltas: Sequence[ReplyDelta]) -> list[tuple[str, int, object]]:
    return [
        (kind, call, json.loads(text) if kind == "tool_arguments" else text)
        for kind, call, text in parts(deltas)
    ]


def expected(n_calls: int) -> list[tuple[str, int, object]]:
    return [
        part
        for i, (name, arguments) in enumerate(CALLS[:n_calls])
        for part in (("tool_name", i, name), ("tool_arguments", i, arguments))
    ]


@pytest.mark.parametrize("n_calls", [1, 2])
@pytest.mark.parametrize("name", READABLE)
def test_calls_are_read_as_the_template_writes_them(name: str, n_calls: int) -> None:
    form = form_of(name)
    assert form.tools.in_template
    reply = reply_of(READABLE[name], n_calls)
    for step in (1, 3, 1_000):
        assert said_in(reply, form, range(0, len(reply), step)) == expected(n_calls)


@pytest.mark.parametrize("name", READABLE)
def test_a_text_stays_text(name: str) -> None:
    form = form_of(name)
    for content in ("Hello. ", "weather is a word, <function is no tag", "[1, {2}]"):
        reply = reply_of(READABLE[name], 0, content)
        assert said_in(reply, form, range(len(reply))) == [("content", 0, content)]


@pytest.mark.parametrize("name", ["tagged-list", "word-and-list", "sections", "channels"])
def test_a_text_may_stand_in_front_of_calls(name: str) -> None:
    reply = reply_of(READABLE[name], 2, "I look.")
    said = said_in(reply, form_of(name), range(len(reply)))
    assert said == [("content", 0, "I look."), *expected(2)]


@pytest.mark.parametrize("name", READABLE)
def test_other_names_are_text(name: str) -> None:
    reply = reply_of(READABLE[name], 1).replace("weather", "other")
    reader = ReplyReader(form_of(name), tools=tools("weather"))
    deltas = read(reader, results(tokens(reply), range(0, len(reply), 2)))
    assert {kind for kind, _, _ in parts(deltas)} == {"content"}
    assert not reader.n_calls


@pytest.mark.parametrize("name", ["tagged-list", "sections"])
def test_tags_may_be_special_tokens(name: str) -> None:
    """Special tokens then have no text in the stream."""
    pattern = "(" + "|".join(map(re.escape, SPECIAL)) + ")"
    records: list[TokenRecord] = []
    position = 0
    for piece in re.split(pattern, reply_of(READABLE[name], 2)):
        if piece in SPECIAL:
            token_id = FIRST_TAG + SPECIAL.index(piece)
            records.append(record(token_id, piece, position, shown=False))
        else:
            for character in piece:
                records.append(record(1, character, position))
                position += 1
    reader = ReplyReader(form_of(name, SPECIAL), tools=tools("weather", "stop"))
    deltas = read(reader, results(records, range(0, position, 3)))
    assert values_of(deltas) == expected(2)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(DEFAULT_MODEL, 4096)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("name", READABLE)
def test_forced_calls_are_in_the_same_format(
    name: str, parallel: bool, tokenizer: Tokenizer
) -> None:
    form = ReplyFormat.of_template(template_of(READABLE[name]), tokenizer)
    compiler = ConstraintCompiler(tokenizer, 4096, tokenizer.eos_token_ids)
    spec = tool_constraint(form, TOOLS, required=True, parallel=parallel, in_reasoning=False)
    most = 0
    for seed in range(8):
        token_ids, ended = drawn(compiler, tokenizer, spec, seed)
        deltas, reader = deltas_of(form, tokenizer, token_ids, ended=ended)
        assert {kind for kind, _, _ in parts(deltas)} <= {"tool_name", "tool_arguments"}
        assert reader.n_calls >= 1
        assert parallel or reader.n_calls == 1
        assert_calls(deltas, complete=reader.call_complete)
        most = max(most, reader.n_calls)
    assert most > 1 or not parallel


@pytest.mark.parametrize("name", READABLE)
def test_calls_may_be_left_out(name: str, tokenizer: Tokenizer) -> None:
    form = ReplyFormat.of_template(template_of(READABLE[name]), tokenizer)
    compiler = ConstraintCompiler(tokenizer, 4096, tokenizer.eos_token_ids)
    spec = tool_constraint(form, TOOLS, required=False, parallel=True, in_reasoning=False)
    constraint = compiler.compile(spec)
    for token_id in tokenizer.encode_continuation(reply_of(READABLE[name], 0, "Just text.")):
        constraint.accept(token_id)
    assert constraint.is_complete


def test_what_a_template_says_of_calls_is_not_taken_for_how_it_writes_them() -> None:
    """A tag of a known style, around JSON."""
    form = form_of("function-tag")
    reply = '<function=weather>{"city": "Rom"}</function>'
    reader = ReplyReader(form, tools=tools("weather"))
    assert parts(read(reader, results(tokens(reply), range(len(reply))))) == [
        ("tool_name", 0, "weather"),
        ("tool_arguments", 0, '{"city": "Rom"}'),
    ]


def test_known_styles_stay_known() -> None:
    styles = {
        name: ReplyFormat.of_template(template_of(source), TagTokenizer()).tools
        for name, source in {**ALL, "parameters": call_templates.PARAMETERS}.items()
    }
    assert {name: (form.style, form.in_template) for name, form in styles.items()} == {
        "headers": ("llama3", True),
        "markers": ("hermes", True),
        "brackets": ("mistral", True),
        "documents": ("named", False),
        "parameters": ("tagged", True),
    }
    assert styles["markers"].open.text == "<call>"
    assert not any(form.is_unreadable for form in styles.values())


@pytest.mark.parametrize(
    "calls", ["{{- '{\"a\":' * 2000 }}", "{{- '{' * 100000 }}", "{{- 1 // 0 }}"]
)
def test_a_template_that_writes_nonsense_for_calls_is_no_error(calls: str) -> None:
    source = call_templates.HERMES.replace("{{- '<tool_call>", calls + "{{- '<tool_call>", 1)
    assert calls in source
    form = ReplyFormat.of_template(template_of(source), TagTokenizer())
    assert form.tools.style == "hermes"


def test_the_text_of_tokens_that_end_a_reply_is_no_part_of_a_call() -> None:
    source = call_templates.FUNCTION_TAG.replace("{{- '<|end|>' }}\n    {%- endif", "{{- '<|eom|>' "
        "if message.tool_calls else '<|end|>' }}\n    {%- endif")  # fmt: skip
    assert "<|eom|>" in source

    class WithEnd(TagTokenizer):
        def token_bytes(self, token_id: int) -> bytes:
            return b"<|eom|>" if token_id == 7 else super().token_bytes(token_id)

    around = ReplyFormat.of_template(template_of(source), WithEnd(), (7,)).tools.around
    assert around is not None
    assert [marker.text for marker in around.closing] == ["</function>"]


def loaded_with(source: str, directory: Path, *, max_seq_len: int = 256) -> Engine:
    model = directory / "model"
    shutil.copytree(DEFAULT_MODEL, model)
    (model / "chat_template.jinja").write_text(source, "utf-8")
    return Engine.load(model, max_seq_len=max_seq_len)


def test_a_load_tells_of_calls_that_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        engine = loaded_with(call_templates.PYTHON, tmp_path)
    assert "cannot be read back" in caplog.text
    form = engine.reply_format.tools
    assert (form.style, form.in_template, form.is_unreadable) == ("hermes", False, True)


def test_a_load_says_nothing_of_calls_that_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        engine = loaded_with(call_templates.SECTIONS, tmp_path)
    assert "cannot be read back" not in caplog.text
    assert engine.reply_format.tools.style == "named"
    result = StreamResult({"eos": True, "eos_reason": "stop_token"})
    assert not ReplyReader(engine.reply_format).read(result)
