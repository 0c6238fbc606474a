"""Where the weights of a block are that predicts one token more than the model does.

Owns the way from the names of a family and its configuration to sources. Such a block (multi-token
prediction) mixes the embedding of a token with the model's normed output before it, and goes
through one layer of the model's kind; embedding and head are the model's.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..config import ModelConfig
from ..sources import LayerSources, Source
from .names import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorSources:
    """One block."""

    config: ModelConfig
    """That of the model, with the one layer of the block."""
    embedding_norm: Source  # (dim,)
    hidden_norm: Source  # (dim,)
    from_embedding: Source  # (dim, dim)
    from_hidden: Source  # (dim, dim)
    layer: LayerSources
    norm: Source  # (dim,)

    def needed(self) -> Iterator[Source]:
        yield from (self.embedding_norm, self.hidden_norm, self.from_embedding, self.from_hidden)
        yield self.norm
        for field in dataclasses.fields(self.layer):
            yield from getattr(self.layer, field.name)


def qwen_predictor(names: Names, config: ModelConfig) -> PredictorSources:
    """`names`: of the model. The layer is like the model's last one with attention."""
    layer = [each for each in config.layers if each.recurrent is None][-1]
    own = replace(config, layers=(layer,))
    of_block = replace(names, layer="mtp.layers.{}.", norm="mtp.norm").sources(own)
    dim = config.dim

    def norm(name: str) -> Source:
        return Source(f"mtp.{name}.weight", (dim,), plus=names.norms_plus)

    def half(begin: int) -> Source:
        return Source("mtp.fc.weight", (dim, 2 * dim), columns=(begin, begin + dim))

    return PredictorSources(
        config=own,
        embedding_norm=norm("pre_fc_norm_embedding"),
        hidden_norm=norm("pre_fc_norm_hidden"),
        from_embedding=half(0),
        from_hidden=half(dim),
        layer=of_block.layers[0],
        norm=of_block.norm,
    )
