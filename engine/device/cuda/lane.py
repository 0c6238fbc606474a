"""What all passes on a CUDA device share: one runs after the other, and one may run ahead.

Owns the step state in device memory, the way there, and what has been launched before somebody
asked for it. Knows no op and no weights.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..step import StepState

# Pinned copies of the state that may be on their way at once.
_N_SLOTS = 64


class Ahead(NamedTuple):
    """A pass of one row that was launched with a token that only the device knew."""

    program: object
    pos: int
    token_id: int | None  # None: it has not been read yet


class Lane:
    """The order of passes on one device; a CPU runs each at once, which is for tests."""

    def __init__(self, device: torch.device, kernels: Any) -> None:
        """`kernels`: the native module."""
        self.device = device
        self.kernels = kernels
        self.ahead: Ahead | None = None
        """Whoever writes what this pass has read, or wants to write, sets it to None."""
        self.n_passes = 0
        """Launched so far, to know whose results buffers hold."""
        self._n_uploads = 0
        self._is_cuda = device.type == "cuda"
        n_words = kernels.state_bytes // 8
        self.state = torch.zeros(n_words, dtype=torch.int64, device=device)
        """As csrc/cuda/ops.h has it."""
        slots = torch.zeros((_N_SLOTS, n_words), dtype=torch.int64, pin_memory=self._is_cuda)
        self._slots = [(slot, slot.numpy()) for slot in slots]
        self._scratch: dict[int, Tensor] = {}

    @property
    def stream(self) -> int:
        """That of torch, for native code."""
        return torch.cuda.current_stream(self.device).cuda_stream if self._is_cuda else 0

    def enter(self) -> None:
        """A pass begins; what runs ahead and was not asked for is worth nothing from here on."""
        self.ahead = None
        self.n_passes += 1
        if self._is_cuda:
            torch.cuda.set_device(self.device)

    def upload(self, state: StepState) -> None:
        """The next pass reads `state`, of up to as many rows as it has words for."""
        if not self._n_uploads % _N_SLOTS:
            self.wait()  # all slots may be written again
        slot, words = self._slots[self._n_uploads % _N_SLOTS]
        self._n_uploads += 1
        n = min(len(words), len(state.words))
        np.copyto(words[:n], state.words[:n])
        self.state.copy_(slot, non_blocking=True)

    def wait(self) -> None:
        """Until everything has run."""
        if self._is_cuda:
            torch.cuda.current_stream(self.device).synchronize()

    def scratch(self, n_bytes: int) -> Tensor:
        """Memory for one op at a time, zeros at first; those of one size share it."""
        if n_bytes not in self._scratch:
            self._scratch[n_bytes] = torch.zeros(n_bytes, dtype=torch.uint8, device=self.device)
        return self._scratch[n_bytes]
