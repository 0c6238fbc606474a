"""Rows in the blocks of GGUF types for tests, with random codes and chosen scales."""

import gguf
import numpy as np
import numpy.typing as npt

from engine.gguf.blocks import BlockRows
from engine.gguf.types import READ

Floats = npt.NDArray[np.float32]

# Where a block has its float16 numbers; MXFP4 has an exponent in its first byte.
HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "MXFP4": (),
}
BLOCK_TYPES = tuple(HALVES)


def random_rows(name: str, n: int, n_in: int, *, seed: int = 0, extreme: bool = False) -> BlockRows:
    """Rows (n, n_in) with every code. `extreme`: with every finite scale, also subnormal ones;
    otherwise scales with which no weight is larger than about 10.
    """
    type_, rng = READ[name], np.random.default_rng((seed, n, n_in))
    rows = rng.integers(0, 256, (n, type_.row_bytes(n_in)), np.uint8)
    blocks = rows.reshape(n, -1, type_.n_bytes)
    if name == "MXFP4":
        low, high = (0, 253) if extreme else (119, 129)
        blocks[..., 0] = rng.integers(low, high, blocks.shape[:2])
    for at in HALVES[name]:
        sizes = rng.uniform(-1, 1, blocks.shape[:2]) * 2.0 ** rng.integers(-2, 1, blocks.shape[:2])
        halves = (sizes / 512).astype(np.float16).view(np.uint16)
        if extreme:
            halves = rng.integers(0, 2**16, blocks.shape[:2], np.uint16)
            halves[halves & 0x7C00 == 0x7C00] &= 0x83FF  # subnormal instead of NaN and infinity
        blocks[..., at] = halves & 0xFF
        blocks[..., at + 1] = halves >> 8
    return BlockRows(type_, rows)


def decoded(rows: BlockRows) -> Floats:
    """What the `gguf` package says that they are."""
    kind = gguf.GGMLQuantizationType[rows.type.name]
    values: Floats = gguf.quants.dequantize(rows.rows, kind)
    return values.reshape(rows.shape)
