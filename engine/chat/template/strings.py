"""Texts that templates make from texts: methods of strings, `%` and `format`.

Owns which methods of strings a template may call, and how long their results will be, which is
checked before they are made. Knows the budget; knows no template.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jinja2 import Environment
from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedFormatter

from .budget import Budget, TemplateLimitError

MAX_WIDTH = 9_999
"""Width of a field in a format string."""

_METHODS = frozenset({
    "capitalize", "casefold", "center", "count", "endswith", "expandtabs", "find", "index",
    "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric",
    "isprintable", "isspace", "istitle", "isupper", "join", "ljust", "lower", "lstrip", "partition",
    "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit",
    "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper", "zfill",
})  # fmt: skip
# These search or copy a text; all others change or test each character.
_FIND = frozenset({"count", "find", "index", "partition", "rfind", "rindex", "rpartition"})
_COPY = frozenset({
    "center", "isascii", "ljust", "lstrip", "removeprefix", "removesuffix", "rjust", "rsplit",
    "rstrip", "split", "strip", "zfill",
})  # fmt: skip
_BYTES_PER_PART = 64
_PERCENT = re.compile(
    r"%(?:\([^()]*\))?[#0\- +]*(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?[hlL]?"
    r"[diouxXeEfFgGcrsa%]"
)
_LONG_NUMBER = re.compile(rf"\d{{{len(str(MAX_WIDTH)) + 1},}}")


class StringFormat:
    """The method `format` or `format_map` of a string, to be called with a budget."""

    def __init__(self, environment: Environment, text: str, *, is_map: bool) -> None:
        self._environment = environment
        self._text = text
        self._is_map = is_map

    def apply(self, budget: Budget, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """The formatted text; its fields see no attribute that the sandbox hides."""
        if self._is_map:
            (values,) = args
            args, kwargs = (), values
        return _Formatter(self._environment, budget).vformat(self._text, args, kwargs)


class _Formatter(SandboxedFormatter):
    def __init__(self, environment: Environment, budget: Budget) -> None:
        super().__init__(environment)
        self._budget = budget

    def format_field(self, value: Any, format_spec: str) -> str:
        if _LONG_NUMBER.search(format_spec):
            raise TemplateLimitError(f"a width of more than {MAX_WIDTH} in a format")
        self._budget.write(value)
        return str(self._budget.made(super().format_field(value, format_spec)))


def call_method(
    budget: Budget, text: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """The result of the method `name` of `text`, not yet counted."""
    if name not in _METHODS:
        raise SecurityError(f"a template may not call the method {name!r} of a string")
    if name == "join" and len(args) == 1:
        args = (list(args[0]),)  # an iterator can be read only once
    check_method(budget, text, name, args, kwargs)
    _count(budget, text, name, args)
    made = getattr(text, name)(*args, **kwargs)
    if isinstance(made, list | tuple):
        budget.made_parts(made)
    return made


def _count(budget: Budget, text: str, name: str, args: Sequence[Any]) -> None:
    """Counts what a method reads; what it makes is counted afterwards."""
    if name in ("startswith", "endswith"):
        for part in args[0] if args and isinstance(args[0], tuple) else args[:1]:
            budget.look_at(len(part) if isinstance(part, str) else 1)
            budget.visit(1)
    elif name in _FIND or name in ("replace", "split", "rsplit"):
        part = args[0] if args and isinstance(args[0], str) else ""
        budget.find(part, text)
        if name in ("replace", "count"):
            budget.change(len(text))
    elif name in _COPY:
        budget.look_at(len(text) * (1 + len(args[0]) if args and isinstance(args[0], str) else 1))
    elif name == "join":
        budget.visit(len(args[0]) if args and isinstance(args[0], list) else 1)
    else:
        budget.change(len(text))


def check_method(
    budget: Budget, text: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Refuses a method whose result would be too long. Wrong arguments are left to the method."""
    match name, [*args, *kwargs.values()]:
        case "center" | "ljust" | "rjust" | "zfill", [int(width), *_]:
            budget.check_length(width)
        case "expandtabs", [int(size), *_]:
            budget.check_length(len(text) + text.count("\t") * max(0, size))
        case "replace", [str(old), str(new), *_]:
            budget.check_length(len(text) + text.count(old) * len(new))
        case "join", [list(items)]:
            budget.visit(len(items))
            n_characters = sum(len(item) for item in items if isinstance(item, str))
            budget.check_length(n_characters + len(text) * len(items))
        case "split" | "rsplit", [str(separator), *_] if separator:
            budget.check_bytes(_BYTES_PER_PART * text.count(separator))
        case "split" | "rsplit" | "splitlines", _:
            budget.check_bytes(_BYTES_PER_PART * (len(text) // 2))


def check_percent(budget: Budget, text: str, values: Any) -> None:
    """Refuses `text % values` with fields that are too wide or not understood here."""
    length, n_fields, position = len(text), 0, 0
    while (position := text.find("%", position)) >= 0:
        field = _PERCENT.match(text, position)
        if field is None:
            raise TemplateLimitError(f"{text[position : position + 20]!r} is not a format field")
        length += sum(_width(field[name], values) for name in ("width", "precision"))
        n_fields += 1
        budget.step()
        position = field.end()
    for value in _written_values(values) if n_fields else ():
        budget.write(value)
    if isinstance(values, Mapping) and n_fields:
        # Each field may write the same value.
        length += n_fields * max((len(str(value)) for value in values.values()), default=0)
    budget.check_length(length)


def _written_values(values: Any) -> Iterable[Any]:
    if isinstance(values, Mapping):
        return values.values()
    return values if isinstance(values, tuple) else (values,)


def _width(number: str | None, values: Any) -> int:
    if number == "*":  # the width is one of the values
        numbers = values if isinstance(values, tuple) else (values,)
        width = max((abs(value) for value in numbers if isinstance(value, int)), default=0)
    else:
        width = int(number[: len(str(MAX_WIDTH)) + 1]) if number else 0
    if width > MAX_WIDTH:
        raise TemplateLimitError(f"a width of more than {MAX_WIDTH} in a format")
    return width
