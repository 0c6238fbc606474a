"""The buffers that all layers work in.

Owns their sizes, and which of them holds the residual. Knows no op.
"""

from itertools import accumulate

from ..checkpoint.config import ModelConfig
from ..device.arguments import Array
from ..device.ops import Ops
from .embeddings import LayerEmbeddingRows


class Buffers:
    """Activations of up to `max_rows` rows. An op takes the number of its rows from the step
    state.
    """

    def __init__(self, config: ModelConfig, ops: Ops, *, max_rows: int) -> None:
        def rows_of(width: int) -> Array:
            return ops.zeros((max_rows, width), ops.activation_dtype)

        # Two that take turns: an op that adds to the residual must not overwrite what it reads. The
        # first layer's input is `residual`; between attention and MLP it is `after_attention`.
        self.residual, self.after_attention = rows_of(config.dim), rows_of(config.dim)
        self.kept: dict[int, Array] = {}
        """The residuals in front of some layers, by index, which no later op overwrites."""
        layers = config.layers
        both = self.residual, self.after_attention
        n_added = accumulate((layer.n_halves for layer in layers), initial=0)
        self.ends = [both if n % 2 == 0 else both[::-1] for n in n_added]
        """In front of each layer, and behind the last: the residual, and the next sum's buffer."""
        # By width: layers of one width share them.
        self.mixed = {n: rows_of(n) for n in {layer.in_dim for layer in layers} - {0}}
        self.heads = {n: rows_of(n) for n in {layer.out_dim for layer in layers} - {0}}
        attentions = [layer.attention for layer in layers]
        self.gates = {n: rows_of(n) for n in {own.q_dim for own in attentions if own.output_gate}}
        all_experts = [each for layer in layers if (each := layer.mlp.experts) is not None]
        self.router = {n: rows_of(n) for n in {experts.router_dim for experts in all_experts}}
        widths = {experts.latent_dim for experts in all_experts} - {0}
        self.latent = {n: rows_of(n) for n in widths}
        # Experts bring along what all tokens go through, unless that has norms of its own.
        has_own = any(experts.own_norms for experts in all_experts)
        plain = [layer.mlp for layer in layers if layer.mlp.experts is None or has_own]
        self.gated = {n: rows_of(n) for n in {mlp.hidden_dim for mlp in plain} - {0}}
        self.experts_added = rows_of(config.dim) if has_own else self.after_attention
        self.layer_embeddings = LayerEmbeddingRows.of(config, rows_of)
        # What a layer adds, before its norm.
        needs_added = any(layer.post_norms for layer in layers)
        self.added = rows_of(config.dim) if needs_added else self.after_attention
