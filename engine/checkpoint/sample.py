"""Identifies the files of a checkpoint without reading gigabytes.

Owns the sample: a few bytes of every tensor, because copies, image layers and archives can give
other weights of the same shape the same names, sizes and times. Knows no cache.
"""

import os
from collections.abc import Mapping
from typing import Protocol

from ..errors import ModelLoadError
from ..files import open_regular
from ..stored_tensor import StoredTensor

_SAMPLE_BYTES = 4096


class Digest(Protocol):
    """A hash that takes the facts, such as one of hashlib."""

    def update(self, data: bytes, /) -> None: ...


def sample_checkpoint(tensors: Mapping[str, StoredTensor], digest: Digest) -> None:
    """Feeds `digest` the name, size and time of each file, and the header and the middle of the
    data of each tensor.

    Raises ModelLoadError for a file that cannot be read.
    """
    everything = [part for each in tensors.values() for part in (each, *each.parts)]
    for file in sorted({tensor.file for tensor in everything}):
        with open_regular(file) as stream:
            stat = os.fstat(stream.fileno())
            digest.update(f"{file.name} {stat.st_size} {stat.st_mtime_ns}".encode())
            for name, tensor in sorted(tensors.items()):
                if tensor.file == file:
                    facts = f"{name} {tensor.dtype} {tensor.shape} {tensor.begin}"
                    digest.update(facts.encode() + _sample(stream.fileno(), tensor))


def _sample(descriptor: int, tensor: StoredTensor) -> bytes:
    n_bytes = min(tensor.n_bytes, _SAMPLE_BYTES)
    try:
        return os.pread(descriptor, n_bytes, tensor.begin + (tensor.n_bytes - n_bytes) // 2)
    except OSError as error:
        raise ModelLoadError(f"{tensor.file}: {error.strerror or error}") from error
