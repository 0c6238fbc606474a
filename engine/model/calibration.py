"""How much each column of a layer's matrices matters when they are quantised: the root mean square
of what it is multiplied by.

Owns what is made of a run of the layers (`layer_run.py`), one at a time, so that no more than one
is in memory unquantised. An error in a column that is multiplied by large numbers costs more, and a
few columns are multiplied by far larger ones than the others. Which ids run hardly matters; mean
squares would overrate the few (bench/RESULTS.md). CPU only. Knows no text and no file.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..checkpoint.config import ModelConfig
from ..device.arguments import Array
from ..device.ops import Ops
from .embeddings import Embedding
from .layer_run import Doubles, LayerRun, doubles
from .weights import LayerWeights

Floats = npt.NDArray[np.float32]

# Of the mean: what a column counts at least, since 64 tokens do not show everything.
_LEAST = 1e-3


class Importance(NamedTuple):
    """Of the columns of each matrix, (n_in,), about 1 in the mean."""

    wqkv: Floats
    wo: Floats
    w_gate_up: Floats
    w_down: Floats
    """Of what all tokens share in a layer of experts: all the same, the op keeps it to itself."""
    experts_gate_up: Floats


class Calibration:
    """Runs the layers of a model in order."""

    def __init__(self, config: ModelConfig, ops: Ops, embedding: Embedding) -> None:
        self._config = config
        self._run = LayerRun(config, ops, embedding)
        self.token_ids = self._run.token_ids

    def next_layer(self, weights: LayerWeights) -> Importance:
        """`weights`: those of the next layer, in a format that loses little."""
        layer = self._run.next_layer(weights)
        config = layer.config
        before = doubles(layer.input)  # the layer overwrites it
        self._run.run(layer)
        between = before if config.parallel or not config.has_mixer else doubles(layer.middle)
        norm, bias = weights.attention_norm, weights.attention_norm_bias
        gate_up = _importance(self._normed(between, weights.mlp_norm, weights.mlp_norm_bias))
        own = None if weights.experts is None else weights.experts.norms
        has_inner = config.mlp.exists and (config.mlp.experts is None or own is not None)
        none = np.ones(0, np.float32)
        experts, of_experts = config.mlp.experts, gate_up
        if own is not None:
            of_experts = _importance(self._normed(between, own.experts, None))
        elif experts is not None and experts.latent_dim:  # what they read is overwritten
            of_experts = np.ones(experts.latent_dim, np.float32)
        return Importance(
            wqkv=_importance(self._normed(before, norm, bias)),
            wo=_importance(doubles(layer.heads)) if config.has_mixer else none,
            w_gate_up=gate_up,
            w_down=(
                _importance(doubles(layer.gated))
                if has_inner
                else np.ones(config.mlp.hidden_dim, np.float32)
            ),
            experts_gate_up=of_experts,
        )

    def _normed(self, x: Doubles, norm: Array | None, bias: Array | None) -> Doubles:
        """The norm before a product, which the ops do not keep."""
        if norm is None:
            return x
        if self._config.centered_norms:
            x = x - x.mean(1, keepdims=True)
        mean_squares = np.square(x).mean(1, keepdims=True)
        normed: Doubles = x / np.sqrt(mean_squares + self._config.norm_eps) * doubles(norm)
        return normed if bias is None else normed + doubles(bias)


def _importance(inputs: Doubles) -> Floats:
    """Of the columns that the inputs (rows, n_in) are multiplied by."""
    with np.errstate(all="ignore"):
        sizes = np.sqrt(np.square(inputs).mean(0))
        relative = sizes / sizes.mean() + _LEAST
    # A model that computes no numbers is quantised without this.
    return np.where(np.isfinite(relative), relative, 1.0).astype(np.float32)
