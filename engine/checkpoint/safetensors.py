"""What the safetensors files of a model directory hold, from their headers alone.

Owns the file format and its checks: every tensor's file, dtype, shape and byte range is verified
before a byte of data is read or allocated. What is accepted here, the reference reader accepts too.
Knows no model. Pickle files are never opened.
"""

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import ModelLoadError
from ..files import (
    MAX_JSON_BYTES,
    JsonObject,
    is_there,
    open_regular,
    parse_json_object,
    shown,
    shown_name,
    size_of,
)
from ..stored_tensor import StoredTensor
from .directory import HOW_TO_GET_ONE, other_weights
from .mxfp4 import joined
from .stored import Checkpoint

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_MAX_DIMS = 8
_MAX_TENSOR_BYTES = 2**63
_ELEMENT_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2,
    "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip


def read_checkpoint(path: Path) -> Checkpoint:
    """All tensors of `path`: model.safetensors, or the shards that the index names.

    Raises ModelLoadError naming file, tensor and reason.
    """
    single, index = path / SINGLE_FILE, path / INDEX_FILE
    if is_there(single):
        return Checkpoint(single, joined(read_header(single)))
    if is_there(index):
        return Checkpoint(index, joined(_read_shards(path, index)))
    other = other_weights(path)
    found = f"; {other} is not supported" if other else ""
    raise ModelLoadError(
        f"{path}: no weights: neither {SINGLE_FILE} nor {INDEX_FILE} exists "
        f"(only safetensors are read){found}; {HOW_TO_GET_ONE}"
    )


def read_header(file: Path) -> dict[str, StoredTensor]:
    """The tensors of one safetensors file; the header must account for every byte of the file."""
    header, place = _raw_header(file)
    _check_metadata(file, header.pop("__metadata__", {}))
    tensors = {name: _tensor(place, name, entry) for name, entry in header.items()}
    position = 0
    for begin, end, name in sorted(
        (tensor.begin - place.data_begin, tensor.begin - place.data_begin + tensor.n_bytes, name)
        for name, tensor in tensors.items()
    ):
        if begin != position:
            raise ModelLoadError(
                f"{file}: {shown_name(name)}: data begins at byte {begin}, "
                f"but byte {position} comes next"
            )
        position = end
    if position != place.data_bytes:
        raise ModelLoadError(
            f"{file}: truncated or damaged: the header describes {position} bytes of data, "
            f"the file has {place.data_bytes}"
        )
    return tensors


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the data of a file are."""

    file: Path
    data_begin: int
    data_bytes: int
    modified_ns: int


def _raw_header(file: Path) -> tuple[dict[str, Any], _Place]:
    """The parsed header, and where the data after it are."""
    with open_regular(file) as stream:
        try:
            size, modified_ns = size_of(stream), os.fstat(stream.fileno()).st_mtime_ns
            prefix = stream.read(8)
            if len(prefix) < 8:
                raise ModelLoadError(f"{file}: truncated: {size} bytes, not even a header length")
            (header_bytes,) = struct.unpack("<Q", prefix)
            if header_bytes > size - 8:
                raise ModelLoadError(
                    f"{file}: truncated, or not a safetensors file: a header of {header_bytes} "
                    f"bytes in a file of {size}"
                )
            if header_bytes > MAX_JSON_BYTES:
                raise ModelLoadError(
                    f"{file}: a header of {header_bytes} bytes; at most {MAX_JSON_BYTES} are read"
                )
            data = stream.read(header_bytes)
        except OSError as error:
            raise ModelLoadError(f"{file}: {error.strerror or error}") from error
    data_begin = 8 + header_bytes
    place = _Place(file, data_begin, size - data_begin, modified_ns)
    return parse_json_object(data, f"{file}: header"), place


def _check_metadata(file: Path, metadata: object) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ModelLoadError(f"{file}: __metadata__: must be an object of strings")


def _tensor(place: _Place, name: str, entry: object) -> StoredTensor:
    """The tensor that a header describes."""
    where = f"{place.file}: {shown_name(name)}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ModelLoadError(f"{where}: must have dtype, shape and data_offsets, and no more")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ELEMENT_BYTES:
        raise ModelLoadError(f"{where}: unknown dtype {shown(dtype)}")
    if not _naturals(shape) or len(shape) > _MAX_DIMS:
        raise ModelLoadError(f"{where}: not a shape of at most {_MAX_DIMS} dimensions")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelLoadError(f"{where}: data_offsets are not a byte range")
    # Other readers multiply in 64 bits before they reach a dimension of 0.
    if math.prod(max(1, n) for n in shape) * _ELEMENT_BYTES[dtype] >= _MAX_TENSOR_BYTES:
        raise ModelLoadError(f"{where}: a shape of {shape} is larger than any tensor")
    n_bytes = math.prod(shape) * _ELEMENT_BYTES[dtype]
    if n_bytes != offsets[1] - offsets[0]:
        raise ModelLoadError(
            f"{where}: {dtype} of shape {shape} needs {n_bytes} bytes, "
            f"data_offsets give {offsets[1] - offsets[0]}"
        )
    begin = place.data_begin + offsets[0]
    return StoredTensor(place.file, name, dtype, tuple(shape), n_bytes, begin, place.modified_ns)


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
                other = tensors[name].file.name
                raise ModelLoadError(
                    f"{tensor.file}: {shown_name(name)}: is also stored in {other}"
                )
            if weight_map.values.get(name) != shard:
                raise ModelLoadError(
                    f"{tensor.file}: {shown_name(name)}: {INDEX_FILE} does not place it here"
                )
            tensors[name] = tensor
    for name, shard in weight_map.values.items():
        if name not in tensors:
            raise ModelLoadError(
                f"{path / shard}: {shown_name(name)}: {INDEX_FILE} places it here, missing"
            )
    return tensors
