"""Which positions are left in caches that go round, because their layers have a window.

Owns the arithmetic: what a token sees, what a pass overwrites, and how far a sequence may go back.
Knows no memory and no token.
"""


class Round:
    """The positions from `first` to the end of the sequence are held."""

    def __init__(self, n_positions: int, window: int, unit: int) -> None:
        """`n_positions`: that the caches hold; 0: all, and nothing is ever lost. `window`: the
        widest of them. Copies fill whole units.
        """
        self._n_positions = n_positions
        self._window = window
        self._unit = unit
        self.first = 0

    @property
    def loses(self) -> bool:
        """Whether a long sequence loses positions."""
        return self._n_positions > 0

    def seen_from(self, length: int) -> int:
        """The first position that the token after `length` tokens sees in these caches."""
        return max(0, length - self._window + 1)

    def reaches(self, length: int) -> bool:
        """Whether the caches hold what the token after `length` tokens sees."""
        return length == 0 or self.first <= self.seen_from(length)

    def first_after(self, end: int) -> int:
        """The first position that is left once all before `end` are written."""
        return max(self.first, end - self._n_positions) if self._n_positions else 0

    def written(self, end: int) -> None:
        """The positions before `end` were written, one after the other."""
        self.first = self.first_after(end)

    def copied(self, start: int, stop: int, first: int) -> None:
        """Copies of these positions were written at the end of the sequence. They were made when
        the positions before `first` were lost.
        """
        self.first = first if first > start else min(self.first, start)
        self.written(-(-stop // self._unit) * self._unit)
