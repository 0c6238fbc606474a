"""Why a grammar cannot be used, in one line and in words that its author understands.

Owns the translation of llguidance's messages.
"""

import re
from collections.abc import Callable
from typing import TypeVar

from ..errors import InvalidInputError, is_panic
from .spec import ConstraintSpec

T = TypeVar("T")

_LINE_AND_COLUMN = re.compile(r"^(?:at )?(\d+)\((\d+)\): ")
_REGEX_FAULT = re.compile(r"\n {4}(?P<before> *)\^+\n(?:.*\n)*?error: (?P<reason>[^\n]*)")
_NAMES = {
    "choices": "the list of choices",
    "gbnf": "the GBNF grammar",
    "json_object": "the JSON object",
    "json_schema": "the JSON schema",
    "lark": "the grammar",
    "regex": "the regular expression",
}

# Messages that only make sense to people who know the library.
_WORDS = {
    "NoExtensionBias": "no text satisfies it",
    "oneOf constraints are not supported. Enable 'coerce_one_of' option to approximate oneOf with "
    "anyOf": "'oneOf' is supported only if its schemas exclude each other; 'anyOf' always is",
}


def compile_error(spec: ConstraintSpec, failure: str, param: str | None) -> InvalidInputError:
    return InvalidInputError(
        f"{_NAMES[spec.kind]} does not compile: {reason_in(failure, spec.kind)}", param=param
    )


def reason_in(failure: str, kind: str = "") -> str:
    """One line of the library's message, with positions in words."""
    if failure.startswith("panic: "):
        return "the compiler crashed"
    fault = _REGEX_FAULT.search(failure)
    if kind == "regex" and fault:
        return f"at character {len(fault['before'])}: {fault['reason']}"
    line = failure.split("\n", 1)[0]
    if fault:
        line = f"{line} {fault['reason']}"
    if kind in ("gbnf", "regex"):  # the position is one in the converted text
        line = _LINE_AND_COLUMN.sub("", line)
    line = _LINE_AND_COLUMN.sub(r"line \1, column \2: ", line)
    line = _WORDS.get(line, line)
    return line if len(line) <= 400 else f"{line[:400]}..."


def contained(param: str | None, function: Callable[[], T]) -> T:
    """Calls the library; turns a panic, which is not an Exception, into an error of the request."""
    try:
        return function()
    except BaseException as error:
        if not is_panic(error):
            raise
        raise InvalidInputError(f"the constraint failed: {error}", param=param) from error
