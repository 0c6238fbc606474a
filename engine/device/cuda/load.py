"""Loads the tensors of a checkpoint into the memory of a CUDA device.

Owns the pieces of pinned memory that they pass through: threads read into some while others are
copied to the device. Knows no file format and no weights.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

import torch
from torch import Tensor

from ...checkpoint.stored import ReadValues, open_values, plain_values
from ...stored_tensor import StoredTensor

_PIECE_BYTES = 16 * 2**20
# One thread copies a file that the system has in memory at a few GB/s.
_N_THREADS = 4
_N_PIECES = 2 * _N_THREADS

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class PinnedReader:
    """A context that gives `read`; when it exits, threads have ended and copies are complete."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._threads = ThreadPoolExecutor(_N_THREADS, "load")
        self._pieces = deque(_Piece(device) for _ in range(_N_PIECES))

    def __enter__(self) -> Callable[[StoredTensor], Tensor]:
        return self.read

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._threads.shutdown()
        for piece in self._pieces:
            piece.wait()

    def read(self, tensor: StoredTensor) -> Tensor:
        """The values of `tensor` on the device, in their stored dtype and shape; blocks as float32.

        Raises ModelLoadError as `open_values` does.
        """
        if tensor.dtype not in _DTYPES:
            return torch.from_numpy(plain_values(tensor)).to(self._device)
        values = torch.empty(tensor.shape, dtype=_DTYPES[tensor.dtype], device=self._device)
        target = values.view(-1).view(torch.uint8)
        under_way: deque[_Reading] = deque()
        with open_values(tensor) as read:
            try:
                for begin in range(0, tensor.n_bytes, _PIECE_BYTES):
                    if len(under_way) == _N_PIECES:
                        under_way.popleft().finish(target)
                    under_way.append(self._begin(read, begin, tensor.n_bytes))
                while under_way:
                    under_way.popleft().finish(target)
            finally:
                for reading in under_way:  # no thread may still read the file when it is closed
                    reading.done.exception()
        return values

    def _begin(self, read: ReadValues, begin: int, end: int) -> "_Reading":
        piece = self._pieces[0]
        self._pieces.rotate(-1)
        n_bytes = min(_PIECE_BYTES, end - begin)
        return _Reading(piece, begin, self._threads.submit(piece.fill, read, begin, n_bytes))


class _Piece:
    """A piece of pinned memory, and the copy out of it that may be in flight."""

    def __init__(self, device: torch.device) -> None:
        is_cuda = device.type == "cuda"
        self._memory = torch.empty(_PIECE_BYTES, dtype=torch.uint8, pin_memory=is_cuda)
        self._copied = torch.cuda.Event() if is_cuda else None  # type: ignore[no-untyped-call]

    def fill(self, read: ReadValues, begin: int, n_bytes: int) -> None:
        self.wait()
        read(begin, self._memory[:n_bytes].numpy())

    def copy_to(self, target: Tensor) -> None:
        target.copy_(self._memory[: len(target)], non_blocking=True)
        if self._copied is not None:
            self._copied.record()

    def wait(self) -> None:
        """Waits until the memory may be overwritten."""
        if self._copied is not None:
            self._copied.synchronize()


class _Reading(NamedTuple):
    """A piece that a thread fills with the bytes from `begin` on."""

    piece: _Piece
    begin: int
    done: Future[None]

    def finish(self, target: Tensor) -> None:
        self.done.result()
        self.piece.copy_to(target[self.begin : self.begin + _PIECE_BYTES])
