"""Where templates run: jinja2's sandbox, with every operation of a template counted.

Owns the environment, and the marks in compiled templates that let no loop, macro or value escape
the budget. Knows no message and no file.
"""

import datetime
import operator
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from .budget import MAX_BITS, Budget, BudgetContext, TemplateLimitError
from .filters import filters, tests
from .strings import StringFormat, call_method, check_percent

_METHODS: Mapping[type, frozenset[str]] = {
    dict: frozenset(("copy", "get", "items", "keys", "values")),
    list: frozenset(("copy", "count", "index")),
    tuple: frozenset(("count", "index")),
    float: frozenset(("is_integer",)),
    LoopContext: frozenset(("changed", "cycle")),
    Cycler: frozenset(("next", "reset")),
}
_CALLED = (Macro, BlockReference, LoopContext, Joiner, Undefined)
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}
_BYTES_PER_ARGUMENT = 16
_MAX_TIME_PATTERN = 256

# Filters that only `_Marks` inserts: no template can name them, because their names hold a space.
_STEP, _PASS, _CONCAT, _SLICE, _MADE = "a step", "a pass", "a concat", "a slice", "a made"
_COMPARE, _INDEX = "a compare", "an index"


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The environment that Hugging Face templates expect. It shows nothing of this program."""

    context_class = BudgetContext
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"],
            finalize=_written,
        )
        self.filters = {
            **filters(),
            _STEP: _step, _PASS: _pass, _CONCAT: _concat, _SLICE: _slice, _MADE: _made,
            _COMPARE: _compare, _INDEX: _index,
        }  # fmt: skip
        self.tests = tests()
        del self.globals["lipsum"]
        self.globals |= {
            "dict": _new_dict,
            "namespace": TemplateNamespace,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        self._functions = tuple(self.globals.values())

    def compiled(self, tree: nodes.Template) -> jinja2.Template:
        """The compiled template of a syntax tree, after its marks are inserted."""
        _Marks().visit(tree)
        tree.set_environment(self)
        return jinja2.Template.from_code(self, self.compile(tree), self.make_globals(None))

    def call_binop(self, context: Context, sign: str, left: Any, right: Any) -> Any:
        """The result of an operator, after a check of how large it will be."""
        budget = _budget(context)
        if sign == "+":
            if isinstance(left, str) and isinstance(right, str):
                budget.check_length(len(left) + len(right))
        elif sign != "-":
            _check_operator(budget, sign, left, right)
        return budget.made(self.binop_table[sign](left, right))

    def wrap_str_format(self, value: Any) -> Any:
        """Wraps the formatting methods of strings, which `call` then calls with a budget."""
        text = getattr(value, "__self__", None)
        name = getattr(value, "__name__", None)
        if not isinstance(text, str) or name not in ("format", "format_map"):
            return None
        return StringFormat(self, str(text), is_map=name == "format_map")

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls what a template calls, if it is listed here."""
        budget = _budget(__context)
        budget.step(_BYTES_PER_ARGUMENT * (len(args) + len(kwargs)))
        for private in ("_loop_vars", "_block_vars"):  # only for functions that read the context
            kwargs.pop(private, None)
        if isinstance(__obj, StringFormat):
            return __obj.apply(budget, args, kwargs)
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            return budget.made(call_method(budget, owner, __obj.__name__, args, kwargs))
        if owner is None:
            allowed = isinstance(__obj, _CALLED) or __obj in __self._functions
        else:
            allowed = __obj.__name__ in _METHODS.get(type(owner), ())
        if not allowed:
            raise SecurityError(
                f"a template may not call {type(__obj).__name__!r} objects like this"
            )
        if owner is not None:
            _count_method(budget, owner, __obj.__name__, args)
        return budget.made(__context.call(__obj, *args, **kwargs))


class TemplateNamespace(Namespace):
    """Variables that outlive a loop. Its text form does not show their values."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, attributes = args[0], dict(*args[1:], **kwargs)
        for name in attributes:
            _check_attribute(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


def _check_attribute(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace may not have the attribute {name!r}")


class _Marks(NodeTransformer):
    """Inserts a step into each body that may run often, and marks expressions that make values
    without a call.
    """

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        if node.test is not None:
            node.test = nodes.And(_marked(nodes.Const(True), _PASS), node.test)
        return _stepping(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        return _stepping(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        return _stepping(node)

    def visit_Block(self, node: nodes.Block) -> nodes.Node:
        self.generic_visit(node)
        return _stepping(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _marked(node.nodes[0], _CONCAT, *node.nodes[1:])

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            bounds = (node.arg.start, node.arg.stop, node.arg.step)
            return _marked(node.node, _SLICE, *(bound or nodes.Const(None) for bound in bounds))
        if not isinstance(node.arg, nodes.Const):
            node.arg = _marked(node.arg, _INDEX)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        if all(_is_quick(operand) for operand in node.ops):
            return node
        operands: list[nodes.Expr] = []
        for operand in node.ops:
            operands += (nodes.Const(operand.op), operand.expr)
        return _marked(node.expr, _COMPARE, *operands)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return self._made(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return self._made(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        return self._made(node) if node.ctx == "load" else node

    def _made(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return node if _is_constant(node) else _marked(node, _MADE)


def _marked(node: nodes.Expr, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _stepping(node: Any) -> nodes.Node:
    """Inserts a step at the beginning of a body, with the bytes of the body's own text."""
    written = sum(
        len(text.data) for part in node.body for text in part.find_all(nodes.TemplateData)
    )
    node.body.insert(0, nodes.ExprStmt(_marked(nodes.Const(written), _STEP), lineno=node.lineno))
    return node  # type: ignore[no-any-return]


