"""What of a model the native CUDA code has no kernels for: torch computes those models.

Owns the list. Imports no torch.
"""

from ...checkpoint.config import LayerConfig, ModelConfig


def lacking_parts(config: ModelConfig) -> list[str]:
    """The parts, in words; none for a model that the kernels compute as a whole."""
    ends, layers = config.ends, config.layers
    parts = {
        "LayerNorm": config.centered_norms or config.norm_bias,
        "embeddings of each layer": ends.layer_embeddings is not None,
        "a scaled embedding": ends.embedding_scale != 1.0,
        "learned positions": ends.n_positions > 0,
        "layers whose keys and values differ in size": len(set(config.kv_shapes)) > 1,
        "scaled or capped logits": ends.logit_scale != 1.0 or ends.logit_softcap != 0.0,
    }
    return [part for part, is_there in parts.items() if is_there] + list(
        dict.fromkeys(part for layer in layers for part in _of_layer(layer))
    )


def _of_layer(layer: LayerConfig) -> list[str]:
    attention, mlp = layer.attention, layer.mlp
    norm = attention.qk_norm
    parts = {
        "norms behind attention and feed-forward": layer.post_norms or not layer.pre_norms,
        "scaled residuals": layer.residual_scale != 1.0,
        "recurrent layers": layer.recurrent is not None,
        "gated attention": attention.output_gate,
        "a mixture of experts": mlp.experts is not None,
        "a feed-forward part without a gate": not mlp.gated,
        f"the activation {mlp.activation}": mlp.gated and mlp.activation != "silu",
        "capped scores": attention.softcap != 0.0,
        "other norms of queries and keys": norm is not None and not norm.is_plain,
        "layers without rope": attention.rope is None,
        "a temperature of queries": attention.query_scaling is not None,
        "attention sinks": attention.sinks,
        "norms of values": attention.v_norm,
        "keys and values of another layer": attention.kv_from is not None,
        "a factor of each layer": layer.has_factor,
    }
    return [part for part, is_there in parts.items() if is_there]
