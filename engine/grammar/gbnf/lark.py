"""From GBNF to a grammar in llguidance's Lark that accepts the same texts.

Owns how the parts are written. The library's own converter is not used: it leaves the division of a
text to a greedy lexer, does not let `.` match a line break and loses the zeros of `\\u00e9`.
"""

import json
import re
from collections.abc import Iterator

from .lexemes import Lexemes
from .positions import Budget
from .syntax import Choice, Class, Node, Reference, Repeat, Text, children, parse

_SIGNS = {(0, None): "*", (1, None): "+", (0, 1): "?"}
_NO_NAME = re.compile(r"[^a-z0-9]+")


def lark_of_gbnf(text: str, *, param: str | None) -> str:
    """Raises InvalidInputError for a text that is not GBNF, or is too large to convert."""
    budget = Budget(param)
    rules = parse(text, param=param)
    return "\n".join(_Writer(rules, Lexemes(rules, budget), budget).lines())


class _Writer:
    """Writes the rules that the root reaches, each as a rule, as a terminal, or as both."""

    def __init__(self, rules: dict[str, Node], lexemes: Lexemes, budget: Budget) -> None:
        self._rules = rules
        self._lexemes = lexemes
        self._budget = budget
        self._names = {name: f"r{i}_{_plain(name)}" for i, name in enumerate(rules)}
        self._written: set[str] = set()
        self._todo: list[tuple[str, Node, bool]] = []

    def lines(self) -> Iterator[str]:
        yield f"start: {self._of_rule(Reference('root'))}"
        while self._todo:
            name, node, is_terminal = self._todo.pop()
            yield f"{name}: {self._of_terminal(node) if is_terminal else self._of_rule(node)}"

    def _of_rule(self, node: Node) -> str:
        is_named = isinstance(node, Reference | Text | Class) or not children(node)
        if self._lexemes.has(node) and is_named:
            return self._of_terminal(node)
        if self._lexemes.has(node):
            return self._named(f"T{len(self._written)}", node, is_terminal=True)
        if isinstance(node, Reference):
            return self._named(self._names[node.name], self._rules[node.name], is_terminal=False)
        if isinstance(node, Text):
            return " ".join(map(self._of_rule, self._lexemes.characters(node)))
        return _composed(node, [self._of_rule(child) for child in children(node)])

    def _of_terminal(self, node: Node) -> str:
        self._budget.spend()
        if isinstance(node, Reference):
            name = self._names[node.name].upper()
            return self._named(name, self._rules[node.name], is_terminal=True)
        if isinstance(node, Text):
            return json.dumps(node.value, ensure_ascii=False)
        if isinstance(node, Class):
            ranges = (rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in node.ranges)
            return f"/[{''.join(ranges)}]/"
        return _composed(node, [self._of_terminal(child) for child in children(node)])

    def _named(self, name: str, node: Node, *, is_terminal: bool) -> str:
        if name not in self._written:
            self._written.add(name)
            self._todo.append((name, node, is_terminal))
        return name


def _composed(node: Node, parts: list[str]) -> str:
    if isinstance(node, Repeat):
        bounds = node.least, node.most
        sign = _SIGNS.get(bounds) or f"{{{node.least},{'' if node.most is None else node.most}}}"
        return f"({parts[0]}){sign}"
    if isinstance(node, Choice):
        return f"({' | '.join(parts)})"
    return f"({' '.join(parts)})" if parts else '""'


def _plain(name: str) -> str:
    return _NO_NAME.sub("_", name.lower()).strip("_") or "rule"
