"""GPT-NeoX, such as Pythia: parallel blocks with LayerNorm and biases; q, k and v of each head
stand together.
"""

from ...files import JsonObject
from ..config import LayerConfig
from ..rope_keys import RopeDefaults
from .family import Family, Sizes
from .names import Names

_NAMES = Names(
    embedding="gpt_neox.embed_in",
    norm="gpt_neox.final_layer_norm",
    head="embed_out",
    layer="gpt_neox.layers.{}.",
    qkv=("attention.query_key_value",),
    fused_per_head=True,
    output="attention.dense",
    gate_up=("mlp.dense_h_to_4h",),
    down="mlp.dense_4h_to_h",
    ignored=r"gpt_neox\.layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
)


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=True)
    layer = sizes.layer(
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=True,
        gated=False,
        parallel=file.boolean("use_parallel_residual", default=True),
    )
    return (layer,) * sizes.n_layers


FAMILY = Family(
    architecture="GPTNeoXForCausalLM",
    layers=_layers,
    sources=_NAMES.sources,
    max_positions=2048,
    has_groups=False,
    norm_eps=1e-5,
    eps_key="layer_norm_eps",
    centered_norms=True,
    norm_bias=True,
    activation="gelu",
    gated=False,
    rope=RopeDefaults(partial=0.25, theta_key="rotary_emb_base", partial_key="rotary_pct"),
    reads=frozenset({"use_parallel_residual"}),
)
