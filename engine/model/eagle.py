"""An EAGLE-3 head: its weights, and the passes of its layer.

Owns what the head reads, and how its vocabulary becomes the model's. The layer itself is run by a
`Model`. The equations are those of the paper's code (arXiv 2503.01840), for position i:

    g = fc([residual of the model in front of three layers] at i), in a draft: the head's own output
    q, k, v = [wqkv] [norm(embedding of token i + 1), hidden_norm(g)]
    y = g + wo attention(q, k, v);  out = y + mlp(norm(y));  logits i + 2 = lm_head(norm(out))
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..checkpoint.config import ModelConfig
from ..checkpoint.eagle import EagleFiles, EagleSources
from ..checkpoint.tensors import model_sources
from ..device.arguments import AddNorm, Array, Linear, Matrix
from ..device.ops import Ops, Program
from ..device.step import StepState
from ..stored_tensor import StoredTensor
from .buffers import Buffers
from .calibration import Floats
from .embeddings import Embedding
from .layer import Beside
from .loading import read_layer
from .model import Model
from .reader import Progress, Reader
from .weights import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleFusion:
    """The embeddings stand beside the residual: they take part in queries, keys and values alone.
    The residual is there before the pass.
    """

    embedding_norm: Array  # (dim,)
    beside: Beside

    def append(
        self, program: Program, embedding: Embedding, config: ModelConfig, buffers: Buffers
    ) -> None:
        embedded = self.beside.x
        embedding.append(program, config, out=embedded, rows=buffers.layer_embeddings)
        program.append(
            AddNorm(
                x=embedded,
                norm=self.embedding_norm,
                eps=config.norm_eps,
                residual=None,
                out=embedded,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleWeights:
    """In memory of the ops."""

    of_layer: Weights
    fusion: EagleFusion
    fc: Matrix  # (dim, 3 * the model's dim)


class EagleHead:
    """The layer with what it reads."""

    def __init__(
        self, model: Model, fc: Matrix, token_ids: Sequence[int], ops: Ops, *, max_rows: int
    ) -> None:
        """`model`: of the layer, made with the fusion. `token_ids`: of the head's vocabulary."""
        self.model = model
        self._token_ids = token_ids
        self._rows = ops.zeros((max_rows, fc.n_in), ops.activation_dtype)
        self._inputs: Floats = np.asarray(self._rows)  # these two are views
        self._residual: Floats = np.asarray(model.residual)
        self._state = StepState(max_rows)
        self._fuse = self._fusing(fc)

    def take_weights(self, weights: EagleWeights) -> None:
        """The same again, after `drop_weights`."""
        self.model.take_weights(weights.of_layer, weights.fusion)
        self._fuse = self._fusing(weights.fc)

    def drop_weights(self) -> None:
        self.model.drop_weights()
        self._fuse = self.model.ops.program(len(self._inputs))

    def _fusing(self, fc: Matrix) -> Program:
        program = self.model.ops.program(len(self._inputs))
        program.append(Linear(x=self._rows, matrix=fc, out=self.model.residual))
        return program

    def read(self, outputs: Sequence[Floats]) -> None:
        """The model's residuals, side by side (3 * dim,), before the tokens of the next pass."""
        for row, output in enumerate(outputs):
            self._inputs[row] = output
        self._state.set([0] * len(outputs), 0)
        self._fuse.run(self._state)

    def read_own(self, row: int) -> None:
        """The head's own output of a row comes before the only token of the next pass."""
        self._residual[0] = self._residual[row]

    def token_id(self, index: int) -> int:
        return self._token_ids[index]


def load_eagle(files: EagleFiles, target: Weights, ops: Ops, *, max_rows: int) -> EagleWeights:
    """In the format of `ops`; an embedding that the head lacks is that of `target`. A pass has at
    most `max_rows`. Raises ModelLoadError.
    """
    sources, config = files.sources, files.sources.config
    formats = ops.formats(config, _dtypes(sources, files.tensors))
    own = formats.layers[0]
    with ops.reader() as read:
        reader = Reader(files.tensors, ops, read, None, Progress(0, None))

        def rows(width: int) -> Array:
            return ops.zeros((max_rows, width), ops.activation_dtype)

        beside = Beside(
            x=rows(config.dim),
            matrix=reader.matrix(sources.from_embedding, own.wqkv),
            added=rows(config.layers[0].in_dim),
        )
        embedding = sources.embedding
        return EagleWeights(
            of_layer=Weights(
                embedding=(
                    target.embedding
                    if embedding is None
                    else reader.matrix((embedding,), formats.embedding)
                ),
                layers=(read_layer(reader, sources.layer, own, None),),
                norm=reader.norm((sources.norm,)),
                head=reader.matrix((sources.head,), formats.head),
                formats=formats,
            ),
            fusion=EagleFusion(
                embedding_norm=reader.norm((sources.embedding_norm,)), beside=beside
            ),
            fc=reader.matrix((sources.fc,), own.wo),
        )


def _dtypes(sources: EagleSources, tensors: Mapping[str, StoredTensor]) -> dict[str, str]:
    """Those of the head, by the names that a model of its configuration would have."""
    usual = model_sources(sources.config)
    head = tensors[sources.head.name].dtype
    embedding = tensors[(sources.embedding or sources.head).name].dtype
    found = {usual.embedding.name: embedding, usual.head.name: head}
    for field in dataclasses.fields(sources.layer):
        pairs = zip(
            getattr(usual.layers[0], field.name), getattr(sources.layer, field.name), strict=True
        )
        found |= {of_model.name: tensors[of_head.name].dtype for of_model, of_head in pairs}
    return found
