"""The tensors of a GGUF file as those of a checkpoint.

The container's header says where they are; `config_gguf.py` reads what else it says.
"""

from ..gguf.container import GgufFile
from ..gguf.header import GgufTensor
from .stored import Checkpoint, StoredTensor


def gguf_checkpoint(file: GgufFile) -> Checkpoint:
    """All tensors of the file and its parts."""
    tensors = {name: stored(tensor) for name, tensor in file.tensors.items()}
    return Checkpoint(file.file, tensors, described_in="metadata")


def stored(tensor: GgufTensor) -> StoredTensor:
    return StoredTensor(
        file=tensor.file,
        name=tensor.name,
        dtype=tensor.type.name,
        shape=tensor.shape,
        n_bytes=tensor.n_bytes,
        begin=tensor.begin,
        modified_ns=tensor.modified_ns,
    )
