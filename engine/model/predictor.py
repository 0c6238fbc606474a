"""A block that predicts one token more than the model: its weights, and what it does before its
layer.

Owns the fusion of a token's embedding with the model's output before it. The block itself is a
`Model` of one layer that shares embedding and head with the model. The equations are those that
llama.cpp (qwen35) computes for `mtp.*`:

    x = fc([norm(embedding of token i + 1), norm(output i)]);  logits i + 2 = head(norm(layer(x)))

where the output of the model is normed by its last norm, and that of the block, for a token more,
by its own.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from ..checkpoint.families.predictor import PredictorSources
from ..checkpoint.tensors import model_sources
from ..device.arguments import AddNorm, Array, Linear, Matrix, NormLinear
from ..device.ops import Ops, Program
from ..stored_tensor import StoredTensor
from .loading import read_layer
from .reader import Progress, Reader
from .weights import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """Weights, and the activations that they work on."""

    embedding_norm: Array  # (dim,)
    hidden_norm: Array  # (dim,)
    from_embedding: Matrix  # (dim, dim)
    from_hidden: Matrix  # (dim, dim)
    hidden: Array  # (max_rows, dim): the outputs before the tokens, to be filled in before a pass
    normed: Array  # (max_rows, dim)
    added: Array  # (max_rows, dim)

    def append(self, program: Program, *, eps: float, residual: Array) -> None:
        """`residual` holds the embeddings, and then what the layer reads."""
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


def load_predictor(
    sources: PredictorSources,
    tensors: Mapping[str, StoredTensor],
    target: Weights,
    ops: Ops,
    *,
    max_rows: int,
) -> tuple[Weights, Fusion]:
    """Reads `tensors` in the format of `ops`; embedding and head are those of `target`. A pass has
    at most `max_rows`. Raises ModelLoadError.
    """
    formats = ops.formats(sources.config, _dtypes(sources, tensors))
    own = formats.layers[0]
    with ops.reader() as read:
        reader = Reader(tensors, ops, read, None, Progress(0, None))

        def rows() -> Array:
            return ops.zeros((max_rows, sources.config.dim), ops.activation_dtype)

        fusion = Fusion(
            embedding_norm=reader.norm((sources.embedding_norm,)),
            hidden_norm=reader.norm((sources.hidden_norm,)),
            from_embedding=reader.matrix((sources.from_embedding,), own.wo),
            from_hidden=reader.matrix((sources.from_hidden,), own.wo),
            hidden=rows(),
            normed=rows(),
            added=rows(),
        )
        weights = Weights(
            embedding=target.embedding,
            layers=(read_layer(reader, sources.layer, own, None),),
            norm=reader.norm((sources.norm,)),
            head=target.head,
            formats=formats,
        )
    return weights, fusion


def _dtypes(sources: PredictorSources, tensors: Mapping[str, StoredTensor]) -> dict[str, str]:
    """Those of the block, by the names that a model of its configuration would have."""
    usual = model_sources(sources.config)
    fusion = tensors[sources.from_hidden.name].dtype
    found = {usual.embedding.name: fusion, usual.head.name: fusion}
    for field in dataclasses.fields(sources.layer):
        pairs = zip(
            getattr(usual.layers[0], field.name), getattr(sources.layer, field.name), strict=True
        )
        found |= {of_model.name: tensors[of_block.name].dtype for of_model, of_block in pairs}
    return found
