"""The engine under test: the fake one, made fast, with set times for a token and a chunk.

The next letter is a checksum of all tokens in the cache, so anything that a request leaves there
shows in the next one. The checksum grows with the text: `expected_reply` costs one step per letter.
"""

import hashlib
import time
import zlib
from array import array
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from engine import AbortFlag
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.model.model import Model
from engine.sampling.logits import Logits
from tests.support.fake_engine import VOCAB_SIZE, FakeEngine, FakeGenerator, FakeModel
from tests.support.fault_script import FaultScript

_A = ord("a")
_ROWS = np.full((26, 1, VOCAB_SIZE), -1.0, np.float32)
_ROWS[np.arange(26), 0, _A + np.arange(26)] = 20.0


class SoakModel(FakeModel):
    """A letter takes `token_s` seconds, `chunk` tokens of a prompt take `chunk_s`."""

    def __init__(
        self, *, max_seq_len: int, token_s: float, chunk: int, chunk_s: float, busy: bool
    ) -> None:
        """`busy`: a chunk computes outside the interpreter, as native code does; else it sleeps."""
        super().__init__(FaultScript(), max_seq_len=max_seq_len)
        self.token_s = token_s
        self.chunk = chunk
        self.chunk_s = chunk_s
        self.n_stale = 0
        """By how many letters the next request is off; for a negative control."""
        self._pause = _compute if busy else time.sleep

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
        with self._inside():
            for start in range(0, len(token_ids), self.chunk):
                if abort is not None and abort.is_set():
                    return False
                if self.chunk_s:
                    self._pause(self.chunk_s)
                part = token_ids[start : start + self.chunk]
                cache.append(part)
                if on_progress is not None:
                    on_progress(start + len(part), len(token_ids))
            return True

    def decode(
        self, token_ids: Sequence[int], cache: KVCache, *, guesses_next: bool = False
    ) -> Logits:
        with self._inside():
            if self.token_s:
                time.sleep(self.token_s)
            letters = []
            for token_id in token_ids:  # several only if they are given
                cache.append([token_id])
                letters.append(zlib.crc32(array("H", cache.token_ids).tobytes()) + self.n_stale)
            return cast(Logits, np.concatenate([_ROWS[letter % 26] for letter in letters]))


class SoakEngine(FakeEngine):
    """The fake engine over that model."""

    def __init__(self, model: SoakModel) -> None:
        super().__init__(max_seq_len=model.max_seq_len)
        self.model = model
        cache = KVCache(self.config, model.ops, max_seq_len=model.max_seq_len)
        self.generator = FakeGenerator(
            cast(Model, model),
            PrefixCache(cache),
            self.tokenizer,
            eos_token_ids=self.eos_token_ids,
            constraints=self.constraints,
        )
        self.generator.faults = self.faults


def expected_reply(prompt: str, n_letters: int) -> str:
    """What the engine answers to `prompt` when it serves nothing else."""
    checksum = zlib.crc32(array("H", list(prompt.encode())).tobytes())
    letters = bytearray()
    for _ in range(n_letters):
        letters.append(_A + checksum % 26)
        checksum = zlib.crc32(array("H", list(letters[-1:])).tobytes(), checksum)
    return letters.decode()


def _compute(seconds: float) -> None:
    """Keep one core busy; hashing releases the interpreter lock."""
    block = bytes(1 << 20)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        hashlib.sha256(block)
