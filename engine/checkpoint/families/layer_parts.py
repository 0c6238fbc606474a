"""Layers of a checkpoint that the decoder computes as several layers, of one part each.

Owns the order of the parts. Knows no key and no tensor.
"""

from dataclasses import replace

from ..config import NO_ATTENTION, NO_MLP, LayerConfig
from ..recurrent import Mamba2Config


def parallel_mixers(
    plain: LayerConfig, mamba: Mamba2Config
) -> tuple[LayerConfig, LayerConfig, LayerConfig]:
    """Attention, Mamba 2 with the same input, and feed-forward; `plain`: without Mamba 2."""
    rest = replace(plain, attention=NO_ATTENTION, continues=True)
    return (
        replace(plain, mlp=NO_MLP),
        replace(rest, recurrent=mamba, mlp=NO_MLP, parallel=True),
        rest,
    )


def shared_apart(layer: LayerConfig) -> tuple[LayerConfig, ...]:
    """A layer of one part. If it has experts of another width, they come first, and then what all
    tokens go through, with the same input.
    """
    mlp = layer.mlp
    if mlp.experts is None or not mlp.experts.latent_dim:
        return (layer,)
    shared = replace(layer, mlp=replace(mlp, experts=None), parallel=True, continues=True)
    return replace(layer, mlp=replace(mlp, hidden_dim=0)), shared
