"""A token that went along in the pass over a prompt, before it became part of the sequence.

Owns where its row lies, and whether it is still the one that the next pass is for. Knows no pass.
"""

from collections.abc import Sequence
from weakref import ReferenceType, ref

import numpy as np

from ..cache.kv import KVCache
from ..device.arguments import Array


class TokenAhead:
    """At most one token. Its keys and values lie behind the end of a cache, its row in buffers."""

    def __init__(self) -> None:
        self._cache: ReferenceType[KVCache] | None = None

    def keep(self, cache: KVCache, token_id: int, buffers: Sequence[Array], row: int) -> None:
        """The pass that has just run ended with this row of the buffers, (rows, n), which a pass of
        one row finds in the first row from now on.
        """
        for buffer in buffers:
            rows = np.asarray(buffer)
            rows[0] = rows[row]
        cache.ahead, self._cache = token_id, ref(cache)

    def take(self, token_ids: Sequence[int], cache: KVCache) -> bool:
        """Whether a pass of these ids only has to go on with what was kept, which is forgotten."""
        kept, self._cache = self._cache, None
        return kept is not None and kept() is cache and list(token_ids) == [cache.ahead]

    def forget(self) -> None:
        """Another pass is about to overwrite the row."""
        self._cache = None
