"""What an architecture of GGUF files is, and where such a file has its tensors.

llama.cpp's converter gives all of them the same names; they differ in which tensors there are, and
in the order of rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..config import LayerConfig, ModelConfig
from ..sources import LayerSources, ModelSources, Source, Sources

EMBEDDING, HEAD, ROPE_DIVISORS = "token_embd.weight", "output.weight", "rope_freqs.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One value of general.architecture."""

    name: str
    rope_pairs: bool = False
    """Whether the rows of q and k that are rotated together stand next to each other."""
    qkv_bias: bool = False
    """Whether q, k and v must have biases. If not, they have them where a file stores them."""
    qk_norm: bool = False
    """Whether each query and key head is normed."""


def gguf_sources(config: ModelConfig, architecture: Architecture) -> ModelSources:
    """The names of a GGUF file, with the biases and norms that `config` has."""
    table = (config.vocab_size, config.dim)
    return ModelSources(
        embedding=Source(EMBEDDING, table),
        norm=Source("output_norm.weight", (config.dim,)),
        head=Source(HEAD, table),
        layers=tuple(
            _layer_sources(f"blk.{index}.", layer, config.dim, architecture)
            for index, layer in enumerate(config.layers)
        ),
        # They are part of the configuration.
        ignored=ROPE_DIVISORS.replace(".", r"\."),
    )


def _layer_sources(
    prefix: str, layer: LayerConfig, dim: int, architecture: Architecture
) -> LayerSources:
    attention, mlp = layer.attention, layer.mlp
    q_dim, kv_dim, hidden = attention.q_dim, attention.kv_dim, mlp.hidden_dim
    pairs = architecture.rope_pairs
    qkv = (
        ("attn_q", q_dim, attention.n_heads if pairs else 0),
        ("attn_k", kv_dim, attention.n_kv_heads if pairs else 0),
        ("attn_v", kv_dim, 0),
    )
    output, gate_up, down = (
        (("attn_output", dim, 0),),
        (("ffn_gate", hidden, 0), ("ffn_up", hidden, 0)),
        (("ffn_down", dim, 0),),
    )

    def weights(names: Sequence[tuple[str, int, int]], n_in: int) -> Sources:
        return tuple(
            Source(f"{prefix}{name}.weight", (n, n_in), rope_heads=heads)
            for name, n, heads in names
        )

    def biases(names: Sequence[tuple[str, int, int]], has_bias: bool) -> Sources:
        return tuple(
            Source(f"{prefix}{name}.bias", (n,), rope_heads=heads)
            for name, n, heads in names
            if has_bias
        )

    def norm(name: str, n: int) -> Sources:
        return (Source(f"{prefix}{name}.weight", (n,)),)

    gate, up = weights(gate_up, dim)
    return LayerSources(
        wqkv=weights(qkv, dim),
        bqkv=biases(qkv, attention.qkv_bias),
        wo=weights(output, q_dim),
        bo=biases(output, attention.o_bias),
        w_gate_up=(gate, up),
        b_gate_up=biases(gate_up, mlp.bias),
        w_down=weights(down, hidden),
        b_down=biases(down, mlp.bias),
        attention_norm=norm("attn_norm", dim),
        mlp_norm=norm("ffn_norm", dim),
        q_norm=norm("attn_q_norm", attention.head_dim) if attention.qk_norm else (),
        k_norm=norm("attn_k_norm", attention.head_dim) if attention.qk_norm else (),
    )
