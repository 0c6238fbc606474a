"""Where each weight of the decoder is in a checkpoint, and how to transform it.

Owns the description: a weight is one or more sources, stacked by rows. A family fills them in,
`tensors.py` compares them with what is stored, and the loader reads them. Knows no file and no
device.
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..gguf.blocks import BlockRows
from ..gguf.decode import dequantize

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A stored tensor, or a part of it, as rows (n_out, n_in) of a matrix or (n,) of a vector.

    The fields after `shape` are applied in their order.
    """

    name: str
    shape: Shape
    """The shape of the stored tensor."""
    expert: int | None = None
    """Its index in a tensor that has all experts, (n_experts, ...)."""
    transposed: bool = False
    """Whether it is stored as (n_in, n_out)."""
    as_row: bool = False
    """Whether it is a vector that is one row of a matrix."""
    flattened: bool = False
    """Whether it is a vector that is stored in several rows."""
    groups: int = 1
    """Equal groups of rows in a tensor that holds parts of several weights in each of them."""
    rows: tuple[int, int] | None = None
    """Begin and end of its rows, in each group, in a tensor with several weights; None: all."""
    columns: tuple[int, int] | None = None
    """Begin and end of its columns, in a matrix with several weights side by side; None: all."""
    rope_heads: int = 0
    """Heads whose rows are stored in rope pairs, 0, r/2, 1, r/2 + 1 and so on; 0: in order."""
    rope_rows: int = 0
    """r, the rows of each of these heads that are rotated; the others are in order. 0: all."""
    plus: float = 0.0
    """Added to every value: some families store norms minus one. For vectors."""
    times: float = 1.0
    """Multiplies every value after that. For vectors."""

    @property
    def part_shape(self) -> Shape:
        """The shape of the part after all transformations."""
        n_rows, *rest = self._whole_shape
        begin, end = self.rows or (0, n_rows // self.groups)
        if self.columns is not None:
            rest = [self.columns[1] - self.columns[0]]
        return self.groups * (end - begin), *rest

    @property
    def part(self) -> str:
        """Names the part; an untransformed tensor keeps its own name."""
        changes = [
            f"{field.name}={value}"
            for field in dataclasses.fields(self)[2:]
            if (value := getattr(self, field.name)) != field.default
        ]
        return self.name + (f"[{', '.join(changes)}]" if changes else "")

    @property
    def share(self) -> float:
        """The fraction of the stored tensor that it is."""
        return math.prod(self.part_shape) / math.prod(self.shape)

    def of(self, stored: Any) -> Any:
        """The part of `stored` (a numpy array, a torch tensor or rows of blocks) with contiguous
        rows. `plus` and `times` are not applied: `Ops.vector` does that.
        """
        if isinstance(stored, BlockRows):
            # Blocks lie along a row: whole rows can change places, but nothing can be transposed.
            rows = BlockRows(stored.type, replace(self, columns=None).of(stored.rows))
            return rows if self.columns is None else _columns_of(rows, *self.columns)
        values = stored
        if self.expert is not None:
            values = values[self.expert]
        if self.transposed:
            values = _contiguous(values.swapaxes(0, 1))
        if self.as_row:
            values = values.reshape(1, -1)
        if self.flattened:
            values = values.reshape(-1)
        if self.groups > 1:
            n_rows, *rest = values.shape
            groups = values.reshape(self.groups, n_rows // self.groups, *rest)
            values = groups[:, slice(*self.rows or (None,))].reshape(-1, *rest)
        elif self.rows is not None:
            values = values[slice(*self.rows)]
        if self.columns is not None:
            values = _contiguous(values[:, slice(*self.columns)])
        if self.rope_heads:
            n_rows, *rest = values.shape
            heads = values.reshape(self.rope_heads, n_rows // self.rope_heads, *rest)
            order = [self._place_in_pairs(place) for place in range(heads.shape[1])]
            values = heads[:, order].reshape(n_rows, *rest)
        return values

    def stored_index(self, index: Shape) -> Shape:
        """Where the element at `index` of the part is in the stored tensor."""
        row, *rest = index
        if self.columns is not None:
            rest = [self.columns[0] + rest[0]]
        if self.rope_heads:
            head, place = divmod(row, self._head_rows)
            row = head * self._head_rows + self._place_in_pairs(place)
        n_rows = self._whole_shape[0]
        begin, end = self.rows or (0, n_rows // self.groups)
        group, place = divmod(row, end - begin)
        row = group * (n_rows // self.groups) + begin + place
        if self.flattened:
            places: list[int] = []
            for n in reversed(self.shape):
                row, place = divmod(row, n)
                places.append(place)
            return tuple(reversed(places))
        if self.as_row:
            return tuple(rest)
        place_of = (*rest, row) if self.transposed else (row, *rest)
        return place_of if self.expert is None else (self.expert, *place_of)

    @property
    def _whole_shape(self) -> Shape:
        shape = self.shape if self.expert is None else self.shape[1:]
        if self.flattened:
            return (math.prod(shape),)
        if self.as_row:
            return 1, *shape
        return shape[::-1] if self.transposed else shape

    @property
    def _head_rows(self) -> int:
        return self.part_shape[0] // self.rope_heads

    def _place_in_pairs(self, place: int) -> int:
        """Where the row at `place` of a head is stored in that head."""
        rotated = self.rope_rows or self._head_rows
        if place >= rotated:
            return place
        return 2 * (place % (rotated // 2)) + place // (rotated // 2)


def _columns_of(rows: BlockRows, begin: int, end: int) -> Any:
    """Whole blocks, or the numbers that they stand for where an end lies inside of one."""
    columns, n_bytes = rows.type.columns, rows.type.n_bytes
    if begin % columns or end % columns:
        return _contiguous(dequantize(rows)[:, begin:end])
    return BlockRows(
        rows.type, _contiguous(rows.rows[:, begin // columns * n_bytes : end // columns * n_bytes])
    )


def _contiguous(values: Any) -> Any:
    shape = values.shape
    return values.reshape(-1).reshape(shape)


Sources = tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSources:
    """One layer; () for what it does not have. The fields are those of LayerWeights."""

    wqkv: Sources
    bqkv: Sources = ()
    w_gate: Sources = ()
    b_gate: Sources = ()
    conv: Sources = ()
    conv_bias: Sources = ()
    a_log: Sources = ()
    dt_bias: Sources = ()
    state_norm: Sources = ()
    skip: Sources = ()
    wo: Sources
    bo: Sources = ()
    w_gate_up: Sources
    """Gate, then up; or up alone. In a layer of experts, what all tokens go through."""
    b_gate_up: Sources = ()
    w_down: Sources
    b_down: Sources = ()
    xielu: Sources = ()
    """The numbers of Xielu, in its order."""
    attention_norm: Sources = ()
    attention_norm_bias: Sources = ()
    post_attention_norm: Sources = ()
    mlp_norm: Sources = ()
    mlp_norm_bias: Sources = ()
    post_mlp_norm: Sources = ()
    q_norm: Sources = ()
    k_norm: Sources = ()
    sinks: Sources = ()
    factor: Sources = ()
    w_embedding_gate: Sources = ()
    w_embedding_out: Sources = ()
    embedding_norm: Sources = ()
    w_router: Sources = ()
    b_router: Sources = ()
    router_norm: Sources = ()
    selection_bias: Sources = ()
    expert_scales: Sources = ()
    experts_norm: Sources = ()
    post_experts_norm: Sources = ()
    post_shared_norm: Sources = ()
    experts_gate_up: Sources = ()
    """Gate, then up of each expert, or up alone."""
    b_experts_gate_up: Sources = ()
    experts_down: Sources = ()
    b_experts_down: Sources = ()
    w_latent_in: Sources = ()
    b_latent_in: Sources = ()
    w_latent_out: Sources = ()
    b_latent_out: Sources = ()

    @property
    def n_gate_up(self) -> int:
        """How many of `experts_gate_up` an expert has."""
        return len(self.experts_gate_up) // max(1, len(self.experts_down))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSources:
    """A whole model."""

    embedding: Source
    positions: Sources = ()
    layer_table: Sources = ()
    """Stays in its file: a row is read for each token."""
    layer_projection: Sources = ()
    layer_projection_norm: Sources = ()
    norm: Source
    norm_bias: Sources = ()
    head: Source
    """Named for tied models too: some of them store both."""
    head_bias: Sources = ()
    layers: tuple[LayerSources, ...]
    ignored: str = r"(?!)"
    """A regular expression: names of stored tensors that the decoder does not need."""

    def stored(self, *, tied: bool) -> Iterator[Source]:
        """All sources that a checkpoint must have; `tied`: the head need not be there."""
        yield from self.layer_table
        yield from self.needed(tied=tied)

    def needed(self, *, tied: bool) -> Iterator[Source]:
        """All sources that are loaded; `tied`: the head is not."""
        yield from (self.embedding, *self.positions, *self.layer_projection)
        yield from (*self.layer_projection_norm, self.norm, *self.norm_bias, *self.head_bias)
        if not tied:
            yield self.head
        for layer in self.layers:
            for field in dataclasses.fields(layer):
                yield from getattr(layer, field.name)
