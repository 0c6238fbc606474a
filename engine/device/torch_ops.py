"""The ops of the decoder in torch, for devices and formats without native code.

Owns torch memory and the recorded passes. `reference.py` computes the ops.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..checkpoint.config import ModelConfig
from ..checkpoint.recurrent import StateShape
from ..checkpoint.stored import plain_values
from ..errors import ModelLoadError
from ..sampling.logits import Logits
from ..sampling.op import sample
from ..stored_tensor import StoredTensor
from . import reference
from .arguments import Array, Op
from .formats import DTYPES, Format, check_kv_cache, common_format, matrix_bytes
from .memory import host_bytes
from .mixed import ModelFormats, uniform_formats
from .ops import Bytes, KVMemory, KVShape, NotFiniteError, OpTime, Stored
from .recurrent_reference import TorchStates
from .reference import TorchHeadRows, TorchMatrix
from .step import StepState
from .threads import thread_count
from .windows import PASS_ROWS

# Compute capability: tensor cores know bfloat16 from here on.
_OLDEST_MAJOR = 8
_DTYPES = {name: getattr(torch, name) for name in DTYPES}


def has_cuda() -> bool:
    return torch.cuda.is_available()


def open_torch(
    device: str, format_: str, *, kv_cache: str = "auto", n_threads: int | None = None
) -> "TorchOps":
    """The ops of `device` (cpu, cuda, cuda:N); `n_threads` holds for the whole process.

    Keys and values have the format of the weights. Raises ModelLoadError for a device that does not
    exist, or a format that torch does not support.
    """
    check_kv_cache(kv_cache)
    if kv_cache not in ("auto", format_):
        raise ModelLoadError(f"kv_cache: {kv_cache} needs native code, not torch")
    if format_ not in DTYPES:
        raise ModelLoadError(f"quantize: {format_} needs native code, not torch")
    if device != "cpu":
        check_cuda(device)
    if n_threads is not None:
        torch.set_num_threads(thread_count(n_threads))
    return TorchOps(device, format_)


def check_cuda(device: str) -> None:
    """Raises ModelLoadError for a CUDA device that does not exist."""
    if not has_cuda():
        raise ModelLoadError(f"device: {device}: torch finds no CUDA device")
    _, _, index = device.partition(":")
    if index and int(index) >= torch.cuda.device_count():
        raise ModelLoadError(f"device: {device}: torch finds {torch.cuda.device_count()} devices")


def too_old(device: str) -> str:
    """Why native code cannot run on this CUDA device; empty if it can."""
    major, minor = torch.cuda.get_device_capability(device)
    return "" if major >= _OLDEST_MAJOR else f"{device} has compute capability {major}.{minor}"


class TorchOps:
    """Weights, activations, keys and values are all of one dtype; logits are float32."""

    packs = False
    calibrates = False
    shares_keys = False
    is_async = False
    needs_first_pass = True
    rows_are_exact = False
    prefill_rows = PASS_ROWS
    decode_rows = 64
    goes_round = False
    sample = staticmethod(sample)

    def __init__(self, device: str | torch.device, format_: str) -> None:
        """`format_`: float32, bfloat16 or float16."""
        self.device = torch.device(device)
        self.format = self.activation_dtype = self.kv_format = format_
        self.name = f"torch {torch.__version__} {self.device.type}"
        self.n_threads = torch.get_num_threads()

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        return torch.zeros(shape, device=self.device, dtype=_DTYPES[dtype])

    def kv_memory(self, shapes: Sequence[KVShape]) -> KVMemory:
        keys, values = ([self.zeros(shape, self.kv_format) for shape in shapes] for _ in range(2))
        return KVMemory(
            [TorchHeadRows(rows, self.kv_format) for rows in keys],
            [TorchHeadRows(rows, self.kv_format) for rows in values],
            TorchPositions(keys, values),
        )

    def state_memory(
        self, shapes: Sequence[StateShape], *, n_slots: int, n_logged: int
    ) -> TorchStates:
        return TorchStates(shapes, self.device, n_slots=n_slots, n_logged=n_logged)

    def branch_memory(
        self, shapes: Sequence[KVShape], *, n_branches: int, n_positions: int, max_seq_len: int
    ) -> None:
        return None

    def reader(self) -> AbstractContextManager[Callable[[StoredTensor], npt.NDArray[Any]]]:
        return nullcontext(plain_values)

    def vector(self, parts: Sequence[Stored], *, plus: float = 0.0, times: float = 1.0) -> Tensor:
        vector = self._stacked(parts, "float32").add_(plus).mul_(times)
        return vector.to(_DTYPES[self.format])

    def matrix(
        self,
        parts: Sequence[Stored],
        format_: Format,
        *,
        gated: bool = False,
        importance: npt.NDArray[np.float32] | None = None,
        temporary: bool = False,
    ) -> TorchMatrix:
        # Gate and up are one below the other, as other parts are: the reference halves the product.
        common = common_format(format_)
        return TorchMatrix(self._stacked(parts, common), common)

    def table(self, values: npt.NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def program(self, max_rows: int) -> "TorchProgram":
        return TorchProgram()

    def wait(self) -> None:
        """Nothing to wait for: reading rows waits."""

    def formats(self, config: ModelConfig, dtypes: Mapping[str, str]) -> ModelFormats:
        return uniform_formats(config, self.format)

    def matrix_bytes(self, format_: str, n_out: int, n_in: int) -> int:
        return matrix_bytes(format_, n_out, n_in)

    def working_bytes(self, config: ModelConfig) -> int:
        return 0

    def give_back(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def available_bytes(self) -> int | None:
        if self.device.type == "cuda":
            return int(torch.cuda.mem_get_info(self.device)[0])
        return host_bytes()

    def _stacked(self, parts: Sequence[Stored], dtype: str) -> Tensor:
        shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
        stacked = torch.empty(shape, device=self.device, dtype=_DTYPES[dtype])
        row = 0
        for part in parts:
            stacked[row : row + part.shape[0]].copy_(_as_tensor(part))
            row += part.shape[0]
        bad = torch.nonzero(~stacked.isfinite())
        if bad.numel():
            raise NotFiniteError(tuple(bad[0].tolist()))
        return stacked


class TorchPositions:
    """A copy is (n_kv_heads, n, head_dim) of the keys of all layers, then of the values."""

    unit = 1

    def __init__(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        self._rows = (*keys, *values)
        self._dtype = keys[0].dtype
        sizes = Counter((rows.shape[0], rows.shape[2]) for rows in keys)
        parts = [f"{count}x{heads}x{dim}" for (heads, dim), count in sizes.items()]
        self.layout = f"rows {self._dtype} {' '.join(parts)}"

    def n_bytes(self, n: int) -> int:
        return n * self._dtype.itemsize * sum(rows[:, 0].numel() for rows in self._rows)

    def host_memory(self, n_slabs: int, n_bytes: int) -> Bytes:
        return np.empty((n_slabs, n_bytes), np.uint8)

    def copy_out(self, start: int, stop: int, out: Bytes) -> None:
        # Put together on the device, so that it is one transfer.
        whole = torch.cat([rows[:, start:stop].flatten() for rows in self._rows])
        self._numbers(out, stop - start).copy_(whole)

    def copy_in(self, start: int, stop: int, copied: Bytes, *, n_copied: int) -> None:
        whole = self._numbers(copied, n_copied).to(self._rows[0].device)
        parts = torch.split(whole, [n_copied * rows[:, 0].numel() for rows in self._rows])
        for rows, part in zip(self._rows, parts, strict=True):
            n_heads, _, head_dim = rows.shape
            rows[:, start:stop].copy_(part.view(n_heads, n_copied, head_dim)[:, : stop - start])

    def _numbers(self, memory: Bytes, n: int) -> Tensor:
        return torch.from_numpy(memory[: self.n_bytes(n)]).view(self._dtype)


class TorchProgram:
    """Ops, run by the reference one after the other."""

    def __init__(self) -> None:
        self._ops: list[Op] = []

    def append(self, op: Op) -> None:
        self._ops.append(op)

    @torch.inference_mode()
    def run(self, state: StepState, *, guess_from: Array | None = None) -> bool:
        for op in self._ops:
            if state.aborted:
                return False
            reference.run(op, state)
        return True

    def rows(self, logits: Array) -> Logits:
        assert isinstance(logits, Tensor)
        host: Logits = logits.cpu().numpy()
        return host

    def expect_next(self) -> None:
        """Nothing runs ahead."""

    def begin(self, state: StepState) -> None:
        """Nothing runs ahead."""

    def warm_up(self) -> None:
        """Nothing is left to do after a pass."""

    def profile(self, state: StepState) -> list[OpTime]:
        self.run(state)
        return []


def _as_tensor(part: Stored) -> Tensor:
    """A copy: torch warns of memory that is read-only."""
    assert isinstance(part, np.ndarray), "as `reader` reads it"
    if part.dtype == np.uint16:
        return torch.from_numpy(part.astype(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(part.copy())
