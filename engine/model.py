"""One generic decoder, configured by data.

Owns the order of the ops of a forward pass over one sequence. Every computation is a call of
`ops`, on buffers owned here, so that a step can be recorded and replayed. Knows no text, no
sampling and no file; the names of the families live in `families.py`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from .buffers import Buffers, RowViews
from .cache import KVCache
from .config import ModelConfig
from .ops import Ops
from .rope import rope_tables
from .weights import Weights

MAX_DECODE_ROWS = 16


class AbortFlag(Protocol):
    """What may stop a prefill; threading.Event is one."""

    def is_set(self) -> bool: ...


class Model:
    """Weights plus working memory: runs token ids at the end of a cache."""

    def __init__(
        self,
        weights: Weights,
        config: ModelConfig,
        *,
        device: torch.device,
        dtype: torch.dtype,
        max_seq_len: int,
        chunk_size: int = 512,
    ) -> None:
        """`chunk_size` is how many prompt tokens one forward pass of the prefill takes."""
        if chunk_size < 1:
            raise ValueError(f"chunk_size is {chunk_size}; at least 1 is needed")
        self.config = config
        self.device = device
        self.dtype = dtype
        self.max_seq_len = max_seq_len
        self.chunk_size = chunk_size
        self.ops = Ops(device)
        self._weights = weights
        cos, sin = rope_tables(config.rope, max_seq_len)
        self._cos, self._sin = cos.to(device), sin.to(device)
        self._scale = config.head_dim**-0.5
        self._buffers = Buffers(
            config,
            max_rows=max(chunk_size, MAX_DECODE_ROWS),
            max_logits_rows=MAX_DECODE_ROWS,
            device=device,
            dtype=dtype,
        )

    @torch.inference_mode()
    def prefill(
        self,
        token_ids: Sequence[int],
        cache: KVCache,
        *,
        abort: AbortFlag | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> bool:
        """Appends the K/V of `token_ids` to the cache in chunks; computes no logits.

        `abort` is looked at before each layer. Returns False when it was set: whole chunks done
        so far stay in the cache, a partial one does not count. `on_progress` gets (done, total)
        after each chunk.
        """
        self._check(token_ids, cache)
        total = len(token_ids)
        for start in range(0, total, self.chunk_size):
            chunk = token_ids[start : start + self.chunk_size]
            views = self._begin(chunk, cache)
            if not self._layers(views, cache, abort=abort, last_is_kv_only=True):
                return False
            cache.append(chunk)
            if on_progress is not None:
                on_progress(start + len(chunk), total)
        return True

    @torch.inference_mode()
    def decode(self, token_ids: Sequence[int], cache: KVCache) -> torch.Tensor:
        """Appends 1 to 16 ids to the cache and returns the logits after each of them.

        float32 (rows, vocab_size), in a buffer of the model that the next call overwrites.
        """
        n_rows = len(token_ids)
        if not 1 <= n_rows <= MAX_DECODE_ROWS:
            raise ValueError(f"decode takes 1 to {MAX_DECODE_ROWS} token ids, not {n_rows}")
        self._check(token_ids, cache)
        views = self._begin(token_ids, cache)
        self._layers(views, cache, abort=None, last_is_kv_only=False)
        weights, logits = self._weights, self._buffers.logits(n_rows)
        eps = self.config.norm_eps
        self.ops.add_rms_norm(views.residual, views.branch, weights.norm, eps=eps, out=views.hidden)
        self.ops.logits(views.hidden, weights.head, out=logits)
        cache.append(token_ids)
        return logits

    def _check(self, token_ids: Sequence[int], cache: KVCache) -> None:
        cache.check_room(len(token_ids))
        vocab_size = self.config.vocab_size
        if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
            raise ValueError(f"token ids must lie in 0 to {vocab_size - 1}")

    def _begin(self, token_ids: Sequence[int], cache: KVCache) -> RowViews:
        self._buffers.state.set(token_ids, cache.length)
        views = self._buffers.views(len(token_ids))
        self.ops.embed(self._weights.embedding, views.token_ids, out=views.residual)
        return views

    def _layers(
        self, views: RowViews, cache: KVCache, *, abort: AbortFlag | None, last_is_kv_only: bool
    ) -> bool:
        """Runs all layers; the last MLP's output is left in `views.branch`. False: aborted.

        A prefill needs of the last layer only its K/V.
        """
        last = self.config.n_layers - 1
        for index in range(self.config.n_layers):
            if abort is not None and abort.is_set():
                return False
            self._keys_and_values(index, views, cache)
            if index == last and last_is_kv_only:
                break
            self._attention(index, views, cache)
            self._mlp(index, views)
        return True

    def _keys_and_values(self, index: int, views: RowViews, cache: KVCache) -> None:
        ops, config, layer = self.ops, self.config, self._weights.layers[index]
        pos = self._buffers.state.pos
        k_cache, v_cache = cache.layers[index]
        eps = config.norm_eps
        if index == 0:
            ops.rms_norm(views.residual, layer.attention_norm, eps=eps, out=views.hidden)
        else:
            ops.add_rms_norm(
                views.residual, views.branch, layer.attention_norm, eps=eps, out=views.hidden
            )
        ops.linear(views.hidden, layer.wqkv, bias=layer.bqkv, out=views.qkv)
        ops.head_norm_rope(
            views.qkv,
            n_heads=config.n_heads,
            n_kv_heads=config.n_kv_heads,
            q_weight=layer.q_norm,
            k_weight=layer.k_norm,
            eps=eps,
            cos=self._cos,
            sin=self._sin,
            pos=pos,
        )
        ops.kv_write(views.qkv, k_cache, v_cache, n_heads=config.n_heads, pos=pos)

    def _attention(self, index: int, views: RowViews, cache: KVCache) -> None:
        layer = self._weights.layers[index]
        k_cache, v_cache = cache.layers[index]
        self.ops.attention(
            views.qkv,
            k_cache,
            v_cache,
            n_heads=self.config.n_heads,
            pos=self._buffers.state.pos,
            window=self.config.layers[index].window,
            scale=self._scale,
            out=views.heads,
        )
        self.ops.linear(views.heads, layer.wo, bias=layer.bo, out=views.branch)

    def _mlp(self, index: int, views: RowViews) -> None:
        ops, layer = self.ops, self._weights.layers[index]
        eps = self.config.norm_eps
        ops.add_rms_norm(views.residual, views.branch, layer.mlp_norm, eps=eps, out=views.hidden)
        ops.linear(views.hidden, layer.w_gate_up, bias=layer.b_gate_up, out=views.gate_up)
        ops.silu_mul(views.gate_up, out=views.gated)
        ops.linear(views.gated, layer.w_down, bias=layer.b_down, out=views.branch)
