"""A run of some token ids through the layers of a model, one layer at a time.

Owns the ids, and the buffers and the cache of the run. Knows no use of what the layers compute. CPU
only.
"""

import numpy as np
import numpy.typing as npt

from ..cache.kv import KVCache
from ..checkpoint.config import ModelConfig
from ..device.arguments import Array
from ..device.ops import Ops
from ..device.step import StepState
from .buffers import Buffers
from .embeddings import Embedding
from .layer import Layer
from .tables import layer_tables
from .weights import LayerWeights

Doubles = npt.NDArray[np.float64]

N_TOKENS = 64
_STRIDE = 2654435761  # its multiples spread evenly over any vocabulary


class LayerRun:
    """Runs the layers of a model in order, on ids that are spread over its vocabulary."""

    def __init__(self, config: ModelConfig, ops: Ops, embedding: Embedding) -> None:
        n_tokens = min(N_TOKENS, config.max_seq_len)
        self._config, self._ops = config, ops
        self._buffers = Buffers(config, ops, max_rows=n_tokens)
        self._tables = layer_tables(config, ops, n_tokens)
        self._cache = KVCache(config, ops, max_seq_len=n_tokens, pass_rows=n_tokens)
        self._state = StepState(n_tokens)
        self.token_ids = [i * _STRIDE % config.vocab_size for i in range(1, n_tokens + 1)]
        self._state.set(self.token_ids, 0)
        program = ops.program(n_tokens)
        embedding.append(
            program, config, out=self._buffers.residual, rows=self._buffers.layer_embeddings
        )
        program.run(self._state)
        self._cache.begin_pass(n_tokens)
        self._n_done = 0

    def next_layer(self, weights: LayerWeights) -> Layer:
        """The next layer, before it runs: `run` does."""
        index = self._n_done
        self._n_done += 1
        config, tables = self._config.layers[index], self._tables[index]
        return Layer(weights, config, tables, self._config, self._buffers, index)

    def run(self, layer: Layer) -> None:
        """The buffers of `layer` hold what it has computed afterwards, until the next one runs."""
        program = self._ops.program(self._state.n_rows)
        layer.append_attention(program, self._cache.layers[layer.index])
        layer.append_rest(program)
        program.run(self._state)


def doubles(array: Array) -> Doubles:
    """A copy of what a buffer holds now."""
    assert isinstance(array, np.ndarray), "other devices do not calibrate"
    return array.astype(np.float64)
