"""Forced calls are written in the format of the family, and their arguments fit the schemas."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from engine import (
    DEFAULT_MODEL,
    ChatTemplate,
    ConstraintSpec,
    InvalidInputError,
    ReplyFormat,
    Tokenizer,
    Tool,
    after_reasoning,
    tool_constraint,
)
from engine.grammar.compiler import ConstraintCompiler
from engine.grammar.constraint import Constraint
from tests.engine.chat.test_tool_grammar import Renamed, deltas_of, drawn
from tests.support.family_templates import FAMILIES
from tests.support.replies import parts
from tests.support.schema_checker import fits, read_json

NAMES = list(FAMILIES)
BETWEEN_TAGS = ("glm", "qwen3-coder", "seed", "deepseek", "gemma")
"""Families that do not write JSON."""
SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 4},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"enum": ["C", "F", None, 1]},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    },
    "nested": {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "b": {"$ref": "#/$defs/Flags"},
            "c": {
                "type": "object",
                "properties": {"x": {"type": "boolean"}, "y": {"const": "no"}},
                "additionalProperties": False,
            },
            "d": {"type": "string", "minLength": 2, "maxLength": 3},
        },
        "additionalProperties": False,
        "$defs": {"Flags": {"type": "array", "items": {"type": "boolean"}}},
    },
    # Only JSON can say this.
    "pattern": {
        "type": "object",
        "properties": {"code": {"type": "string", "pattern": "^[a-c]{1,3}$"}},
        "required": ["code"],
        "additionalProperties": False,
    },
    "anything": {"type": "object", "maxProperties": 0},
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = [*(Tool(name, schema) for name, schema in SCHEMAS.items()), Tool("stop")]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(DEFAULT_MODEL, 4096)


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> ConstraintCompiler:
    return ConstraintCompiler(tokenizer, 4096, tokenizer.eos_token_ids)


def form_of(name: str, *, special: bool, reasons: bool = False) -> ReplyFormat:
    """With the bundled tokenizer, some of whose control tokens stand for the tags."""
    family = FAMILIES[name]
    tokenizer = Renamed.load(DEFAULT_MODEL, 4096)
    assert isinstance(tokenizer, Renamed)
    tokenizer.tags = {tag: 5 + i for i, tag in enumerate(family.tags)} if special else {}
    template = ChatTemplate(family.template, special_tokens={}, where=name)
    form = ReplyFormat.of_template(template, tokenizer)
    return form if reasons else ReplyFormat(None, form.tools, tokenizer)


def ids_of(tokenizer: Tokenizer, name: str, text: str, *, special: bool) -> list[int]:
    tags = FAMILIES[name].tags
    pieces = re.split(f"({'|'.join(map(re.escape, tags))})", text) if special else [text]
    return [
        token_id
        for piece in pieces
        for token_id in (
            [5 + tags.index(piece)] if piece in tags else tokenizer.encode_continuation(piece)
        )
    ]


def written(name: str, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """A reply of these calls in the family's format."""
    if name == "harmony":
        ((tool, given),) = calls
        header = f"<|channel|>commentary to=functions.{tool} <|constrain|>json<|message|>"
        return header + json.dumps(given, ensure_ascii=False)
    if name == "granite-3":
        objects = [{"name": tool, "arguments": given} for tool, given in calls]
        return f"<|tool_call|>{json.dumps(objects, ensure_ascii=False)}"
    family = FAMILIES[name]
    template = ChatTemplate(family.template, special_tokens={}, where=name)
    made = [
        {"id": f"callcall{i}", "function": {"name": tool, "arguments": family.arguments(given)}}
        for i, (tool, given) in enumerate(calls)
    ]
    turns: list[dict[str, Any]] = [{"role": "user", "content": "?"}]
    prompt = template.render(turns)
    turns.append({"role": "assistant", "content": "", "tool_calls": made})
    whole = template.render(turns, add_generation_prompt=False)
    return whole.removeprefix(prompt).removesuffix("<|end|>").lstrip()


def constraint_of(
    compiler: ConstraintCompiler, form: ReplyFormat, *, required: bool = True, parallel: bool = True
) -> Constraint:
    spec = tool_constraint(form, TOOLS, required=required, parallel=parallel, in_reasoning=False)
    return compiler.compile(spec)


def accept(constraint: Constraint, token_ids: Sequence[int]) -> None:
    for token_id in token_ids:
        constraint.accept(token_id)


