"""Which parts of a GBNF grammar llguidance's lexer may read as one piece.

The lexer is greedy: a terminal continues for as long as any terminal that is possible there could.
GBNF has no such rule: `[a-z]* "x"` accepts "ax". So a part is a terminal only if nothing that may
follow it could also continue it, or another terminal that is possible there. Otherwise the one that
would continue is divided into its parts, down to single characters, which are exact but slower.

Owns that question. When in doubt it divides: repetitions count as unbounded, and whatever follows a
rule somewhere may follow it anywhere.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from .positions import Budget, Leaf, Positions, Shape, bits
from .syntax import Choice, Class, Node, Reference, Repeat, Text, children, meet

_Test = Callable[[Node], bool]


@dataclass(frozen=True, slots=True)
class _Relation:
    """How two lexemes overlap."""

    meets: bool
    """Whether some text matches both."""
    after: frozenset[Class]
    """The letters that may follow a text of the first within the second."""


class Lexemes:
    """The division of a grammar into terminals and rules."""

    def __init__(self, rules: Mapping[str, Node], budget: Budget) -> None:
        self._rules = rules
        self._budget = budget
        self._flat: set[str] = set()
        self._empty: set[str] = set()
        self._settle(self._flat, lambda node: self._all_in(self._flat, node))
        self._settle(self._empty, self._can_be_empty)
        self._opened: set[Node] = set()
        self._characters: dict[str, Node] = {}
        self._classes: dict[str, Class] = {}
        self._letters = Positions(self._letters_of, budget)
        self._shapes: dict[Node, Shape] = {}
        self._relations: dict[tuple[Node, Node], _Relation] = {}
        # A grammar without recursion is one terminal, which is matched as a whole.
        while "root" not in self._flat and (conflicts := self._conflicts()):
            self._opened |= conflicts

    def has(self, node: Node) -> bool:
        """Whether the whole node is a terminal."""
        return node not in self._opened and self._all_in(self._flat, node)

    def characters(self, text: Text) -> list[Node]:
        return [self._characters.setdefault(one, Text(one)) for one in text.value]

    def _settle(self, found: set[str], holds: _Test) -> None:
        """Adds the rules for which `holds` follows from those already found."""
        before = -1
        while len(found) > before:
            before = len(found)
            for name, node in self._rules.items():
                if name not in found and holds(node):
                    found.add(name)

    def _all_in(self, names: set[str], node: Node) -> bool:
        self._budget.spend()
        if isinstance(node, Reference):
            return node.name in names
        return all(self._all_in(names, child) for child in children(node))

    def _can_be_empty(self, node: Node) -> bool:
        self._budget.spend()
        if isinstance(node, Reference):
            return node.name in self._empty
        if isinstance(node, Choice):
            return any(map(self._can_be_empty, node.parts))
        if isinstance(node, Repeat):
            return not node.least or self._can_be_empty(node.part)
        return not isinstance(node, Text | Class) and all(map(self._can_be_empty, children(node)))

    def _letters_of(self, node: Node) -> list[Leaf] | Node | None:
        if isinstance(node, Text):
            return [(self._class(one), False) for one in node.value]
        if isinstance(node, Class):
            return [(node, False)]
        return self._rules[node.name] if isinstance(node, Reference) else None

    def _class(self, character: str) -> Class:
        code = ord(character)
        return self._classes.setdefault(character, Class(((code, code),)))

    def _pieces_of(self, node: Node) -> list[Leaf] | None:
        """The pieces of a rule: terminals, and references to other rules."""
        if self.has(node):
            return [(node, self._can_be_empty(node))] if self._shape(node).first else []
        if isinstance(node, Text):
            return [(one, False) for one in self.characters(node)]
        return [(node, node.name in self._empty)] if isinstance(node, Reference) else None

    def _shape(self, lexeme: Node) -> Shape:
        if lexeme not in self._shapes:
            self._shapes[lexeme] = self._letters.add(lexeme)
        return self._shapes[lexeme]

    def _conflicts(self) -> set[Node]:
        """Terminals that would continue where the grammar may need them, or others, to end."""
        pieces = Positions(self._pieces_of, self._budget)
        following = _Following(self._rules, pieces, self.has, self._budget)
        labels, conflicts = pieces.labels, set[Node]()
        compared = [0] * len(labels)
        todo = [following.start]
        while todo:
            group = todo.pop()
            for one in bits(group):
                fresh = group & ~compared[one]
                compared[one] |= fresh
                behind = following.behind[one]
                for other in bits(fresh):
                    relation = self._relation(labels[one], labels[other])
                    if relation.meets:
                        todo.append(behind | following.behind[other])
                    if relation.after and self._begins(labels, behind, relation.after):
                        conflicts.add(labels[other])
        return conflicts

    def _begins(self, labels: list[Node], lexemes: int, letters: frozenset[Class]) -> bool:
        """Whether one of the lexemes may begin with one of the letters."""
        firsts = {
            self._letters.labels[letter]
            for lexeme in bits(lexemes)
            for letter in bits(self._shape(labels[lexeme]).first)
        }
        self._budget.spend(1 + len(firsts) * len(letters))
        return any(_meet(first, letter) for first in firsts for letter in letters)

    def _relation(self, one: Node, other: Node) -> _Relation:
        self._budget.spend()
        if (one, other) not in self._relations:
            self._relations[one, other] = self._compared(self._shape(one), self._shape(other))
        return self._relations[one, other]

    def _compared(self, one: Shape, other: Shape) -> _Relation:
        labels, follow = self._letters.labels, self._letters.follow
        meets, after = False, 0
        seen = set(self._alike(one.first, other.first))
        todo = list(seen)
        while todo:
            here, there = todo.pop()
            if one.last >> here & 1:
                after |= follow[there]
                meets = meets or bool(other.last >> there & 1)
            fresh = set(self._alike(follow[here], follow[there])) - seen
            seen |= fresh
            todo += fresh
        return _Relation(meets, frozenset(_as_class(labels[letter]) for letter in bits(after)))

    def _alike(self, one: int, other: int) -> Iterator[tuple[int, int]]:
        labels = self._letters.labels
        for here in bits(one):
            for there in bits(other):
                self._budget.spend()
                if _meet(labels[here], labels[there]):
                    yield here, there


class _Following:
    """What may follow each piece of the rules, whichever rule it is in."""

    def __init__(
        self, rules: Mapping[str, Node], pieces: Positions, is_lexeme: _Test, budget: Budget
    ) -> None:
        self._pieces = pieces
        self._is_lexeme = is_lexeme
        shapes = {"root": pieces.add(rules["root"])}
        owners = ["root"] * len(pieces.labels)
        for label in pieces.labels:  # grows in the loop
            name = self._rule(label)
            if name is not None and name not in shapes:
                shapes[name] = pieces.add(rules[name])
                owners += [name] * (len(pieces.labels) - len(owners))
        budget.spend(len(owners))
        self._starts = dict.fromkeys(shapes, 0)
        while self._grow(
            self._starts,
            ((name, self._begin(shape.first)) for name, shape in shapes.items()),
            budget,
        ):
            pass
        near = [self._begin(mask) for mask in pieces.follow]
        after = dict.fromkeys(shapes, 0)

        def behind(at: int) -> int:
            is_last = shapes[owners[at]].last >> at & 1
            return near[at] | (after[owners[at]] if is_last else 0)

        calls = [(name, at) for at in range(len(owners)) if (name := self._rule_at(at)) is not None]
        while self._grow(after, ((name, behind(at)) for name, at in calls), budget):
            pass
        self.start = self._starts["root"]
        self.behind = [behind(at) for at in range(len(owners))]

    def _grow(self, sets: dict[str, int], found: Iterator[tuple[str, int]], budget: Budget) -> bool:
        has_grown = False
        for name, mask in found:
            budget.spend()
            has_grown = has_grown or bool(mask & ~sets[name])
            sets[name] |= mask
        return has_grown

    def _begin(self, pieces: int) -> int:
        """The lexemes that these pieces may begin with."""
        found = 0
        for at in bits(pieces):
            name = self._rule_at(at)
            found |= 1 << at if name is None else self._starts[name]
        return found

    def _rule_at(self, at: int) -> str | None:
        return self._rule(self._pieces.labels[at])

    def _rule(self, label: Node) -> str | None:
        is_rule = isinstance(label, Reference) and not self._is_lexeme(label)
        return label.name if is_rule and isinstance(label, Reference) else None


def _meet(one: Node, other: Node) -> bool:
    return one is other or meet(_as_class(one).ranges, _as_class(other).ranges)


def _as_class(letter: Node) -> Class:
    assert isinstance(letter, Class)
    return letter
