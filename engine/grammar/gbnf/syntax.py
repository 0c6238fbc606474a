"""Parses GBNF, llama.cpp's grammars, into a tree, by llama.cpp's own rules.

Owns the syntax and its error messages. Knows no other language and no tokens.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from ...errors import InvalidInputError

MAX_DEPTH = 100  # of parentheses
MAX_REPETITIONS = 2_000  # as in llama.cpp

_RULE_START = re.compile(r"^[ \t]*[A-Za-z0-9_-]+[ \t]*::=", re.MULTILINE)
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = re.compile(r"[0-9]{1,9}")
_ESCAPE = re.compile(r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}")
_ESCAPED = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_REPEATED = {"*": (0, None), "+": (1, None), "?": (0, 1)}

_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)

Ranges = tuple[tuple[int, int], ...]
"""Code points, the first and last of each range; sorted, not adjacent, no surrogates."""


# Nodes are compared by identity; a tree has each text, class and reference once.
@dataclass(frozen=True, slots=True, eq=False)
class Text:
    value: str


@dataclass(frozen=True, slots=True, eq=False)
class Class:
    ranges: Ranges


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    part: "Node"
    least: int
    most: int | None


Node = Text | Class | Reference | Sequence | Choice | Repeat


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Sequence | Choice):
        return node.parts
    return (node.part,) if isinstance(node, Repeat) else ()


def is_gbnf(text: str) -> bool:
    """Whether a line begins a rule of GBNF. Lark never has `::=` there."""
    return _RULE_START.search(text) is not None


def parse(text: str, *, param: str | None) -> dict[str, Node]:
    """The rules by name; the last one of a name wins. Raises InvalidInputError."""
    return _Parser(text, param).rules()


@dataclass
class _Parser:
    text: str
    param: str | None
    at: int = 0
    _leaves: dict[object, Node] = field(default_factory=dict)
    _referred: dict[str, int] = field(default_factory=dict)
    """Names of rules, and the place where each was first used."""

    def rules(self) -> dict[str, Node]:
        found: dict[str, Node] = {}
        self._skip(_SPACE_AND_LINES)
        while self.at < len(self.text):
            name = self._name()
            self._skip(_SPACE)
            self._expect("::=")
            self._skip(_SPACE_AND_LINES)
            found[name] = self._choice(depth=0)
            if self.at < len(self.text) and self.text[self.at] not in "\r\n":
                raise self.error(f"unexpected {self.text[self.at]!r}")
            self._skip(_SPACE_AND_LINES)
        for name, at in self._referred.items():
            if name not in found:
                raise self.error(f"there is no rule {name[:100]!r}", at=at)
        if "root" not in found:
            raise self.error("there is no rule 'root'; it must describe the whole text")
        return found

    def error(self, reason: str, *, at: int | None = None) -> InvalidInputError:
        before = self.text[: self.at if at is None else at]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return InvalidInputError(
            f"GBNF grammar, line {line}, column {column}: {reason}", param=self.param
        )

    def _choice(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} parentheses are open")
        alternatives = [self._sequence(depth)]
        while self._takes("|"):
            self._skip(_SPACE_AND_LINES)
            alternatives.append(self._sequence(depth))
        return alternatives[0] if len(alternatives) == 1 else Choice(tuple(alternatives))

    def _sequence(self, depth: int) -> Node:
        space = _SPACE_AND_LINES if depth else _SPACE
        parts: list[Node] = []
        while True:
            sign = self.text[self.at : self.at + 1]
            if sign in _REPEATED or sign == "{":
                if not parts:
                    raise self.error(f"{sign} has nothing before it")
                parts[-1] = self._repeated(parts[-1])
            else:
                part = self._part(sign, depth)
                if part is None:
                    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))
                parts.append(part)
            self._skip(space)

    def _part(self, sign: str, depth: int) -> Node | None:
        if sign == '"':
            return self._literal()
        if sign == "[":
            return self._class()
        if sign == ".":
            self.at += 1
            return self._class_of(((0, _LAST),))
        if sign == "(":
            self.at += 1
            self._skip(_SPACE_AND_LINES)
            inner = self._choice(depth + 1)
            self._expect(")")
            return inner
        if sign in ("<", "!"):
            raise self.error("tokens by name are not supported in GBNF; use a Lark grammar")
        if not _NAME.match(self.text, self.at):
            return None
        at, name = self.at, self._name()
        self._referred.setdefault(name, at)
        return self._leaves.setdefault(("rule", name), Reference(name))

    def _literal(self) -> Node:
        start = self.at
        characters: list[str] = []
        self.at += 1
        while not self._takes('"'):
            characters.append(self._character('"', start))
        value = "".join(characters)
        if not value:
            return Sequence(())
        return self._leaves.setdefault(("text", value), Text(value))

    def _class(self) -> Node:
        start = self.at
        self.at += 1
        negated = self._takes("^")
        ranges: list[tuple[int, int]] = []
        while not self._takes("]"):
            first = last = ord(self._character("]", start))
            if (
                self.text[self.at : self.at + 1] == "-"
                and self.text[self.at + 1 : self.at + 2] != "]"
            ):
                self.at += 1
                last = ord(self._character("]", start))
            if last < first:
                raise self.error("the range ends before it begins")
            ranges.append((first, last))
        merged = _merged(ranges)
        found = _clipped(_others(merged) if negated else merged)
        if not found:
            raise self.error("the character class matches nothing", at=start)
        return self._class_of(found)

    def _class_of(self, ranges: Ranges) -> Node:
        ranges = _clipped(ranges)
        return self._leaves.setdefault(("class", ranges), Class(ranges))

    def _character(self, closing: str, start: int) -> str:
        if self.at >= len(self.text):
            raise self.error(f"the closing {closing} is missing", at=start)
        at = self.at
        self.at += 1
        if self.text[at] != "\\":
            return self.text[at]
        escape = _ESCAPE.match(self.text, self.at)
        if escape:
            self.at = escape.end()
            code = int(escape[0][1:], 16)
            if code > _LAST or _SURROGATES[0] <= code <= _SURROGATES[1]:
                raise self.error(f"\\{escape[0]} is not a valid character", at=at)
            return chr(code)
        sign = self.text[self.at : self.at + 1]
        self.at += 1
        if sign not in _ESCAPED:
            raise self.error(f"unknown escape \\{sign}", at=at)
        return _ESCAPED[sign]

    def _repeated(self, part: Node) -> Node:
        start, sign = self.at, self.text[self.at]
        self.at += 1
        if sign in _REPEATED:
            return Repeat(part, *_REPEATED[sign])
        self._skip(_SPACE_AND_LINES)
        least = self._number()
        most: int | None = least
        self._skip(_SPACE_AND_LINES)
        if self._takes(","):
            self._skip(_SPACE_AND_LINES)
            most = self._number() if _NUMBER.match(self.text, self.at) else None
            self._skip(_SPACE_AND_LINES)
        self._expect("}")
        if max(least, most or 0) > MAX_REPETITIONS:
            raise self.error(f"at most {MAX_REPETITIONS} repetitions are allowed", at=start)
        if most is not None and most < least:
            raise self.error("the largest count is below the smallest", at=start)
        return Sequence(()) if most == 0 else Repeat(part, least, most)

    def _number(self) -> int:
        found = _NUMBER.match(self.text, self.at)
        if not found:
            raise self.error("expected a number")
        self.at = found.end()
        return int(found[0])

    def _name(self) -> str:
        found = _NAME.match(self.text, self.at)
        if not found:
            raise self.error("expected the name of a rule")
        self.at = found.end()
        return found[0]

    def _takes(self, sign: str) -> bool:
        taken = self.text.startswith(sign, self.at)
        self.at += len(sign) if taken else 0
        return taken

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise self.error(f"expected {sign}")

    def _skip(self, space: re.Pattern[str]) -> None:
        found = space.match(self.text, self.at)
        self.at = found.end() if found else self.at


def meet(one: Ranges, other: Ranges) -> bool:
    """Whether a code point is in both."""
    starts = [first for first, _ in other]
    for first, last in one:
        at = bisect_right(starts, last) - 1
        if at >= 0 and other[at][1] >= first:
            return True
    return False


def _merged(ranges: list[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _others(ranges: Ranges) -> Ranges:
    """All code points that are in no range."""
    bounds = [-1, *(bound for pair in ranges for bound in pair), _LAST + 1]
    gaps = zip(bounds[::2], bounds[1::2], strict=True)
    return tuple((before + 1, behind - 1) for before, behind in gaps if before + 1 < behind)


def _clipped(ranges: Ranges) -> Ranges:
    """Without surrogates, which are not characters."""
    clipped: list[tuple[int, int]] = []
    for first, last in ranges:
        clipped += [(first, min(last, 0xD7FF)), (max(first, 0xE000), last)]
    return tuple(dict.fromkeys(pair for pair in clipped if pair[0] <= pair[1]))
