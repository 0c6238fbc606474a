"""One generic decoder, configured by data.

Owns the order of the ops of a pass over one sequence. A pass is recorded once per cache, on buffers
that are owned here, and then runs for any token ids. Knows no text, no sampling and no file; the
names of the families live in `families.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from ..abort import AbortFlag
from ..cache.kv import KVCache
from ..checkpoint.config import ModelConfig
from ..device.ops import Array, Ops, OpTime, Program
from ..device.step import StepState
from ..sampling.logits import Logits, Rows
from .rope import rope_tables
from .weights import Weights

MAX_DECODE_ROWS = 16


@dataclass(slots=True)
class _Passes:
    """The recorded passes over one cache."""

    prefill: Program  # as far as the last layer's K/V
    decode: Program
    hidden: Program | None = None  # all but the logits; recorded when a prompt's are wanted


class Model:
    """Weights plus working memory: runs token ids at the end of a cache."""

    def __init__(
        self,
        weights: Weights,
        config: ModelConfig,
        ops: Ops,
        *,
        max_seq_len: int,
        chunk_size: int | None = None,
    ) -> None:
        """`chunk_size` is how many prompt tokens one pass of the prefill takes; None: as many as
        the ops do best.
        """
        chunk_size = min(ops.prefill_rows, max_seq_len) if chunk_size is None else chunk_size
        if chunk_size < 1:
            raise ValueError(f"chunk_size is {chunk_size}; at least 1 is needed")
        self.config = config
        self.max_seq_len = max_seq_len
        self.chunk_size = chunk_size
        self.ops = ops
        self.weights = weights
        self._cos, self._sin = (ops.table(table) for table in rope_tables(config.rope, max_seq_len))
        self._max_rows = max(chunk_size, MAX_DECODE_ROWS)
        self._buffers = _Buffers(
            config, ops, max_rows=self._max_rows, max_logits_rows=MAX_DECODE_ROWS
        )
        self._decode_state = StepState(MAX_DECODE_ROWS)
        self._recorded_for: WeakKeyDictionary[KVCache, _Passes] = WeakKeyDictionary()
        self._heads: list[Program] = []

    def warm_up(self, cache: KVCache) -> None:
        """Runs a token on the empty `cache`, and forgets it: that records the pass, starts the
        threads and brings in the memory that the first prompt would wait for.
        """
        self.decode([0], cache)
        self.ops.wait()
        cache.clear()

    def prefill(
        self,
        token_ids: Sequence[int],
        cache: KVCache,
        *,
        abort: AbortFlag | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        on_logits: Callable[[Logits], None] | None = None,
    ) -> bool:
        """Appends the K/V of `token_ids` to the cache in chunks.

        `abort` is looked at before each op. Returns False when it was set: whole chunks done so far
        stay in the cache, a partial one does not count. `on_progress` gets (done, total) after each
        chunk. No logits are computed unless there is `on_logits`: it gets those after each token,
        in order, some rows at a time: (rows, vocab_size), in a buffer that is overwritten next.
        """
        self._check(token_ids, cache)
        program = self._passes(cache).prefill if on_logits is None else self._hidden_pass(cache)
        # A state of its own: a flag that is set late writes where nobody looks any more.
        state = StepState(self.chunk_size)
        if abort is not None:
            abort.write_to(state.abort_word)
        total = len(token_ids)
        for start in range(0, total, self.chunk_size):
            if abort is not None and abort.is_set():  # whoever owns the flag sees that we go on
                return False
            chunk = token_ids[start : start + self.chunk_size]
            state.set(chunk, cache.length)
            if not program.run(state):
                return False
            if on_logits is not None and not self._tell_logits(state, chunk, on_logits):
                return False
            cache.append(chunk)
            if on_progress is not None:
                on_progress(start + len(chunk), total)
        return True

    def decode(self, token_ids: Sequence[int], cache: KVCache) -> Rows:
        """Appends 1 to 16 ids to the cache and returns the logits after each of them.

        (rows, vocab_size), in a buffer of the model that the next call overwrites. An asynchronous
        pass may still run then; whoever reads the rows waits for it.
        """
        n_rows = len(token_ids)
        if not 1 <= n_rows <= MAX_DECODE_ROWS:
            raise ValueError(f"decode takes 1 to {MAX_DECODE_ROWS} token ids, not {n_rows}")
        self._check(token_ids, cache)
        program = self._passes(cache).decode
        self._decode_state.set(token_ids, cache.length)
        program.run(self._decode_state)
        cache.append(token_ids)
        return program.rows(self._buffers.logits[:n_rows])

    def expect_next(self, cache: KVCache) -> None:
        """After `decode`: the next call will be for one token, drawn from the last row of this one,
        most likely.
        """
        self._passes(cache).decode.expect_next()

    def profile(self, token_ids: Sequence[int], cache: KVCache) -> list[OpTime]:
        """Like `decode`; what each op took. Empty where the device keeps no times."""
        self._check(token_ids, cache)
        program = self._passes(cache).decode
        self._decode_state.set(token_ids, cache.length)
        times = program.profile(self._decode_state)
        cache.append(token_ids)
        return times

    def _check(self, token_ids: Sequence[int], cache: KVCache) -> None:
        cache.check_room(len(token_ids))
        vocab_size = self.config.vocab_size
        if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
            raise ValueError(f"token ids must lie in 0 to {vocab_size - 1}")

    def _tell_logits(
        self,
        state: StepState,
        chunk: Sequence[int],
        on_logits: Callable[[Logits], None],
    ) -> bool:
        """The logits of a chunk whose rows a pass has left behind; False when it was aborted."""
        if not self._heads:
            self._heads = [
                self._recorded_head(first) for first in range(0, self._max_rows, MAX_DECODE_ROWS)
            ]
        pos = state.pos
        for first in range(0, len(chunk), MAX_DECODE_ROWS):
            rows = chunk[first : first + MAX_DECODE_ROWS]
            state.set(rows, pos + first)
            head = self._heads[first // MAX_DECODE_ROWS]
            if not head.run(state):
                return False
            on_logits(np.asarray(head.rows(self._buffers.logits[: len(rows)])))
        return True

    def _passes(self, cache: KVCache) -> _Passes:
        """The passes over `cache`; those of every stream are recorded when it is first seen."""
        passes = self._recorded_for.get(cache)
        if passes is None:
            prefill, decode = self._recorded(cache, to_end=False), self._recorded(cache)
            self._logits(decode)
            passes = self._recorded_for[cache] = _Passes(prefill, decode)
        return passes

    def _hidden_pass(self, cache: KVCache) -> Program:
        passes = self._passes(cache)
        if passes.hidden is None:
            passes.hidden = self._recorded(cache)
        return passes.hidden

    def _recorded(self, cache: KVCache, *, to_end: bool = True) -> Program:
        """A pass through all layers; unless `to_end`, of the last one only its K/V are needed."""
        program, last = self.ops.program(self._max_rows), self.config.n_layers - 1
        program.embed(self.weights.embedding, out=self._buffers.residual)
        for index in range(self.config.n_layers):
            self._attention(program, index, cache)
            if index < last or to_end:
                self._output_and_mlp(program, index)
        return program

    def _recorded_head(self, first: int) -> Program:
        """The logits of the rows from `first` on, as many as there is room for."""
        program = self.ops.program(MAX_DECODE_ROWS)
        self._logits(program, first)
        return program

    def _attention(self, program: Program, index: int, cache: KVCache) -> None:
        config, buffers, layer = self.config, self._buffers, self.weights.layers[index]
        first = index == 0
        program.norm_linear(
            buffers.residual if first else buffers.next_residual,
            layer.wqkv,
            branch=None if first else buffers.branch,
            residual_out=None if first else buffers.residual,
            norm=layer.attention_norm,
            eps=config.norm_eps,
            bias=layer.bqkv,
            out=buffers.qkv,
        )
        k_cache, v_cache = cache.layers[index]
        program.attention(
            buffers.qkv,
            k_cache,
            v_cache,
            n_heads=config.n_heads,
            q_norm=layer.q_norm,
            k_norm=layer.k_norm,
            eps=config.norm_eps,
            cos=self._cos,
            sin=self._sin,
            window=config.layers[index].window,
            scale=config.head_dim**-0.5,
            out=buffers.heads,
        )

    def _output_and_mlp(self, program: Program, index: int) -> None:
        buffers, layer = self._buffers, self.weights.layers[index]
        program.linear(buffers.heads, layer.wo, bias=layer.bo, out=buffers.branch)
        program.norm_linear(
            buffers.residual,
            layer.w_gate_up,
            branch=buffers.branch,
            residual_out=buffers.next_residual,
            norm=layer.mlp_norm,
            eps=self.config.norm_eps,
            bias=layer.b_gate_up,
            gated=True,
            out=buffers.gated,
        )
        program.linear(buffers.gated, layer.w_down, bias=layer.b_down, out=buffers.branch)

    def _logits(self, program: Program, first: int = 0) -> None:
        """Of the rows from `first` on."""
        buffers = self._buffers
        program.norm_linear(
            buffers.next_residual[first:],
            self.weights.head,
            branch=buffers.branch[first:],
            residual_out=buffers.residual[first:],
            norm=self.weights.norm,
            eps=self.config.norm_eps,
            out=buffers.logits,
        )


class _Buffers:
    """The memory that a pass works in: activations of up to `max_rows` rows, logits of up to
    `max_logits_rows`. An op takes the number of its rows from the step state.
    """

    def __init__(
        self, config: ModelConfig, ops: Ops, *, max_rows: int, max_logits_rows: int
    ) -> None:
        def rows_of(width: int) -> Array:
            return ops.zeros((max_rows, width), ops.activation_dtype)

        # Two: an op that adds a branch to the residual may not write over what it reads.
        self.residual, self.next_residual = rows_of(config.dim), rows_of(config.dim)
        self.branch = rows_of(config.dim)  # what attention or MLP adds to the residual
        self.qkv = rows_of(config.qkv_dim)
        self.heads = rows_of(config.n_heads * config.head_dim)  # what attention writes
        self.gated = rows_of(config.hidden_dim)
        self.logits = ops.zeros((max_logits_rows, config.vocab_size), "float32")
