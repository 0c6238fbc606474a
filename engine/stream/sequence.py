"""A sequence of token ids and the cache that holds its keys and values.

Owns the rule between the two: at rest the cache holds all tokens but the last. Knows the model's
passes; knows no sampler, no draft and no text.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from ..cache.kv import KVCache
from ..model.model import Model
from ..sampling.logits import Rows

logger = logging.getLogger(__name__)


class TokenSequence(Protocol):
    """The tokens of a sequence, at least one, and the logits after the last; see CachedSequence."""

    def __len__(self) -> int: ...

    @property
    def room(self) -> int: ...

    @property
    def is_ahead(self) -> bool: ...

    def ids_from(self, start: int) -> tuple[int, ...]: ...

    def forward(self, draft: Sequence[int], *, guesses_next: bool = False) -> Rows: ...

    def expect_next(self) -> None: ...

    def begin_next(self) -> None: ...

    def wait(self) -> None: ...

    def append(self, token_id: int) -> None: ...

    def truncate(self, length: int) -> None: ...

    def settle(self) -> None: ...


class CachedSequence:
    """The tokens of one sequence; at least one."""

    def __init__(self, model: Model, cache: KVCache, token_ids: Sequence[int]) -> None:
        """`cache` holds all of `token_ids` but the last."""
        self._model = model
        self._cache = cache
        self._most_rows = model.decode_rows(cache)
        self._token_ids = list(token_ids)

    def __len__(self) -> int:
        return len(self._token_ids)

    @property
    def room(self) -> int:
        """Rows that the next pass may have."""
        free = self._cache.max_seq_len - self._cache.length
        return min(free, self._most_rows)

    @property
    def is_ahead(self) -> bool:
        """Whether a pass without a draft has little left to compute: the prompt's last token."""
        return self._cache.ahead == self._token_ids[-1]

    def ids_from(self, start: int) -> tuple[int, ...]:
        """The tokens from position `start` on."""
        return tuple(self._token_ids[start:])

    def forward(self, draft: Sequence[int], *, guesses_next: bool = False) -> Rows:
        """The logits after the last token and after each of `draft`, (1 + n, vocab_size).

        The cache then holds the draft too; `settle` or `append` decides about it. `guesses_next`,
        without a draft: the likeliest token will most likely be drawn, and `begin_next` called.
        """
        token_ids = [self._token_ids[-1], *draft]
        return self._model.decode(token_ids, self._cache, guesses_next=guesses_next)

    def expect_next(self) -> None:
        """Announce that the next pass will most likely be that of the token drawn from this one."""
        self._model.expect_next(self._cache)

    def begin_next(self) -> None:
        """Announce that the next pass will most likely be that of the last token, without a draft.
        It is one that the model has drawn.
        """
        self._model.begin(self._token_ids[-1], self._cache)

    def wait(self) -> None:
        """Block until the last pass has run."""
        self._model.ops.wait()

    def append(self, token_id: int) -> None:
        self._token_ids.append(token_id)

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens, at least one."""
        del self._token_ids[length:]
        self.settle()

    def settle(self) -> None:
        """Remove from the cache drafted tokens that were not appended.

        Far back, layers with a window or states may have lost what the next token needs: then what
        is missing is computed again.
        """
        cache, n = self._cache, len(self._token_ids) - 1
        if cache.length <= n:
            return
        cache.forget_from(n)
        if cache.length < n:
            logger.info("going back to token %d: computing from token %d again", n, cache.length)
            self._model.prefill(self._token_ids[cache.length : n], cache)
