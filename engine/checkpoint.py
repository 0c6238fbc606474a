"""What the safetensors files of a model directory hold, from their headers alone.

Owns the file format and its checks: every tensor's file, dtype, shape and byte range is verified
before a byte of data is read or allocated; then `stored_values` shows the data of one tensor. Knows
no model. Pickle files are never opened.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import ModelLoadError
from .json_file import JsonObject, parse_json_object

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_MAX_HEADER_BYTES = 100_000_000
_MAX_DIMS = 8
_ELEMENT_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2,
    "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
# numpy has no bfloat16: its bit patterns are read.
_NUMPY_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as a header describes it."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int
    begin: int  # where in the file its data are


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The stored tensors by name, and the file that lists them (the single one, or the index)."""

    file: Path
    tensors: Mapping[str, StoredTensor]


def read_checkpoint(path: Path) -> Checkpoint:
    """All tensors of `path`: model.safetensors, or the shards that the index names.

    Raises ModelLoadError naming file, tensor and reason.
    """
    single, index = path / SINGLE_FILE, path / INDEX_FILE
    if single.exists():
        return Checkpoint(single, read_header(single))
    if index.exists():
        return Checkpoint(index, _read_shards(path, index))
    raise ModelLoadError(
        f"{path}: no weights: neither {SINGLE_FILE} nor {INDEX_FILE} is there "
        f"(only safetensors are read)"
    )


def read_header(file: Path) -> dict[str, StoredTensor]:
    """The tensors of one safetensors file; the header must account for every byte of the file."""
    header, data_begin, data_bytes = _raw_header(file)
    header.pop("__metadata__", None)
    tensors: dict[str, StoredTensor] = {}
    ranges: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        tensor = tensors[name] = _tensor(file, name, entry, data_begin)
        begin = tensor.begin - data_begin
        ranges.append((begin, begin + tensor.n_bytes, name))
    position = 0
    for begin, end, name in sorted(ranges):
        if begin != position:
            raise ModelLoadError(
                f"{file}: {name}: data begins at byte {begin}, but byte {position} comes next"
            )
        position = end
    if position != data_bytes:
        raise ModelLoadError(
            f"{file}: truncated or damaged: the header describes {position} bytes of data, "
            f"the file has {data_bytes}"
        )
    return tensors


def stored_values(tensor: StoredTensor) -> npt.NDArray[Any]:
    """The data of an F32, F16 or BF16 tensor, the latter as uint16 bit patterns.

    The file is mapped, not read: its pages come in when they are looked at. Raises ModelLoadError.
    """
    dtype = np.dtype(_NUMPY_DTYPES[tensor.dtype])
    try:
        mapped = np.memmap(
            tensor.file, dtype=dtype, mode="r", offset=tensor.begin, shape=tensor.shape
        )
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{tensor.file}: {tensor.name}: {error}") from error
    # A header may have any length, so the data may begin at an odd address.
    return np.require(np.asarray(mapped), requirements=["C", "ALIGNED"])


def _raw_header(file: Path) -> tuple[dict[str, Any], int, int]:
    """The parsed header, and where the data behind it begin and how many bytes they are."""
    try:
        if not file.is_file():
            reason = "is not a regular file" if file.exists() else "does not exist"
            raise ModelLoadError(f"{file}: {reason}")
        size = file.stat().st_size
        with file.open("rb") as stream:
            prefix = stream.read(8)
            if len(prefix) < 8:
                raise ModelLoadError(f"{file}: truncated: {size} bytes, not even a header length")
            (header_bytes,) = struct.unpack("<Q", prefix)
            if header_bytes > min(_MAX_HEADER_BYTES, size - 8):
                raise ModelLoadError(
                    f"{file}: truncated or no safetensors file: a header of {header_bytes} bytes "
                    f"in a file of {size}"
                )
            data = stream.read(header_bytes)
    except OSError as error:
        raise ModelLoadError(f"{file}: {error.strerror or error}") from error
    data_begin = 8 + header_bytes
    return parse_json_object(data, f"{file}: header"), data_begin, size - data_begin


def _tensor(file: Path, name: str, entry: object, data_begin: int) -> StoredTensor:
    """The described tensor of a file whose data begin at `data_begin`."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ModelLoadError(
            f"{file}: {name}: must have dtype, shape and data_offsets, and no more"
        )
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ELEMENT_BYTES:
        raise ModelLoadError(f"{file}: {name}: unknown dtype {dtype!r}")
    if not _naturals(shape) or len(shape) > _MAX_DIMS:
        raise ModelLoadError(f"{file}: {name}: not a shape of at most {_MAX_DIMS} dimensions")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelLoadError(f"{file}: {name}: data_offsets are no byte range")
    n_bytes = math.prod(shape) * _ELEMENT_BYTES[dtype]
    if n_bytes != offsets[1] - offsets[0]:
        raise ModelLoadError(
            f"{file}: {name}: {dtype} of shape {shape} needs {n_bytes} bytes, "
            f"data_offsets give {offsets[1] - offsets[0]}"
        )
    return StoredTensor(file, name, dtype, tuple(shape), n_bytes, data_begin + offsets[0])


def _naturals(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 2**63 for item in value
    )


def _read_shards(path: Path, index: Path) -> dict[str, StoredTensor]:
    weight_map = JsonObject.read(index).nested("weight_map")
    shards: dict[str, None] = {}
    for name in weight_map.values:
        shard = weight_map.string(name)
        if PurePosixPath(shard).name != shard or "\\" in shard or "\0" in shard:
            weight_map.fail(name, shard, "a file name without a path")
        if not shard.endswith(".safetensors"):
            weight_map.fail(name, shard, "a file name ending in .safetensors")
        shards[shard] = None
    tensors: dict[str, StoredTensor] = {}
    for shard in shards:
        for name, tensor in read_header(path / shard).items():
            if name in tensors:
                raise ModelLoadError(
                    f"{tensor.file}: {name}: is also stored in {tensors[name].file.name}"
                )
            if weight_map.values.get(name) != shard:
                raise ModelLoadError(f"{tensor.file}: {name}: {INDEX_FILE} does not place it here")
            tensors[name] = tensor
    for name, shard in weight_map.values.items():
        if name not in tensors:
            raise ModelLoadError(f"{path / shard}: {name}: {INDEX_FILE} places it here, missing")
    return tensors
