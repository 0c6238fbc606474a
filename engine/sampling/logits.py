"""Logits as a pass leaves them: on the host, or on a device until they are needed.

Owns their types. Knows no device and no sampler.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]


class Row(Protocol):
    """The logits (V,) of one position. numpy.asarray brings them to the host."""

    def __array__(self) -> npt.NDArray[Any]: ...

    def copy(self) -> Logits:
        """A copy on the host."""
        ...


class Rows(Protocol):
    """The logits (rows, V) of one pass, valid until the next one."""

    def __getitem__(self, index: int, /) -> Row: ...

    def __array__(self) -> npt.NDArray[Any]: ...

    def copy(self) -> Logits: ...
