"""How many tokens to draft: as many as pay off, within an account that limits the loss.

Owns the running averages of accepted tokens, and the account of what drafting cost and saved. Knows
no drafter and no clock: `row_costs.py` has the costs, observations are passed in.
"""

from .row_costs import RowCosts

MIN_GAIN = 1.03  # the least gain in tokens per cost, over plain decoding, that a draft must promise

# Weights of the newest observation. A draft that was accepted whole counts per token and moves the
# average fast: its length hid how much more would have been accepted.
_UP = 0.25
_DOWN = 0.15

# More tokens than these are a long draft. It must promise more than a short one by this factor, and
# of so many right tokens the share of the right ones counts: the average moves too fast for it.
_SHORT = 15
_GAIN_OF_LONG = 1.05
_MOST_COUNTED = 2048

_FIRST_GAP = 8  # opportunities skipped before a single token is tried again
_LAST_GAP = 128

# The account, in plain steps: drafting may lose what it starts with and a share of the steps made.
_START = 1.0
_PER_STEP = 0.015
_MOST = 4.0


class Acceptance:
    """The running average of how many drafted tokens were accepted, for one kind of draft."""

    __slots__ = ("_gap", "_n_right", "_n_wrong", "_prior", "_skipped", "rate")

    def __init__(self, prior: float) -> None:
        """`prior`: the share expected before any observation."""
        self._prior = prior
        self.reset()

    def reset(self) -> None:
        self.rate = self._prior
        self._n_right = self._n_wrong = 0
        self._gap = 0
        self._skipped = 0

    @property
    def steady(self) -> float:
        """The share of right tokens among many, low as long as there were few."""
        return self._n_right / (self._n_right + self._n_wrong + 1)

    def observe(self, n_drafted: int, n_accepted: int) -> None:
        """The first `n_accepted` of `n_drafted` (1 or more) tokens were right."""
        self._n_right += n_accepted
        if self._n_right > _MOST_COUNTED:
            self._n_right, self._n_wrong = self._n_right // 2, self._n_wrong // 2
        if n_accepted >= n_drafted:
            self.rate += (1.0 - (1.0 - _UP) ** n_accepted) * (1.0 - self.rate)
            self._gap = 0
        else:
            self._n_wrong += 1
            self.rate += _DOWN * (n_accepted / (n_accepted + 1) - self.rate)

    def is_resting(self) -> bool:
        """Whether to pass over this opportunity: not long ago a draft that promised nothing was
        wrong. A drafter may ask before it works out what a draft would cost.
        """
        if self._skipped >= self._gap:
            return False
        self._skipped += 1
        return True

    def is_probed(self) -> bool:
        """Whether to try a draft that promises nothing: now and then, with growing gaps."""
        if self.is_resting():
            return False
        self._skipped = 0
        self._gap = min(max(2 * self._gap, _FIRST_GAP), _LAST_GAP)
        return True


class DraftLength:
    """Chooses the length of each draft within an account that bounds the loss."""

    def __init__(self, row_costs: RowCosts) -> None:
        self._row_costs = row_costs
        self._table: list[float] = []
        self._extra: list[float] = []
        self.begin()

    def begin(self) -> None:
        """Resets the account for a new stream."""
        self.balance = _START
        """Plain steps that drafting may still lose."""

    def earn(self, n_steps: int) -> None:
        """The sequence has grown by `n_steps` tokens."""
        if self.balance < _MOST:
            self.balance = min(self.balance + _PER_STEP * n_steps, _MOST)

    def choose(
        self, acceptance: Acceptance, n_max: int, *, first: float = 0.0, each: float = 0.0
    ) -> int:
        """How many tokens to draft, 0 to `n_max`, for the most expected tokens per cost.

        Drafting n tokens takes `first` + n * `each` seconds in addition to the pass that verifies
        them.
        """
        extra = self._extra_costs()
        plain = self._row_costs.table[1]
        first, each = first / plain, each / plain
        rate, balance = acceptance.rate, self.balance
        best, best_gain, expected, power = 0, MIN_GAIN, 1.0, 1.0
        for n in range(1, n_max + 1):
            more = extra[n] + first + n * each
            if more > balance:
                break
            if n == _SHORT + 1:
                rate, best_gain = acceptance.steady, best_gain * _GAIN_OF_LONG
            power *= rate
            expected += power
            gain = expected / (1.0 + more)
            if gain >= best_gain:
                best, best_gain = n, gain
        if best == 0 and n_max > 0 and extra[1] + first + each <= balance:
            return int(acceptance.is_probed())
        return best

    def observe(self, n_drafted: int, n_accepted: int, *, seconds: float = 0.0) -> None:
        """A pass verified `n_drafted` tokens; drafting them took `seconds`.

        What drafts save that are accepted whole may be spent on the next one, which can so be a
        long one. The first that is not ends that: savings do not pay for the text after a copy.
        """
        spent = self._extra_costs()[n_drafted] + seconds / self._row_costs.table[1]
        self.balance += n_accepted - spent
        if n_accepted < n_drafted:
            self.balance = min(self.balance, _MOST)

    def _extra_costs(self) -> list[float]:
        """The cost of a pass above that of a plain step, by the number of drafted tokens in it."""
        table = self._row_costs.table
        if table is not self._table:
            self._table = table
            self._extra = [seconds / table[1] - 1.0 for seconds in table[1:]]
        return self._extra
