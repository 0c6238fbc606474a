"""The formats that weights, keys and values are held in while the decoder runs, and their bytes.

Owns the choice of a format and the sizes of panels. Knows no names of tensors.
"""

from collections.abc import Iterable, Sequence

from ..checkpoint.config import ModelConfig
from ..errors import ModelLoadError

DTYPES = ("float32", "bfloat16", "float16")
# Blocks of 32 weights (64 on a CUDA device) share a scale and, with 6 bits or fewer, a minimum.
QUANTIZED = ("8bit", "6bit", "5bit", "4bit")
_CUDA_QUANTIZED = ("8bit", "4bit")
# Formats of native code on a CUDA device.
CUDA_FORMATS = ("bfloat16", *_CUDA_QUANTIZED)
# Formats of keys and values. Heads in 8bit and 4bit are rotated; 8bit has one scale per head and
# position, 4bit one per 32 dimensions, and keys without what they have in common. k8v4: keys in
# 8bit, values in 4bit.
KV_FORMATS = ("float32", "bfloat16", "8bit", "k8v4", "4bit")
_CUDA_KV_FORMATS = ("bfloat16", "8bit")

# Of a matrix: one for all of its parts, or one for each.
Format = str | tuple[str, ...]
# Of an engine: each matrix in the format that holds its stored type without loss.
STORED = "stored"

# Formats that hold the blocks of a GGUF type as they are.
GGUF_FORMATS = (
    "q4_0",
    "q5_0",
    "q2_k",
    "q3_k",
    "q4_k",
    "q5_k",
    "q6_k",
    "iq4_nl",
    "iq4_xs",
    "mxfp4",
)
EXACT_FORMATS = {
    "F32": "float32",
    "F16": "float32",
    "BF16": "bfloat16",
    "Q4_0": "q4_0",
    "Q4_1": "4bit",
    "Q5_0": "q5_0",
    "Q5_1": "5bit",
    "Q8_0": "8bit",
    "Q2_K": "q2_k",
    "Q3_K": "q3_k",
    "Q4_K": "q4_k",
    "Q5_K": "q5_k",
    "Q6_K": "q6_k",
    "IQ4_NL": "iq4_nl",
    "IQ4_XS": "iq4_xs",
    "MXFP4": "mxfp4",
}
"""The format that holds the weights of each GGUF type without loss, by the type's name."""

_SUPER_BLOCK = 256
IN_SUPER_BLOCKS = {"6bit": "q6_k", "5bit": "q5_k", "4bit": "q4_k"}
"""What holds as many bits in super-blocks of 256 columns, whose scales take half a bit less of each
weight.
"""

# A matrix lies in panels of 16 rows, a panel in pieces of some columns: csrc/layout.h.
PANEL_ROWS = 16
_PIECES = {  # columns, bytes
    "float32": (32, 2048),
    "bfloat16": (32, 1024),
    "float16": (32, 1024),
    "8bit": (32, 544),
    "6bit": (32, 448),
    "5bit": (32, 384),
    "4bit": (32, 320),
    "q4_0": (32, 288),
    "q5_0": (32, 352),
    "q2_k": (256, 1344),
    "q3_k": (256, 3360),  # its panels are those of q6_k
    "q4_k": (256, 2304),
    "q5_k": (256, 2816),
    "q6_k": (256, 3360),
    "iq4_nl": (32, 288),
    "iq4_xs": (256, 2176),
    "mxfp4": (32, 272),
}


