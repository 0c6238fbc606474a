"""A block that predicts one token more than the model: its weights, and what it does before its
layer.

Owns the fusion of a token's embedding with the model's output before it. The block itself is a
`Model` of one layer that shares embedding and head with the model, where the checkpoint has no
others for it. The equations are those that llama.cpp (qwen35, qwen3next, glm4moe) computes for
`mtp.*` and `nextn.*`:

    x = fc([norm(embedding of token i + 1), norm(output i)]);  logits i + 2 = head(norm(layer(x)))

where the output of the model is normed by its last norm, and that of the block, for a token more,
by its own.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..checkpoint.config import ModelConfig
from ..checkpoint.families.predictor import PredictorSources
from ..checkpoint.sources import ModelSources, Source
from ..checkpoint.stored import have_same_data
from ..checkpoint.tensors import model_sources
from ..device.arguments import AddNorm, Array, Linear, Matrix, NormLinear
from ..device.ops import Ops, Program
from ..gguf.types import READ
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
class PredictorFusion:
    """Weights, and the activations that they work on."""

    embedding_norm: Array  # (dim,)
    hidden_norm: Array  # (dim,)
    from_embedding: Matrix  # (dim, dim)
    from_hidden: Matrix  # (dim, dim)
    hidden: Array  # (max_rows, dim): the outputs before the tokens, to be filled in before a pass
    normed: Array  # (max_rows, dim)
    added: Array  # (max_rows, dim)

    beside: Beside | None = None

    def append(
        self, program: Program, embedding: Embedding, config: ModelConfig, buffers: Buffers
    ) -> None:
        """The residual holds the embeddings, and then what the layer reads."""
        residual, eps = buffers.residual, config.norm_eps
        embedding.append(program, config, out=residual, rows=buffers.layer_embeddings)
        program.append(
            NormLinear(
                residual=residual,
                norm=self.embedding_norm,
                eps=eps,
                matrix=self.from_embedding,
                bias=None,
                out=self.added,
            )
        )
        program.append(
            AddNorm(x=self.hidden, norm=self.hidden_norm, eps=eps, residual=None, out=self.normed)
        )
        program.append(
            Linear(
                x=self.normed,
                matrix=self.from_hidden,
                bias=None,
                residual=self.added,
                out=residual,
            )
        )


class Predictor:
    """The block."""

    def __init__(self, model: Model, fusion: PredictorFusion) -> None:
        """`model` was made with `fusion`, and keeps its hidden states from now on."""
        self.model = model
        self._inputs: Floats = np.asarray(fusion.hidden)  # the same memory
        model.keep_hidden()

    def take_weights(self, weights: Weights, fusion: PredictorFusion) -> None:
        """The same again, after `drop_weights`."""
        self.model.take_weights(weights, fusion)
        self._inputs = np.asarray(fusion.hidden)

    def drop_weights(self) -> None:
        self.model.drop_weights()

    def read(self, outputs: Sequence[Floats]) -> None:
        """The model's normed outputs, (dim,) each, before the tokens of the next pass."""
        for row, output in enumerate(outputs):
            self._inputs[row] = output

    def read_own(self, row: int) -> None:
        """The block's own normed output of a row comes before the only token of the next pass."""
        self._inputs[0] = self.model.hidden(row)

    def token_id(self, index: int) -> int:
        return index


def load_predictor(
    sources: PredictorSources,
    tensors: Mapping[str, StoredTensor],
    target: Weights,
    ops: Ops,
    *,
    max_rows: int,
) -> tuple[Weights, PredictorFusion]:
    """Reads `tensors`, as `predictor_tensors` returns them, in the format of `ops`. Embedding and
    head are those of `target`, unless the block has others. A pass has at most `max_rows`. Raises
    ModelLoadError.
    """
    usual, dtypes = model_sources(sources.config), _dtypes(sources, tensors)
    formats = ops.formats(sources.config, dtypes)
    own = formats.layers[0]
    (output,) = usual.layers[0].wo
    of_fusion = {output.name: _dtype_of_halves(sources, tensors)}
    fused = ops.formats(sources.config, dtypes | of_fusion).layers[0].wo
    with ops.reader() as read:
        reader = Reader(tensors, ops, read, None, Progress(0, None))

        def rows() -> Array:
            return ops.zeros((max_rows, sources.config.dim), ops.activation_dtype)

        fusion = PredictorFusion(
            embedding_norm=reader.norm((sources.embedding_norm,)),
            hidden_norm=reader.norm((sources.hidden_norm,)),
            from_embedding=reader.matrix((sources.from_embedding,), fused),
            from_hidden=reader.matrix((sources.from_hidden,), fused),
            hidden=rows(),
            normed=rows(),
            added=rows(),
        )

        def table(source: Source | None, shared: Source, format_: str, of_target: Matrix) -> Matrix:
            if source is None or have_same_data(tensors[source.name], tensors[shared.name]):
                return of_target
            return reader.matrix((source,), format_)

        weights = Weights(
            embedding=table(
                sources.embedding, usual.embedding, formats.embedding, target.embedding
            ),
            layers=(read_layer(reader, sources.layer, own, None),),
            norm=reader.norm((sources.norm,)),
            head=table(sources.head, _head_of_model(usual, tensors), formats.head, target.head),
            formats=formats,
        )
    return weights, fusion


def _dtypes(sources: PredictorSources, tensors: Mapping[str, StoredTensor]) -> dict[str, str]:
    """Those of the block, by the names that a model of its configuration would have."""
    usual = model_sources(sources.config)
    found = {
        usual.embedding.name: tensors[(sources.embedding or usual.embedding).name].dtype,
        usual.head.name: tensors[(sources.head or _head_of_model(usual, tensors)).name].dtype,
    }
    for field in dataclasses.fields(sources.layer):
        pairs = zip(
            getattr(usual.layers[0], field.name), getattr(sources.layer, field.name), strict=True
        )
        found |= {of_model.name: tensors[of_block.name].dtype for of_model, of_block in pairs}
    return found


def _head_of_model(usual: ModelSources, tensors: Mapping[str, StoredTensor]) -> Source:
    """Where the model's head is."""
    return usual.head if usual.head.name in tensors else usual.embedding


def _dtype_of_halves(sources: PredictorSources, tensors: Mapping[str, StoredTensor]) -> str:
    """Blocks that a half ends in the middle of are read as plain numbers."""
    dtype = tensors[sources.from_hidden.name].dtype
    return "F32" if sources.config.dim % READ[dtype].columns else dtype
