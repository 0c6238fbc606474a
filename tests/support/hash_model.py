"""A model whose logits are a hash of all tokens before them: the wrong past gives the wrong next
token. Owns also the plain draw from these logits that tests compare a stream with.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from engine import AbortFlag, StreamingGenerator
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.device.open import open_ops
from engine.draft.ngram import NgramDrafter
from engine.draft.row_costs import RowCosts
from engine.draft.speculator import Speculator
from engine.model.branches import PassesInTurn
from engine.model.model import MAX_VERIFY_ROWS, Model
from engine.sampling.logits import Logits
from tests.support.tiny_config import tiny_config

N_LETTERS = 24
END = 24
VOCAB_SIZE = 32
_LETTERS = np.arange(VOCAB_SIZE, dtype=np.float64)


class LetterVocabulary:
    """Letters, an end token, and tokens without bytes, which the model never writes."""

    def token_bytes(self, token_id: int) -> bytes:
        if token_id == END:
            return b"<end>"
        return bytes([ord("a") + token_id]) if token_id < N_LETTERS else b""

    def is_special(self, token_id: int) -> bool:
        return token_id == END

    def is_control(self, token_id: int) -> bool:
        return token_id == END


def row_after(token_ids: Sequence[int]) -> Logits:
    """The logits (VOCAB_SIZE,) of the token after these."""
    crc = zlib.crc32(bytes(token_ids))
    # Few different rows, so that texts repeat themselves and drafts come true.
    row = 3 * np.sin(_LETTERS * (1 + crc % 11) + crc % 7)
    row[END] = -1.0
    row[END + 1 :] = -20.0
    return row.astype(np.float32)


class HashModel:
    """Computes nothing, but from the tokens that the cache really holds."""

    def __init__(self, *, max_seq_len: int = 96) -> None:
        self.config = tiny_config("Hash", vocab_size=VOCAB_SIZE, max_seq_len=max_seq_len, end=END)
        self.max_seq_len = max_seq_len
        self.ops = open_ops(device="cpu")

    def prefill(
        self,
        token_ids: Sequence[int],
        cache: KVCache,
        *,
        abort: AbortFlag | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        on_logits: Callable[[Logits], None] | None = None,
        ends: Sequence[int] = (),
        after_pass: Callable[[], None] | None = None,
        next_id: int | None = None,
    ) -> bool:
        cache.append(token_ids)
        return True

    def decode_rows(self, cache: KVCache) -> int:
        return MAX_VERIFY_ROWS

    def decode(
        self, token_ids: Sequence[int], cache: KVCache, *, guesses_next: bool = False
    ) -> Logits:
        rows = []
        for token_id in token_ids:
            cache.append([token_id])
            rows.append(row_after(cache.token_ids))
        return np.stack(rows)

    def expect_next(self, cache: KVCache) -> None:
        """Nothing runs ahead."""

    def begin(self, token_id: int, cache: KVCache) -> None:
        """Nothing runs ahead."""

    def branches(self, cache: KVCache, *, n_positions: int) -> PassesInTurn:
        return PassesInTurn(cache, lambda token_id: self.decode([token_id], cache))

    def generator(self) -> StreamingGenerator:
        """With drafts, and copies of past sequences."""
        cache = KVCache(self.config, self.ops, max_seq_len=self.max_seq_len)
        return StreamingGenerator(
            cast(Model, self),
            PrefixCache(cache, block=16, byte_budget=8 * cache.positions.n_bytes(16)),
            LetterVocabulary(),
            eos_token_ids=(END,),
            speculator=Speculator([NgramDrafter(pool_bytes=4096)], RowCosts((1.0,) * 5)),
        )
