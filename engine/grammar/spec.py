"""A request for a constraint, and its grammar for llguidance.

Owns the kinds of constraints, their limits and the white space of JSON. Knows no tokens.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import InvalidInputError
from .gbnf.lark import lark_of_gbnf
from .json_schema import enforceable

_Options = dict[str, object]  # llguidance's options for JSON

Kind = Literal["json_object", "json_schema", "regex", "lark", "gbnf", "choices"]

MAX_GRAMMAR_BYTES = 1024 * 1024
MAX_REGEX_BYTES = 64 * 1024
MAX_GBNF_BYTES = 64 * 1024
MAX_CHOICES = 10_000

MAX_WHITESPACE_BYTES = 1024

# On one line, as Python writes it and templates show it. A small model that may choose white space
# can fill the context with blanks.
_ONE_LINE: _Options = {
    "whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "
}  # fmt: skip

# The pieces of a Lark text: strings, comments and regular expressions, so that their contents are
# not taken for syntax; then the directive that a JSON schema follows. Closing signs are optional,
# so that a literal without one is not searched again from each of its characters.
_LARK_PIECE = re.compile(
    r'(?P<literal>"(?:\\.|[^"\\\n])*"?|//[^\n]*|\#[^\n]*|/(?:\\.|[^/\\\n])+/?)|(?P<json>%json\s*)'
)
# Options of Lark rules that would be ignored, or would take back text that was already sent.
_LARK_OPTION = re.compile(r"\b(max_tokens|stop|stop_capture|temperature)\s*=")
_REGEX_PIECE = re.compile(r"\\.|/|\n", re.DOTALL)
_ENDS_ESCAPING = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")


_NAME = "text"  # of the grammar that `before` precedes
_Part = dict[str, object]  # one of the grammars that llguidance takes


@dataclass(frozen=True)
class ConstraintSpec:
    """What the text must look like.

    kind          value
    json_object   None: any JSON object
    json_schema   dict: a value of that schema
    regex         str: the whole text matches (syntax of Rust's regex crate)
    lark          str: a grammar in llguidance's variant of Lark
    gbnf          str: a grammar in llama.cpp's GBNF; its rule `root` is the text
    choices       tuple of str: one of them
    """

    kind: Kind
    value: Mapping[str, Any] | str | tuple[str, ...] | None = None
    whitespace_pattern: str | None = None
    """What may stand between two tokens of JSON, as a regex. None: JSON is on one line, with a
    space after each comma and colon and no other white space."""
    before: tuple[str, ...] = ()
    """What precedes that text: a pattern in Lark, then the rules that it names."""
    param: str | None = field(default="constraint", compare=False)
    """The name that errors of a stream give it."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """`text` is what llguidance takes. `foreign`: it comes from the caller, so it may do harm."""

    text: str
    foreign: bool


def grammar_of(spec: ConstraintSpec, *, param: str | None = "constraint") -> Grammar:
    """Raises InvalidInputError if the value does not fit the kind, or is too large."""
    part, foreign = _part(spec, param)
    parts = [part]
    if spec.before:
        pattern, *rules = spec.before
        lark = "\n".join((f"start: {pattern} @{_NAME}", *rules))
        parts = [{"lark_grammar": lark}, {"name": _NAME, **part}]
    return Grammar(json.dumps({"grammars": parts}, ensure_ascii=False), foreign)


def _part(spec: ConstraintSpec, param: str | None) -> tuple[_Part, bool]:
    """The grammar, and whether it is foreign."""
    value = spec.value
    if spec.kind == "json_object" and value is None:
        is_foreign = spec.whitespace_pattern is not None
        return _json_part({"type": "object"}, _json_options(spec, param)), is_foreign
    if spec.kind == "json_schema" and isinstance(value, Mapping):
        return _json_part(_schema(value, param), _json_options(spec, param)), True
    if spec.kind == "regex" and isinstance(value, str):
        _check_bytes("the regular expression", value, MAX_REGEX_BYTES, param)
        return {"lark_grammar": f"start: /{_quoted_regex(value, param)}/"}, True
    if spec.kind == "lark" and isinstance(value, str):
        _check_bytes("the grammar", value, MAX_GRAMMAR_BYTES, param)
        return {"lark_grammar": _lark(value, _json_options(spec, param), param)}, True
    if spec.kind == "gbnf" and isinstance(value, str):
        _check_bytes("the GBNF grammar", value, MAX_GBNF_BYTES, param)
        return {"lark_grammar": lark_of_gbnf(value, param=param)}, True
    if spec.kind == "choices" and isinstance(value, tuple | list):
        return {"lark_grammar": _choices(value, param)}, False
    raise InvalidInputError(
        f"a constraint of kind {spec.kind!r} cannot have a value of type {type(value).__name__}",
        param=param,
    )


def _json_options(spec: ConstraintSpec, param: str | None) -> _Options:
    pattern = spec.whitespace_pattern
    if pattern is None:
        return _ONE_LINE
    _check_bytes("the whitespace pattern", pattern, MAX_WHITESPACE_BYTES, param)
    return {"whitespace_pattern": pattern}


def _json_part(schema: Mapping[str, Any], options: _Options) -> _Part:
    return {"json_schema": {**schema, "x-guidance": options}}


def _schema(value: Mapping[str, Any], param: str | None) -> dict[str, Any]:
    schema = enforceable(value, param=param)
    try:
        text = json.dumps(schema, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the JSON schema is not JSON: {error}", param=param) from error
    _check_bytes("the JSON schema", text, MAX_GRAMMAR_BYTES, param)
    return schema


def _choices(choices: tuple[str, ...] | list[str], param: str | None) -> str:
    if not choices:
        raise InvalidInputError("at least one choice is needed", param=param)
    if len(choices) > MAX_CHOICES:
        raise InvalidInputError(
            f"there are {len(choices)} choices; at most {MAX_CHOICES} are allowed", param=param
        )
    if not all(isinstance(choice, str) for choice in choices):
        raise InvalidInputError("every choice must be a string", param=param)
    _check_bytes("the list of choices", "".join(choices), MAX_GRAMMAR_BYTES, param)
    # One terminal: as alternatives of a rule, all choices would be parsed in parallel.
    texts = " | ".join(
        json.dumps(choice, ensure_ascii=False) for choice in dict.fromkeys(choices) if choice
    )
    empty = '""' if "" in choices else ""
    if not texts:
        return f"start: {empty}"
    return f"start: CHOICE{' | ' if empty else ''}{empty}\nCHOICE: {texts}"


def _lark(text: str, options: _Options, param: str | None) -> str:
    """The grammar, its JSON schemas checked and cleaned like any other JSON schema."""
    pieces = list(_lark_pieces(text, options, param))
    option = _LARK_OPTION.search(" ".join(piece for piece, is_syntax in pieces if is_syntax))
    if option:
        raise InvalidInputError(f"the rule option {option[1]!r} is not supported", param=param)
    return "".join(piece for piece, _ in pieces)


def _lark_pieces(text: str, options: _Options, param: str | None) -> Iterator[tuple[str, bool]]:
    """(piece, whether it is syntax)"""
    position = 0
    while match := _LARK_PIECE.search(text, position):
        yield text[position : match.start()], True
        position = match.end()
        yield match[0], False
        if match["json"]:
            try:
                schema, position = json.JSONDecoder().raw_decode(text, position)
            except (ValueError, RecursionError) as error:
                line = text.count("\n", 0, position) + 1
                raise InvalidInputError(
                    f"line {line}: %json must be followed by JSON: {error}", param=param
                ) from error
            if not isinstance(schema, dict):
                raise InvalidInputError("%json must be followed by an object", param=param)
            cleaned = _schema(schema, param) | {"x-guidance": options}
            yield json.dumps(cleaned, ensure_ascii=False), False
    yield text[position:], True


def _quoted_regex(regex: str, param: str | None) -> str:
    """The expression as it is written between the slashes of a Lark rule."""
    if _ENDS_ESCAPING.search(regex):
        raise InvalidInputError(
            "the regular expression ends with an unfinished escape", param=param
        )

    def quoted(piece: re.Match[str]) -> str:
        return {"/": r"\/", "\n": r"\n", "\\\n": r"\n"}.get(piece[0], piece[0])

    # Two slashes with nothing in between would be a comment.
    return _REGEX_PIECE.sub(quoted, regex) or "(?:)"


def _check_bytes(name: str, text: str, limit: int, param: str | None) -> None:
    try:
        n_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{name} holds a lone surrogate", param=param) from error
    if n_bytes > limit:
        raise InvalidInputError(
            f"{name} has {n_bytes} bytes; at most {limit} are allowed", param=param
        )
