"""Stored tensors -> the weights that the decoder runs on.

Owns the weights of a layer, and the fusion of q, k, v and of gate and up into one matrix each. The
family knows where a weight is in a checkpoint (`checkpoint/sources.py`), the ops how a matrix lies
in memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ..checkpoint.config import ModelConfig
from ..checkpoint.safetensors import StoredTensor
from ..checkpoint.sources import LayerSources, Source
from ..checkpoint.tensors import model_sources
from ..device.arguments import Array, Matrix
from ..device.formats import matrix_bytes, table_format
from ..device.ops import NotFiniteError, Ops, Stored
from ..errors import ModelLoadError

if TYPE_CHECKING:
    from ..device.cpu.panel_cache import PanelCache


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer."""

    attention_norm: Array  # (dim,)
    wqkv: Matrix  # ((n_heads + 2 * n_kv_heads) * head_dim, dim): q, then k, then v
    bqkv: Array | None
    q_norm: Array | None  # (head_dim,)
    k_norm: Array | None  # (head_dim,)
    wo: Matrix  # (dim, n_heads * head_dim)
    bo: Array | None
    mlp_norm: Array  # (dim,)
    w_gate_up: Matrix  # (2 * hidden_dim, dim): gate, then up
    b_gate_up: Array | None
    w_down: Matrix  # (dim, hidden_dim)
    b_down: Array | None


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole model; `head` is `embedding` itself when they are tied."""

    embedding: Matrix  # (vocab_size, dim)
    layers: tuple[LayerWeights, ...]
    norm: Array  # (dim,)
    head: Matrix  # (vocab_size, dim)


# Bytes of a matrix in a format, (n_out, n_in).
MatrixBytes = Callable[[str, int, int], int]


def weight_bytes(
    config: ModelConfig, format_: str, matrix_bytes: MatrixBytes = matrix_bytes
) -> int:
    """Bytes of the loaded weights in `format_`, by the `matrix_bytes` of the ops."""
    sources = model_sources(config)
    tables = {sources.embedding.name, sources.head.name}
    n_bytes = 0
    for source in sources.needed(tied=config.tie_embeddings):
        shape = source.part_shape
        if len(shape) == 1:
            n_bytes += 4 * shape[0]
        else:
            own = table_format(format_) if source.name in tables else format_
            n_bytes += matrix_bytes(own, *shape)
    return n_bytes


def step_bytes(config: ModelConfig, format_: str, matrix_bytes: MatrixBytes = matrix_bytes) -> int:
    """Bytes of the weights that a decode step reads: all but an untied embedding."""
    table = matrix_bytes(table_format(format_), config.vocab_size, config.dim)
    whole = weight_bytes(config, format_, matrix_bytes)
    return whole - (0 if config.tie_embeddings else table)


def load_weights(
    tensors: Mapping[str, StoredTensor],
    config: ModelConfig,
    ops: Ops,
    *,
    panels: "PanelCache | None" = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Weights:
    """Reads `tensors`, as `check_tensors` returns them, into memory of `ops`, in its format.

    `panels` has matrices that were read before, or takes those that are read now. `on_progress`
    gets (bytes read, bytes in all) after each tensor. Raises ModelLoadError.
    """
    tables, sources = table_format(ops.format), model_sources(config)
    needed = sources.needed(tied=config.tie_embeddings)
    total = sum(source.share * tensors[source.name].n_bytes for source in needed)
    progress = _Progress(round(total), on_progress)
    with ops.reader() as read:
        reader = _Reader(tensors, ops, read, panels, progress)
        embedding = reader.matrix((sources.embedding,), format_=tables)
        return Weights(
            embedding=embedding,
            layers=tuple(_read_layer(reader, layer) for layer in sources.layers),
            norm=reader.norm((sources.norm,)),
            head=(
                embedding
                if config.tie_embeddings
                else reader.matrix((sources.head,), format_=tables)
            ),
        )


def _read_layer(reader: "_Reader", layer: LayerSources) -> LayerWeights:
    return LayerWeights(
        attention_norm=reader.norm(layer.attention_norm),
        wqkv=reader.matrix(layer.wqkv),
        bqkv=reader.vector(layer.bqkv),
        q_norm=reader.norm(layer.q_norm) if layer.q_norm else None,
        k_norm=reader.norm(layer.k_norm) if layer.k_norm else None,
        wo=reader.matrix(layer.wo),
        bo=reader.vector(layer.bo),
        mlp_norm=reader.norm(layer.mlp_norm),
        w_gate_up=reader.matrix(layer.w_gate_up, gated=True),
        b_gate_up=reader.vector(layer.b_gate_up),
        w_down=reader.matrix(layer.w_down),
        b_down=reader.vector(layer.b_down),
    )


class _Progress:
    """Counts the bytes that are read, and reports them."""

    def __init__(self, total: int, on_progress: Callable[[int, int], None] | None) -> None:
        self._done, self._total = 0.0, total
        self._on_progress = on_progress

    def add(self, n_bytes: float) -> None:
        self._done += n_bytes
        if self._on_progress is not None:
            self._on_progress(round(self._done), self._total)


class _Reader:
    """Turns sources, several of them stacked by rows, into memory of the ops."""

    def __init__(
        self,
        tensors: Mapping[str, StoredTensor],
        ops: Ops,
        read: Callable[[StoredTensor], Stored],
        panels: "PanelCache | None",
        progress: _Progress,
    ) -> None:
        self._tensors = tensors
        self._ops = ops
        self._stored = read
        self._panels = panels
        self._progress = progress

    def matrix(
        self, sources: Sequence[Source], *, format_: str | None = None, gated: bool = False
    ) -> Matrix:
        own_format = format_ or self._ops.format
        name = " ".join(source.part for source in sources)
        if self._panels is not None:
            shapes = [source.part_shape for source in sources]
            kept = self._panels.get(name, shapes, own_format, gated=gated)
            if kept is not None:
                self._count(sources)
                return kept
        parts = [self._part(source) for source in sources]
        matrix = self._converted(sources, lambda: self._ops.matrix(parts, own_format, gated=gated))
        if self._panels is not None:
            self._panels.put(name, matrix)
        return matrix

    def vector(self, sources: Sequence[Source]) -> Array | None:
        """None where there are no sources."""
        if not sources:
            return None
        return self._vector(sources, [self._part(source) for source in sources])

    def norm(self, sources: Sequence[Source]) -> Array:
        """A vector that scales: all zeros mean a hole in the file, not weights."""
        parts = [self._part(source) for source in sources]
        for source, part in zip(sources, parts, strict=True):
            if not part.any():
                file = self._tensors[source.name].file
                raise ModelLoadError(
                    f"{file}: {source.name}: all zeros; the file may be incomplete"
                )
        return self._vector(sources, parts)

    def _vector(self, sources: Sequence[Source], parts: Sequence[Stored]) -> Array:
        plus = sources[0].plus
        return self._converted(sources, lambda: self._ops.vector(parts, plus=plus))

    def _part(self, source: Source) -> Stored:
        part: Stored = source.of(self._stored(self._tensors[source.name]))
        return part

    def _converted(self, sources: Sequence[Source], convert: Callable[[], T]) -> T:
        try:
            converted = convert()
        except NotFiniteError as error:
            raise self._refusal(sources, error.index) from error
        self._count(sources)
        return converted

    def _count(self, sources: Sequence[Source]) -> None:
        self._progress.add(
            sum(source.share * self._tensors[source.name].n_bytes for source in sources)
        )

    def _refusal(self, sources: Sequence[Source], index: tuple[int, ...]) -> ModelLoadError:
        """`index` of a NaN or infinity is counted through the stacked sources."""
        row, *rest = index
        for source in sources:
            n_rows = source.part_shape[0]
            if row < n_rows:
                break
            row -= n_rows
        place = list(source.stored_index((row, *rest)))
        file = self._tensors[source.name].file
        return ModelLoadError(f"{file}: {source.name}: not finite at {place}")
