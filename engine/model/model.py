"""One generic decoder, configured by data.

Owns the passes over one sequence: embeddings, layers, logits. A pass is recorded once per cache,
on buffers that are owned here, and then runs for any token ids. Knows no text, no sampling and no
file; the families are data of the checkpoint.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from ..abort import AbortFlag
from ..cache.kv import KVCache
from ..checkpoint.config import ModelConfig
from ..device.arguments import AddNorm, Array, NormLinear, Tails
from ..device.ops import BranchMemory, Ops, OpTime, Program
from ..device.step import StepState
from ..sampling.logits import Logits, Rows
from .ahead import TokenAhead
from .branches import Branches, PassesAgain, PassesInTurn, SharedPasses
from .buffers import Buffers
from .calibration import Floats
from .embeddings import Embedding
from .fusion import Fusion
from .layer import Layer
from .tables import layer_tables
from .weights import Weights

MAX_DECODE_ROWS = 16
MAX_VERIFY_ROWS = 64  # of a pass that goes over a long draft
# Gets the cache that a pass has grown, and what `keep_hidden` has asked for of its rows, (rows, n),
# until the next pass.
OnHidden = Callable[[KVCache, Floats], None]
# Positions for which the memory of branches is made at least, so that a longer look needs no other.
_BRANCH_POSITIONS = 64


@dataclass(slots=True)
class _Passes:
    """The recorded passes over one cache."""

    prefill: Program  # up to the last layer's K/V
    decode: Program
    rest: Program | None  # what is left of a row of `prefill`, up to its logits
    hidden: Program | None = None  # all but the logits; recorded when a prompt's are wanted
    verify: Program | None = None  # recorded at the first draft that `decode` is too short for
    branches: tuple[Program, BranchMemory] | None = None  # recorded when branches are wanted


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
        fusion: Fusion | None = None,
    ) -> None:
        """`chunk_size`: prompt tokens per pass of the prefill; None: the default of the ops.
        `fusion`: what a block that predicts more tokens does between embedding and layer.
        """
        chunk_size = min(ops.prefill_rows, max_seq_len) if chunk_size is None else chunk_size
        if chunk_size < 1:
            raise ValueError(f"chunk_size is {chunk_size}; at least 1 is needed")
        self.config = config
        self.max_seq_len = max_seq_len
        self.chunk_size = chunk_size
        self.ops = ops
        self.formats = weights.formats
        self.is_warm = False
        """Whether passes have run only to get ready for the first stream."""
        self.max_rows = max(chunk_size, ops.decode_rows)
        """That the buffers have room for."""
        self._buffers = Buffers(config, ops, max_rows=self.max_rows)
        # A block that drafts may have a head over fewer tokens than there are embeddings.
        self._logits_rows = ops.zeros((MAX_DECODE_ROWS, weights.head.n_out), "float32")
        self._tables = layer_tables(config, ops, max_seq_len)
        self._hidden: Array | None = None
        self.on_hidden: OnHidden | None = None
        """Is told after each pass, once `keep_hidden` or `keep_residuals` was called."""
        self._decode_state = StepState(MAX_DECODE_ROWS)
        # Most texts have no long drafts: made at the first one, as it is large.
        self._verify_rows: Array | None = None
        self._verify_state = StepState(MAX_VERIFY_ROWS)
        self._recorded_for: WeakKeyDictionary[KVCache, _Passes] = WeakKeyDictionary()
        self._heads: list[Program] = []
        self._ahead = TokenAhead()
        self.take_weights(weights, fusion)

    @property
    def weights(self) -> Weights:
        """Only while they are in memory."""
        assert self._weights is not None, "the weights were dropped"
        return self._weights

    def take_weights(self, weights: Weights, fusion: Fusion | None = None) -> None:
        """Runs on these from now on. Caches keep what they hold: if the weights are the same as
        before, so are the results.
        """
        self._weights: Weights | None = weights
        self._fusion = fusion
        self._embedding: Embedding | None = Embedding(
            table=weights.embedding,
            positions=weights.positions,
            of_layers=weights.layer_embeddings,
        )
        layers = zip(weights.layers, self.config.layers, self._tables, strict=True)
        beside = None if fusion is None else fusion.beside
        self._layers = [
            Layer(each, own, its_tables, self.config, self._buffers, index, beside)
            for index, (each, own, its_tables) in enumerate(layers)
        ]
        self._last = self._layers[-1].end  # the residual behind the last layer
        self.has_weights = True

    def drop_weights(self) -> None:
        """Gives their memory back to the system, with the passes that were recorded on it. Nothing
        can be run until `take_weights`.
        """
        self.ops.wait()
        self._weights = self._embedding = self._fusion = None
        self._layers = []
        self._recorded_for.clear()
        self._heads = []
        self.ops.give_back()
        self.has_weights = False  # last: other threads take it to mean that the memory is free

    def keep_hidden(self) -> None:
        """From now on passes compute the normed output of their rows too, also those of a prompt.

        Passes that were recorded before do not.
        """
        shape = (self.max_rows, self.config.dim)
        self._hidden = self.ops.zeros(shape, self.ops.activation_dtype)
        self._recorded_for.clear()

    def keep_residuals(self, layers: Sequence[int]) -> None:
        """From now on passes keep the residuals in front of these layers, from the second on, side
        by side for `on_hidden`. Passes that were recorded before do not.
        """
        shape = (self.max_rows, self.config.dim)
        kept = {index: self.ops.zeros(shape, self.ops.activation_dtype) for index in layers}
        self._buffers.kept = kept
        self._recorded_for.clear()

    @property
    def residual(self) -> Array:
        """(max_rows, dim): in front of the first layer; and behind a single one, after a pass."""
        return self._buffers.residual

    def hidden(self, row: int) -> Floats:
        """The normed output (dim,) of a row of the last pass, until the next."""
        found: Floats = np.asarray(self._hidden)[row]
        return found

    def warm_up(self, cache: KVCache) -> None:
        """Does what the first prompt would otherwise wait for: records the passes over the empty
        `cache`, which touches the memory that they work in, and runs a token if that is not all.
        """
        passes = self._passes(cache)
        if self.ops.needs_first_pass:
            self.decode([0], cache)
            passes.decode.warm_up()
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
        ends: Sequence[int] = (),
        after_pass: Callable[[], None] | None = None,
        next_id: int | None = None,
    ) -> bool:
        """Appends the K/V of `token_ids` to the cache in chunks.

        A pass ends at each of the positions `ends`, and `after_pass` is called after each pass: the
        states of recurrent layers are there only then.

        `abort` is looked at before each op. Returns False when it was set: whole chunks done so far
        stay in the cache, a partial one does not count. `on_progress` gets (done, total) after each
        chunk. No logits are computed unless there is `on_logits`: it gets those after each token,
        in order, some rows at a time: (rows, vocab_size), in a buffer that is overwritten next.

        `next_id`: the token that `decode` will most likely get next, alone. Its row goes along in
        the last pass if it can; then `decode` has little left to compute, and reads few weights.
        """
        can_go_along = on_logits is None and self.on_hidden is None
        next_ids = []
        if next_id is not None and can_go_along and self._passes(cache).rest is not None:
            next_ids = [next_id]
        self._check([*token_ids, *next_ids], cache)
        program = self._passes(cache).prefill if on_logits is None else self._hidden_pass(cache)
        # A state of its own: an abort that comes late must not stop the next pass.
        state = StepState(self.chunk_size)
        if abort is not None:
            abort.write_to(state.abort_word)
        done, total = 0, len(token_ids)
        n_rows = min(self.chunk_size, cache.pass_rows)
        while done < total:
            if abort is not None and abort.is_set():  # a flag of the caller may act on this call
                return False
            left = min(total - done, n_rows)
            rows = min((end - cache.length for end in ends if end > cache.length), default=left)
            chunk = token_ids[done : done + min(rows, left)]
            is_last = done + len(chunk) == total
            ahead = next_ids if is_last and len(chunk) < n_rows else []
            self._ahead.forget()
            cache.begin_pass(len(chunk) + len(ahead))
            state.set([*chunk, *ahead], cache.length)
            is_whole = program.run(state)
            if is_whole and on_logits is not None:
                is_whole = self._tell_logits(state, chunk, on_logits)
            if not is_whole:
                cache.forget_from(cache.length)  # the pass has overwritten some of what is held
                return False
            cache.append(chunk)
            done += len(chunk)
            for token_id in ahead:
                self._ahead.keep(cache, token_id, self._rows_ahead(), row=len(chunk))
            self._tell_hidden(cache, len(chunk))
            if after_pass is not None:
                after_pass()
            if on_progress is not None:
                on_progress(done, total)
        return True

    def decode(
        self, token_ids: Sequence[int], cache: KVCache, *, guesses_next: bool = False
    ) -> Rows:
        """Appends 1 to `decode_rows` ids to the cache and returns the logits after each of them.

        (rows, vocab_size), in a buffer of the model that the next call overwrites. An asynchronous
        pass may still be running; reading the rows waits for it.

        `guesses_next`: the next call will most likely be for the likeliest token after this single
        one. The device may begin it; `begin` then says which token it was.
        """
        n_rows = len(token_ids)
        if n_rows > MAX_DECODE_ROWS or n_rows < 1:
            most = self.decode_rows(cache)
            if not 1 <= n_rows <= most:
                raise ValueError(f"decode takes 1 to {most} token ids here, not {n_rows}")
        self._check(token_ids, cache)
        rest = self._passes(cache).rest if self._ahead.take(token_ids, cache) else None
        if n_rows <= MAX_DECODE_ROWS:
            program, logits_rows = rest or self._passes(cache).decode, self._logits_rows
            state = self._decode_state
        else:
            program, logits_rows = self._verify_pass(cache)
            state = self._verify_state
        guesses_next = (
            guesses_next
            and rest is None
            and self._may_begin(cache)
            and cache.length + 1 < cache.max_seq_len
        )
        cache.begin_pass(n_rows + guesses_next)
        state.set(token_ids, cache.length)
        program.run(state, guess_from=logits_rows if guesses_next else None)
        cache.append(token_ids)
        self._tell_hidden(cache, n_rows)
        return program.rows(logits_rows[:n_rows])

    def decode_rows(self, cache: KVCache) -> int:
        """The most ids that `decode` takes: as many as the device allows, and 16 with recurrent
        layers, which keep the states of so many rows.
        """
        if cache.states is not None:
            return MAX_DECODE_ROWS
        return min(self.ops.decode_rows, cache.pass_rows)

    def branches(self, cache: KVCache, *, n_positions: int) -> Branches:
        """Up to MAX_DECODE_ROWS sequences that go on from what `cache` holds now, each by at most
        `n_positions`. They end when the cache is used for anything else.
        """
        passes = self._passes(cache)
        self._ahead.forget()
        if cache.states is not None:
            return PassesAgain(
                cache,
                decode=lambda token_id: self.decode([token_id], cache),
                prefill=lambda token_ids: self.prefill(token_ids, cache),
                n_positions=n_positions,
            )
        in_turn = PassesInTurn(cache, lambda token_id: self.decode([token_id], cache))
        # Only attention knows that rows of a pass may be branches.
        if self.weights.positions is not None or any(each.has_places for each in self._layers):
            return in_turn
        if passes.branches is None or passes.branches[1].n_positions < n_positions:
            memory = self.ops.branch_memory(
                cache.shapes,
                n_branches=MAX_DECODE_ROWS,
                n_positions=max(n_positions, _BRANCH_POSITIONS),
                max_seq_len=cache.max_seq_len,
            )
            if memory is None:
                return in_turn
            program = self._recorded(cache, tails=memory.tails)
            self._logits(program)
            passes.branches = program, memory
        program, memory = passes.branches
        return SharedPasses(cache, program, memory, self._decode_state, self._logits_rows)

    def expect_next(self, cache: KVCache) -> None:
        """After `decode`: the next call will most likely be for one token, drawn from the last row
        of this one.
        """
        self._passes(cache).decode.expect_next()

    def begin(self, token_id: int, cache: KVCache) -> None:
        """The next call of `decode` will most likely be for this token, drawn from the last row.
        The device may begin it, which overwrites that row.
        """
        if not self._may_begin(cache):
            return
        self._ahead.forget()
        cache.begin_pass(1)
        self._decode_state.set((token_id,), cache.length)
        self._passes(cache).decode.begin(self._decode_state)

    def _may_begin(self, cache: KVCache) -> bool:
        """Whether a pass may begin before it is asked for."""
        # States could not be put back, and others may still read what the last pass has told.
        return cache.states is None and self.on_hidden is None

    def profile(self, token_ids: Sequence[int], cache: KVCache) -> list[OpTime]:
        """Like `decode`, but returns the time of each op; empty if the device has no times."""
        self._check(token_ids, cache)
        self._ahead.forget()
        program = self._passes(cache).decode
        cache.begin_pass(len(token_ids))
        self._decode_state.set(token_ids, cache.length)
        times = program.profile(self._decode_state)
        cache.append(token_ids)
        return times

    def _rows_ahead(self) -> list[Array]:
        """What a row is after the pass over a prompt, for the passes that go on with it."""
        layer, embeddings = self._layers[self.config.last_with_kv], self._buffers.layer_embeddings
        rows = [layer.residual, layer.heads]
        return rows if embeddings is None else [*rows, embeddings.all_layers]

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
        """Reports the logits of a chunk whose pass has just run; False if it was aborted."""
        if not self._heads:
            self._heads = [
                self._recorded_head(first) for first in range(0, self.max_rows, MAX_DECODE_ROWS)
            ]
        pos = state.pos
        for first in range(0, len(chunk), MAX_DECODE_ROWS):
            rows = chunk[first : first + MAX_DECODE_ROWS]
            state.set(rows, pos + first)
            head = self._heads[first // MAX_DECODE_ROWS]
            if not head.run(state):
                return False
            on_logits(np.asarray(head.rows(self._logits_rows[: len(rows)])))
        return True

    def _tell_hidden(self, cache: KVCache, n_rows: int) -> None:
        if self.on_hidden is None:
            return
        if self._buffers.kept:
            kept = [np.asarray(rows)[:n_rows] for rows in self._buffers.kept.values()]
            self.on_hidden(cache, np.concatenate(kept, axis=1))
        elif self._hidden is not None:
            self.on_hidden(cache, np.asarray(self._hidden)[:n_rows])

    def _passes(self, cache: KVCache) -> _Passes:
        """The passes over `cache`; those of every stream are recorded when it is first seen."""
        passes = self._recorded_for.get(cache)
        if passes is None:
            prefill, decode = (
                self._recorded(cache, to_end=self._reads_end),
                self._recorded(cache),
            )
            self._logits(decode)
            rest = self._recorded_rest(cache) if self._may_go_along(cache) else None
            passes = self._recorded_for[cache] = _Passes(prefill, decode, rest)
        return passes

    def _may_go_along(self, cache: KVCache) -> bool:
        """Whether a prompt's last pass may hold a row that is not yet part of the sequence."""
        return self.ops.rows_are_exact and self._may_begin(cache) and not self._reads_end

    @property
    def _reads_end(self) -> bool:
        """Whether more of a prompt is wanted than its keys and values."""
        kept = max(self._buffers.kept, default=0)
        return self._hidden is not None or kept > self.config.last_with_kv

    def _hidden_pass(self, cache: KVCache) -> Program:
        passes = self._passes(cache)
        if passes.hidden is None:
            passes.hidden = self._recorded(cache)
        return passes.hidden

    def _verify_pass(self, cache: KVCache) -> tuple[Program, Array]:
        """The pass over long drafts, and its logits."""
        if self._verify_rows is None:
            shape = (MAX_VERIFY_ROWS, self.weights.head.n_out)
            self._verify_rows = self.ops.zeros(shape, "float32")
        passes = self._passes(cache)
        if passes.verify is None:
            passes.verify = self._recorded(cache)
            self._logits(passes.verify, out=self._verify_rows)
        return passes.verify, self._verify_rows

    def _recorded(
        self, cache: KVCache, *, to_end: bool = True, tails: Sequence[Tails] | None = None
    ) -> Program:
        """A pass through all layers; unless `to_end`, it ends with the K/V of the last layer that
        has its own. With `tails`, its rows are branches.
        """
        config, buffers = self.config, self._buffers
        program = self._new_program(cache)
        assert self._embedding is not None, "the weights were dropped"
        if self._fusion is not None:
            self._fusion.append(program, self._embedding, config, buffers)
        else:
            rows = buffers.layer_embeddings
            self._embedding.append(program, config, out=buffers.residual, rows=rows)
        last = config.n_layers if to_end else config.last_with_kv
        places = config.kv_places
        for index, layer in enumerate(self._layers[: last + 1]):
            place = places[index]
            own = None if tails is None or place is None else tails[place]
            layer.append_attention(program, cache.layers[index], own)
            if index < last:
                layer.append_rest(program)
        if self._hidden is not None:
            self._append_hidden(program, self._hidden)
        return program

    def _new_program(self, cache: KVCache) -> Program:
        return self.ops.program(min(self.max_rows, cache.pass_rows))

    def _recorded_rest(self, cache: KVCache) -> Program:
        """What follows a prefill's pass: behind the keys and values of the last layer that has its
        own, up to the logits.
        """
        program, begin = self._new_program(cache), self.config.last_with_kv
        self._layers[begin].append_rest(program)
        for index, layer in enumerate(self._layers[begin + 1 :], begin + 1):
            layer.append_attention(program, cache.layers[index])
            layer.append_rest(program)
        self._logits(program)
        return program

    def _append_hidden(self, program: Program, out: Array) -> None:
        op = AddNorm(
            x=self._last,
            norm=self.weights.norm,
            eps=self.config.norm_eps,
            residual=None,
            out=out,
        )
        program.append(op)

    def _recorded_head(self, first: int) -> Program:
        """The logits of up to MAX_DECODE_ROWS rows, from `first` on."""
        program = self.ops.program(MAX_DECODE_ROWS)
        self._logits(program, first)
        return program

    def _logits(self, program: Program, first: int = 0, out: Array | None = None) -> None:
        """Records the logits of the rows from `first` on."""
        ends = self.config.ends
        program.append(
            NormLinear(
                residual=self._last[first:],
                norm=self.weights.norm,
                norm_bias=self.weights.norm_bias,
                centered=self.config.centered_norms,
                eps=self.config.norm_eps,
                matrix=self.weights.head,
                bias=self.weights.head_bias,
                scale=ends.logit_scale,
                softcap=ends.logit_softcap,
                out=self._logits_rows if out is None else out,
            )
        )
