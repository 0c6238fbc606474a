"""The device that runs the ops of the decoder, as the model sees it.

Owns the interface: memory, weights and recorded passes of one device. It has three implementations:
`cpu/ops.py`, `cuda/ops.py`, and `torch_ops.py` for formats and machines without native code. Of a
model it knows the sizes.

An op is recorded once and runs in every pass after that, on the same memory: the step state holds
what differs from pass to pass.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..checkpoint.config import ModelConfig
from ..checkpoint.recurrent import StateShape
from ..sampling.logits import Rows
from ..sampling.request import Draw
from ..stored_tensor import StoredTensor
from .arguments import Array, HeadRows, Matrix, Op, States, Tails
from .formats import Format
from .mixed import ModelFormats
from .step import StateWords, StepState

# A copy of some positions, as bytes (n,).
Bytes = npt.NDArray[np.uint8]
# (n_kv_heads, positions, head_dim) of the keys of a layer, and of its values.
KVShape = tuple[int, int, int]


class Stored(Protocol):
    """A tensor as a checkpoint stores it, row by row: float32, float16, or bfloat16 (in numpy as
    uint16). Ops that read files straight into the device have it in device memory.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    def any(self) -> Any:
        """Whether anything is not 0."""
        ...


class NotFiniteError(ValueError):
    """A weight is NaN or infinite, at `index` of the stacked parts."""

    def __init__(self, index: tuple[int, ...]) -> None:
        super().__init__(f"not finite at {list(index)}")
        self.index = index


@dataclass(frozen=True, slots=True)
class OpTime:
    """What one op of a pass took, and how many bytes of weights and states it moved."""

    name: str
    ns: int
    n_bytes: int


class Program(Protocol):
    """One pass of the decoder: ops in the order in which they were recorded.

    Buffers hold as many rows as a pass may have; an op works on the first `state.n_rows` of them.
    """

    def append(self, op: Op) -> None:
        """Records the op, and keeps its memory. Raises ValueError for memory that does not fit."""

    def run(self, state: StepState, *, guess_from: Array | None = None) -> bool:
        """Runs all ops for the ids of `state`. Returns False if it was aborted.

        `guess_from` (rows, V): where this run, of one row, writes its logits. The next run will
        most likely be that of their likeliest token: ops that can begin it do so, but do not
        overwrite the logits before `begin` has confirmed the token.
        """
        ...

    def rows(self, logits: Array) -> Rows:
        """The logits (rows, V) that the last run wrote into `logits`; valid until the next run."""
        ...

    def expect_next(self) -> None:
        """The next pass will most likely be one row: the token that is drawn from the last row.
        Asynchronous ops may begin it before that token is read.
        """

    def begin(self, state: StepState) -> None:
        """The next run will most likely be this one, of one row: ops that can begin it do so while
        the caller does other things. Until it is run, or `Ops.wait` is called, buffers may change.
        """

    def warm_up(self) -> None:
        """Does what the first passes of a device would otherwise wait for. Overwrites positions of
        the caches, so they should be empty.
        """

    def profile(self, state: StepState) -> list[OpTime]:
        """Runs like `run`, and returns the time of each op; empty if the device has no times."""
        ...


class Positions(Protocol):
    """Copies positions of all layers out of a cache's memory and back, bit for bit."""

    unit: int
    """Copies begin at a multiple of this. Copying in may overwrite positions after the end, up to
    the next multiple, with values of another sequence.
    """
    layout: str
    """Names the format and the shape of a position: what the bytes of a copy depend on."""

    def n_bytes(self, n: int) -> int:
        """Bytes of a copy of `n` positions."""
        ...

    def host_memory(self, n_slabs: int, n_bytes: int) -> Bytes:
        """Host memory (n_slabs, n_bytes) that is fast to copy to. Raises MemoryError."""
        ...

    def copy_out(self, start: int, stop: int, out: Bytes) -> None:
        """Copies positions start to stop - 1 into `out`, at least n_bytes(stop - start) bytes."""

    def copy_in(self, start: int, stop: int, copied: Bytes, *, n_copied: int) -> None:
        """Fills positions start to stop - 1 with the first of `n_copied` that were copied out."""


class KVMemory(NamedTuple):
    """Keys and values of all layers, and what copies positions of them."""

    keys: Sequence[HeadRows]
    values: Sequence[HeadRows]
    positions: Positions


class StateMemory(Protocol):
    """The states of all recurrent layers: slots for states at several positions, and a log of the
    latest rows. Which slots a pass begins and ends with, its caller says in `words`.
    """

    words: StateWords
    """As struct StatePass in csrc/recurrent.h has them."""

    @property
    def layers(self) -> Sequence[States]: ...

    @property
    def slot_bytes(self) -> int:
        """Of the states of all layers in one slot."""
        ...

    def copy_out(self, slot: int, out: Bytes) -> None:
        """Copies the states in a slot into `out` (slot_bytes,)."""

    def copy_in(self, slot: int, copied: Bytes) -> None:
        """The reverse."""


