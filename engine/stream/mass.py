"""The raw probability of a set of tokens, whichever token was drawn.

Owns one number per position: the mass of the set in the softmax of the untouched logits. Knows no
name and no text.
"""

from collections.abc import Sequence

import numpy as np

from ..sampling.logits import Row
from ..sampling.request import SampleResult


class Mass:
    """That of one set of token ids."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._ids = np.array(sorted(set(token_ids)), np.int64)

    def of(self, row: Row, sampled: SampleResult) -> float:
        """The mass in `row` (vocab_size,), from which `sampled` was drawn.

        Its logit and its probability give the sum of all exponentials, so no other logit is read.
        """
        logits = np.asarray(row)
        log_sum = float(logits[sampled.token_id]) - sampled.logprob_raw
        return min(1.0, float(np.exp(logits[self._ids].astype(np.float64) - log_sum).sum()))
