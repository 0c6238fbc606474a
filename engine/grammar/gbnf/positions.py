"""A GBNF tree as positions: which may be first, which last, and which may follow which.

Owns Glushkov's automaton, and the budget for work on grammars. Does not know what a position stands
for.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import reduce

from ...errors import InvalidInputError
from .syntax import Choice, Node, Repeat, Sequence, children

# Each takes one or a few microseconds.
MAX_STEPS = 100_000
MAX_DEPTH = 300


@dataclass
class Budget:
    """How much work may still be spent on a grammar."""

    param: str | None
    steps: int = MAX_STEPS

    def spend(self, steps: int = 1) -> None:
        """Raises InvalidInputError if the budget is exhausted."""
        self.steps -= steps
        if self.steps < 0:
            raise InvalidInputError(
                "the GBNF grammar is too large to convert; a Lark grammar needs no conversion",
                param=self.param,
            )

    def check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise InvalidInputError(
                f"the GBNF grammar is too deep: at most {MAX_DEPTH} levels of rules are allowed",
                param=self.param,
            )


@dataclass(frozen=True, slots=True)
class Shape:
    """The first and last positions of a node, as bit masks."""

    can_be_empty: bool
    first: int
    last: int


EMPTY = Shape(True, 0, 0)
_NOTHING = Shape(False, 0, 0)

Leaf = tuple[Node, bool]
"""What a position stands for, and whether it can be empty."""


class Positions:
    """The positions of any number of trees."""

    def __init__(self, expand: Callable[[Node], Items[Leaf] | Node | None], budget: Budget) -> None:
        """`expand` returns the positions of a node in their order, or another node to use instead,
        or None if its children are to be expanded.
        """
        self._expand = expand
        self._budget = budget
        self.labels: list[Node] = []
        self.follow: list[int] = []

    def add(self, node: Node, depth: int = 0) -> Shape:
        self._budget.spend()
        self._budget.check_depth(depth)
        found = self._expand(node)
        if isinstance(found, list):
            return reduce(self._joined, [self._position(*leaf) for leaf in found], EMPTY)
        if found is not None:
            assert not isinstance(found, Items)
            return self.add(found, depth + 1)
        shapes = [self.add(child, depth + 1) for child in children(node)]
        if isinstance(node, Sequence):
            return reduce(self._joined, shapes, EMPTY)
        if isinstance(node, Choice):
            return reduce(_either, shapes, _NOTHING)
        assert isinstance(node, Repeat)
        (inner,) = shapes
        if node.most is None or node.most > 1:
            self._connect(inner.last, inner.first)
        return Shape(inner.can_be_empty or not node.least, inner.first, inner.last)

    def _position(self, label: Node, can_be_empty: bool) -> Shape:
        self._budget.spend()
        self.labels.append(label)
        self.follow.append(0)
        bit = 1 << len(self.labels) - 1
        return Shape(can_be_empty, bit, bit)

    def _joined(self, one: Shape, other: Shape) -> Shape:
        self._connect(one.last, other.first)
        return Shape(
            one.can_be_empty and other.can_be_empty,
            one.first | (other.first if one.can_be_empty else 0),
            other.last | (one.last if other.can_be_empty else 0),
        )

    def _connect(self, last: int, first: int) -> None:
        for position in bits(last):
            self._budget.spend()
            self.follow[position] |= first


def bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _either(one: Shape, other: Shape) -> Shape:
    return Shape(
        one.can_be_empty or other.can_be_empty, one.first | other.first, one.last | other.last
    )
