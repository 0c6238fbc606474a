"""How sure a drafting model is of its draft as a whole.

Owns the probability of the draft so far. Knows no model.
"""

import numpy as np

from ..sampling.logits import Logits


class Confidence:
    """Of one draft at a time."""

    def __init__(self, n_ids: int, *, least: float) -> None:
        """Only the first `n_ids` of a row are looked at. A draft ends before its probability falls
        below `least`.
        """
        self._n_ids = n_ids
        self._least = least
        self._work = np.empty(n_ids, dtype=np.float32)
        self.begin()

    def begin(self) -> None:
        self._share = 1.0

    def next(self, logits: Logits) -> int | None:
        """The most likely token after the draft; None: the draft should end here."""
        ids, work = logits[: self._n_ids], self._work
        token_id = int(ids.argmax())
        np.subtract(ids, ids[token_id], out=work)
        np.exp(work, out=work)
        self._share /= float(work.sum())
        return token_id if self._share >= self._least else None
