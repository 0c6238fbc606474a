"""The filters and tests of templates, each within the budget of its rendering.

Owns which of jinja2's filters exist, and what is checked before one of them makes something long.
Filters that only a web page needs, and the random one, are left out.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from types import GeneratorType
from typing import Any

from jinja2 import pass_context
from jinja2.filters import FILTERS
from jinja2.runtime import Undefined
from jinja2.tests import TESTS

from .budget import MAX_BITS, Budget, BudgetContext, TemplateLimitError, bytes_of
from .strings import check_method, check_percent

MAX_INDENT = 64
"""Indentation of JSON."""
MAX_PATH = 256
"""Characters of an attribute's name, which may be a path."""

_LEFT_OUT = frozenset({
    "filesizeformat", "forceescape", "pprint", "random", "striptags", "tojson", "urlencode",
    "urlize", "wordwrap", "xmlattr",
})  # fmt: skip
_READ_ALL = frozenset({
    "batch", "dictsort", "groupby", "join", "list", "map", "max", "min", "reject", "rejectattr",
    "reverse", "select", "selectattr", "slice", "sort", "sum", "unique",
})  # fmt: skip
# Which argument, counted after the value, is the name of an attribute.
_ATTRIBUTE_ARGUMENT = {
    "groupby": 0, "join": 1, "map": 0, "max": 1, "min": 1, "rejectattr": 0, "selectattr": 0,
    "sort": 2, "sum": 0, "unique": 1,
}  # fmt: skip
# These compare their items with each other, mostly in copies without case.
_SORTED = frozenset({"dictsort", "groupby", "max", "min", "sort", "unique"})
# These read no more of a text than they copy.
_QUICK = frozenset({
    "attr", "count", "d", "default", "first", "items", "last", "length", "reverse", "safe",
    "string", "trim", "truncate",
})  # fmt: skip
_WRITE = frozenset({"string", "safe", "escape", "e", "replace", "upper", "lower", "trim"})
_BYTES_PER_ITEM = 16
_BYTES_PER_UNDEFINED = 128
_BYTES_PER_PART = 64
_LONGEST_ESCAPE = 5
_MAX_COUNT = 100_000
_MAX_DIGITS = 4_300

Function = Any
"""jinja2 calls it with arguments that templates choose."""


def filters() -> dict[str, Function]:
    """The value of `Environment.filters`."""
    found = {name: _bounded(name, f) for name, f in FILTERS.items() if name not in _LEFT_OUT}
    return {**found, "tojson": _to_json}


def tests() -> dict[str, Function]:
    """The value of `Environment.tests`."""
    return {name: _counted(name, function) for name, function in TESTS.items()}


