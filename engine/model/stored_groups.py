"""What a checkpoint stores for each part of the decoder, and what becomes of it in memory.

Owns the parts that people ask about. Reads no weights.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..checkpoint.config import ModelConfig
from ..checkpoint.sources import Source
from ..checkpoint.tensors import model_sources
from ..device.formats import bits_per_weight
from ..device.mixed import ModelFormats
from ..gguf.types import READ
from ..stored_tensor import StoredTensor
from .weights import format_of

# Panels of a few padded columns are no news.
_NEWS = 1.1


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The tensors of one part that are stored in one type and loaded in one format."""

    part: str
    """ "q, k, v", "down" and so on."""
    dtype: str
    format: str
    """Empty: it is not loaded."""
    n_tensors: int
    n_bytes: int
    """In the file."""

    @property
    def is_wider(self) -> bool:
        """Whether more bytes are read for each weight than the file has: slower than it could be,
        and exact.
        """
        return bool(self.format) and self.loaded_bits > _NEWS * self.stored_bits

    @property
    def stored_bits(self) -> float:
        """Of a weight."""
        type_ = READ[self.dtype]
        return 8 * type_.n_bytes / type_.columns

    @property
    def loaded_bits(self) -> float:
        return bits_per_weight(self.format)


def stored_groups(
    config: ModelConfig, tensors: Mapping[str, StoredTensor], formats: ModelFormats
) -> list[StoredGroup]:
    """Of all matrices, in the order in which a step reads them; norms and biases last."""
    sources = model_sources(config)
    formats_by_part = format_of(sources, formats)
    formats_by_part |= {source.part: "" for source in sources.layer_table}
    found: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for part, source in _parts(config):
        tensor = tensors[source.name]
        format_ = formats_by_part.get(source.part, "float32")
        found[part, tensor.dtype, format_].append(round(source.share * tensor.n_bytes))
    return [StoredGroup(*key, len(sizes), sum(sizes)) for key, sizes in found.items()]


def _parts(config: ModelConfig) -> Iterator[tuple[str, Source]]:
    sources = model_sources(config)
    yield "embedding and head" if config.tie_embeddings else "embedding", sources.embedding
    yield from (("table of layer embeddings", source) for source in sources.layer_table)
    yield from (("projection of layer embeddings", each) for each in sources.layer_projection)
    for part, name in (
        ("q, k, v", "wqkv"),
        ("gate of attention", "w_gate"),
        ("attention output", "wo"),
        ("gate and up", "w_gate_up"),
        ("down", "w_down"),
        ("router", "w_router"),
        ("experts' gate and up", "experts_gate_up"),
        ("experts' down", "experts_down"),
        ("projection before experts", "w_latent_in"),
        ("projection behind experts", "w_latent_out"),
        ("gate of layer embeddings", "w_embedding_gate"),
        ("output of layer embeddings", "w_embedding_out"),
    ):
        for layer in sources.layers:
            yield from ((part, source) for source in getattr(layer, name))
    if not config.tie_embeddings:
        yield "head", sources.head
    for source in sources.needed(tied=config.tie_embeddings):
        if len(source.part_shape) == 1:
            yield "norms and biases", source
