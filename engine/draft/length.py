"""How many tokens to draft: as many as pay, and no more than can be afforded.

Owns the averages of what was accepted and the account of what drafting has cost and saved. Knows
no drafter and no clock: costs are the numbers of `row_costs.py`, observations are passed in.
"""

from .row_costs import RowCosts

MIN_GAIN = 1.03  # expected tokens per cost, over plain decoding, below which nothing is drafted

# Weights of the newest observation: a draft accepted whole counts per token and moves the average
# fast, for its window hid how much more would have been accepted.
_UP = 0.25
_DOWN = 0.15

_FIRST_GAP = 8  # opportunities passed over before a single token is tried again
_LAST_GAP = 128

# The account, in plain steps: what drafting may lose in all is what it starts with and a share of
# the steps made.
_START = 1.0
_PER_STEP = 0.015
_MOST = 4.0


class Acceptance:
    """The running average of drafted tokens accepted, of one kind of draft."""

    __slots__ = ("_gap", "_prior", "_skipped", "rate")

    def __init__(self, prior: float) -> None:
        """`prior`: the share expected before anything was seen."""
        self._prior = prior
        self.reset()

    def reset(self) -> None:
        self.rate = self._prior
        self._gap = 0
        self._skipped = 0

    def observe(self, n_drafted: int, n_accepted: int) -> None:
        """Of `n_drafted` (1 or more) tokens the first `n_accepted` were right."""
        if n_accepted >= n_drafted:
            self.rate += (1.0 - (1.0 - _UP) ** n_accepted) * (1.0 - self.rate)
            self._gap = 0
        else:
            self.rate += _DOWN * (n_accepted / (n_accepted + 1) - self.rate)

    def is_probed(self) -> bool:
        """Whether a draft that promises nothing is due: now and then, with growing gaps."""
        self._skipped += 1
        if self._skipped <= self._gap:
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
        """A new stream: the account is as at the beginning."""
        self.balance = _START
        """Plain steps that drafting may lose at most."""

    def earn(self, n_steps: int) -> None:
        """The sequence has grown by `n_steps` tokens."""
        self._credit(_PER_STEP * n_steps)

    def choose(
        self, acceptance: Acceptance, n_max: int, *, first: float = 0.0, each: float = 0.0
    ) -> int:
        """How many tokens to draft, 0 to `n_max`: the most expected tokens per cost.

        Drafting n tokens takes `first` + n * `each` seconds beside the pass that verifies them.
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
            power *= rate
            expected += power
            gain = expected / (1.0 + more)
            if gain >= best_gain:
                best, best_gain = n, gain
        if best == 0 and n_max > 0 and extra[1] + first + each <= balance:
            return int(acceptance.is_probed())
        return best

    def observe(self, n_drafted: int, n_accepted: int, *, seconds: float = 0.0) -> None:
        """A pass verified `n_drafted` tokens, whose drafting took `seconds`."""
        spent = self._extra_costs()[n_drafted] + seconds / self._row_costs.table[1]
        self._credit(n_accepted - spent)

    def _credit(self, steps: float) -> None:
        self.balance = min(self.balance + steps, _MOST)

    def _extra_costs(self) -> list[float]:
        """Plain steps that a pass takes beside one, by the number of drafted tokens in it."""
        table = self._row_costs.table
        if table is not self._table:
            self._table = table
            self._extra = [seconds / table[1] - 1.0 for seconds in table[1:]]
        return self._extra
