"""The ops of the decoder on a CUDA device, in native code.

Owns device memory, which torch allocates, how much a model works in, and which sampler draws;
`program.py` records the passes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...checkpoint.config import ModelConfig
from ...checkpoint.recurrent import StateShape
from ...errors import ModelLoadError
from ...sampling.logits import Logits
from ...sampling.op import sample
from ...sampling.request import SampleRequest, SampleResult
from ...stored_tensor import StoredTensor
from ..formats import Format, common_format, cuda_kv_format
from ..memory import host_bytes
from ..mixed import ModelFormats, keeping_mxfp4, uniform_formats
from ..ops import Bytes, KVMemory, KVShape, NotFiniteError, StateMemory, Stored
from . import prefill as cuda_prefill
from . import weights as cuda_weights
from .attention import CudaHeadRows
from .lane import Lane
from .load import PinnedReader
from .positions import CudaPositions
from .program import CudaProgram
from .rows import CudaRow, HostCopy
from .sampler import DeviceSampler
from .weights import CudaMatrix

_DTYPES = {"float32": torch.float32}
# Not counted elsewhere: graphs, libraries and their scratch, fragmentation.
_MARGIN = 768 * 2**20


class CudaOps:
    """Activations are float32 between ops, matrices as csrc/cuda/layout.h describes them."""

    activation_dtype = "float32"
    packs = False
    calibrates = False
    shares_keys = False
    is_async = True
    needs_first_pass = True
    rows_are_exact = False
    prefill_rows = 2048
    decode_rows = 16  # those of a chunk of a prompt come from other kernels, with other bits
    goes_round = False

    def __init__(
        self, device: str | torch.device, kernels: Any, format_: str, *, kv_cache: str = "auto"
    ) -> None:
        """`kernels`: the native module. `format_`: one of formats.CUDA_FORMATS.

        Raises ModelLoadError for an unknown `kv_cache`.
        """
        self.device = torch.device(device)
        self.format = format_
        self.kv_format = cuda_kv_format(kv_cache)
        self._is_cuda = self.device.type == "cuda"
        if self._is_cuda:
            self.device = torch.device("cuda", self.device.index or 0)
            torch.cuda.set_device(self.device)
            kernels.set_device(self.device.index)
        self.name = f"cuda {_model_of(self.device)} torch {torch.__version__}"
        self.n_threads = torch.get_num_threads()
        self.kernels = kernels
        self.lane = Lane(self.device, kernels)
        self._host = HostCopy()
        self._samplers: dict[int, DeviceSampler] = {}  # by vocabulary size
        self._longest = 0  # context that a cache was made for

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        with out_of_memory_as_memory_error():
            return torch.zeros(shape, device=self.device, dtype=_DTYPES[dtype])

    def kv_memory(self, shapes: Sequence[KVShape]) -> KVMemory:
        (shape,) = set(shapes)  # `lacking_parts` names models with several
        most = self.kernels.MAX_HEAD_DIM
        if shape[2] > most:
            raise ModelLoadError(
                f"head_dim: the CUDA kernels take at most {most}, not {shape[2]}; with dtype "
                f"float16 or float32 torch computes"
            )
        self._longest = max(self._longest, shape[1])
        with out_of_memory_as_memory_error():
            keys, values = (
                CudaHeadRows.zeros(len(shapes), shape, self.kv_format, self.device)
                for _ in range(2)
            )
            return KVMemory(keys, values, _Positions(self.lane, keys, values))

    def state_memory(
        self, shapes: Sequence[StateShape], *, n_slots: int, n_logged: int
    ) -> StateMemory:
        raise ModelLoadError("recurrent layers: the native CUDA code has no kernels for them")

    def branch_memory(
        self, shapes: Sequence[KVShape], *, n_branches: int, n_positions: int, max_seq_len: int
    ) -> None:
        return None

    def reader(self) -> AbstractContextManager[Callable[[StoredTensor], Tensor]]:
        return PinnedReader(self.device)

    def vector(self, parts: Sequence[Stored], *, plus: float = 0.0, times: float = 1.0) -> Tensor:
        vector = torch.cat([self._on_device(part).float() for part in parts]).add_(plus).mul_(times)
        bad = torch.nonzero(~vector.isfinite())
        if bad.numel():
            raise NotFiniteError(tuple(bad[0].tolist()))
        return vector

    def matrix(
        self,
        parts: Sequence[Stored],
        format_: Format,
        *,
        gated: bool = False,
        importance: npt.NDArray[np.float32] | None = None,
        temporary: bool = False,
    ) -> CudaMatrix:
        with out_of_memory_as_memory_error():
            tensors = [self._on_device(part) for part in parts]
            return cuda_weights.pack(tensors, common_format(format_), self.kernels, gated=gated)

    def table(self, values: npt.NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def program(self, max_rows: int) -> CudaProgram:
        return CudaProgram(self.lane, self._host, max_rows)

    def sample(self, row: Any, request: SampleRequest, /, *, work: Logits) -> SampleResult:
        """Samples on the device if possible. If the last pass expects the next token, its pass is
        launched before the token is read.
        """
        if not isinstance(row, CudaRow):
            return sample(row, request, work=work)
        sampler = self._sampler(work.size)
        if not sampler.supports(request):
            return sample(np.asarray(row), request, work=work)
        program = row.rows.source
        row.restore()
        state = self.lane.state.data_ptr() if program.expects_next else None
        is_on_device = sampler.begin(row.values, request, state=state)
        if is_on_device and state is not None:
            program.run_ahead()
        result = sampler.result()
        program.tell_ahead(result.token_id)
        return result

    @property
    def n_passes(self) -> int:
        """Passes launched so far, including those that ran ahead."""
        return self.lane.n_passes

    def wait(self) -> None:
        self.lane.wait()

    def formats(self, config: ModelConfig, dtypes: Mapping[str, str]) -> ModelFormats:
        return keeping_mxfp4(uniform_formats(config, self.format), config, dtypes)

    def matrix_bytes(self, format_: str, n_out: int, n_in: int) -> int:
        return cuda_weights.matrix_bytes(format_, n_out, n_in)

    def working_bytes(self, config: ModelConfig) -> int:
        rows = min(self.prefill_rows, config.max_seq_len)
        return cuda_prefill.working_bytes(config, rows) + _MARGIN

    def give_back(self) -> None:
        if self._is_cuda:
            torch.cuda.empty_cache()

    def available_bytes(self) -> int | None:
        if not self._is_cuda:
            return host_bytes()
        self.give_back()  # memory that torch keeps from loading is free too
        return int(torch.cuda.mem_get_info(self.device)[0])

    def _sampler(self, vocab_size: int) -> DeviceSampler:
        if vocab_size not in self._samplers:
            self._samplers[vocab_size] = DeviceSampler(
                self.kernels, vocab_size, max_context=self._longest, device=self.device
            )
        return self._samplers[vocab_size]

    def _on_device(self, part: Stored) -> Tensor:
        """A stored part on the device: `reader` put it there, or it is in numpy memory still."""
        if isinstance(part, Tensor):
            return part
        assert isinstance(part, np.ndarray), "a tensor or a numpy array"
        if part.dtype == np.uint16:
            return torch.from_numpy(part.view(np.int16)).view(torch.bfloat16).to(self.device)
        return torch.from_numpy(part).to(self.device)


class _Positions(CudaPositions):
    """Copying in overwrites what the pass that runs ahead has read."""

    def __init__(
        self, lane: Lane, keys: Sequence[CudaHeadRows], values: Sequence[CudaHeadRows]
    ) -> None:
        super().__init__(keys, values)
        self._lane = lane

    def copy_in(self, start: int, stop: int, copied: Bytes, *, n_copied: int) -> None:
        self._lane.ahead = None
        super().copy_in(start, stop, copied, n_copied=n_copied)

    def host_memory(self, n_slabs: int, n_bytes: int) -> Bytes:
        is_cuda = self._lane.device.type == "cuda"
        try:
            memory = torch.empty((n_slabs, n_bytes), dtype=torch.uint8, pin_memory=is_cuda)
        except RuntimeError as error:  # torch's error when no more memory can be pinned
            raise MemoryError(str(error)) from error
        return memory.numpy()


@contextmanager
def out_of_memory_as_memory_error() -> Iterator[None]:
    """Turns torch's OutOfMemoryError into MemoryError."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(str(error).split("\n")[0]) from error


def _model_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "emulated"
