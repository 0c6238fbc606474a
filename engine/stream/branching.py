"""Several completions of one place, whose passes are one.

Owns who needs a row of the next pass, and that each branch gets its own. Knows no text and not what
the branches are for: each is a completion like any other.
"""

from collections.abc import Sequence

from ..model.branches import Branches, BranchRow
from ..sampling.logits import Logits, Rows
from .completion import Completion
from .result import StreamResult


class BranchSequence:
    """The tokens of one branch, for `Decoding`: its rows come one at a time."""

    room = 1

    def __init__(self, rows: "SharedRows", branch: int, token_ids: Sequence[int]) -> None:
        self._rows = rows
        self._branch = branch
        self._token_ids = list(token_ids)
        self._row: Logits | None = None  # (1, vocab_size), after the last token

    def __len__(self) -> int:
        return len(self._token_ids)

    @property
    def wanted(self) -> BranchRow:
        """The row after the last token."""
        return BranchRow(self._branch, self._token_ids[-1], len(self._token_ids) - 1)

    def take(self, row: Logits) -> None:
        """The row that is `wanted`, (1, vocab_size)."""
        self._row = row

    def ids_from(self, start: int) -> tuple[int, ...]:
        return tuple(self._token_ids[start:])

    def forward(self, draft: Sequence[int]) -> Rows:
        """The row after the last token, of a pass of its own if none has been shared."""
        if self._row is None:
            self._rows.run([self])
        row = self._row
        assert row is not None
        return row

    def expect_next(self) -> None:
        """Nothing runs ahead."""

    def wait(self) -> None:
        """Nothing runs."""

    def append(self, token_id: int) -> None:
        self._token_ids.append(token_id)
        self._row = None

    def truncate(self, length: int) -> None:
        del self._token_ids[length:]
        self._row = None

    def settle(self) -> None:
        """There is no draft."""


class SharedRows:
    """The passes of several branches over one cache."""

    def __init__(self, branches: Branches) -> None:
        self._branches = branches
        self._sequences: list[BranchSequence] = []

    def sequence(self, token_ids: Sequence[int]) -> BranchSequence:
        """A further branch; the cache holds all of `token_ids` but the last."""
        sequence = BranchSequence(self, len(self._sequences), token_ids)
        self._sequences.append(sequence)
        return sequence

    def run_for(self, branches: Sequence[int]) -> None:
        """Compute the next rows of these branches in one pass."""
        self.run([self._sequences[branch] for branch in branches])

    def run(self, sequences: Sequence[BranchSequence]) -> None:
        rows = self._branches.decode([each.wanted for each in sequences])
        for i, each in enumerate(sequences):
            each.take(rows[i : i + 1])


class Branching:
    """Branches of one place. Call `step` until it returns nothing."""

    def __init__(self, completions: Sequence[Completion], passes: Sequence[SharedRows]) -> None:
        """`passes`: over the cache of the prompt, and with guidance over that of the negative one;
        each has a sequence for every completion. A step of a completion gives one token.
        """
        self.completions = tuple(completions)
        self._passes = passes

    def step(self) -> dict[int, StreamResult]:
        """A token of each branch that has not ended, by its number."""
        going = [i for i, each in enumerate(self.completions) if not each.ended]
        if going and not self.completions[going[0]].aborted:
            for rows in self._passes:
                rows.run_for(going)
        return {i: self.completions[i].advance() for i in going}
