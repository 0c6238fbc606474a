"""What the blocks of each type mean: the numbers that they stand for.

Owns the reference, in numpy: float32, bit for bit what the `gguf` package decodes. Used where no
native code reads the blocks themselves.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .blocks import BlockRows

Blocks = npt.NDArray[np.uint8]  # (n, bytes of a block)
Floats = npt.NDArray[np.float32]

# What a 4-bit code of the non-linear types stands for, before the scale.
_IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)
# Twice the value, so that all are whole numbers.
_MXFP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
# So many bytes at a time that everything in between stays in the processor's cache.
_PIECE_BYTES = 2**18


def dequantize(rows: BlockRows) -> Floats:
    """The weights (n, n_in)."""
    n, n_in = rows.shape
    weights = np.empty((n, n_in), np.float32)
    decode, n_bytes = _DECODERS[rows.type.name], rows.type.n_bytes
    step = max(1, _PIECE_BYTES // max(1, rows.rows.shape[1]))
    # A scale may be NaN or infinite. Whoever uses the weights sees that in them.
    with np.errstate(invalid="ignore", over="ignore"):
        for begin in range(0, n, step):
            piece = np.ascontiguousarray(rows.rows[begin : begin + step])
            blocks = piece.reshape(-1, n_bytes)
            weights[begin : begin + step] = decode(blocks).reshape(len(piece), n_in)
    return weights


def _halves(data: Blocks) -> Floats:
    """(n, 2 k) bytes -> the (n, k) float16 numbers that they are."""
    return np.ascontiguousarray(data).view("<f2").astype(np.float32)


def _codes(data: Blocks, width: int, *shifts: int) -> npt.NDArray[np.uint8]:
    """(n, m) bytes -> (n, m * len(shifts)): each `width` bytes, shifted by each of `shifts`."""
    by = np.array(shifts, np.uint8)[:, None]
    shifted = data.reshape(len(data), -1, 1, width) >> by
    return shifted.reshape(len(data), -1)


def _fifth_bits(data: Blocks) -> npt.NDArray[np.uint8]:
    """(n, 4) bytes -> (n, 32) codes with the highest of five bits."""
    return np.unpackbits(data, axis=1, bitorder="little") << np.uint8(4)


def _scaled(
    codes: npt.NDArray[np.int8] | npt.NDArray[np.uint8],
    scales: Floats,
    minima: Floats | None = None,
) -> Floats:
    """Codes (n, m), each of k scales (n, k) for m / k of them, less minima (n, k)."""
    n, n_scales = scales.shape
    values: Floats = codes.reshape(n, n_scales, -1).astype(np.float32)
    values *= scales[:, :, None]
    if minima is not None:
        values -= minima[:, :, None]
    return values


def _q4_0(data: Blocks) -> Floats:
    return _scaled(
        (_codes(data[:, 2:], 16, 0, 4) & 15).view(np.int8) - np.int8(8), _halves(data[:, :2])
    )


def _q4_1(data: Blocks) -> Floats:
    return _scaled(_codes(data[:, 4:], 16, 0, 4) & 15, _halves(data[:, :2]), -_halves(data[:, 2:4]))


def _q5_0(data: Blocks) -> Floats:
    codes = (_codes(data[:, 6:], 16, 0, 4) & 15) | _fifth_bits(data[:, 2:6])
    return _scaled(codes.view(np.int8) - np.int8(16), _halves(data[:, :2]))


def _q5_1(data: Blocks) -> Floats:
    codes = (_codes(data[:, 8:], 16, 0, 4) & 15) | _fifth_bits(data[:, 4:8])
    return _scaled(codes, _halves(data[:, :2]), -_halves(data[:, 2:4]))


def _q8_0(data: Blocks) -> Floats:
    return _scaled(data[:, 2:].view(np.int8), _halves(data[:, :2]))


def _q2_k(data: Blocks) -> Floats:
    scales, codes = data[:, :16], _codes(data[:, 16:80], 32, 0, 2, 4, 6) & 3
    step, least = _halves(data[:, 80:82]), _halves(data[:, 82:84])
    return _scaled(codes, step * (scales & 15), least * (scales >> 4))


def _q3_k(data: Blocks) -> Floats:
    low, high = _codes(data[:, 96:104], 8, 0, 4) & 15, _codes(data[:, 104:108], 4, 0, 2, 4, 6) & 3
    scales = (low | (high << 4)).view(np.int8) - np.int8(32)
    codes = _codes(data[:, 32:96], 32, 0, 2, 4, 6) & 3
    third = _codes(data[:, :32], 32, *range(8)) & 1
    signed = (codes | (third << 2)).view(np.int8) - np.int8(4)
    return _scaled(signed, _halves(data[:, 108:110]) * scales)


def _k_scales(data: Blocks) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """(n, 12) bytes -> scales (n, 8) and minima (n, 8), of six bits each."""
    scales, minima, rest = data[:, :4], data[:, 4:8], data[:, 8:]
    more_scales = (rest & 15) | ((scales >> 2) & 48)
    more_minima = (rest >> 4) | ((minima >> 2) & 48)
    return (
        np.concatenate([scales & 63, more_scales], axis=1),
        np.concatenate([minima & 63, more_minima], axis=1),
    )


def _q4_k(data: Blocks) -> Floats:
    scales, minima = _k_scales(data[:, 4:16])
    step, least = _halves(data[:, :2]), _halves(data[:, 2:4])
    return _scaled(_codes(data[:, 16:], 32, 0, 4) & 15, step * scales, least * minima)


def _q5_k(data: Blocks) -> Floats:
    scales, minima = _k_scales(data[:, 4:16])
    step, least = _halves(data[:, :2]), _halves(data[:, 2:4])
    fifth = _codes(data[:, 16:48], 32, *range(8)) & 1
    codes = (_codes(data[:, 48:], 32, 0, 4) & 15) | (fifth << 4)
    return _scaled(codes, step * scales, least * minima)


def _q6_k(data: Blocks) -> Floats:
    low, high = _codes(data[:, :128], 64, 0, 4) & 15, _codes(data[:, 128:192], 32, 0, 2, 4, 6) & 3
    signed = (low | (high << 4)).view(np.int8) - np.int8(32)
    return _scaled(signed, _halves(data[:, 208:210]) * data[:, 192:208].view(np.int8))


def _iq4_nl(data: Blocks) -> Floats:
    return _scaled(_IQ4_VALUES[_codes(data[:, 2:], 16, 0, 4) & 15], _halves(data[:, :2]))


def _iq4_xs(data: Blocks) -> Floats:
    low = _codes(data[:, 4:8], 1, 0, 4) & 15
    high = _codes(data[:, 2:4], 1, 0, 2, 4, 6) & 3
    scales = (low | (high << 4)).view(np.int8) - np.int8(32)
    values = _IQ4_VALUES[_codes(data[:, 8:], 16, 0, 4) & 15]
    return _scaled(values, _halves(data[:, :2]) * scales)


def _mxfp4(data: Blocks) -> Floats:
    exponents = data[:, :1].astype(np.int32) - 128  # one less, because the values are doubled
    scales = np.ldexp(np.float32(1.0), exponents).astype(np.float32)
    return _scaled(_MXFP4_VALUES[_codes(data[:, 1:], 16, 0, 4) & 15], scales)


def _f32(data: Blocks) -> Floats:
    return data.view("<f4").astype(np.float32)


def _bf16(data: Blocks) -> Floats:
    return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)


_DECODERS: dict[str, Callable[[Blocks], Floats]] = {
    "F32": _f32,
    "F16": _halves,
    "BF16": _bf16,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
}
