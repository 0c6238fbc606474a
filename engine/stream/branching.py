"""Several completions of one place, whose passes are one.

Owns who needs a row of the next pass, and that each branch gets its own. Knows no text and not what
the branches are for: each is a completion like any other.
"""

from collections.abc import Callable, Sequence

from ..model.branches import Branches, BranchRow
from ..sampling.logits import Logits, Rows
from .completion import Completion
from .options import Live
from .result import StreamResult
from .snapshot import Snapshot


class BranchSequence:
    """The tokens of one branch, for `Decoding`: its rows come one at a time."""

    room = 1

    def __init__(
        self, rows: "SharedRows", branch: int, token_ids: Sequence[int], first: Logits | None
    ) -> None:
        """`first`: the row after `token_ids`, (1, vocab_size), which every branch begins with."""
        self._rows = rows
        self._branch = branch
        self._token_ids = list(token_ids)
        self._n_shared = len(token_ids)
        self._first = first
        self._row = first  # after the last token

    def __len__(self) -> int:
        return len(self._token_ids)

    @property
    def is_ahead(self) -> bool:
        """Branches have no draft that this could replace."""
        return False

    @property
    def has_row(self) -> bool:
        """Whether the row after the last token has been computed."""
        return self._row is not None

    @property
    def wanted(self) -> BranchRow:
        """The row after the last token."""
        return BranchRow(self._branch, self._token_ids[-1], len(self._token_ids) - 1)

    def take(self, row: Logits) -> None:
        """The row that is `wanted`, (1, vocab_size)."""
        self._row = row

    def ids_from(self, start: int) -> tuple[int, ...]:
        return tuple(self._token_ids[start:])

    def forward(self, draft: Sequence[int], *, guesses_next: bool = False) -> Rows:
        """The row after the last token, of a pass of its own if none has been shared."""
        if self._row is None:
            self._rows.run([self])
        row = self._row
        assert row is not None
        return row

    def expect_next(self) -> None:
        """Nothing runs ahead."""

    def begin_next(self) -> None:
        """Nothing runs ahead."""

    def wait(self) -> None:
        """Nothing runs."""

    def append(self, token_id: int) -> None:
        self._token_ids.append(token_id)
        self._row = None

    def truncate(self, length: int) -> None:
        del self._token_ids[length:]
        self._row = self._first if length == self._n_shared else None

    def settle(self) -> None:
        """There is no draft."""


class SharedRows:
    """The passes of several branches over one cache."""

    def __init__(self, branches: Branches, token_ids: Sequence[int], first: Logits | None) -> None:
        """`branches`: of a cache that holds all of `token_ids`; `first`: the row after them, None
        if they were not all computed, and nothing will be.
        """
        self._branches = branches
        self._token_ids = token_ids
        self._first = first
        self._sequences: list[BranchSequence] = []

    def sequences(self, n: int) -> list[BranchSequence]:
        """So many branches, in the place of those before."""
        self._sequences = [
            BranchSequence(self, branch, self._token_ids, self._first) for branch in range(n)
        ]
        return self._sequences

    def run_for(self, branches: Sequence[int]) -> None:
        """Compute the next rows of these branches in one pass."""
        wanting = [self._sequences[branch] for branch in branches]
        self.run([each for each in wanting if not each.has_row])

    def run(self, sequences: Sequence[BranchSequence]) -> None:
        if not sequences:
            return
        rows = self._branches.decode([each.wanted for each in sequences])
        for i, each in enumerate(sequences):
            each.take(rows[i : i + 1])


# A completion that goes on from a snapshot, with its sequences of all passes.
Make = Callable[[Snapshot, Live, Sequence[BranchSequence]], Completion]


class Branching:
    """Branches of one place. `begin` some, then call `step` until it returns nothing."""

    def __init__(self, passes: Sequence[SharedRows], make: Make) -> None:
        """`passes`: over the cache of the prompt, and with guidance over that of the negative
        one.
        """
        self._passes = passes
        self._make = make
        self._completions: list[Completion] = []

    def begin(self, snapshots: Sequence[Snapshot], live: Live) -> list[Completion]:
        """A branch for each, in the place of those before. The snapshots are of this place, and
        differ in settings and options that decide nothing about the tokens so far; a step of them
        gives one token.
        """
        sequences = zip(*(rows.sequences(len(snapshots)) for rows in self._passes), strict=True)
        self._completions = [
            self._make(snapshot, live, own)
            for snapshot, own in zip(snapshots, sequences, strict=True)
        ]
        return self._completions

    def step(self) -> dict[int, StreamResult]:
        """A token of each branch that has not ended, by its number."""
        going = [i for i, each in enumerate(self._completions) if not each.ended]
        if going and not self._completions[going[0]].aborted:
            for rows in self._passes:
                rows.run_for(going)
        return {i: self._completions[i].advance() for i in going}
