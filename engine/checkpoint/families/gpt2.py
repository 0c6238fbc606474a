"""GPT-2: learned positions, LayerNorm, biases, and matrices that are stored transposed."""

from ...files import JsonObject
from ..config import Ends, LayerConfig
from ..limits import MAX_CONTEXT
from ..rope_keys import RopeDefaults
from ..ropes import RopeConfig
from .family import Family, Sizes
from .names import Names

_MAX_POSITIONS = 1024
_NAMES = Names(
    embedding="transformer.wte",
    positions="transformer.wpe",
    norm="transformer.ln_f",
    layer="transformer.h.{}.",
    qkv=("attn.c_attn",),
    output="attn.c_proj",
    gate_up=("mlp.c_fc",),
    down="mlp.c_proj",
    attention_norm="ln_1",
    mlp_norm="ln_2",
    transposed=True,
    ignored=r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",
)


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    scale = sizes.head_dim**-0.5 if file.boolean("scale_attn_weights", default=True) else 1.0
    by_depth = file.boolean("scale_attn_by_inverse_layer_idx", default=False)
    return tuple(
        sizes.layer(
            rope=None,
            qkv_bias=True,
            o_bias=True,
            scale=scale / (index + 1) if by_depth else scale,
            mlp_bias=True,
            gated=False,
        )
        for index in range(sizes.n_layers)
    )


def _no_ropes(
    file: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> tuple[RopeConfig, ...]:
    return ()


def _ends(file: JsonObject, dim: int) -> Ends:
    n = file.integer("n_positions", low=1, high=MAX_CONTEXT, default=_MAX_POSITIONS)
    return Ends(n_positions=n)


FAMILY = Family(
    architecture="GPT2LMHeadModel",
    layers=_layers,
    sources=_NAMES.sources,
    max_positions=_MAX_POSITIONS,
    hidden_per_dim=4,
    keys={
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
    },
    has_groups=False,
    norm_eps=1e-5,
    eps_key="layer_norm_epsilon",
    centered_norms=True,
    norm_bias=True,
    activation_key="activation_function",
    activation="gelu_new",
    gated=False,
    tied=True,
    ropes=_no_ropes,
    ends=_ends,
    reads=frozenset({"scale_attn_weights", "scale_attn_by_inverse_layer_idx"}),
)