def _is_constant(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Const):
        return True
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(map(_is_constant, node.items))
    return isinstance(node, nodes.Dict) and not node.items


def _is_quick(operand: nodes.Operand) -> bool:
    """Whether a comparison with it takes no longer than reading it."""
    if operand.op in ("in", "notin"):
        return isinstance(operand.expr, nodes.List | nodes.Tuple) and _is_constant(operand.expr)
    return isinstance(operand.expr, nodes.Const)


def _count_method(budget: Budget, owner: Any, name: str, args: tuple[Any, ...]) -> None:
    """Counts methods that compare their arguments with the items of a value; not of strings."""
    if name in ("count", "index"):
        budget.contain(args[0] if args else None, owner)
    elif name in ("get", "changed"):
        for arg in args:
            if isinstance(arg, str):
                budget.look_at(len(arg))
            else:
                budget.look_at(budget.length_of(arg))
    elif name == "copy":
        budget.visit(len(owner))


def _check_operator(budget: Budget, sign: str, left: Any, right: Any) -> None:
    match sign, left, right:
        case "%", str(), _:
            check_percent(budget, left, right)
        case ("*", str(text), int(n)) | ("*", int(n), str(text)):
            budget.check_length(len(text) * max(0, n))
        case ("*", list() | tuple() as items, int(n)) | ("*", int(n), list() | tuple() as items):
            budget.check_length(budget.length_of(items) * max(0, n))
        case "**", int(), int() if left.bit_length() * abs(right) > MAX_BITS:
            raise TemplateLimitError(f"a number of more than {MAX_BITS} bits")
        case _, int(), int() if max(left.bit_length(), right.bit_length()) > MAX_BITS:
            raise TemplateLimitError(f"a number of more than {MAX_BITS} bits")


@pass_context
def _written(context: BudgetContext, value: Any) -> str:
    text = value if isinstance(value, str) else _text(context.budget, value)
    context.budget.made(text)
    return text


def _text(budget: Budget, value: Any) -> str:
    if isinstance(value, str):
        return value
    budget.write(value)
    return str(value)


@pass_context
def _step(context: BudgetContext, n_bytes: int) -> None:
    context.budget.step(n_bytes)


@pass_context
def _pass(context: BudgetContext, value: Any) -> Any:
    context.budget.step()
    return value


@pass_context
def _made(context: BudgetContext, value: Any) -> Any:
    return context.budget.made(value)


@pass_context
def _concat(context: BudgetContext, *values: Any) -> Any:
    texts = [_text(context.budget, value) for value in values]
    context.budget.check_length(sum(map(len, texts)))
    return context.budget.made("".join(texts))


@pass_context
def _slice(context: BudgetContext, value: Any, start: Any, stop: Any, step: Any) -> Any:
    return context.budget.made(value[start:stop:step])


@pass_context
def _index(context: BudgetContext, key: Any) -> Any:
    context.budget.step()
    if isinstance(key, tuple):  # its hash is computed each time
        context.budget.look_at(context.budget.length_of(key))
    return key


@pass_context
def _compare(context: BudgetContext, left: Any, *operands: Any) -> Any:
    """A chain of comparisons; `operands` are an operator, a value, and so on."""
    result: Any = True
    for i in range(0, len(operands), 2):
        name, right = operands[i], operands[i + 1]
        context.budget.step()
        if name in ("in", "notin"):
            context.budget.contain(left, right)
        else:
            context.budget.compare(left, right)
        result = _OPERATORS[name](left, right)
        if not result:
            break
        left = right
    return result


class _GenerationBlock(Extension):
    """{% generation %} marks the assistant's text for training; here it is only its content."""

    tags = {"generation"}  # noqa: RUF012 - the shape that jinja2 declares

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _budget(context: Context) -> Budget:
    assert isinstance(context, BudgetContext)
    return context.budget


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    if len(pattern) > _MAX_TIME_PATTERN:
        raise TemplateLimitError(f"a time pattern of more than {_MAX_TIME_PATTERN} characters")
    return datetime.datetime.now().astimezone().strftime(pattern)
