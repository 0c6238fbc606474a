"""The first token of a completion that replaces the last one of the prompt, and all others.

Owns what that makes of bytes, masks and constraints: the rest of such a token belongs to the
prompt. Knows no sampler.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..grammar.constraint import Constraint
from .healing import Healing
from .options import StreamOptions
from .parts import Parts


class Tokens:
    """Tokens by their number in the completion."""

    def __init__(self, parts: Parts, healing: Healing | None) -> None:
        self._parts = parts
        self._healing = healing

    def shown(self, n: int, token_id: int, options: StreamOptions) -> bytes:
        """The bytes that token `n` adds to the text. Raises InvalidInputError for a first one that
        does not heal the prompt.
        """
        data = self._parts.shown(token_id, options)
        if self._healing is not None and n == 0:
            return self._healing.added(data)
        return data

    def mask(self, n: int, constraint: Constraint | None) -> npt.NDArray[np.int32] | None:
        """What constraint and healing allow as token `n`; None allows all."""
        if self._healing is not None and n == 0:
            return self._healing.mask(constraint)
        return constraint.mask() if constraint is not None else None

    def feed(self, constraint: Constraint, n: int, token_id: int, shown: bytes) -> None:
        """Tell the constraint of token `n`, which added `shown`. Raises InvalidInputError."""
        if self._healing is not None and n == 0:
            constraint.accept_bytes(shown)
        else:
            constraint.accept(token_id)

    def check(
        self,
        n: int,
        token_ids: Sequence[int],
        constraint: Constraint | None,
        options: StreamOptions,
    ) -> None:
        """Raises InvalidInputError unless these may come from token `n` on."""
        if self._healing is not None and n == 0 and token_ids:
            self.shown(0, token_ids[0], options)
        if constraint is None:
            return
        mark = constraint.mark()
        try:
            for i, token_id in enumerate(token_ids, n):
                self.feed(constraint, i, token_id, self.shown(i, token_id, options))
        finally:
            constraint.rollback(mark)
