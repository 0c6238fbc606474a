"""Tokens that come whatever is drawn: a hook, a caller or a snapshot chose them.

Owns the numbers of such a token, and the queue of those that are still to come. Knows no model.
"""

import math
from collections import deque
from collections.abc import Sequence
from itertools import islice

import numpy as np

from ..sampling.logits import Row
from ..sampling.request import SampleResult
from ..text.token_ids import check_token_ids
from .snapshot import GivenOrigin, GivenToken, Snapshot


class Coming:
    """The next tokens of a completion: first those of its snapshot that had been drawn but not
    shown, then those that were forced or injected.
    """

    def __init__(self, snapshot: Snapshot, n_shown: int) -> None:
        """`n_shown`: how many tokens of the snapshot had been shown."""
        self._replayed = deque(snapshot.token_ids[n_shown:])
        self._waiting = deque(snapshot.waiting)

    def __len__(self) -> int:
        return len(self._replayed) + len(self._waiting)

    @property
    def replays(self) -> bool:
        """Whether the next token had been drawn before."""
        return bool(self._replayed)

    @property
    def waiting(self) -> tuple[GivenToken, ...]:
        """Those that were forced or injected."""
        return tuple(self._waiting)

    def token_ids(self, n: int) -> tuple[int, ...]:
        """The first `n` of them."""
        waiting = (token_id for token_id, _ in self._waiting)
        return (*islice(self._replayed, n), *islice(waiting, max(n - len(self._replayed), 0)))

    def add(self, token_ids: Sequence[int], origin: GivenOrigin) -> None:
        self._waiting.extend(GivenToken(token_id, origin) for token_id in token_ids)

    def next_replayed(self) -> int:
        return self._replayed.popleft()

    def next_waiting(self) -> GivenToken:
        return self._waiting.popleft()


def instead(token_id: int, sampled: SampleResult, row: Row, *, param: str) -> SampleResult:
    """`sampled` with another token in its place; as it is if that token was drawn anyway.

    Raises InvalidInputError, for `param`, if the token lies outside the vocabulary.
    """
    if token_id == sampled.token_id:
        return sampled
    logits = np.asarray(row)
    check_token_ids(param, [token_id], logits.size)
    logprob = sampled.logprob_raw + float(logits[token_id]) - float(logits[sampled.token_id])
    return sampled._replace(
        token_id=token_id,
        logprob_raw=logprob,
        p_raw=math.exp(logprob),
        p_sampled=1.0,  # it was certain
        rank=int((logits > logits[token_id]).sum()),
    )
