"""The memory that a pass of the decoder works in: every activation buffer, allocated once.

Buffers are whole; an op takes the number of its rows from the step state. Knows no weights.
"""

from ..checkpoint.config import ModelConfig
from ..device.ops import Array, Ops


class Buffers:
    """Activations of up to `max_rows` rows; logits of up to `max_logits_rows`."""

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
