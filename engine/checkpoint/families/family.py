"""What a model family is: the meaning of its config.json, and the places of its tensors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ...files import JsonObject
from ..config import AttentionConfig, LayerConfig, MlpConfig, ModelConfig
from ..sources import ModelSources


class Sizes(NamedTuple):
    """What config.json says of all layers at once."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    hidden_dim: int

    def layer(
        self,
        *,
        window: int = 0,
        qkv_bias: bool = False,
        o_bias: bool = False,
        mlp_bias: bool = False,
        qk_norm: bool = False,
    ) -> LayerConfig:
        """A layer of these sizes; see AttentionConfig and MlpConfig."""
        attention = AttentionConfig(
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            head_dim=self.head_dim,
            window=window,
            qkv_bias=qkv_bias,
            o_bias=o_bias,
            qk_norm=qk_norm,
        )
        return LayerConfig(attention, MlpConfig(self.hidden_dim, bias=mlp_bias))


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
    head_dim: int | None = None
    """None: hidden_size divided by the number of heads."""