class BranchMemory(Protocol):
    """Keys and values of several branches of one sequence, after the positions that they share."""

    @property
    def tails(self) -> Sequence[Tails]:
        """Per layer."""
        ...

    @property
    def n_positions(self) -> int:
        """That each branch may have."""
        ...

    def place(self, fork: int, rows: Sequence[tuple[int, int]]) -> None:
        """The next pass has these rows: (branch, position), each of another branch. Positions
        before `fork` are shared. Raises ValueError for a row that has no room.
        """


class Ops(Protocol):
    """Memory and programs of one device."""

    format: str
    """The format of weights that the options choose, as `formats.py` names it."""
    activation_dtype: str
    kv_format: str
    """The format of keys and values."""
    name: str
    """Device, library and instruction set: what the numbers depend on besides the weights."""
    n_threads: int
    """Threads on the CPU."""
    packs: bool
    """Whether matrices are packed into panels, which `panel_cache.py` can keep."""
    calibrates: bool
    """Whether the importance of columns makes matrices in `format` more exact."""
    shares_keys: bool
    """Whether keys are more exact without what they have in common (Attention.common_keys)."""
    is_async: bool
    """Whether a pass may still be running when `run` returns."""
    needs_first_pass: bool
    """Whether a first pass takes longer than later ones, although it has been recorded."""
    rows_are_exact: bool
    """Whether the bits of a row are the same however many rows its pass has. Then arrays are
    numpy's, too.
    """
    prefill_rows: int
    """The default number of tokens in one pass of the prefill."""
    decode_rows: int
    """The most rows of a pass that gives the logits of each; 16 to 64."""
    goes_round: bool
    """Whether the caches of layers with a window may hold fewer positions than the sequence has,
    as `windows.py` says.
    """

    @property
    def sample(self) -> Draw:
        """The op that draws a token from a row of `Program.rows`, or from a row on the host."""
        ...

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array: ...

    def kv_memory(self, shapes: Sequence[KVShape]) -> KVMemory:
        """Memory for the keys and values of a layer for each of the shapes.

        Raises MemoryError, and ModelLoadError for shapes that the device does not support.
        """
        ...

    def state_memory(
        self, shapes: Sequence[StateShape], *, n_slots: int, n_logged: int
    ) -> StateMemory:
        """Memory for recurrent layers of these shapes, with `n_logged` rows in the log. Raises
        MemoryError.
        """
        ...

    def branch_memory(
        self, shapes: Sequence[KVShape], *, n_branches: int, n_positions: int, max_seq_len: int
    ) -> BranchMemory | None:
        """Memory for branches of a sequence of at most `max_seq_len`, whose caches have these
        shapes. None: this device cannot run `BranchAttention`.
        """
        ...

    def reader(self) -> AbstractContextManager[Callable[[StoredTensor], Stored]]:
        """A function that reads tensors for `vector` and `matrix`; it may raise ModelLoadError."""
        ...

    def vector(self, parts: Sequence[Stored], *, plus: float = 0.0, times: float = 1.0) -> Array:
        """A norm or bias: the parts (n,) one after the other, plus a number, times another. Raises
        NotFiniteError.
        """
        ...

    def matrix(
        self,
        parts: Sequence[Stored],
        format_: Format,
        *,
        gated: bool = False,
        importance: npt.NDArray[np.float32] | None = None,
        temporary: bool = False,
    ) -> Matrix:
        """The parts (n, n_in) stacked by rows; `gated`: they are gate and up; `importance`: of an
        error in each column (n_in,), for ops that calibrate; `temporary`: it is not used any more
        after the next matrix that is not temporary, nor after `reader`. Raises NotFiniteError.

        Parts may have several formats only where `packs` is set: ValueError.
        """
        ...

    def table(self, values: npt.NDArray[np.float32]) -> Array:
        """A computed table in device memory."""
        ...

    def program(self, max_rows: int) -> Program: ...

    def wait(self) -> None:
        """Returns when no pass is running: a pass that has begun may be dropped."""

    def formats(self, config: ModelConfig, dtypes: Mapping[str, str]) -> ModelFormats:
        """Of the matrices of a model whose tensors are stored in these dtypes, by name."""
        ...

    def matrix_bytes(self, format_: str, n_out: int, n_in: int) -> int:
        """Bytes of a matrix in memory."""
        ...

    def working_bytes(self, config: ModelConfig) -> int:
        """Bytes that a model works in, without weights, keys and values."""
        ...

    def give_back(self) -> None:
        """Gives memory of weights that were dropped back to the system."""

    def available_bytes(self) -> int | None:
        """Bytes that can be allocated now; None if the system does not say."""
        ...
