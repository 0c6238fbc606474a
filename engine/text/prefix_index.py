"""Which tokens begin with the given bytes.

Owns the vocabulary sorted by bytes, for token healing and constraints. Knows no model.
"""

from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .token_ids import TokenMask, set_of_ids
from .vocabulary import Vocabulary

TokenIds = npt.NDArray[np.int32]


class _Sorted(NamedTuple):
    keys: list[bytes]
    token_ids: TokenIds


class PrefixIndex:
    """The tokens that stand for text, sorted by their bytes at first use."""

    def __init__(self, vocabulary: Vocabulary, vocab_size: int) -> None:
        self._vocabulary = vocabulary
        self._vocab_size = vocab_size

    def ids_starting_with(self, prefix: bytes) -> TokenIds:
        """Ids of all tokens whose bytes begin with `prefix`, sorted by bytes; no control tokens."""
        start, end = self._span(prefix)
        return self._sorted.token_ids[start:end]

    def ids_equal_to(self, data: bytes) -> TokenIds:
        """Ids of all tokens with exactly these bytes; no control tokens."""
        start, end = self._span(data)
        return self._sorted.token_ids[start : bisect_right(self._sorted.keys, data, start, end)]

    def keys_starting_with(self, prefix: bytes) -> list[bytes]:
        """The bytes of `ids_starting_with(prefix)`, in the same order."""
        start, end = self._span(prefix)
        return self._sorted.keys[start:end]

    def mask(self, prefix: bytes) -> TokenMask:
        """`ids_starting_with(prefix)` as a bit mask."""
        return set_of_ids(self.ids_starting_with(prefix), self._vocab_size)

    @cached_property
    def _sorted(self) -> _Sorted:
        vocabulary = self._vocabulary
        entries = sorted(
            (data, token_id)
            for token_id in range(self._vocab_size)
            if (data := vocabulary.token_bytes(token_id)) and not vocabulary.is_control(token_id)
        )
        token_ids = np.fromiter((token_id for _, token_id in entries), np.int32, len(entries))
        return _Sorted([data for data, _ in entries], token_ids)

    def _span(self, prefix: bytes) -> tuple[int, int]:
        keys = self._sorted.keys
        start = bisect_left(keys, prefix)
        return start, end_of_prefix(keys, prefix, start)


def end_of_prefix(keys: list[bytes], prefix: bytes, start: int = 0) -> int:
    """The end of the run of sorted `keys` that begin with `prefix`; the run begins at `start`."""
    return bisect_right(keys, prefix, start, key=lambda key: key[: len(prefix)])
