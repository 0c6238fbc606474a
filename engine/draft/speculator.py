"""Chooses the draft of each pass, from whichever drafter has one that pays off.

Owns the drafters, their order, the length of each draft, and the counts of accepted tokens. The
generator verifies a draft by sampling from the model as it would without, so a draft decides what a
token costs, never which token it is.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..abort import AbortFlag
from ..model.model import MAX_VERIFY_ROWS
from .drafter import Drafter, Origin, Prospect
from .length import DraftLength
from .prediction import PredictionDrafter
from .row_costs import RowCosts

MAX_DRAFT = MAX_VERIFY_ROWS - 1  # the last token takes a row of the pass


class Draft(NamedTuple):
    """Guessed tokens, and who guessed them; the origin of an empty draft has no meaning."""

    token_ids: tuple[int, ...]
    origin: Origin


class DraftCount(NamedTuple):
    """Draft statistics of one origin."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0


NO_DRAFT = Draft((), "ngram")
_NONE = DraftCount()


class DraftStats:
    """Draft statistics by origin."""

    def __init__(self) -> None:
        self.by_origin: dict[Origin, DraftCount] = {}

    def count(self, origin: Origin, n_drafted: int, n_accepted: int) -> None:
        rounds, drafted, accepted = self.by_origin.get(origin, _NONE)
        self.by_origin[origin] = DraftCount(rounds + 1, drafted + n_drafted, accepted + n_accepted)

    @property
    def sum(self) -> DraftCount:
        columns = zip(*self.by_origin.values(), strict=True)
        return DraftCount(*map(sum, columns))


class _Round(NamedTuple):
    """A draft that is not verified yet."""

    draft: Draft
    prospect: Prospect | None  # None: a constraint forced it
    n_wanted: int


class Speculator:
    """Drafts for one sequence at a time: predicted text first, then the drafters in their order."""

    def __init__(self, drafters: Sequence[Drafter], row_costs: RowCosts) -> None:
        """`row_costs`: that of the model that verifies. The cheaper drafter should come first."""
        self._prediction = PredictionDrafter()
        self.drafters = tuple(drafters)
        """In the order in which they are asked."""
        self.take_costs(row_costs)
        self.total = DraftStats()
        self.begin(())

    def take_costs(self, row_costs: RowCosts) -> None:
        """Goes by other costs of the model that verifies, between two sequences."""
        self._row_costs = row_costs
        self._length = DraftLength(row_costs)

    def begin(
        self,
        prompt_ids: Sequence[int],
        *,
        prediction: Sequence[int] = (),
        abort: AbortFlag | None = None,
        isolation_key: str = "",
    ) -> None:
        """Begins a sequence; one that was not ended is forgotten.

        `prediction`: the ids of the expected output. `abort` is checked while a draft model catches
        up. Sequences with different isolation keys learn nothing from each other.
        """
        self._prediction.predict(prediction)
        self._active = (self._prediction, *self.drafters) if prediction else self.drafters
        for drafter in self._active:
            drafter.begin(prompt_ids, abort, isolation_key)
        self._accepts = [drafter.accept for drafter in self._active]
        self._length.begin()
        self.stats = DraftStats()
        self._n_tokens = self._n_earned = len(prompt_ids)
        self._round: _Round | None = None

    def propose(self, n_max: int, *, forced: Sequence[int] = ()) -> Draft:
        """The next tokens, as many as pay off; perhaps none.

        At most `n_max` and MAX_DRAFT tokens. `forced`: the tokens that a constraint requires. Every
        token of the sequence must have been passed to `accept`.
        """
        self._round = None
        n_max = min(n_max, MAX_DRAFT)
        if n_max < 1 or self._n_tokens == 0:
            return NO_DRAFT
        if forced:
            draft = Draft(tuple(forced[:n_max]), "constraint")
            self._round = _Round(draft, None, len(draft.token_ids))
            return draft
        for drafter in self._active:
            prospect = drafter.prospect(n_max)
            if prospect is None:
                continue
            self._earn()
            acceptance, most, first, each = prospect
            n_wanted = self._length.choose(acceptance, most, first=first, each=each)
            if n_wanted == 0:
                continue
            token_ids = drafter.draft(n_wanted)
            if token_ids:
                draft = Draft(token_ids, drafter.origin)
                self._round = _Round(draft, prospect, n_wanted)
                return draft
            # The drafter was not sure of a single token, which counts as a failed draft.
            acceptance.observe(1, 0)
            self._length.observe(0, 0, seconds=first)
        return NO_DRAFT

    def _earn(self) -> None:
        """Puts the tokens since the last time to the account, only now, as most steps of a text
        without matches end before.
        """
        if self._n_tokens > self._n_earned:
            self._length.earn(self._n_tokens - self._n_earned)
            self._n_earned = self._n_tokens

    def observe_pass(self, n_rows: int, seconds: float) -> None:
        """The model that verifies ran `n_rows` rows."""
        self._row_costs.observe(n_rows, seconds)

    def observe(self, n_drafted: int, n_accepted: int) -> None:
        """`n_drafted` tokens of the last draft were verified; the first `n_accepted` were right."""
        if self._round is None or n_drafted < 1:
            return
        draft, prospect, n_wanted = self._round
        self._round = None
        for stats in (self.stats, self.total):
            stats.count(draft.origin, n_drafted, n_accepted)
        if prospect is None:
            return
        # A drafter that stopped by itself could not get further; a draft that was cut might have.
        stopped = n_drafted == len(draft.token_ids)
        prospect.acceptance.observe(n_wanted if stopped else n_drafted, n_accepted)
        seconds = prospect.first + n_drafted * prospect.each
        self._length.observe(n_drafted, n_accepted, seconds=seconds)

    def accept(self, token_id: int) -> None:
        """The sequence continues with `token_id`, drafted or not."""
        self._n_tokens += 1
        for accept in self._accepts:
            accept(token_id)

    def mark(self) -> int:
        """The number of tokens, those of the prompt included."""
        return self._n_tokens

    def rollback(self, mark: int) -> None:
        """Forgets the tokens after `mark`. Raises ValueError for an invalid mark."""
        if not 0 <= mark <= self._n_tokens:
            raise ValueError(f"rollback to {mark}: the sequence has {self._n_tokens} tokens")
        self._n_tokens = mark
        self._round = None
        for drafter in self._active:
            drafter.rollback(mark)

    def end(self) -> None:
        """The sequence is complete; its output joins the recent ones."""
        for drafter in self._active:
            drafter.end()
        self._active = ()
        self._accepts = []
        self._n_tokens = self._n_earned = 0
        self._round = None