ALLOWED: list[tuple[str, dict[str, Any]]] = [
    ("weather", {"city": "Rom", "days": 3}),
    ("weather", {"city": "", "days": 9, "unit": "C"}),
    ("weather", {"city": "\n<\u00e9", "days": 1, "unit": None}),
    ("nested", {}),
    ("nested", {"a": 'x "y"', "b": [True, False], "c": {"x": True}, "d": "ab"}),
    ("nested", {"b": [], "c": {"y": "no"}}),
    ("stop", {}),
]


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_forced_call_is_written_as_the_template_writes_it(
    name: str, special: bool, compiler: ConstraintCompiler, tokenizer: Tokenizer
) -> None:
    constraint = constraint_of(compiler, form_of(name, special=special))
    replies = [[call] for call in ALLOWED]
    if name != "harmony":
        replies.append(ALLOWED[:3])
    for calls in replies:
        constraint.rollback(0)
        accept(constraint, ids_of(tokenizer, name, written(name, calls), special=special))
        assert constraint.is_complete, calls


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("weather", {"city": "Genoa", "days": 3}),
        ("weather", {"city": "Rom", "days": 10}),
        ("weather", {"city": "Rom"}),
        ("weather", {"city": "Rom", "days": 3, "unit": "K"}),
        ("weather", {"city": "Rom", "days": 3, "more": 1}),
        ("nested", {"d": "a"}),
        ("nested", {"b": [1]}),
        ("other", {}),
    ],
)
def test_a_call_that_does_not_fit_is_refused(
    name: str,
    tool: str,
    given: dict[str, Any],
    compiler: ConstraintCompiler,
    tokenizer: Tokenizer,
) -> None:
    constraint = constraint_of(compiler, form_of(name, special=False))
    with pytest.raises(InvalidInputError):
        accept(constraint, ids_of(tokenizer, name, written(name, [(tool, given)]), special=False))


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_whatever_is_drawn_is_read_as_calls_that_fit(
    name: str, special: bool, compiler: ConstraintCompiler, tokenizer: Tokenizer
) -> None:
    form = form_of(name, special=special)
    spec = tool_constraint(form, TOOLS, required=True, parallel=True, in_reasoning=False)
    n_whole = 0
    for seed in range(12):
        token_ids, ended = drawn(compiler, tokenizer, spec, seed)
        deltas, reader = deltas_of(form, tokenizer, token_ids, ended=ended, tools=TOOLS)
        said = parts(deltas)
        assert {kind for kind, _, _ in said} <= {"reasoning", "tool_name", "tool_arguments"}
        assert reader.call_complete or not ended
        tools = [text for kind, _, text in said if kind == "tool_name"]
        arguments = [text for kind, _, text in said if kind == "tool_arguments"]
        assert not ended or tools
        for i, tool in enumerate(tools):
            if i < len(tools) - 1 or reader.call_complete:
                assert fits(read_json(arguments[i]), SCHEMAS.get(tool, NOTHING)), arguments[i]
                n_whole += 1
    assert n_whole


@pytest.mark.parametrize("name", BETWEEN_TAGS)
def test_what_only_json_can_say_is_json_in_the_same_place(
    name: str, compiler: ConstraintCompiler, tokenizer: Tokenizer
) -> None:
    form = form_of(name, special=False)
    plain = written(name, [("weather", {"city": "Rom", "days": 3})])
    constraint = constraint_of(compiler, form)
    begin, end = plain.index("city"), plain.rindex("3")
    head = plain[: plain.rindex("{" if name == "gemma" else "<", 0, begin)]
    tail = plain[end + 1 :].lstrip("}")
    tail = re.sub(r"^\s*</(arg_value|parameter|.DSML.parameter)>\n", "", tail)
    for given, fitting in (({"code": "abc"}, True), ({"code": "abd"}, False)):
        constraint.rollback(0)
        text = head.replace("weather", "pattern") + json.dumps(given) + tail
        token_ids = ids_of(tokenizer, name, text, special=False)
        if not fitting:
            with pytest.raises(InvalidInputError):
                accept(constraint, token_ids)
            continue
        accept(constraint, token_ids)
        assert constraint.is_complete
        deltas, _ = deltas_of(form, tokenizer, token_ids, tools=TOOLS)
        assert parts(deltas) == [
            ("tool_name", 0, "pattern"),
            ("tool_arguments", 0, json.dumps(given)),
        ]


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_text_may_stand_in_place_of_calls_or_before_one(
    name: str, special: bool, compiler: ConstraintCompiler, tokenizer: Tokenizer
) -> None:
    form = form_of(name, special=special)
    constraint = constraint_of(compiler, form, required=False, parallel=False)
    final = "<|channel|>final<|message|>" if name == "harmony" else ""
    accept(constraint, ids_of(tokenizer, name, f"{final}Hm {{x}} <b>", special=special))
    assert constraint.is_complete
    constraint.rollback(0)
    call = written(name, ALLOWED[:1])
    before = "I look.\n"
    if name == "harmony":
        before = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
    token_ids = ids_of(tokenizer, name, before + call, special=special)
    accept(constraint, token_ids)
    assert constraint.is_complete
    deltas, reader = deltas_of(form, tokenizer, token_ids, tools=TOOLS)
    assert parts(deltas)[0] == ("content", 0, "I look.")
    assert reader.n_calls == 1
    if name != "harmony":  # only one call
        with pytest.raises(InvalidInputError):
            accept(constraint, ids_of(tokenizer, name, "\n" + call, special=special))


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("in_reasoning", [False, True])
@pytest.mark.parametrize("name", [name for name in NAMES if FAMILIES[name].open_thought])
def test_calls_and_constraints_follow_the_reasoning(
    name: str, in_reasoning: bool, special: bool, compiler: ConstraintCompiler, tokenizer: Tokenizer
) -> None:
    family = FAMILIES[name]
    form = form_of(name, special=special, reasons=True)
    thought = f"{'' if in_reasoning else family.open_thought}Hm{family.close_thought}"
    calls = tool_constraint(form, TOOLS, required=True, parallel=False, in_reasoning=in_reasoning)
    final = "<|channel|>final<|message|>" if name == "harmony" else ""
    answer = after_reasoning(
        ConstraintSpec("choices", ("yes", "no")), form, in_reasoning=in_reasoning
    )
    for spec, rest, kinds in (
        (calls, written(name, ALLOWED[:1]), ["reasoning", "tool_name", "tool_arguments"]),
        (answer, f"{final}no", ["reasoning", "content"]),
    ):
        constraint = compiler.compile(spec)
        token_ids = ids_of(tokenizer, name, thought + rest, special=special)
        accept(constraint, token_ids)
        assert constraint.is_complete
        deltas, _ = deltas_of(form, tokenizer, token_ids, in_reasoning=in_reasoning, tools=TOOLS)
        assert [kind for kind, _, _ in parts(deltas)] == kinds
