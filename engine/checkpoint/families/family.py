"""What a model family is: the meaning of its config.json, and the places of its tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...files import JsonObject
from ..activation import Activation
from ..config import (
    AttentionConfig,
    Ends,
    ExpertsConfig,
    LayerConfig,
    MlpConfig,
    ModelConfig,
    QkNorm,
    QueryScaling,
)
from ..rope_keys import PLAIN_ROPE, RopeDefaults, rope_config
from ..ropes import RopeConfig
from ..sources import ModelSources
from .predictor import PredictorSources


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What config.json says of all layers at once."""

    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    hidden_dim: int
    activation: Activation = "silu"

    def layer(
        self,
        *,
        window: int = 0,
        rope: int | None = 0,
        qkv_bias: bool = False,
        o_bias: bool = False,
        qk_norm: QkNorm | None = None,
        scale: float | None = None,
        softcap: float = 0.0,
        query_scaling: QueryScaling | None = None,
        mlp_bias: bool = False,
        gated: bool = True,
        pre_norms: bool = True,
        post_norms: bool = False,
        parallel: bool = False,
        residual_scale: float = 1.0,
        sinks: bool = False,
        experts: ExpertsConfig | None = None,
        shared_dim: int = 0,
    ) -> LayerConfig:
        """A layer of these sizes; see AttentionConfig, MlpConfig and LayerConfig."""
        attention = AttentionConfig(
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            head_dim=self.head_dim,
            window=window,
            rope=rope,
            qkv_bias=qkv_bias,
            o_bias=o_bias,
            qk_norm=qk_norm,
            scale=scale,
            softcap=softcap,
            query_scaling=query_scaling,
            sinks=sinks,
        )
        return LayerConfig(
            attention,
            MlpConfig(
                self.hidden_dim if experts is None else shared_dim,
                bias=mlp_bias,
                activation=self.activation,
                gated=gated,
                experts=experts,
            ),
            pre_norms=pre_norms,
            post_norms=post_norms,
            parallel=parallel,
            residual_scale=residual_scale,
        )


def one_rope(
    file: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> tuple[RopeConfig, ...]:
    """The same position embedding in all layers that have one."""
    return (rope_config(file, head_dim, max_positions, defaults),)


def plain_ends(file: JsonObject, dim: int) -> Ends:
    """Neither scales nor biases."""
    return Ends()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One architecture. The defaults are what transformers takes for a missing key."""

    architecture: str
    """Its name in config.json."""
    layers: Callable[[JsonObject, Sizes], tuple[LayerConfig, ...]]
    """All layers in order, from config.json. May raise ModelLoadError."""
    sources: Callable[[ModelConfig], ModelSources]
    """Where the tensors of such a model are."""
    max_positions: int
    n_kv_heads: int | None = None
    """None: as many as there are heads."""
    has_groups: bool = True
    """Whether there may be fewer key than query heads."""
    head_dim: int | None = None
    """None: hidden_size divided by the number of heads."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Defaults of other sizes, by key; without one, a missing key is an error."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys that are usual elsewhere, and what stands for them here."""
    hidden_per_dim: int = 0
    """The default of the feed-forward width, as a multiple of hidden_size."""
    norm_eps: float = 1e-6
    eps_key: str = "rms_norm_eps"
    centered_norms: bool = False
    norm_bias: bool = False
    activation_key: str = "hidden_act"
    activation: str = "silu"
    """As config.json names it."""
    gated: bool = True
    tied: bool = False
    rope: RopeDefaults = PLAIN_ROPE
    ropes: Callable[[JsonObject, int, int, RopeDefaults], tuple[RopeConfig, ...]] = one_rope
    ends: Callable[[JsonObject, int], Ends] = plain_ends
    has_mxfp4: bool = False
    """Whether experts may be stored in blocks of MXFP4."""
    predictor: Callable[[ModelConfig], PredictorSources] | None = None
    """The block that checkpoints of the family may have, which predicts one token more."""
    reads: frozenset[str] = frozenset()
    """Those of the keys that other families refuse (`refusals.py`) which this one understands."""

    def key(self, name: str) -> str:
        return self.keys.get(name, name)
