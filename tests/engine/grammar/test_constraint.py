"""Constraints: whatever is drawn under the mask satisfies them, and every step can be undone."""

import json
import random
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from engine import Engine, InvalidInputError
from engine.grammar.compiler import ConstraintCompiler
from engine.grammar.constraint import Constraint
from engine.grammar.messages import contained
from engine.grammar.spec import ConstraintSpec
from tests.support.scripted_model import run, text_of
from tests.support.vocabularies import NAMES, Vocabulary, ids_in, joined, vocabulary

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mood": {"enum": ["good", "bad", None]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 3},
        "home": {"$ref": "#/$defs/home"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "$defs": {
        "home": {
            "type": ["object", "null"],
            "properties": {"street": {"const": "Elm 7"}, "flat": {"type": "boolean"}},
            "required": ["flat"],
            "additionalProperties": False,
        }
    },
}
REGEX = r"(?:[a-z]{2,5} ){1,3}\u{e9}?[0-9]{3}/[^\x00-\x1f\"]{0,6}"
CHOICES = ("yes", "no", "not sure", "nothing at all", "\u4f60\u597d", 'a "quoted" one', "no/\\way")
LARK = """start: greeting ("," WS? greeting)* "!" count
greeting: "hello" | "hi" | /[a-z]{1,4}/
WS: " "
count: %json {"type": "integer", "minimum": 1, "maximum": 99}
"""
SPECS = {
    "json_object": ConstraintSpec("json_object"),
    "json_schema": ConstraintSpec("json_schema", PERSON),
    "regex": ConstraintSpec("regex", REGEX),
    "choices": ConstraintSpec("choices", CHOICES),
    "lark": ConstraintSpec("lark", LARK),
}


def is_person(text: str) -> None:
    value = json.loads(text)
    assert {"name", "age"} <= set(value) <= set(PERSON["properties"])
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 12
    assert type(value["age"]) is int
    assert 0 <= value["age"] <= 150
    assert value.get("mood") in ("good", "bad", None)
    assert len(value.get("tags", [])) <= 3
    assert all(isinstance(tag, str) and len(tag) <= 4 for tag in value.get("tags", []))
    home = value.get("home")
    if home is not None:
        assert {"flat"} <= set(home) <= {"street", "flat"}
        assert type(home["flat"]) is bool
        assert home.get("street", "Elm 7") == "Elm 7"


def is_object(text: str) -> None:
    assert isinstance(json.loads(text), dict)


def matches(text: str) -> None:
    assert re.fullmatch(REGEX.replace(r"\u{e9}", "\u00e9"), text)


def is_choice(text: str) -> None:
    assert text in CHOICES


def is_sentence(text: str) -> None:
    greeting = "(?:hello|hi|[a-z]{1,4})"
    assert re.fullmatch(rf"{greeting}(?:, ?{greeting})*![1-9][0-9]?", text)


CHECKS: dict[str, Callable[[str], None]] = {
    "json_object": is_object,
    "json_schema": is_person,
    "regex": matches,
    "choices": is_choice,
    "lark": is_sentence,
}


