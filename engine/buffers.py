"""The memory that a forward pass works in.

Owns every activation buffer, allocated once, the views of them per row count, and the step state:
the token ids, the position and the row count of the step that runs. Knows no weights and no ops.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .config import ModelConfig


class StepState:
    """All that differs from one step to the next: which ids, at which position, how many rows."""

    def __init__(self, max_rows: int, device: torch.device) -> None:
        # Written from Python without a tensor operation: a list assignment into the memory itself.
        self._host = torch.zeros(max_rows, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._words = (ctypes.c_int64 * max_rows).from_address(self._host.data_ptr())
        on_host = device.type == "cpu"
        self.token_ids = self._host if on_host else torch.zeros_like(self._host, device=device)
        self._on_host = on_host
        self.pos = 0
        self.n_rows = 0

    def set(self, token_ids: Sequence[int], pos: int) -> None:
        """The next step runs `token_ids` at positions `pos` and up."""
        n = len(token_ids)
        self._words[:n] = list(token_ids)
        if not self._on_host:
            self.token_ids.copy_(self._host)
        self.pos = pos
        self.n_rows = n


@dataclass(frozen=True, slots=True)
class RowViews:
    """Views of the buffers for one row count."""

    token_ids: torch.Tensor  # (rows,) int64
    residual: torch.Tensor  # (rows, dim)
    hidden: torch.Tensor  # (rows, dim), what a norm writes
    qkv: torch.Tensor  # (rows, (n_heads + 2 * n_kv_heads) * head_dim)
    heads: torch.Tensor  # (rows, n_heads * head_dim), what attention writes
    gate_up: torch.Tensor  # (rows, 2 * hidden_dim)
    gated: torch.Tensor  # (rows, hidden_dim)
    branch: torch.Tensor  # (rows, dim), what attention or MLP adds to the residual


class Buffers:
    """Activation memory for up to `max_rows` rows; logits for up to `max_logits_rows`."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        max_rows: int,
        max_logits_rows: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        def rows_of(width: int) -> torch.Tensor:
            return torch.zeros((max_rows, width), device=device, dtype=dtype)

        self.state = StepState(max_rows, device)
        self._whole = RowViews(
            token_ids=self.state.token_ids,
            residual=rows_of(config.dim),
            hidden=rows_of(config.dim),
            qkv=rows_of(config.qkv_dim),
            heads=rows_of(config.n_heads * config.head_dim),
            gate_up=rows_of(2 * config.hidden_dim),
            gated=rows_of(config.hidden_dim),
            branch=rows_of(config.dim),
        )
        self._logits = torch.zeros((max_logits_rows, config.vocab_size), device=device)
        # Views cost about a microsecond each, so those of the decode path are made here.
        self._decode_views = [self._slice(n) for n in range(1, max_logits_rows + 1)]
        self._logits_views = [self._logits[:n] for n in range(1, max_logits_rows + 1)]

    def views(self, n_rows: int) -> RowViews:
        """The first `n_rows` rows of every buffer."""
        if n_rows <= len(self._decode_views):
            return self._decode_views[n_rows - 1]
        return self._slice(n_rows)

    def logits(self, n_rows: int) -> torch.Tensor:
        """float32 (n_rows, vocab_size)."""
        return self._logits_views[n_rows - 1]

    def _slice(self, n: int) -> RowViews:
        whole = self._whole
        return RowViews(
            token_ids=whole.token_ids[:n],
            residual=whole.residual[:n],
            hidden=whole.hidden[:n],
            qkv=whole.qkv[:n],
            heads=whole.heads[:n],
            gate_up=whole.gate_up[:n],
            gated=whole.gated[:n],
            branch=whole.branch[:n],
        )
