"""The formats that weights are held in while the decoder runs, and how many bytes they take.

Owns the choice of a format and the sizes of panels. Knows no tensor by name.
"""

from collections.abc import Iterable

from .errors import ModelLoadError

DTYPES = ("float32", "bfloat16", "float16")
# Blocks of 32 weights that share a scale (4bit: and a minimum).
QUANTIZED = ("8bit", "4bit")

# A matrix lies in panels of 16 rows, a panel in blocks of 32 columns: csrc/layout.h.
PANEL_ROWS, _BLOCK_COLUMNS = 16, 32
_BLOCK_BYTES = {"float32": 2048, "bfloat16": 1024, "float16": 1024, "8bit": 544, "4bit": 320}


def matrix_bytes(format_: str, n_out: int, n_in: int) -> int:
    """Bytes of a matrix (n_out, n_in); incomplete panels and blocks are padded."""
    n_panels, n_blocks = -(-n_out // PANEL_ROWS), -(-n_in // _BLOCK_COLUMNS)
    return n_panels * n_blocks * _BLOCK_BYTES[format_]


def table_format(format_: str) -> str:
    """The format of embedding and head: four bits would cost quality where it shows most."""
    return "8bit" if format_ == "4bit" else format_


def kv_dtype(format_: str) -> str:
    """What keys and values are stored in beside panels of this format.

    Without quantisation nothing is rounded but what the checkpoint rounded: greedy text is that of
    a float32 reference. Who rounds the weights to codes wants speed, and half the bytes.
    """
    return "float32" if format_ in DTYPES else "bfloat16"


def element_bytes(dtype: str) -> int:
    return 4 if dtype == "float32" else 2


def chosen_format(dtype: str, quantize: str, *, default: str) -> str:
    """The format that the options name; `default` where they leave it open.

    Raises ModelLoadError for a value that there is not, or for both options at once.
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


def stored_format(stored_dtypes: Iterable[str]) -> str:
    """The narrowest format that loses nothing of weights stored as F32, F16 or BF16."""
    return "bfloat16" if set(stored_dtypes) == {"BF16"} else "float32"