@pytest.fixture(scope="module", params=NAMES)
def vocab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return vocabulary(request.param, tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def compiler(vocab: Vocabulary) -> ConstraintCompiler:
    return ConstraintCompiler(vocab.tokenizer, vocab.size, vocab.eos)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ConstraintCompiler:
    size, eos = 320, (4,)
    path = tmp_path_factory.mktemp("tokenizer")
    return ConstraintCompiler(vocabulary("byte-level", path).tokenizer, size, eos)


def draw(constraint: Constraint, vocab: Vocabulary, rng: random.Random, *, hurry: bool) -> int:
    """A random token of the mask; in a hurry, one that leads to the end if there is one."""
    allowed = ids_in(constraint.mask())
    if hurry:
        for wanted in (b'"', b"}", b"]", b":", b"!", b"1"):
            for token_id in allowed:
                if vocab.tokenizer.token_bytes(token_id) == wanted:
                    return token_id
    ends = [token_id for token_id in allowed if token_id in vocab.eos]
    return rng.choice(ends if ends and (hurry or rng.random() < 0.3) else allowed)


def drawn_text(constraint: Constraint, vocab: Vocabulary, rng: random.Random) -> str:
    token_ids: list[int] = []
    while True:
        token_id = draw(constraint, vocab, rng, hurry=len(token_ids) > 60)
        constraint.accept(token_id)
        if token_id in vocab.eos:
            return joined(vocab.tokenizer, token_ids).decode()
        token_ids.append(token_id)
        assert len(token_ids) < 500


@pytest.mark.parametrize("kind", SPECS)
def test_every_drawn_text_satisfies_the_constraint(
    kind: str, vocab: Vocabulary, compiler: ConstraintCompiler
) -> None:
    rng = random.Random(kind)
    for _ in range(25):
        constraint = compiler.compile(SPECS[kind])
        CHECKS[kind](drawn_text(constraint, vocab, rng))
        assert constraint.is_over
        assert constraint.is_complete


@pytest.mark.parametrize("kind", SPECS)
def test_a_rollback_restores_every_bit(
    kind: str, vocab: Vocabulary, compiler: ConstraintCompiler
) -> None:
    rng = random.Random(kind)
    constraint = compiler.compile(SPECS[kind])
    masks = [constraint.mask().copy()]
    states = [(constraint.is_complete, constraint.is_over, constraint.forced())]
    taken: list[int] = []
    for _ in range(300):
        if rng.random() < 0.25 or constraint.is_over:
            mark = rng.randrange(len(taken) + 1)
            constraint.rollback(mark)
            del taken[mark:], masks[mark + 1 :], states[mark + 1 :]
        else:
            token_id = draw(constraint, vocab, rng, hurry=False)
            constraint.accept(token_id)
            taken.append(token_id)
            masks.append(constraint.mask().copy())
            states.append((constraint.is_complete, constraint.is_over, constraint.forced()))
        assert constraint.mark() == len(taken)
        # In either order: no question may change the state.
        assert np.array_equal(constraint.mask(), masks[-1])
        assert (constraint.is_complete, constraint.is_over, constraint.forced()) == states[-1]
        assert np.array_equal(constraint.mask(), masks[-1])
    fresh = compiler.compile(SPECS[kind])
    for token_id, mask in zip(taken, masks, strict=False):
        assert np.array_equal(fresh.mask(), mask)
        fresh.accept(token_id)


@pytest.mark.parametrize("kind", SPECS)
def test_a_forbidden_token_changes_nothing(
    kind: str, vocab: Vocabulary, compiler: ConstraintCompiler
) -> None:
    rng = random.Random(kind)
    constraint = compiler.compile(SPECS[kind])
    for _ in range(20):
        before = constraint.mask().copy()
        allowed = set(ids_in(before))
        forbidden = [token_id for token_id in range(vocab.size) if token_id not in allowed]
        for token_id in (*rng.sample(forbidden, min(len(forbidden), 20)), -1, vocab.size, 2**31):
            with pytest.raises(InvalidInputError, match=f"token {token_id} is not allowed"):
                constraint.accept(token_id)
        assert np.array_equal(constraint.mask(), before)
        if constraint.is_over:
            break
        constraint.accept(draw(constraint, vocab, rng, hurry=False))


def test_the_mask_is_the_set_of_tokens_that_can_continue(
    vocab: Vocabulary, compiler: ConstraintCompiler
) -> None:
    """For choices it can be told without a grammar: the text and the token begin a choice."""
    rng = random.Random(0)
    choices = [choice.encode() for choice in CHOICES]
    for _ in range(20):
        constraint = compiler.compile(SPECS["choices"])
        text = b""
        while not constraint.is_over:
            expected = {
                token_id
                for token_id in range(vocab.size)
                if (data := vocab.tokenizer.token_bytes(token_id))
                and not vocab.tokenizer.is_control(token_id)
                and any(choice.startswith(text + data) for choice in choices)
            }
            if text in choices:
                expected |= set(vocab.eos)
            allowed = set(ids_in(constraint.mask()))
            if constraint.forced():
                # Where the bytes are certain, so is how they are usually divided.
                assert allowed == {constraint.forced()[0]}
                assert allowed <= expected
            else:
                assert allowed == expected
            token_id = rng.choice(sorted(allowed))
            constraint.accept(token_id)
            text += b"" if token_id in vocab.eos else vocab.tokenizer.token_bytes(token_id)


def test_the_end_comes_in_any_of_its_tokens(
    vocab: Vocabulary, compiler: ConstraintCompiler
) -> None:
    constraint = compiler.compile(ConstraintSpec("regex", "(ab)*"))
    assert constraint.is_complete
    assert not constraint.is_over
    assert set(vocab.eos) <= set(ids_in(constraint.mask()))
    for end in vocab.eos:
        constraint.accept(end)
        assert constraint.is_over
        assert ids_in(constraint.mask()) == sorted(vocab.eos)
        assert constraint.forced() == ()
        constraint.rollback(0)
        assert not constraint.is_over
    constraint.accept_bytes(b"a")
    assert not constraint.is_complete
    assert not set(vocab.eos) & set(ids_in(constraint.mask()))
    with pytest.raises(InvalidInputError):
        constraint.accept(vocab.eos[0])
    assert constraint.mark() == 1


def test_special_tokens_are_no_text(vocab: Vocabulary, compiler: ConstraintCompiler) -> None:
    constraint = compiler.compile(ConstraintSpec("regex", "(?s:.)*"))
    control = {i for i in range(vocab.size) if vocab.tokenizer.is_control(i)}
    assert control - set(vocab.eos)
    assert not set(ids_in(constraint.mask())) & (control - set(vocab.eos))


def test_a_grammar_can_ask_for_special_tokens(tmp_path_factory: pytest.TempPathFactory) -> None:
    tokenizer = vocabulary("byte-level", tmp_path_factory.mktemp("tokenizer")).tokenizer
    compiler = ConstraintCompiler(tokenizer, 320, (4,))
    spec = ConstraintSpec("lark", 'start: <|user|> "a" <|end|> "b" <|end|>')
    constraint = compiler.compile(spec)
    user, end = (tokenizer.encode(text)[0] for text in ("<|user|>", "<|end|>"))
    assert end == 4
    a, b = (tokenizer.encode(text)[0] for text in "ab")
    for token_id in (user, a, end, b, end):
        assert not constraint.is_complete
        assert ids_in(constraint.mask()) == [token_id]
        constraint.accept(token_id)
    assert constraint.is_over
    constraint.rollback(2)
    assert ids_in(constraint.mask()) == [end]


def test_forced_tokens_are_allowed_one_after_the_other(
    vocab: Vocabulary, compiler: ConstraintCompiler
) -> None:
    """They are a free draft, and longer than one token if the division is not unique."""
    longest = 0
    for text in ("there was a river, cold and warm", '{"name": "otter"}', "\u4f60\u597d"):
        constraint = compiler.compile(ConstraintSpec("choices", (text,)))
        token_ids: list[int] = []
        while not constraint.is_over:
            forced = constraint.forced()
            longest = max(longest, len(forced))
            for token_id in forced or ids_in(constraint.mask())[:1]:
                constraint.accept(token_id)
                token_ids.append(token_id)
        assert joined(vocab.tokenizer, token_ids) == text.encode()
    assert longest > 5


def test_a_control_token_as_text_is_spelled(
    vocab: Vocabulary, compiler: ConstraintCompiler
) -> None:
    text = "<|end|> </s> is text here"
    constraint = compiler.compile(ConstraintSpec("choices", (text,)))
    token_ids: list[int] = []
    while not constraint.is_over:
        allowed = ids_in(constraint.mask())
        assert constraint.forced()[:1] in ((), (allowed[0],))
        constraint.accept(allowed[0])
        token_ids.append(allowed[0])
    assert joined(vocab.tokenizer, token_ids) == text.encode()
    assert not any(vocab.tokenizer.is_control(token_id) for token_id in token_ids)


def takes(compiler: ConstraintCompiler, spec: ConstraintSpec, text: str) -> bool:
    """Whether the constraint lets this text end."""
    constraint = compiler.compile(spec)
    try:
        constraint.accept_bytes(text.encode())
    except InvalidInputError:
        return False
    return constraint.is_complete


ANY_OBJECT: list[ConstraintSpec] = [
    ConstraintSpec("json_object"),
    ConstraintSpec("json_schema", {"type": "object"}),
    ConstraintSpec("lark", 'start: %json {"type": "object"}'),
]


@pytest.mark.parametrize("spec", ANY_OBJECT)
def test_json_is_on_one_line(tiny: ConstraintCompiler, spec: ConstraintSpec) -> None:
    for text in ("{}", '{"a": [1, 2], "b": {"c": []}}'):
        assert takes(tiny, spec, text)
    for text in ('{"a":1}', '{ "a": 1}', '{"a":  1}', '{"a": [1,2]}', '{\n"a": 1}', " {}", "{} "):
        assert not takes(tiny, spec, text), text
    assert not takes(tiny, spec, "[]")


@pytest.mark.parametrize("spec", ANY_OBJECT)
def test_a_pattern_asks_for_other_white_space(
    tiny: ConstraintCompiler, spec: ConstraintSpec
) -> None:
    pretty, wide = '{\n  "a": [\n    1,\n    2\n  ]\n}', '{"a" : 1}'
    indented = replace(spec, whitespace_pattern=r"\n[ \t]{0,40}| ")
    assert takes(tiny, indented, pretty)
    assert takes(tiny, indented, '{"a":1}')
    assert takes(tiny, indented, wide)
    assert not takes(tiny, indented, '{  "a":1}')
    none = replace(spec, whitespace_pattern="")
    assert takes(tiny, none, '{"a":[1,2]}')
    assert not takes(tiny, none, wide)
    with pytest.raises(InvalidInputError, match="unclosed group"):
        tiny.compile(replace(spec, whitespace_pattern="("))
    with pytest.raises(InvalidInputError, match=r"whitespace pattern .* at most 1024"):
        tiny.compile(replace(spec, whitespace_pattern=" " * 1025))


@pytest.mark.parametrize(
    "keyword",
    [
        "not",
        "if",
        "then",
        "else",
        "uniqueItems",
        "contains",
        "minContains",
        "propertyNames",
        "dependentRequired",
        "dependencies",
        "unevaluatedProperties",
        "$dynamicRef",
        "maxlength",
        "x-guidance",
        "disallow",
    ],
)
def test_a_keyword_that_cannot_be_enforced_is_named(tiny: ConstraintCompiler, keyword: str) -> None:
    schema = {"type": "object", "properties": {"a/b": {"type": "string", keyword: {}}}}
    pattern = rf"#/properties/a~1b: the keyword '{re.escape(keyword)}' is not supported"
    with pytest.raises(InvalidInputError, match=pattern) as error:
        tiny.compile(ConstraintSpec("json_schema", schema))
    assert error.value.param == "constraint"
    with pytest.raises(InvalidInputError, match=re.escape(keyword)):
        tiny.compile(ConstraintSpec("lark", f"start: %json {json.dumps(schema)}"))


REFUSED: list[tuple[ConstraintSpec, str]] = [
    (ConstraintSpec("json_schema", {"type": "objekt"}), "JSON schema does not compile: .*objekt"),
    (ConstraintSpec("json_schema", {"type": "string", "format": "x"}), "Unknown format: x"),
    (ConstraintSpec("json_schema", {"minimum": "3"}), "minimum"),
    (ConstraintSpec("json_schema", {"enum": [float("nan")]}), "is not JSON"),
    (ConstraintSpec("json_schema", {"$ref": "#/$defs/a"}), "does not lead to a schema"),
    (ConstraintSpec("json_schema", {"$ref": "http://localhost/a"}), "it must begin with '#'"),
    (ConstraintSpec("json_schema", {"$ref": "#"}), "no text satisfies it"),
    (ConstraintSpec("json_schema", {"oneOf": [{"type": "string"}, {"pattern": "a"}]}), "'oneOf'"),
    (ConstraintSpec("json_schema", {"const": "a", "type": "integer"}), "does not compile"),
    (ConstraintSpec("regex", "ab(c"), "regular expression .* at character 2: unclosed group"),
    (ConstraintSpec("regex", "a(?=b)"), "at character 1: look-around"),
    (ConstraintSpec("regex", "a\\"), "ends with an unfinished escape"),
    (ConstraintSpec("regex", "a\ud800"), "lone surrogate"),
    (ConstraintSpec("lark", 'start: "a" b'), 'line 1, column 12: unknown name: "b"|unknown name'),
    (ConstraintSpec("lark", 'start: "a"\n  b c'), "line 2"),
    (ConstraintSpec("lark", "start: <|nobody|>"), "nobody"),
    (ConstraintSpec("lark", "start: a\na[temperature=0.5]: /b/"), "'temperature' is not supported"),
    (ConstraintSpec("lark", 'start: a\na[stop="x"]: /b/'), "'stop' is not supported"),
    (ConstraintSpec("lark", "start: a\n\na: %json {]"), "line 3: %json"),
    (ConstraintSpec("lark", ""), "does not compile"),
    (ConstraintSpec("choices", ()), "at least one choice"),
    (ConstraintSpec("choices", (1,)), "must be a string"),  # type: ignore[arg-type]
    (ConstraintSpec("json_object", "{}"), "cannot have a value of type str"),
    (ConstraintSpec("regex", None), "cannot have a value of type NoneType"),
]


@pytest.mark.parametrize(("spec", "message"), REFUSED)
def test_what_does_not_compile_says_why(
    tiny: ConstraintCompiler, spec: ConstraintSpec, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        tiny.compile(spec, param="regex")
    assert error.value.param == "regex"
    assert "\n" not in str(error.value)


def test_a_panic_of_a_library_is_an_error_of_the_constraint() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    endless = tokenizers.Regex("(a+)+b")
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split(endless, "isolated")
    with pytest.raises(InvalidInputError, match=r"the constraint failed: .*limit") as error:
        contained("regex", lambda: backend.encode("a" * 64))
    assert error.value.param == "regex"


@pytest.mark.parametrize("class_", [KeyboardInterrupt, SystemExit, ValueError])
def test_what_is_not_a_panic_passes(class_: type[BaseException]) -> None:
    def fail() -> None:
        raise class_

    with pytest.raises(class_):
        contained("regex", fail)


def test_syntax_inside_of_literals_is_text(tiny: ConstraintCompiler) -> None:
    lark = 'start: "%json {" /[stop=]/ // temperature=1\n# max_tokens=3\n'
    constraint = tiny.compile(ConstraintSpec("lark", lark))
    constraint.accept_bytes(b"%json {=")
    assert constraint.is_over


@pytest.mark.parametrize(
    ("regex", "text"),
    [("a/b", "a/b"), (r"a\/b", "a/b"), ("a\nb", "a\nb"), ("", ""), (r"\\", "\\"), ("^a$", "a")],
)
def test_an_expression_keeps_its_meaning(tiny: ConstraintCompiler, regex: str, text: str) -> None:
    constraint = tiny.compile(ConstraintSpec("regex", regex))
    constraint.accept_bytes(text.encode())
    assert constraint.is_complete


def nested(schema: dict[str, Any], n: int) -> dict[str, Any]:
    for _ in range(n):
        schema = {"type": "array", "items": schema}
    return schema


def tower(n: int) -> str:
    rules = (f"r{i}: r{i + 1} r{i + 1}" for i in range(n))
    return "\n".join(("start: r0", *rules, f'r{n}: "x"'))


LETTERS = [{"type": "string", "pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(10, 40)]
HOSTILE = {
    "deep": (ConstraintSpec("json_schema", nested({}, 1000)), "too deep"),
    "wide": (ConstraintSpec("json_schema", {"enum": list(range(300_000))}), "too large"),
    "long": (ConstraintSpec("json_schema", {"enum": ["x" * 2**20]}), "at most 1048576 are allowed"),
    "many values": (
        ConstraintSpec("json_schema", {"enum": [f"value{i}" for i in range(60_000)]}),
        "too big|too large|more than",
    ),
    "exponential": (
        ConstraintSpec("json_schema", {"allOf": LETTERS}),
        # Whichever limit this machine reaches first.
        "more than 3 s|too large or too deep",
    ),
    "many optional": (
        ConstraintSpec("json_schema", {"properties": {f"k{i}": {} for i in range(8_000)}}),
        "does not compile",
    ),
    "parentheses": (ConstraintSpec("regex", "(" * 20_000 + ")" * 20_000), "nest|deep|large"),
    "long expression": (ConstraintSpec("regex", "a" * 2**17), "at most 65536 are allowed"),
    "groups": (ConstraintSpec("lark", f"start: {'(' * 5000}"), "too deeply nested"),
    "tower": (ConstraintSpec("lark", tower(5_000)), "too large or too deep"),
    "open string": (ConstraintSpec("lark", 'start: "' + '\\"' * 300_000), "lexer error"),
    "open expression": (ConstraintSpec("lark", "start: /" + r"\/" * 300_000), "lexer error"),
    "backslashes": (ConstraintSpec("regex", "\\" * 60_001), "ends with an unfinished escape"),
    "itself": (ConstraintSpec("lark", "start: start"), "no text satisfies it"),
    "many choices": (ConstraintSpec("choices", ("a",) * 10_001), "at most 10000 are allowed"),
    "long choice": (ConstraintSpec("choices", ("a" * 2**21,)), "at most 1048576 are allowed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_grammar_is_an_error(tiny: ConstraintCompiler, name: str) -> None:
    spec, message = HOSTILE[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidInputError, match=message):
        tiny.compile(spec)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # KiB


@pytest.mark.parametrize(
    "spec",
    [
        ConstraintSpec("regex", "a{1000000000}"),
        ConstraintSpec("regex", "((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}"),
        ConstraintSpec("regex", r"(\w+\s?){1,500}"),
        ConstraintSpec("regex", "(a|b)*a(a|b){200}"),
        ConstraintSpec("lark", 'start: s\ns: s s s | s s | "a" s | '),
        ConstraintSpec("json_schema", {"type": "string", "minLength": 10**9}),
        ConstraintSpec("json_schema", {"type": "array", "minItems": 10**9}),
        ConstraintSpec("json_schema", nested({"type": "integer"}, 45)),
        ConstraintSpec(
            "json_schema",
            {"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"l": {"$ref": "#/$defs/t"}}}}},
        ),
    ],
)
def test_an_expensive_grammar_runs_or_fails_but_never_hangs(
    vocab: Vocabulary, compiler: ConstraintCompiler, spec: ConstraintSpec
) -> None:
    rng = random.Random(0)
    constraint = compiler.compile(spec)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    failure = "the constraint cannot continue after"
    try:
        for _ in range(100):
            constraint.accept(draw(constraint, vocab, rng, hurry=False))
    except InvalidInputError as error:
        failure = str(error)
    assert "the constraint cannot continue after" in failure
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # KiB


def test_a_choice_may_be_empty(tiny: ConstraintCompiler) -> None:
    for choices in (("",), ("", "a")):
        constraint = tiny.compile(ConstraintSpec("choices", choices))
        assert constraint.is_complete
        constraint.accept(4)
        assert constraint.is_over


def test_all_choices_can_be_made(tiny: ConstraintCompiler) -> None:
    choices = tuple(f"choice {i}" for i in range(10_000))
    for choice in ("choice 0", "choice 9999", "choice 123"):
        constraint = tiny.compile(ConstraintSpec("choices", choices))
        constraint.accept_bytes(choice.encode())
        assert constraint.is_complete


def test_marks_outside_of_the_text_are_refused(tiny: ConstraintCompiler) -> None:
    constraint = tiny.compile(ConstraintSpec("regex", "a*"))
    constraint.accept_bytes(b"a")
    for mark in (-1, 2):
        with pytest.raises(ValueError, match="cannot roll back from 1 tokens"):
            constraint.rollback(mark)
    constraint.rollback(1)
    constraint.rollback(0)
    constraint.rollback(0)
    assert constraint.mark() == 0


def test_constraints_do_not_share_a_state(tiny: ConstraintCompiler) -> None:
    one, other = (tiny.compile(ConstraintSpec("regex", "ab*")) for _ in range(2))
    first = other.mask().copy()
    one.accept_bytes(b"abb")
    assert np.array_equal(other.mask(), first)
    assert not np.array_equal(one.mask(), first)


def test_a_grammar_is_tried_once(tiny: ConstraintCompiler) -> None:
    def work_of_children() -> int:
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt

    spec = ConstraintSpec("regex", "tried once")
    before = work_of_children()
    tiny.compile(spec)
    tried = work_of_children()
    tiny.compile(spec)
    assert before < tried == work_of_children()


@pytest.mark.parametrize(
    "spec", [ConstraintSpec("regex", "(refused once"), ConstraintSpec("lark", "start: refused")]
)
def test_a_refusal_is_remembered(tiny: ConstraintCompiler, spec: ConstraintSpec) -> None:
    def refusal(param: str) -> InvalidInputError:
        with pytest.raises(InvalidInputError) as raised:
            tiny.compile(spec, param=param)
        return raised.value

    first = refusal("a")
    tried = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    second = refusal("b")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt == tried
    assert str(first) == str(second)
    assert (first.param, second.param) == ("a", "b")
    with pytest.raises(InvalidInputError):
        tiny.work_for(spec, param="c")


def test_the_library_is_loaded_at_the_first_constraint_and_never_torch() -> None:
    code = """
import sys
from engine import DEFAULT_MODEL, Tokenizer
from engine.grammar.compiler import ConstraintCompiler
from engine.grammar.spec import ConstraintSpec
tokenizer = Tokenizer.load(DEFAULT_MODEL, 4096)
compiler = ConstraintCompiler(tokenizer, 4096, tokenizer.eos_token_ids)
before = "llguidance" in sys.modules
compiler.compile(ConstraintSpec("json_object"))
print(before, "llguidance" in sys.modules, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_what_was_compiled_once_needs_no_trial_and_is_as_good_as_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocab = vocabulary("byte-level", tmp_path)
    compiler = ConstraintCompiler(vocab.tokenizer, vocab.size, vocab.eos)
    fresh = {kind: compiler.compile(spec) for kind, spec in SPECS.items()}
    first_masks = {kind: ids_in(constraint.mask()) for kind, constraint in fresh.items()}
    # The fate of one text does not matter to the next one.
    for kind, constraint in fresh.items():
        constraint.accept(first_masks[kind][0])

    def no_trial(*args: object, **options: object) -> None:
        raise AssertionError("a trial was started")

    monkeypatch.setattr("engine.grammar.compiler.verdict_on", no_trial)
    for kind, spec in SPECS.items():
        again = compiler.compile(spec)
        assert ids_in(again.mask()) == first_masks[kind]
        assert again.mark() == 0
        text = drawn_text(again, vocab, random.Random(3))
        CHECKS[kind](text)
        assert drawn_text(compiler.compile(spec), vocab, random.Random(3)) == text


def test_many_threads_compile_at_once(tmp_path: Path) -> None:
    vocab = vocabulary("byte-level", tmp_path)
    compiler = ConstraintCompiler(vocab.tokenizer, vocab.size, vocab.eos)
    specs = [ConstraintSpec("regex", f"a{{{n}}}b") for n in (1, 2, 3)] * 4
    texts = [b"a" * n + b"b" for n in (1, 2, 3)] * 4
    start = threading.Barrier(len(specs))
    taken: dict[int, bool] = {}

    def compile_one(i: int) -> None:
        start.wait()
        constraint = compiler.compile(specs[i])
        constraint.accept_bytes(texts[i])
        taken[i] = constraint.is_over

    threads = [threading.Thread(target=compile_one, args=(i,)) for i in range(len(specs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken == dict.fromkeys(range(len(specs)), True)


def test_the_engine_checks_a_constraint_before_a_stream_begins(
    tiny_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInputError, match="unclosed group") as error:
        tiny_engine.check_constraint(ConstraintSpec("regex", "(a"), param="guided_regex")
    assert error.value.param == "guided_regex"
    spec = ConstraintSpec("regex", "[ab]{3}")
    tiny_engine.check_constraint(spec, param="guided_regex")
    monkeypatch.setattr("engine.grammar.compiler.verdict_on", None)
    tiny_engine.generator.begin_stream_ex([5, 6], constraint=spec, max_new_tokens=20)
    assert re.fullmatch("[ab]{3}", text_of(run(tiny_engine.generator)))
