"""One layer of the decoder as recorded ops, and the buffers that all layers work in.

Owns the order of a layer's ops. Knows no cache but the keys and values that it is given, and no
logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..checkpoint.config import LayerConfig, ModelConfig
from ..device.arguments import (
    Array,
    Attention,
    BranchAttention,
    HeadRows,
    Linear,
    NormLinear,
    Tails,
)
from ..device.ops import Ops, Program
from .rope import rope_tables
from .weights import LayerWeights


class Buffers:
    """Activations of up to `max_rows` rows. An op takes the number of its rows from the step
    state.
    """

    def __init__(self, config: ModelConfig, ops: Ops, *, max_rows: int) -> None:
        def rows_of(width: int) -> Array:
            return ops.zeros((max_rows, width), ops.activation_dtype)

        # Two: an op that adds to the residual must not overwrite what it reads. A layer's input and
        # output are `residual`; between attention and MLP it is `after_attention`.
        self.residual, self.after_attention = rows_of(config.dim), rows_of(config.dim)
        layers = config.layers
        # By width: layers of one width share them.
        self.qkv = {n: rows_of(n) for n in {layer.attention.qkv_dim for layer in layers}}
        self.heads = {n: rows_of(n) for n in {layer.attention.q_dim for layer in layers}}
        self.gated = {n: rows_of(n) for n in {layer.mlp.hidden_dim for layer in layers}}


@dataclass(frozen=True, slots=True)
class Layer:
    """What the ops of one layer are recorded from."""

    weights: LayerWeights
    config: LayerConfig
    rope: tuple[Array, Array]  # cos and sin
    norm_eps: float
    buffers: Buffers

    @property
    def heads(self) -> Array:
        """The outputs of all heads."""
        return self.buffers.heads[self.config.attention.q_dim]

    @property
    def gated(self) -> Array:
        """The MLP's inner activations."""
        return self.buffers.gated[self.config.mlp.hidden_dim]

    def append_attention(
        self, program: Program, kv: tuple[HeadRows, HeadRows], tails: Tails | None = None
    ) -> None:
        """Up to the outputs of the heads. `tails`: of rows that are branches."""
        buffers, weights, attention = self.buffers, self.weights, self.config.attention
        qkv, (k_cache, v_cache), (cos, sin) = buffers.qkv[attention.qkv_dim], kv, self.rope
        program.append(
            NormLinear(
                residual=buffers.residual,
                norm=weights.attention_norm,
                eps=self.norm_eps,
                matrix=weights.wqkv,
                bias=weights.bqkv,
                out=qkv,
            )
        )
        op = Attention(
            qkv=qkv,
            k_cache=k_cache,
            v_cache=v_cache,
            n_heads=attention.n_heads,
            q_norm=weights.q_norm,
            k_norm=weights.k_norm,
            eps=self.norm_eps,
            cos=cos,
            sin=sin,
            window=attention.window,
            scale=attention.head_dim**-0.5,
            out=self.heads,
        )
        program.append(op if tails is None else BranchAttention(attention=op, tails=tails))

    def append_rest(self, program: Program) -> None:
        """Output projection and MLP; each adds to the residual."""
        buffers, weights = self.buffers, self.weights
        program.append(
            Linear(
                x=self.heads,
                matrix=weights.wo,
                bias=weights.bo,
                residual=buffers.residual,
                out=buffers.after_attention,
            )
        )
        program.append(
            NormLinear(
                residual=buffers.after_attention,
                norm=weights.mlp_norm,
                eps=self.norm_eps,
                matrix=weights.w_gate_up,
                bias=weights.b_gate_up,
                gated=True,
                out=self.gated,
            )
        )
        program.append(
            Linear(
                x=self.gated,
                matrix=weights.w_down,
                bias=weights.b_down,
                residual=buffers.after_attention,
                out=buffers.residual,
            )
        )


def rope_arrays(config: ModelConfig, ops: Ops, max_seq_len: int) -> Sequence[tuple[Array, Array]]:
    """cos and sin of each of the model's `ropes`."""
    tables = [rope_tables(rope, max_seq_len) for rope in config.ropes]
    return [(ops.table(cos), ops.table(sin)) for cos, sin in tables]
