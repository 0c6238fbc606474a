"""What the native CUDA code has no kernels for: torch computes models with such parts.

Owns the list, and what no program records. Imports no torch.
"""

from ...checkpoint.config import LayerConfig, ModelConfig
from ..arguments import AddNorm, Attention, Embed, Experts, Linear, NormLinear, Op
from .activations import has_activation

MOST_EXPERTS = 32
"""Of a token, and groups that they come from: csrc/cuda/experts.h has a lane for each."""


def lacking_parts(config: ModelConfig) -> list[str]:
    """The parts, in words; none for a model that the kernels compute as a whole."""
    ends, layers = config.ends, config.layers
    parts = {
        "LayerNorm": config.centered_norms or config.norm_bias,
        "embeddings of each layer": ends.layer_embeddings is not None,
        "learned positions": ends.n_positions > 0,
        "layers whose keys and values differ in size": len(set(config.kv_shapes)) > 1,
    }
    return [part for part, is_there in parts.items() if is_there] + list(
        dict.fromkeys(part for layer in layers for part in _of_layer(layer))
    )


def _of_layer(layer: LayerConfig) -> list[str]:
    attention, mlp = layer.attention, layer.mlp
    norm = attention.qk_norm
    parts = {
        "recurrent layers": layer.recurrent is not None,
        "gated attention": attention.output_gate,
        "experts with norms of their own": mlp.experts is not None and mlp.experts.own_norms,
        f"more than {MOST_EXPERTS} experts of a token, or groups of experts": (
            mlp.experts is not None and max(mlp.experts.n_used, mlp.experts.n_groups) > MOST_EXPERTS
        ),
        f"the activation {mlp.activation}": not has_activation(mlp.activation, gated=mlp.gated),
        "other norms of queries and keys": norm is not None and not norm.is_plain,
        "a temperature of queries": attention.query_scaling is not None,
        "norms of values": attention.v_norm,
        "keys and values of another layer": attention.kv_from is not None,
        "a factor of each layer": layer.has_factor,
    }
    return [part for part, is_there in parts.items() if is_there]


def check_kernels(op: Op) -> None:
    """Raises ValueError for what no kernel computes; `lacking_parts` says it of whole
    models."""
    match op:
        case Embed():
            lacks = op.positions is not None
        case NormLinear():
            is_other = op.norm_bias is not None or op.centered
            lacks = is_other or not has_activation(op.function, gated=op.gated)
        case Linear() | AddNorm():
            lacks = False
        case Attention():
            lacks = not op.stores
        case Experts():
            is_other = op.norm_bias is not None or op.centered
            lacks = is_other or not has_activation(op.activation, gated=True)
        case _:
            lacks = True
    if lacks:
        raise ValueError(f"{type(op).__name__}: no CUDA kernel computes it with these arguments")
