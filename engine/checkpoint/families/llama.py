"""Llama, and the tensor names that most families took over from it."""

from collections.abc import Sequence

from ...files import JsonObject
from ..config import LayerConfig, ModelConfig
from ..sources import LayerSources, ModelSources, Source, Sources
from .family import Family, Sizes


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    mlp_bias = file.boolean("mlp_bias", default=False)
    return (sizes.layer(qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias),) * sizes.n_layers


def llama_sources(config: ModelConfig) -> ModelSources:
    """Llama's names in Hugging Face checkpoints, with the biases and norms that `config` has."""
    table = (config.vocab_size, config.dim)
    return ModelSources(
        embedding=Source("model.embed_tokens.weight", table),
        norm=Source("model.norm.weight", (config.dim,)),
        head=Source("lm_head.weight", table),
        layers=tuple(
            _layer_sources(f"model.layers.{index}.", layer, config.dim)
            for index, layer in enumerate(config.layers)
        ),
        # Tables that old checkpoints stored; they follow from config.json.
        ignored=r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    )


def _layer_sources(prefix: str, layer: LayerConfig, dim: int) -> LayerSources:
    attention, mlp = layer.attention, layer.mlp
    q_dim, kv_dim, hidden = attention.q_dim, attention.kv_dim, mlp.hidden_dim

    def weights(names: Sequence[str], n_rows: Sequence[int], n_in: int) -> Sources:
        return tuple(
            Source(f"{prefix}{name}.weight", (n, n_in))
            for name, n in zip(names, n_rows, strict=True)
        )

    def biases(names: Sequence[str], n_rows: Sequence[int], has_bias: bool) -> Sources:
        if not has_bias:
            return ()
        return tuple(
            Source(f"{prefix}{name}.bias", (n,)) for name, n in zip(names, n_rows, strict=True)
        )

    def norm(name: str, n: int) -> Sources:
        return (Source(f"{prefix}{name}.weight", (n,)),)

    qkv = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    output, down = ("self_attn.o_proj",), ("mlp.down_proj",)
    gate, up = "mlp.gate_proj", "mlp.up_proj"
    return LayerSources(
        wqkv=weights(qkv, (q_dim, kv_dim, kv_dim), dim),
        bqkv=biases(qkv, (q_dim, kv_dim, kv_dim), attention.qkv_bias),
        wo=weights(output, (dim,), q_dim),
        bo=biases(output, (dim,), attention.o_bias),
        w_gate_up=(
            Source(f"{prefix}{gate}.weight", (hidden, dim)),
            Source(f"{prefix}{up}.weight", (hidden, dim)),
        ),
        b_gate_up=biases((gate, up), (hidden, hidden), mlp.bias),
        w_down=weights(down, (dim,), hidden),
        b_down=biases(down, (dim,), mlp.bias),
        attention_norm=norm("input_layernorm", dim),
        mlp_norm=norm("post_attention_layernorm", dim),
        q_norm=norm("self_attn.q_norm", attention.head_dim) if attention.qk_norm else (),
        k_norm=norm("self_attn.k_norm", attention.head_dim) if attention.qk_norm else (),
    )


FAMILY = Family(
    architecture="LlamaForCausalLM",
    layers=_layers,
    sources=llama_sources,
    max_positions=2048,
)
