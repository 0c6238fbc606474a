"""A GGUF file whose weights no longer lie on the grid that they were rounded to.

    python -m bench.peer.freed FILE OUTPUT

A model that is published in 4 bits says nothing about other formats of 4 bits: they would only have
to find its grid again. So each block of 32 weights gets noise of the width of one step of it, and
everything is stored in float32. Owns the noise; the embedding stays as it is.
"""

import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

_BLOCK = 32
_STEPS = 15  # of the grid, in 4 bits


def write_freed(source: Path, output: Path) -> None:
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(output, reader.fields["general.architecture"].contents())
    _copy_pairs(reader, writer)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    rng = np.random.default_rng(0)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        is_free = values.ndim < 2 or tensor.name == "token_embd.weight"
        writer.add_tensor(tensor.name, values if is_free else noisy(values, rng))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def noisy(values: npt.NDArray[np.float32], rng: np.random.Generator) -> npt.NDArray[np.float32]:
    blocks = values.reshape(-1, _BLOCK)
    step = (blocks.max(-1, keepdims=True) - blocks.min(-1, keepdims=True)) / _STEPS
    noise = rng.random(blocks.shape, np.float32) - np.float32(0.5)
    moved: npt.NDArray[np.float32] = blocks + noise * step
    return moved.reshape(values.shape)


def _copy_pairs(reader: Any, writer: Any) -> None:
    written_anyway = {"general.architecture", "general.file_type"}
    for name, field in reader.fields.items():
        if name in written_anyway or name.startswith("GGUF."):
            continue
        of_items = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=of_items)


if __name__ == "__main__":
    write_freed(*map(Path, sys.argv[1:]))
