"""The device that runs the ops of the decoder, as the model sees it.

Owns the interface: memory, weights and recorded passes of one device. It has three implementations:
`cpu/ops.py`, `cuda/ops.py`, and `torch_ops.py` for formats and machines without native code. Of a
model it knows the sizes.

An op is recorded once and runs in every pass after that, on the same memory: the step state holds
what differs from pass to pass.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..checkpoint.config import ModelConfig
from ..checkpoint.safetensors import StoredTensor
from ..sampling.logits import Rows
from ..sampling.request import Draw
from .arguments import Array, HeadRows, Matrix, Op
from .step import StepState

# A copy of some positions, as bytes (n,).
Bytes = npt.NDArray[np.uint8]


class Stored(Protocol):
    """A tensor as a checkpoint stores it, row by row: float32, float16, or bfloat16 (in numpy as
    uint16). In memory of the device where the ops read it there themselves.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    def any(self) -> Any:
        """Whether anything is not 0."""
        ...


class NotFiniteError(ValueError):
    """A weight is NaN or infinite: at this index of the parts, one below the other."""

    def __init__(self, index: tuple[int, ...]) -> None:
        super().__init__(f"not finite at {list(index)}")
        self.index = index


@dataclass(frozen=True, slots=True)
class OpTime:
    """What one op of a pass took, and how many bytes of weights it read."""

    name: str
    ns: int
    n_bytes: int


class Program(Protocol):
    """One pass of the decoder: ops in the order in which they were recorded.

    Buffers hold as many rows as a pass may have; an op works on the first `state.n_rows` of them.
    """

    def append(self, op: Op) -> None:
        """Records the op, and keeps its memory. Raises ValueError for memory that does not fit."""

    def run(self, state: StepState) -> bool:
        """All ops, for the ids of `state`. False: it was aborted in between."""
        ...

    def rows(self, logits: Array) -> Rows:
        """What the last run has left in `logits` (rows, V), until the next run."""
        ...

    def expect_next(self) -> None:
        """One row comes next, most likely: the token that will be drawn from the last one. Where
        ops are asynchronous, it may begin before that token is read.
        """

    def profile(self, state: StepState) -> list[OpTime]:
        """Runs like `run`; the ops that ran. Empty where no times are kept."""
        ...


class Positions(Protocol):
    """Copies of some positions of all layers, bit for bit, out of a cache's memory and in again."""

    unit: int
    """Copies begin at a multiple of it; positions behind their end, up to one, may be overwritten
    with what is no number of this sequence.
    """
    layout: str
    """What the bytes depend on: the format and the shape of a position."""

    def n_bytes(self, n: int) -> int:
        """What a copy of `n` positions takes."""
        ...

    def host_memory(self, n_slabs: int, n_bytes: int) -> Bytes:
        """Memory of the host that copies go to fast, (n_slabs, n_bytes). Raises MemoryError."""
        ...

    def copy_out(self, start: int, stop: int, out: Bytes) -> None:
        """Positions from `start`, before `stop`, into `out` (at least n_bytes(stop - start),)."""

    def copy_in(self, start: int, stop: int, copied: Bytes, *, n_copied: int) -> None:
        """Positions from `start`, before `stop`: the first of `n_copied` that were copied out."""


class KVMemory(NamedTuple):
    """Keys and values of all layers, and what copies positions of them."""

    keys: Sequence[HeadRows]
    values: Sequence[HeadRows]
    positions: Positions


class Ops(Protocol):
    """Memory and programs of one device."""

    format: str
    """What matrices are held in, as `device/formats.py` names it."""
    activation_dtype: str
    kv_format: str
    """What keys and values are held in."""
    name: str
    """What the numbers depend on beside format and weights: device, library, instruction set."""
    n_threads: int
    """Of the CPU."""
    packs: bool
    """Whether matrices are packed into panels, which `panel_cache.py` can keep."""
    is_async: bool
    """Whether a pass may still run when `run` has returned."""
    prefill_rows: int
    """Tokens that a pass of the prefill takes, where nobody says otherwise."""

    @property
    def sample(self) -> Draw:
        """Draws from a row of `Program.rows`, or of the host."""
        ...

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array: ...

    def kv_memory(self, n_layers: int, shape: tuple[int, int, int]) -> KVMemory:
        """Memory for the keys and values of `n_layers`, (n_kv_heads, max_seq_len, head_dim) each.

        Raises MemoryError, and ModelLoadError for a shape that the device does not support.
        """
        ...

    def reader(self) -> AbstractContextManager[Callable[[StoredTensor], Stored]]:
        """What reads tensors as `vector` and `matrix` take them; it may raise ModelLoadError."""
        ...

    def vector(self, parts: Sequence[Stored], *, plus: float = 0.0) -> Array:
        """A norm or bias: the parts (n,) one after the other, plus a number. Raises
        NotFiniteError.
        """
        ...

    def matrix(self, parts: Sequence[Stored], format_: str, *, gated: bool = False) -> Matrix:
        """The parts (n_out, n_in) one below the other; `gated`: they are gate and up.

        Raises NotFiniteError.
        """
        ...

    def table(self, values: npt.NDArray[np.float32]) -> Array:
        """float32 values of a computed table."""
        ...

    def program(self, max_rows: int) -> Program: ...

    def wait(self) -> None:
        """Until all passes have run."""

    def matrix_bytes(self, format_: str, n_out: int, n_in: int) -> int:
        """Of a matrix in memory."""
        ...

    def working_bytes(self, config: ModelConfig) -> int:
        """What a model takes beside weights, keys and values, as far as that is planned for."""
        ...

    def available_bytes(self) -> int | None:
        """Bytes that can be allocated now; None where the system does not say."""
        ...
