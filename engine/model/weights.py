"""Safetensors -> the weights that the decoder runs on.

Owns the Hugging Face tensor names and the fusion of q, k, v and of gate and up into one matrix
each. How a matrix lies in memory is up to the ops. All names, shapes and dtypes are verified before
anything is allocated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ..checkpoint.config import ModelConfig
from ..checkpoint.safetensors import StoredTensor, stored_values
from ..checkpoint.tensors import EMBEDDING, FINAL_NORM, HEAD, expected_shapes
from ..device.formats import matrix_bytes, table_format
from ..device.ops import Array, Matrix, NotFiniteError, Ops, Stored
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
    """Bytes of the loaded weights in `format_`; `matrix_bytes`: of the ops."""
    n_bytes = 0
    for name, shape in expected_shapes(config).items():
        if len(shape) == 1:
            n_bytes += 4 * shape[0]
        else:
            own = table_format(format_) if name in (EMBEDDING, HEAD) else format_
            n_bytes += matrix_bytes(own, *shape)
    return n_bytes


def step_bytes(config: ModelConfig, format_: str, matrix_bytes: MatrixBytes = matrix_bytes) -> int:
    """Bytes of the weights that a decode step reads: all but an embedding that is not the head."""
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
    tables = table_format(ops.format)
    with ops.reader() as read:
        reader = _Reader(tensors, ops, read, panels, on_progress)
        embedding = reader.matrix(EMBEDDING, format_=tables)
        return Weights(
            embedding=embedding,
            layers=tuple(_read_layer(reader, config, index) for index in range(config.n_layers)),
            norm=reader.norm(FINAL_NORM),
            head=embedding if config.tie_embeddings else reader.matrix(HEAD, format_=tables),
        )


def _read_layer(reader: "_Reader", config: ModelConfig, index: int) -> LayerWeights:
    layer, prefix = config.layers[index], f"model.layers.{index}."

    def matrix(*names: str, gated: bool = False) -> Matrix:
        return reader.matrix(*(f"{prefix}{name}.weight" for name in names), gated=gated)

    def bias(*names: str, there: bool) -> Array | None:
        return reader.vector(*(f"{prefix}{name}.bias" for name in names)) if there else None

    def norm(name: str, *, there: bool = True) -> Array | None:
        return reader.norm(f"{prefix}{name}.weight") if there else None

    qkv = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    gate_up = ("mlp.gate_proj", "mlp.up_proj")
    return LayerWeights(
        attention_norm=norm("input_layernorm"),
        wqkv=matrix(*qkv),
        bqkv=bias(*qkv, there=layer.qkv_bias),
        q_norm=norm("self_attn.q_norm", there=layer.qk_norm),
        k_norm=norm("self_attn.k_norm", there=layer.qk_norm),
        wo=matrix("self_attn.o_proj"),
        bo=bias("self_attn.o_proj", there=layer.o_bias),
        mlp_norm=norm("post_attention_layernorm"),
        w_gate_up=matrix(*gate_up, gated=True),
        b_gate_up=bias(*gate_up, there=layer.mlp_bias),
        w_down=matrix("mlp.down_proj"),
        b_down=bias("mlp.down_proj", there=layer.mlp_bias),
    )


class _Reader:
    """Turns stored tensors, several of them stacked by rows, into memory of the ops."""

    def __init__(
        self,
        tensors: Mapping[str, StoredTensor],
        ops: Ops,
        read: Callable[[StoredTensor], Stored],
        panels: "PanelCache | None",
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        self._tensors = tensors
        self._ops = ops
        self._stored = read
        self._panels = panels
        self._on_progress = on_progress
        self._done = 0
        self._total = sum(tensor.n_bytes for tensor in tensors.values())

    def matrix(self, *names: str, format_: str | None = None, gated: bool = False) -> Matrix:
        own_format = format_ or self._ops.format
        tensors = [self._tensors[name] for name in names]
        kept = None
        if self._panels is not None:
            kept = self._panels.get(tensors, own_format, gated=gated)
        if kept is not None:
            self._count(names)
            return kept
        matrix = self._read(names, lambda parts: self._ops.matrix(parts, own_format, gated=gated))
        if self._panels is not None:
            self._panels.put(tensors, matrix)
        return matrix

    def vector(self, *names: str) -> Array:
        return self._read(names, self._ops.vector)

    def norm(self, name: str) -> Array:
        """A vector that scales something: all zeros are a hole in a file, not weights."""
        tensor = self._tensors[name]
        if not stored_values(tensor).any():
            raise ModelLoadError(f"{tensor.file}: {name}: all zeros; the file may be incomplete")
        return self.vector(name)

    def _read(self, names: Sequence[str], convert: Callable[[list[Stored]], T]) -> T:
        tensors = [self._tensors[name] for name in names]
        try:
            converted = convert([self._stored(tensor) for tensor in tensors])
        except NotFiniteError as error:
            raise _refusal(tensors, error.index) from error
        self._count(names)
        return converted

    def _count(self, names: Sequence[str]) -> None:
        self._done += sum(self._tensors[name].n_bytes for name in names)
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)


def _refusal(tensors: Sequence[StoredTensor], index: tuple[int, ...]) -> ModelLoadError:
    """`index` is that of a NaN or infinity in the tensors, one below the other."""
    row, *rest = index
    for tensor in tensors:
        if row < tensor.shape[0]:
            break
        row -= tensor.shape[0]
    return ModelLoadError(f"{tensor.file}: {tensor.name}: not finite at {[row, *rest]}")
