"""Falcon-H1: attention and Mamba 2 side by side in each layer, then feed-forward, with a multiplier
at nearly every place.
"""

from dataclasses import replace

from ...files import JsonObject
from ..config import Ends, LayerConfig
from ..limits import MAX_WIDTH
from ..recurrent import Mamba2Config, NormOrder, Scales
from .family import Family, Sizes
from .granite_hybrid import MAMBA_NAMES
from .layer_parts import parallel_mixers
from .llama import LLAMA_NAMES
from .mamba_keys import mamba2_of

_HIGHEST = 1e6
_LEAST = 1e-6  # of what is divided by
_NAMES = replace(
    LLAMA_NAMES,
    norm="model.final_layernorm",
    gate_up=("feed_forward.gate_proj", "feed_forward.up_proj"),
    down="feed_forward.down_proj",
    mlp_norm="pre_ff_layernorm",
    recurrent=MAMBA_NAMES,
)


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias, mlp_bias = (file.boolean(f"{of}_bias", default=False) for of in ("attention", "mlp"))
    key_scale = _multiplier(file, "key_multiplier")
    plain = sizes.layer(
        qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias, scale=key_scale * sizes.head_dim**-0.5
    )
    attention, mamba, mlp = parallel_mixers(plain, _mamba(file, sizes.dim))
    gate, down = _numbers(file, "mlp_multipliers", 2, low=_LEAST)
    if mlp_bias and gate != 1.0:
        file.fail("mlp_bias", mlp_bias, "false where the first of mlp_multipliers is not 1")
    return sizes.n_layers * (
        _scaled(file, attention, "attention"),
        _scaled(file, mamba, "ssm"),
        # f(m g) u is f(m g) m u / m: gate and up are scaled alike, and their product is not.
        replace(mlp, input_scale=gate, residual_scale=down / gate),
    )


def _scaled(file: JsonObject, layer: LayerConfig, name: str) -> LayerConfig:
    before, behind = (_multiplier(file, f"{name}_{side}_multiplier") for side in ("in", "out"))
    return replace(layer, input_scale=before, residual_scale=behind)


def _mamba(file: JsonObject, dim: int) -> Mamba2Config:
    if file.string("hidden_act", default="silu") != "silu":
        file.fail("hidden_act", file.values["hidden_act"], "'silu'")
    expand = file.integer("mamba_expand", low=1, high=MAX_WIDTH, default=2)
    inner = expand * dim
    if file.values.get("mamba_d_ssm", 0) is not None:  # null says something else than nothing
        inner = file.integer("mamba_d_ssm", low=1, high=MAX_WIDTH, default=1024)
    z, x, b, c, dt = _numbers(file, "ssm_multipliers", 5)
    return mamba2_of(
        file,
        inner=inner,
        in_bias=file.boolean("mamba_proj_bias", default=False),
        out_bias=file.boolean("projectors_bias", default=False),
        norm=_norm(file),
        scales=Scales(z=z, x=x, b=b, c=c, dt=dt),
    )


def _norm(file: JsonObject) -> NormOrder:
    is_first = file.boolean("mamba_norm_before_gate", default=True)
    if not file.boolean("mamba_rms_norm", default=False):
        return ""
    return "norm_first" if is_first else "gate_first"


def _ends(file: JsonObject, dim: int) -> Ends:
    return Ends(
        embedding_scale=_multiplier(file, "embedding_multiplier"),
        logit_scale=_multiplier(file, "lm_head_multiplier"),
    )


def _multiplier(file: JsonObject, key: str) -> float:
    return file.number(key, low=0.0, high=_HIGHEST, default=1.0)


def _numbers(file: JsonObject, key: str, count: int, low: float = 0.0) -> tuple[float, ...]:
    if not file.has(key):
        return (1.0,) * count
    return file.numbers(key, count=count, low=low, high=_HIGHEST)


FAMILY = Family(
    architecture="FalconH1ForCausalLM",
    layers=_layers,
    sources=_NAMES.sources,
    max_positions=8192,
    n_kv_heads=8,
    sizes={"intermediate_size": 14_336},
    norm_eps=1e-5,
    ends=_ends,
    reads=frozenset({"embedding_multiplier", "lm_head_multiplier"}),
)
