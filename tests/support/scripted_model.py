"""A model that follows a script, over a vocabulary of bytes or given pieces; and what tests of the
generator require of every stream.
"""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from engine import AbortFlag, SamplingSettings, StreamingGenerator, StreamResult, TokenRecord
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.device.open import open_ops
from engine.model.branches import PassesInTurn
from engine.model.model import MAX_VERIFY_ROWS, Model
from engine.sampling.logits import Logits
from tests.support.tiny_config import tiny_config

END = 256  # the scripted vocabulary: all bytes, an end token, a hidden special token
HIDDEN = 257
GREEDY = SamplingSettings(temperature=0.0)


class ByteVocabulary:
    """Every byte is a token; 256 ends, 257 is special and not shown."""

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b"<end>"

    def is_special(self, token_id: int) -> bool:
        return token_id >= 256

    def is_control(self, token_id: int) -> bool:
        return self.is_special(token_id)


class PieceVocabulary(ByteVocabulary):
    """The first tokens are the given pieces; of the others only the special ones have bytes."""

    def __init__(self, pieces: Sequence[bytes], *, n_special: int = 2) -> None:
        self.pieces = pieces
        self.n_special = n_special

    def is_special(self, token_id: int) -> bool:
        return 256 <= token_id < 256 + self.n_special

    def token_bytes(self, token_id: int) -> bytes:
        if self.is_special(token_id):
            return b"<end>"
        return self.pieces[token_id] if token_id < len(self.pieces) else b""


class ScriptedModel:
    """A model whose most likely next token is scripted: for each position after the prompt one
    token, or several with the likeliest first. `fault` may spoil the logits of a position.
    """

    def __init__(self, script: Sequence[int | Sequence[int]], *, max_seq_len: int = 400) -> None:
        self.config = tiny_config("Scripted", vocab_size=258, max_seq_len=max_seq_len, end=END)
        self.max_seq_len = max_seq_len
        self.ops = open_ops(device="cpu")
        self.script = script
        self.n_prompt = 1
        self.n_prefilled = 0
        self.n_passes = 0
        self.fault: Callable[[int], float] = lambda position: 0.0

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
        self.n_prefilled = len(token_ids)
        if on_logits is not None and token_ids:
            on_logits(np.stack([self._row(-1) for _ in token_ids]))
        cache.append(token_ids)
        return True

    def decode_rows(self, cache: KVCache) -> int:
        return MAX_VERIFY_ROWS

    def decode(
        self, token_ids: Sequence[int], cache: KVCache, *, guesses_next: bool = False
    ) -> Logits:
        self.n_passes += 1
        first = cache.length + 1 - self.n_prompt
        cache.append(token_ids)
        return np.stack([self._row(first + row) for row in range(len(token_ids))])

    def expect_next(self, cache: KVCache) -> None:
        """Nothing runs ahead."""

    def begin(self, token_id: int, cache: KVCache) -> None:
        """Nothing runs ahead."""

    def branches(self, cache: KVCache, *, n_positions: int) -> PassesInTurn:
        return PassesInTurn(cache, lambda token_id: self.decode([token_id], cache))

    def _row(self, position: int) -> Logits:
        logits = np.linspace(0.0, 1.0, 258, dtype=np.float32)
        wanted = self.script[position] if 0 <= position < len(self.script) else END
        for rank, token_id in enumerate([wanted] if isinstance(wanted, int) else wanted):
            logits[token_id] = 20.0 - rank
        logits[0] += self.fault(position)
        return logits

    def generator(
        self, vocabulary: ByteVocabulary | None = None, *, eos_token_ids: Sequence[int] = (END,)
    ) -> StreamingGenerator:
        cache = KVCache(self.config, self.ops, max_seq_len=self.max_seq_len)
        return StreamingGenerator(
            cast(Model, self),
            PrefixCache(cache),
            vocabulary or ByteVocabulary(),
            eos_token_ids=eos_token_ids,
        )


def run(generator: StreamingGenerator) -> list[StreamResult]:
    results = []
    while True:
        results.append(generator.stream_ex())
        if results[-1].eos:
            return results


def text_of(results: Sequence[StreamResult]) -> str:
    return "".join(result.chunk for result in results)


def records_of(results: Sequence[StreamResult]) -> list[TokenRecord]:
    return [token for result in results for token in result.tokens]


def assert_nothing_lost(results: Sequence[StreamResult]) -> None:
    """The bytes of all records, without the dropped tail, are the text."""
    last = results[-1]
    records = [*records_of(results), *last.dropped]
    data = b"".join(record.token_bytes for record in records)
    assert data.decode(errors="replace") == text_of(results) + last.dropped_text
    released = 0
    for result in results:
        released += len(result.chunk)
        spans = [(token.text_start, token.text_end) for token in result.tokens]
        assert all(start <= released for start, _ in spans), "a record came before its text"
        if not result.eos:
            assert all(end <= released for _, end in spans), "a record came before its text"
