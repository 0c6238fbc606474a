"""Forced calls are calls: the reader understands whatever is drawn under the grammar."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from engine import (
    DEFAULT_MODEL,
    ConstraintSpec,
    Engine,
    InvalidInputError,
    ReplyDelta,
    ReplyFormat,
    ReplyReader,
    SamplingSettings,
    StreamResult,
    Tokenizer,
    Tool,
    after_reasoning,
    arguments_of,
    calls_or_json,
    tool_constraint,
)
from engine.grammar.compiler import ConstraintCompiler
from engine.grammar.constraint import Constraint
from tests.support.replies import TEMPLATES, parts, read, record, results
from tests.support.schema_checker import fits, read_json
from tests.support.scripted_model import run
from tests.support.vocabularies import ids_in

SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 8},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"enum": ["C", "F", None]},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    },
    'say "it"': {
        "type": "object",
        "properties": {"words": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
        "required": ["words"],
        "additionalProperties": False,
    },
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = [
    *(Tool(name, schema, param=f"tools[{i}]") for i, (name, schema) in enumerate(SCHEMAS.items())),
    Tool("stop"),
]
# The bundled vocabulary has reserved control tokens, which may stand for tags.
SPECIAL = {
    "[TOOL_CALLS]": 5, "[ARGS]": 6, "[CALL_ID]": 7, "<tool_call>": 8, "</tool_call>": 9,
    "<think>": 10, "</think>": 11, "[THINK]": 12, "[/THINK]": 13,
}  # fmt: skip


class Renamed(Tokenizer):
    """The bundled tokenizer; some of its control tokens are tags."""

    tags: dict[str, int]

    def added_token_id(self, text: str) -> int | None:
        return self.tags.get(text)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(DEFAULT_MODEL, 4096)


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> ConstraintCompiler:
    return ConstraintCompiler(tokenizer, 4096, tokenizer.eos_token_ids)


def form_of(name: str, *, special: bool) -> ReplyFormat:
    tokenizer = Renamed.load(DEFAULT_MODEL, 4096)
    assert isinstance(tokenizer, Renamed)
    tokenizer.tags = SPECIAL if special else {}
    source = TEMPLATES.get(name, name)
    return ReplyFormat.of(source, tokenizer)


def without_reasoning(name: str) -> str:
    return TEMPLATES[name].replace("</think>", "").replace("[/THINK]", "")


def drawn(
    compiler: ConstraintCompiler,
    tokenizer: Tokenizer,
    spec: ConstraintSpec,
    seed: int,
) -> tuple[list[int], bool]:
    """Tokens drawn under the constraint, and whether it ended."""
    rng = random.Random(seed)
    constraint = compiler.compile(spec, param="tools")
    token_ids: list[int] = []
    while not constraint.is_over and len(token_ids) < 300:
        token_id = rng.choice(ids_in(constraint.mask()))
        if token_id in tokenizer.eos_token_ids:
            return token_ids, True
        constraint.accept(token_id)
        token_ids.append(token_id)
    return token_ids, constraint.is_over


def deltas_of(
    form: ReplyFormat,
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    *,
    ended: bool = True,
    in_reasoning: bool = False,
    tools: Sequence[Tool] = TOOLS,
) -> tuple[list[ReplyDelta], ReplyReader]:
    """Through the reader, in pieces of whole characters."""
    records, position, data = [], 0, b""
    for token_id in token_ids:
        data += b"" if tokenizer.is_special(token_id) else tokenizer.token_bytes(token_id)
        text = data.decode(errors="ignore")
        if text.encode() == data or tokenizer.is_special(token_id):
            records.append(record(token_id, text, position))
            position, data = position + len(text), b""
    reader = ReplyReader(form, tools=tools, in_reasoning=in_reasoning)
    stream = results(records, range(0, position, 3))
    last = StreamResult({"eos": True, "eos_reason": "stop_token" if ended else "length"})
    return read(reader, [*stream[:-1], last]), reader


def assert_calls(deltas: Sequence[ReplyDelta], *, complete: bool) -> None:
    """Every call names a tool, and all finished calls have arguments that fit its schema."""
    said = parts(deltas)
    names = [text for kind, _, text in said if kind == "tool_name"]
    arguments = [text for kind, _, text in said if kind == "tool_arguments"]
    for i, name in enumerate(names):
        if i < len(names) - 1 or complete:
            schema = SCHEMAS.get(name, NOTHING)
            assert fits(read_json(arguments[i]), schema), (name, arguments[i])


FORMS = [(name, special) for name in TEMPLATES for special in (False, True)]


@pytest.mark.parametrize(("name", "special"), FORMS)
@pytest.mark.parametrize("parallel", [False, True])
def test_required_calls(
    name: str, special: bool, parallel: bool, compiler: ConstraintCompiler, tokenizer: Tokenizer
) -> None:
    form = form_of(without_reasoning(name), special=False)
    if special:
        form = ReplyFormat(None, form_of(name, special=True).tools, tokenizer)
    spec = tool_constraint(form, TOOLS, required=True, parallel=parallel, in_reasoning=False)
    seen: set[str] = set()
    most = 0
    for seed in range(12):
        token_ids, ended = drawn(compiler, tokenizer, spec, seed)
        deltas, reader = deltas_of(form, tokenizer, token_ids, ended=ended)
        assert {kind for kind, _, _ in parts(deltas)} <= {"tool_name", "tool_arguments"}
        assert reader.n_calls >= 1
        assert reader.call_complete or not ended
        assert parallel or reader.n_calls == 1
        assert_calls(deltas, complete=reader.call_complete)
        seen |= {text for kind, _, text in parts(deltas) if kind == "tool_name"}
        most = max(most, reader.n_calls)
    assert len(seen) > 1
    assert most > 1 or not parallel


@pytest.mark.parametrize(("name", "special"), FORMS)
def test_a_reply_may_be_calls_or_json(
    name: str, special: bool, compiler: ConstraintCompiler, tokenizer: Tokenizer
) -> None:
    form = form_of(without_reasoning(name), special=False)
    if special:
        form = ReplyFormat(None, form_of(name, special=True).tools, tokenizer)
    calls = tool_constraint(form, TOOLS, required=True, parallel=True, in_reasoning=False)
    schema = SCHEMAS["weather"]
    spec = calls_or_json(calls, ConstraintSpec("json_schema", schema), form, param="x")
    kinds: set[str] = set()
    for seed in range(24):
        token_ids, ended = drawn(compiler, tokenizer, spec, seed)
        deltas, reader = deltas_of(form, tokenizer, token_ids, ended=ended)
        said = "".join(text for kind, _, text in parts(deltas) if kind == "content")
        assert bool(said) != bool(reader.n_calls)
        if ended and said:
            assert fits(read_json(said), schema)
        assert_calls(deltas, complete=reader.call_complete)
        kinds.add("text" if said else "calls")
    assert kinds == {"text", "calls"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"properties": {"name": {"type": "string"}}, "required": ["name"]},
    ],
)
def test_json_that_begins_like_a_call_is_allowed(
    schema: dict[str, Any], compiler: ConstraintCompiler
) -> None:
    form = form_of(without_reasoning("llama3"), special=False)
    calls = tool_constraint(form, TOOLS, required=True, parallel=True, in_reasoning=False)
    spec = calls_or_json(calls, ConstraintSpec("json_schema", schema), form, param="x")
    for text in (
        '{"name": "weather report", "n": 3}',
        '{"name": "weather", "n": 3}',
        '{"name": "stop"}',
        '{"name": "stop", "parameters": {}}',
    ):
        constraint = compiler.compile(spec)
        constraint.accept_bytes(text.encode())
        assert constraint.is_complete, text


def test_only_json_stands_beside_calls() -> None:
    form = form_of("hermes", special=False)
    calls = ConstraintSpec("lark", "start: /a/")
    with pytest.raises(InvalidInputError) as error:
        calls_or_json(calls, ConstraintSpec("regex", "b"), form, param="guided_regex")
    assert error.value.param == "guided_regex"


@pytest.mark.parametrize(("name", "special"), FORMS)
def test_calls_that_may_follow_a_text(
    name: str, special: bool, compiler: ConstraintCompiler, tokenizer: Tokenizer
) -> None:
    form = form_of(name, special=special)
    spec = tool_constraint(form, TOOLS, required=False, parallel=False, in_reasoning=True)
    # At last nothing is said, so that a call may begin in any style.
    close = form.reasoning.close if form.reasoning else None
    assert close is not None
    constraint = compiler.compile(spec)
    for said in ("Hello.\nMore [x] <y>", ""):
        constraint.rollback(0)
        for token_id in written(tokenizer, "Hm", close.text, said, special=special):
            constraint.accept(token_id)
        assert constraint.is_complete
    opening = "{" if form.tools.style == "llama3" else form.tools.open.text
    accept_all(constraint, written(tokenizer, "", opening, "", special=special))
    assert not constraint.is_complete, "a call has begun"


def accept_all(constraint: Constraint, token_ids: Sequence[int]) -> None:
    for token_id in token_ids:
        constraint.accept(token_id)


def written(tokenizer: Tokenizer, before: str, tag: str, after: str, *, special: bool) -> list[int]:
    spelled = tokenizer.encode_continuation
    tag_ids = [SPECIAL[tag]] if special and tag in SPECIAL else spelled(tag)
    return [*spelled(before), *tag_ids, *spelled(after)]


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("in_reasoning", [False, True])
def test_a_call_may_come_behind_reasoning(
    special: bool, in_reasoning: bool, compiler: ConstraintCompiler, tokenizer: Tokenizer
) -> None:
    form = form_of("hermes", special=special)
    spec = tool_constraint(form, TOOLS, required=True, parallel=False, in_reasoning=in_reasoning)
    constraint = compiler.compile(spec)
    opening = [] if in_reasoning else written(tokenizer, "", "<think>", "", special=special)
    thought = written(tokenizer, "\nA <tool_call>?\n", "</think>", "\n\n", special=special)
    call = [
        *written(tokenizer, "", "<tool_call>", "", special=special),
        *tokenizer.encode_continuation('\n{"name": "stop", "arguments": {}}\n'),
        *written(tokenizer, "", "</tool_call>", "", special=special),
    ]
    accept_all(constraint, [*opening, *thought, *call])
    assert constraint.is_over
    deltas, _ = deltas_of(form, tokenizer, [*opening, *thought, *call], in_reasoning=in_reasoning)
    assert parts(deltas) == [
        ("reasoning", 0, "A <tool_call>?"),
        ("tool_name", 0, "stop"),
        ("tool_arguments", 0, "{}"),
    ]
    constraint.rollback(0)
    if not in_reasoning:  # it need not reason
        accept_all(constraint, call)
        assert constraint.is_over


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(
    ("spec", "text", "wrong"),
    [
        (ConstraintSpec("json_object"), '{"a": 1}', "a"),
        (ConstraintSpec("json_schema", {"type": "integer"}), "12", "x"),
        (ConstraintSpec("regex", "[a-c]+d"), "abcd", "x"),
        (ConstraintSpec("choices", ("yes", "no")), "no", "x"),
        (ConstraintSpec("lark", 'start: free "!"\nfree: /[a-z]+/'), "hey!", "X"),
    ],
)
def test_constraints_begin_behind_the_reasoning(
    special: bool,
    spec: ConstraintSpec,
    text: str,
    wrong: str,
    compiler: ConstraintCompiler,
    tokenizer: Tokenizer,
) -> None:
    form = form_of("hermes", special=special)
    behind = compiler.compile(after_reasoning(spec, form, in_reasoning=True))
    thought = written(tokenizer, "It {is} 7", "</think>", "\n\n", special=special)
    accept_all(behind, [*thought, *tokenizer.encode_continuation(text)])
    assert behind.is_complete
    behind.rollback(len(thought))
    with pytest.raises(InvalidInputError):
        accept_all(behind, tokenizer.encode_continuation(wrong))
    may_think = compiler.compile(after_reasoning(spec, form, in_reasoning=False))
    accept_all(may_think, tokenizer.encode_continuation(text))
    assert may_think.is_complete
    may_think.rollback(0)
    accept_all(may_think, written(tokenizer, "", "<think>", "", special=special))
    accept_all(may_think, [*thought, *tokenizer.encode_continuation(text)])
    assert may_think.is_complete


def test_without_reasoning_a_constraint_stays_as_it_is() -> None:
    spec = ConstraintSpec("json_object")
    assert after_reasoning(spec, form_of("plain", special=False), in_reasoning=False) is spec


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("style", ["hermes", "llama3", "mistral-named"])
def test_the_bundled_model_calls(bundled_engine: Engine, style: str, seed: int) -> None:
    """The model would say none of this by itself: all of it comes from the grammar."""
    form = ReplyFormat.of(without_reasoning(style), bundled_engine.tokenizer)
    generator = bundled_engine.generator
    generator.begin_stream_ex(
        bundled_engine.tokenizer.encode("Once upon a time"),
        SamplingSettings(temperature=1.0, seed=seed),
        max_new_tokens=150,
        constraint=tool_constraint(form, TOOLS, required=True, parallel=True, in_reasoning=False),
    )
    stream = run(generator)
    reader = ReplyReader(form, tools=TOOLS)
    deltas = read(reader, stream)
    assert {kind for kind, _, _ in parts(deltas)} <= {"tool_name", "tool_arguments"}
    assert reader.n_calls
    assert reader.call_complete or stream[-1].eos_reason == "length"
    assert_calls(deltas, complete=reader.call_complete)
    assert [t for d in deltas for t in d.tokens] == [t for r in stream for t in r.tokens]


def test_a_schema_that_cannot_be_enforced_names_its_tool() -> None:
    bad = Tool("bad", {"type": "object", "not": {}}, param="tools[2].function.parameters")
    with pytest.raises(InvalidInputError, match="'not' is not supported") as raised:
        tool_constraint(
            form_of("hermes", special=False), [TOOLS[0], bad],
            required=True, parallel=True, in_reasoning=False,
        )  # fmt: skip
    assert raised.value.param == "tools[2].function.parameters"


def test_a_tool_alone_tells_whether_it_is_at_fault(compiler: ConstraintCompiler) -> None:
    pattern = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a"}}}
    bad = Tool("bad", pattern, param="tools[2].function.parameters")
    form = form_of("hermes", special=False)
    spec = tool_constraint(form, [TOOLS[0], bad], required=True, parallel=True, in_reasoning=False)
    for one, param in ((spec, "tools"), (arguments_of(bad), bad.param)):
        with pytest.raises(InvalidInputError, match="does not compile") as raised:
            compiler.compile(one, param=param)
        assert raised.value.param == param
    compiler.compile(arguments_of(TOOLS[0]), param=TOOLS[0].param)
    fine = tool_constraint(form, TOOLS, required=True, parallel=True, in_reasoning=False)
    compiler.compile(fine, param="tools")


def test_arguments_are_an_object_in_any_case(
    compiler: ConstraintCompiler, tokenizer: Tokenizer
) -> None:
    schema = {"properties": {"a": {"type": "integer"}}, "required": ["a"], "nullable": True}
    tools = [Tool("f", {**schema, "strict": True, "x-order": 1})]
    form = form_of("hermes", special=False)
    spec = tool_constraint(form, tools, required=True, parallel=False, in_reasoning=False)
    constraint = compiler.compile(spec)
    head = '<tool_call>\n{"name": "f", "arguments": '
    accept_all(constraint, tokenizer.encode_continuation(head))
    with pytest.raises(InvalidInputError):
        constraint.accept(tokenizer.encode_continuation("7")[0])
    with pytest.raises(InvalidInputError):
        constraint.accept_bytes(b"null")
    accept_all(constraint, tokenizer.encode_continuation(json.dumps({"a": 7})))