def _bounded(name: str, function: Function) -> Function:
    takes = _taken_first(function)
    reads_all = name in _READ_ALL

    @pass_context
    @wraps(function, assigned=())
    def bounded(context: BudgetContext, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = context.budget
        budget.step()
        if reads_all:
            value = _counted_items(budget, name, value, args, kwargs)
        if isinstance(value, str):
            if name not in _QUICK:
                budget.change(len(value))
        elif name in _WRITE:
            budget.write(value)
        _check(budget, name, value, [*args, *kwargs.values()])
        if name == "format":
            check_percent(budget, str(value), kwargs or args)
        made = function(*takes(context), value, *args, **kwargs)
        if isinstance(made, GeneratorType):
            budget.step(_BYTES_PER_ITEM)
            return _each_counted(budget, made)
        return budget.made(made)

    return bounded


def _each_counted(budget: Budget, items: Iterator[Any]) -> Iterator[Any]:
    """The items of a lazy filter, counted one by one as they are read."""
    for item in items:
        if isinstance(item, list | tuple):
            budget.made(item)
        else:
            budget.step(_BYTES_PER_UNDEFINED if isinstance(item, Undefined) else 0)
        yield item


def _counted(name: str, function: Function) -> Function:
    takes = _taken_first(function)
    is_search, reads_text = name == "in", name in ("lower", "upper")

    @pass_context
    def counted(context: BudgetContext, /, *args: Any) -> Any:
        budget = context.budget
        budget.step()
        if len(args) == 2:
            (budget.contain if is_search else budget.compare)(*args)
        elif reads_text and isinstance(args[0], str):
            budget.change(len(args[0]))
        return function(*takes(context), *args)

    return counted


def _taken_first(function: Function) -> Callable[[BudgetContext], tuple[Any, ...]]:
    """The arguments that jinja2 passes to `function` before the value."""
    wanted = getattr(getattr(function, "jinja_pass_arg", None), "name", None)
    match wanted:
        case "context":
            return lambda context: (context,)
        case "eval_context":
            return lambda context: (context.eval_ctx,)
        case "environment":
            return lambda context: (context.environment,)
        case _:
            return lambda context: ()


def _counted_items(
    budget: Budget, name: str, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Counts the items that the filter will read. Returns `value`, an iterator as a list."""
    index = _ATTRIBUTE_ARGUMENT.get(name, len(args))
    attribute = kwargs.get("attribute", args[index] if index < len(args) else None)
    if isinstance(attribute, str) and len(attribute) > MAX_PATH:
        raise TemplateLimitError(f"an attribute of more than {MAX_PATH} characters")
    if name in _SORTED or name == "join":
        if name == "join" or not hasattr(value, "__len__"):
            value = list(value)
        length = budget.length_of(value)
        if name in _SORTED:
            n_rounds = max(1, len(value).bit_length())
            budget.visit(len(value) * n_rounds)
            budget.look_at(length * n_rounds)
            budget.change(length)
            budget.step(4 * length)
    if hasattr(value, "__len__"):
        budget.check_bytes(4 * _BYTES_PER_ITEM * len(value))
        budget.visit(len(value))
        budget.step(_BYTES_PER_ITEM * len(value))
    return value


def _check(budget: Budget, name: str, value: Any, arguments: list[Any]) -> None:
    """Refuses a result that would be too long. Wrong arguments are left to the filter."""
    match name, value, arguments:
        case "center", str(), _:
            check_method(budget, value, name, arguments, {})
        case "replace", _, _:
            check_method(budget, str(value), name, arguments, {})
        case "title", str(), _:  # it splits the text, and changes each part twice
            budget.step(2 * _BYTES_PER_PART * len(value))
        case "wordcount", str(), _:
            budget.step(_BYTES_PER_PART * (len(value) // 2))
        case "escape" | "e" | "forceescape", str(), _:
            budget.check_length(_LONGEST_ESCAPE * len(value))
        case "indent", str(), _:
            _check_indent(budget, value, arguments)
        case "join", list(items), _:
            separator = next((text for text in arguments if isinstance(text, str)), "")
            check_method(budget, separator, name, [items], {})
        case "batch" | "slice", _, [int(count), *_] if count > _MAX_COUNT:
            raise TemplateLimitError(f"{name} with more than {_MAX_COUNT}")
        case "round", int(number), _ if number.bit_length() > MAX_BITS:
            raise TemplateLimitError(f"a number of more than {MAX_BITS} bits")
        case "round", _, [int(precision), *_] if abs(precision) > _MAX_DIGITS:
            raise TemplateLimitError(f"round with more than {_MAX_DIGITS} digits")
        case "int", str(), _ if len(value) > _MAX_DIGITS:
            raise TemplateLimitError(f"a number of more than {_MAX_DIGITS} digits")
        case "sum", _, _ if any(isinstance(start, list | tuple) for start in arguments):
            raise TemplateLimitError("sum adds numbers only")


def _check_indent(budget: Budget, text: str, arguments: list[Any]) -> None:
    budget.check_bytes(2 * _BYTES_PER_PART * (1 + len(text) // 2))
    n_lines = 1 + len(text.splitlines())
    width = next((width for width in arguments if isinstance(width, int | str)), 4)
    one = len(width) if isinstance(width, str) else max(0, width)
    budget.check_length(len(text) + one * n_lines)
    budget.visit(2 * n_lines)
    budget.step(2 * (_BYTES_PER_PART + one) * n_lines + bytes_of(text))


@pass_context
def _to_json(
    context: BudgetContext,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> Any:
    # jinja2's own filter escapes HTML, but a prompt is not HTML.
    budget = context.budget
    if (len(indent) if isinstance(indent, str) else indent or 0) > MAX_INDENT:
        raise TemplateLimitError(f"JSON indented by more than {MAX_INDENT}")
    if any(len(text) > MAX_INDENT for text in separators or ()):
        raise TemplateLimitError(f"JSON with separators of more than {MAX_INDENT} characters")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if indent is None:
        budget.write(value)
        return budget.made(encoder.encode(value))
    parts = []
    for part in encoder.iterencode(value):
        budget.change(len(part))
        budget.step(_BYTES_PER_PART + bytes_of(part))
        parts.append(part)
    return budget.made("".join(parts))
