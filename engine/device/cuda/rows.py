"""Logits in the memory of a CUDA device.

Owns their copy to the host. Knows no sampler.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...sampling.logits import Logits


class Source(Protocol):
    """The program that logits come from."""

    expects_next: bool

    def restore(self, n_runs: int) -> None:
        """Makes sure that its buffers hold the results of its `n_runs`th run. Raises RuntimeError
        if a later run has begun.
        """

    def run_ahead(self) -> None:
        """Launches the pass of the token that the device's state names."""

    def tell_ahead(self, token_id: int) -> None:
        """Says that the pass ahead is the pass of `token_id`."""


class HostCopy:
    """Pinned memory for rows of logits, allocated when it is first used."""

    def __init__(self) -> None:
        self._memory: Tensor | None = None

    def of(self, rows: Tensor) -> Logits:
        """`rows` (n, V) on the host, valid until the next call."""
        if not rows.is_cuda:
            return np.asarray(rows)
        if self._memory is None or self._memory.numel() < rows.numel():
            self._memory = torch.empty(rows.numel(), dtype=torch.float32, pin_memory=True)
        host = self._memory[: rows.numel()].view(rows.shape)
        host.copy_(rows, non_blocking=True)
        torch.cuda.current_stream(rows.device).synchronize()
        return np.asarray(host)


class CudaRows:
    """The logits (n, V) of run `n_runs` of `source`."""

    __slots__ = ("host", "n_runs", "source", "values")

    def __init__(self, values: Tensor, source: Source, n_runs: int, host: HostCopy) -> None:
        self.values = values
        self.source = source
        self.n_runs = n_runs
        self.host = host

    def __getitem__(self, index: int) -> "CudaRow":
        return CudaRow(self, range(self.values.shape[0])[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        self.source.restore(self.n_runs)
        return np.array(self.host.of(self.values), dtype, copy=copy)

    def copy(self) -> Logits:
        return np.array(self)


class CudaRow:
    """One row of CudaRows, (V,)."""

    __slots__ = ("index", "rows")

    def __init__(self, rows: CudaRows, index: int) -> None:
        self.rows = rows
        self.index = index

    @property
    def values(self) -> Tensor:
        """On the device, until the next pass."""
        return self.rows.values[self.index]

    def restore(self) -> None:
        """Makes sure that `values` may be read."""
        self.rows.source.restore(self.rows.n_runs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        self.restore()
        row = self.rows.values[self.index : self.index + 1]
        return np.array(self.rows.host.of(row)[0], dtype, copy=copy)

    def copy(self) -> Logits:
        return np.array(self)
