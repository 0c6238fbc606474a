"""How many positions keys and values need: layers with a window see only the last ones.

Owns the shapes of a model's caches and their bytes. Knows no memory and no token.

Where a device allows it, caches with a window go round: position p lies at p modulo their length.
They hold what a pass sees and what it adds, and one block of keys more, so that no two blocks that
a pass touches share a place.
"""

from typing import TYPE_CHECKING

from ..checkpoint.config import ModelConfig
from .formats import kv_row_bytes

if TYPE_CHECKING:
    from .ops import KVShape

KEY_BLOCK = 256
"""Keys whose scores share a maximum, as csrc/cpu/attention.h has them."""
PASS_ROWS = 512
"""Prompt tokens in one pass of the prefill, by default."""


def goes_round(n_positions: int, window: int, pass_rows: int) -> bool:
    """Whether caches of `n_positions` serve any position of a layer with this window."""
    is_long_enough = n_positions >= window + pass_rows + KEY_BLOCK
    return window > 0 and n_positions % KEY_BLOCK == 0 and is_long_enough


def round_length(config: ModelConfig, max_seq_len: int, pass_rows: int) -> int:
    """The positions that caches with a window hold if they go round. The same for all of them, so
    that they lose the same. 0: none does, for each holds the whole sequence. So it
    is beside recurrent layers: their branches keep no copy of a window.
    """
    window = 0 if config.state_shapes else max(config.kv_windows, default=0)
    length = -(-(window + pass_rows + KEY_BLOCK) // KEY_BLOCK) * KEY_BLOCK
    return length if window and length < max_seq_len else 0


def kv_shapes(config: ModelConfig, max_seq_len: int, pass_rows: int | None) -> "list[KVShape]":
    """The shape of the keys of each layer that has its own. `pass_rows`: most rows of a pass on a
    device where caches go round; None: on another device.
    """
    length = round_length(config, max_seq_len, pass_rows) if pass_rows is not None else 0
    return [
        (n_kv_heads, length if window and length else max_seq_len, head_dim)
        for (n_kv_heads, head_dim), window in zip(config.kv_shapes, config.kv_windows, strict=True)
    ]


def kv_bytes(config: ModelConfig, format_: str, max_seq_len: int, pass_rows: int | None) -> int:
    """Bytes of keys and values for sequences of `max_seq_len`, held in a format of KV_FORMATS."""
    return sum(
        n_positions * kv_row_bytes(n_kv_heads, head_dim, format_)
        for n_kv_heads, n_positions, head_dim in kv_shapes(config, max_seq_len, pass_rows)
    )
