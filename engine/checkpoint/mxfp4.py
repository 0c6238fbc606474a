"""MXFP4 as safetensors files store it: codes and scales of a matrix in two tensors.

Owns the pairs, and the way to the blocks that GGUF files have, bit for bit: in these a scale stands
before its 32 codes, and a byte has codes that are 16 columns apart instead of neighbours. Knows no
model.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..errors import ModelLoadError
from ..stored_tensor import StoredTensor

_CODES, _SCALES = "_blocks", "_scales"
_BLOCK_BYTES = 16  # of the codes of 32 columns
Bytes = npt.NDArray[np.uint8]


def joined(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """With one tensor of type MXFP4 instead of each pair NAME_blocks (..., n, 16) and NAME_scales
    (..., n). Raises ModelLoadError for a pair that does not fit together.
    """
    found = dict(tensors)
    for name, codes in tensors.items():
        base = name.removesuffix(_CODES)
        scales = tensors.get(base + _SCALES)
        if base == name or scales is None or codes.dtype != "U8" or scales.dtype != "U8":
            continue
        if codes.shape != (*scales.shape, _BLOCK_BYTES) or len(scales.shape) < 2:
            raise ModelLoadError(
                f"{codes.file}: {name}: has shape {list(codes.shape)}; with scales of "
                f"{list(scales.shape)} it must be {[*scales.shape, _BLOCK_BYTES]}"
            )
        del found[name], found[scales.name]
        *rows, n_blocks = scales.shape
        found[base] = replace(
            codes,
            name=base,
            dtype="MXFP4",
            shape=(*rows, 2 * _BLOCK_BYTES * n_blocks),
            n_bytes=codes.n_bytes + scales.n_bytes,
            parts=(codes, scales),
        )
    return found


def blocks(codes: Bytes, scales: Bytes) -> Bytes:
    """Codes (..., n, 16) and scales (..., n) as rows of blocks (..., 17 n)."""
    numbers = np.empty((*scales.shape, 2 * _BLOCK_BYTES), np.uint8)
    numbers[..., 0::2], numbers[..., 1::2] = codes & 15, codes >> 4
    whole = np.empty((*scales.shape, 1 + _BLOCK_BYTES), np.uint8)
    whole[..., 0] = scales
    whole[..., 1:] = numbers[..., :_BLOCK_BYTES] | numbers[..., _BLOCK_BYTES:] << 4
    return whole.reshape(*scales.shape[:-1], -1)