def matrix_bytes(format_: str, n_out: int, n_in: int) -> int:
    """Bytes of a matrix (n_out, n_in); incomplete panels and pieces are padded."""
    columns, n_bytes = _PIECES[format_]
    n_panels, n_pieces = -(-n_out // PANEL_ROWS), -(-n_in // columns)
    return n_panels * n_pieces * n_bytes


def bits_per_weight(format_: str) -> float:
    """In a panel without padding."""
    columns, n_bytes = _PIECES[format_]
    return 8 * n_bytes / (columns * PANEL_ROWS)


def packed_bytes(format_: str, rows: Sequence[int], n_in: int, *, gated: bool = False) -> int:
    """Bytes of a matrix whose parts have these numbers of rows. If it is `gated`, the panels of the
    parts alternate, so that each part is padded.
    """
    if gated:
        return sum(matrix_bytes(format_, n, n_in) for n in rows)
    return matrix_bytes(format_, sum(rows), n_in)


def in_super_blocks(format_: str, n_in: int) -> str:
    """What rows of `n_in` weights are held in: they must be whole super-blocks."""
    return format_ if n_in % _SUPER_BLOCK else IN_SUPER_BLOCKS.get(format_, format_)


def sections(format_: Format, n_parts: int) -> list[tuple[str, slice]]:
    """Which neighbouring parts have one format: they lie in panels together.

    Raises ValueError if there is not one format for each part.
    """
    if isinstance(format_, str):
        return [(format_, slice(0, n_parts))]
    if len(format_) != n_parts:
        raise ValueError(f"{len(format_)} formats for {n_parts} parts")
    begins = [i for i in range(n_parts) if i == 0 or format_[i] != format_[i - 1]]
    ends = [*begins[1:], n_parts]
    return [(format_[begin], slice(begin, end)) for begin, end in zip(begins, ends, strict=True)]


def common_format(format_: Format) -> str:
    """The format of all parts. Raises ValueError if there are several."""
    if isinstance(format_, str):
        return format_
    if len(set(format_)) != 1:
        raise ValueError(f"parts in {', '.join(format_)}; here all must be in one format")
    return format_[0]


def kv_format(kv_cache: str, format_: str) -> str:
    """The format of keys and values on the CPU; `auto` follows the format of the weights.

    Without quantisation nothing is rounded beyond the checkpoint, so that greedy text equals a
    float32 reference. With quantised weights, speed and half the bytes matter more.
    """
    check_kv_cache(kv_cache)
    if kv_cache != "auto":
        return kv_cache
    return "float32" if format_ in DTYPES else "bfloat16"


def cuda_kv_format(kv_cache: str) -> str:
    """The same on a CUDA device; `auto` is bfloat16, as are the activations of a prefill."""
    check_kv_cache(kv_cache)
    if kv_cache not in ("auto", *_CUDA_KV_FORMATS):
        needed = "dtype float32 there" if kv_cache == "float32" else "device cpu"
        raise ModelLoadError(
            f"kv_cache: on CUDA it must be auto, {' or '.join(_CUDA_KV_FORMATS)}, not {kv_cache} "
            f"(which needs {needed})"
        )
    return "bfloat16" if kv_cache == "auto" else kv_cache


def check_kv_cache(kv_cache: str) -> None:
    """Raises ModelLoadError for an unknown value."""
    if kv_cache != "auto" and kv_cache not in KV_FORMATS:
        raise ModelLoadError(f"kv_cache: must be auto, {', '.join(KV_FORMATS)}, not {kv_cache!r}")


def kv_bytes_per_token(config: ModelConfig, format_: str) -> int:
    """Bytes of keys and values of one position over all layers."""
    return sum(kv_row_bytes(n_heads, head_dim, format_) for n_heads, head_dim in config.kv_shapes)


def key_value_formats(format_: str) -> tuple[str, str]:
    """What keys are held in, and what values are held in."""
    return ("8bit", "4bit") if format_ == "k8v4" else (format_, format_)


def scale_pairs(head_dim: int) -> int:
    """Pairs of scales, of 4 bytes, that a head in 4bit has at one position."""
    return -(-head_dim // 64)


def kv_row_bytes(n_kv_heads: int, head_dim: int, format_: str) -> int:
    """Bytes of keys and values of one position in one layer."""
    return n_kv_heads * sum(_head_bytes(head_dim, each) for each in key_value_formats(format_))


def _head_bytes(head_dim: int, format_: str) -> int:
    """Bytes of one key or one value."""
    if format_ == "4bit":
        return -(-head_dim // 2) + 4 * scale_pairs(head_dim)
    element, scale = {"float32": (4, 0), "8bit": (1, 4)}.get(format_, (2, 0))
    return head_dim * element + scale


def chosen_format(dtype: str, quantize: str, *, default: str) -> str:
    """The format that the options choose; `default` if they leave it open.

    Raises ModelLoadError for an unknown value, or for both options at once.
    """
    if dtype != "auto" and dtype not in DTYPES:
        raise ModelLoadError(f"dtype: must be auto, {', '.join(DTYPES)}, not {dtype!r}")
    if quantize != "none" and quantize not in QUANTIZED:
        raise ModelLoadError(f"quantize: must be none, {', '.join(QUANTIZED)}, not {quantize!r}")
    if quantize == "none":
        return default if dtype == "auto" else dtype
    if dtype != "auto":
        raise ModelLoadError(f"dtype: must be auto where quantize is {quantize}, not {dtype!r}")
    return quantize


def cuda_format(dtype: str, quantize: str) -> str:
    """The same on a CUDA device, where bfloat16 is the default and fewer formats exist."""
    format_ = chosen_format(dtype, quantize, default="bfloat16")
    if format_ in QUANTIZED and format_ not in _CUDA_QUANTIZED:
        raise ModelLoadError(
            f"quantize: on CUDA it must be none, {' or '.join(_CUDA_QUANTIZED)}, not {format_} "
            "(which needs device cpu)"
        )
    return format_


def stored_format(stored_dtypes: Iterable[str]) -> str:
    """The narrowest format that loses nothing of weights stored in these dtypes; STORED if there
    are blocks among them.
    """
    dtypes = set(stored_dtypes)
    if dtypes <= {"F32", "F16", "BF16"}:
        return "bfloat16" if dtypes == {"BF16"} else "float32"
    return STORED
