"""What all passes on a CUDA device share: they run in turn, and one may run ahead.

Owns the step state in device memory, its upload, and the pass that was launched speculatively.
Knows no op and no weights.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..step import StepState

# Pinned copies of the state that may be in flight at once.
_N_SLOTS = 64


class Ahead(NamedTuple):
    """A pass of one row, launched with a token that only the device knew then."""

    program: object
    pos: int
    token_id: int | None  # None: not read yet


class Lane:
    """The order of passes on one device. On a CPU, for tests, each runs at once."""

    def __init__(self, device: torch.device, kernels: Any) -> None:
        """`kernels`: the native module."""
        self.device = device
        self.kernels = kernels
        self.ahead: Ahead | None = None
        """The pass that runs ahead. Anything that touches its memory sets this to None."""
        self.n_passes = 0
        """Passes launched so far; tells whose results the buffers hold."""
        self._n_uploads = 0
        self._is_cuda = device.type == "cuda"
        n_words = kernels.state_bytes // 8
        self.state = torch.zeros(n_words, dtype=torch.int64, device=device)
        """As csrc/cuda/ops.h has it."""
        slots = torch.zeros((_N_SLOTS, n_words), dtype=torch.int64, pin_memory=self._is_cuda)
        self._slots = [(slot, slot.numpy()) for slot in slots]
        self._scratch: dict[tuple[str, int], Tensor] = {}

    @property
    def stream(self) -> int:
        """torch's current CUDA stream, as an address; 0 on a CPU."""
        return torch.cuda.current_stream(self.device).cuda_stream if self._is_cuda else 0

    def enter(self) -> None:
        """Begins a pass; discards the one that ran ahead if it was not claimed."""
        self.ahead = None
        self.n_passes += 1
        if self._is_cuda:
            torch.cuda.set_device(self.device)
            # The module has a CUDA runtime of its own, and a runtime's device is the thread's.
            self.kernels.set_device(self.device.index)

    def upload(self, state: StepState) -> None:
        """Copies `state` to the device for the next pass, as many words as fit."""
        if not self._n_uploads % _N_SLOTS:
            self.wait()  # all slots may be written again
        slot, words = self._slots[self._n_uploads % _N_SLOTS]
        self._n_uploads += 1
        n = min(len(words), len(state.words))
        np.copyto(words[:n], state.words[:n])
        self.state.copy_(slot, non_blocking=True)

    def wait(self) -> None:
        """Waits until everything has run."""
        if self._is_cuda:
            torch.cuda.current_stream(self.device).synchronize()

    def scratch(self, name: str, n_bytes: int) -> Tensor:
        """Memory for one op at a time, zeros at first; ops that ask for one name and size share
        it.
        """
        if (name, n_bytes) not in self._scratch:
            memory = torch.zeros(n_bytes, dtype=torch.uint8, device=self.device)
            self._scratch[name, n_bytes] = memory
        return self._scratch[name, n_bytes]
