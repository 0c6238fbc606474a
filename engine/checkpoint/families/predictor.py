"""Where the weights of a block are that predicts one token more than the model does.

Owns the way from the names of a family and its configuration to sources. Such a block (multi-token
prediction) mixes the embedding of a token with the model's normed output before it, and goes
through one layer of the model's kind. Embedding and head are the model's, unless a checkpoint
stores others for the block.
"""

import dataclasses
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from ..config import ModelConfig
from ..sources import LayerSources, Source
from .names import Names

MOST_PREDICTORS = 8
"""Layers of predictors that may follow a model's own; the first of them is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorSources:
    """One block."""

    config: ModelConfig
    """That of the model, with the one layer of the block, which may have a head of its own."""
    embedding_norm: Source  # (dim,)
    hidden_norm: Source  # (dim,)
    from_embedding: Source  # (dim, dim)
    from_hidden: Source  # (dim, dim)
    layer: LayerSources
    norm: Source  # (dim,)
    embedding: Source | None = None  # (vocab_size, dim); None: the model's
    head: Source | None = None  # (vocab_size, dim); None: the model's

    def needed(self) -> Iterator[Source]:
        yield from (self.embedding_norm, self.hidden_norm, self.from_embedding, self.from_hidden)
        yield self.norm
        for field in dataclasses.fields(self.layer):
            yield from getattr(self.layer, field.name)
        yield from (each for each in (self.embedding, self.head) if each is not None)

    def stored_in(self, names: Container[str]) -> "PredictorSources":
        """Without an embedding or a head that is not among the `names` of stored tensors."""

        def kept(source: Source | None) -> Source | None:
            return source if source is not None and source.name in names else None

        return replace(self, embedding=kept(self.embedding), head=kept(self.head))


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorNames:
    """Names without ".weight"; {} stands for the number of the model's own layers."""

    layer: str
    """The prefix of what is in the layer."""
    fusion: str
    embedding_norm: str
    hidden_norm: str
    norm: str
    embedding: str = ""
    """This and the head: empty where checkpoints never have them."""
    head: str = ""

    def sources(self, names: Names, config: ModelConfig) -> PredictorSources:
        """`names`: of the model. The layer is like the model's last one with attention."""
        layer = [each for each in config.layers if each.recurrent is None][-1]
        own, dim = replace(config, layers=(layer,), tie_embeddings=False), config.dim

        def stored(name: str) -> str:
            return f"{name.format(config.n_layers)}.weight"

        def norm(name: str) -> Source:
            return Source(stored(name), (dim,), plus=names.norms_plus)

        def half(begin: int) -> Source:
            return Source(stored(self.fusion), (dim, 2 * dim), columns=(begin, begin + dim))

        def table(name: str) -> Source | None:
            return Source(stored(name), (config.vocab_size, dim)) if name else None

        prefix = self.layer.format(config.n_layers)
        (of_layer,) = replace(names, layer=prefix).sources(own).layers
        return PredictorSources(
            config=own,
            embedding_norm=norm(self.embedding_norm),
            hidden_norm=norm(self.hidden_norm),
            from_embedding=half(0),
            from_hidden=half(dim),
            layer=of_layer,
            norm=norm(self.norm),
            embedding=table(self.embedding),
            head=table(self.head),
        )


APART = PredictorNames(
    layer="mtp.layers.0.",
    fusion="mtp.fc",
    embedding_norm="mtp.pre_fc_norm_embedding",
    hidden_norm="mtp.pre_fc_norm_hidden",
    norm="mtp.norm",
)
"""Beside the model, as Qwen stores it."""
_NEXT_LAYER = "model.layers.{}."
APPENDED = PredictorNames(
    layer=_NEXT_LAYER,
    fusion=f"{_NEXT_LAYER}eh_proj",
    embedding_norm=f"{_NEXT_LAYER}enorm",
    hidden_norm=f"{_NEXT_LAYER}hnorm",
    norm=f"{_NEXT_LAYER}shared_head.norm",
    embedding=f"{_NEXT_LAYER}embed_tokens",
    head=f"{_NEXT_LAYER}shared_head.head",
)
"""In a layer after the model's, as GLM stores it."""
IN_GGUF = PredictorNames(
    layer="blk.{}.",
    fusion="blk.{}.nextn.eh_proj",
    embedding_norm="blk.{}.nextn.enorm",
    hidden_norm="blk.{}.nextn.hnorm",
    norm="blk.{}.nextn.shared_head_norm",
    embedding="blk.{}.nextn.embed_tokens",
    head="blk.{}.nextn.shared_head_head",
)


def following_layers(prefix: str, n_layers: int) -> str:
    """A pattern of what is stored for the layers of predictors; `prefix`: a pattern of that of a
    layer, with {} for its number.
    """
    numbers = "|".join(str(n_layers + index) for index in range(MOST_PREDICTORS))
    return prefix.format(f"({numbers})") + ".*"
