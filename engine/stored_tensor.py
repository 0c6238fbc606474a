"""A tensor in a file, whatever the format of the file. Reads nothing."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as a header describes it."""

    file: Path
    name: str
    dtype: str
    """Of safetensors, or the name of a type of GGUF: both say F32, F16 and BF16."""
    shape: tuple[int, ...]
    """Row-major: (n_out, n_in) of a matrix, (n,) of a vector."""
    n_bytes: int
    begin: int  # of its data in the file
    modified_ns: int  # of the file, when its header was read
    parts: "tuple[StoredTensor, ...]" = ()
    """The tensors that it is stored as, if they are several; `begin` is that of the first."""
