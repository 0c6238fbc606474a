"""One file of packed matrices: written in turn, verified as a whole before any is used.

Owns the layout of the file: the panels of each matrix at a multiple of 64 bytes, then an index as
JSON, then a trailer that says where the index begins. The trailer comes last and everything has a
checksum, so a truncated file, or one of another kind, is recognised. Knows no checkpoint and no
directory.
"""

import json
import os
import struct
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ...errors import ModelLoadError
from ...files import MAX_JSON_BYTES, open_if_regular, parse_json_object, size_of
from ...native import cpu as native
from ...native.cpu import kernels
from .mapped import mapped
from .matrix import PanelMatrix
from .memory import LARGE_PAGE, LargePages

WRITE_BUFFER = LARGE_PAGE
_ALIGNMENT = 64
_TRAILER = struct.Struct("<8sQQ")  # kind of file, bytes of the index, checksum of the index
_KIND = b"soliton2"
_ENTRY = {
    "n_out": int,
    "n_in": int,
    "format": str,
    "is_woven": bool,
    "is_fetched": bool,
    "begin": int,
    "n_bytes": int,
    "checksum": int,
}


class PanelFileError(ValueError):
    """A file is damaged, or not of this kind."""


class PanelWriter:
    """Appends matrices to an empty file. Its methods raise OSError, on a full disk for example."""

    def __init__(self, file: BinaryIO, key: str) -> None:
        """`key` identifies what the panels were made from; `file` has a buffer of `WRITE_BUFFER`,
        so that it is written, and then cached by the system, in whole large pages.
        """
        self._file = file
        self._index: dict[str, Any] = {"key": key, "matrices": {}}
        self._end = 0

    def append(self, name: str, matrix: PanelMatrix) -> None:
        self._index["matrices"][name] = {
            "n_out": matrix.n_out,
            "n_in": matrix.n_in,
            "format": matrix.format,
            "is_woven": matrix.is_woven,
            "is_fetched": matrix.is_fetched,
            "begin": self._end,
            "n_bytes": matrix.panels.size,
            "checksum": _checksum(matrix.panels),
        }
        self._write(matrix.panels.data)
        self._write(bytes(-self._end % _ALIGNMENT))

    def finish(self) -> None:
        """Writes the index and the trailer, where a reader begins. It does not wait for the disk:
        if the machine crashes, the checksums reveal what was left half written.
        """
        index = json.dumps(self._index).encode()
        checksum = _checksum(np.frombuffer(index, np.uint8))
        self._write(index)
        self._write(_TRAILER.pack(_KIND, len(index), checksum))
        self._file.flush()

    def _write(self, data: bytes | memoryview) -> None:
        while data:  # a file would write past its buffer what is longer
            n = WRITE_BUFFER - self._end % WRITE_BUFFER
            self._end += self._file.write(data[:n])
            data = data[n:]


def read_panels(file: Path, key: str) -> Mapping[str, PanelMatrix]:
    """The matrices of a file by name: used where the system caches them if they are in large pages
    there, as a decode step reads them best, else read into such pages.

    Raises OSError, PanelFileError and MemoryError.
    """
    opened = open_if_regular(file)
    if opened is None:
        raise PanelFileError("is not a regular file")
    with opened as stream:
        index, end = _read_index(stream)
        if index.get("key") != key:
            raise PanelFileError("is of another checkpoint")
        matrices = index.get("matrices")
        if not isinstance(matrices, dict):
            raise PanelFileError("has an index of another kind")
        memory = mapped(stream, end)
        if memory is not None:
            return {name: _matrix(memory, entry) for name, entry in matrices.items()}
        memory = LargePages().take(end)
        return {name: _matrix(memory, entry, stream) for name, entry in matrices.items()}


def _read_index(stream: BufferedReader) -> tuple[dict[str, Any], int]:
    """The index, and where it begins."""
    end = size_of(stream) - _TRAILER.size
    if end < 0:
        raise PanelFileError("is too short")
    trailer = np.empty(_TRAILER.size, np.uint8)
    _read(stream, end, trailer)
    kind, n_bytes, checksum = _TRAILER.unpack(trailer.tobytes())
    if kind != _KIND or n_bytes > min(end, MAX_JSON_BYTES):
        raise PanelFileError("was cut, or is of another kind")
    index = np.empty(n_bytes, np.uint8)
    if _read(stream, end - n_bytes, index) != checksum:
        raise PanelFileError("has a damaged index")
    try:
        return parse_json_object(index.tobytes(), "index"), end - n_bytes
    except ModelLoadError as error:
        raise PanelFileError("has an index of another kind") from error


def _read(stream: BufferedReader, begin: int, memory: npt.NDArray[np.uint8]) -> int:
    """Fills `memory` from a position of the file on, and returns its checksum."""
    error, checksum = kernels.read(stream.fileno(), begin, native.address(memory), memory.size)
    if error == kernels.FILE_ENDS:
        raise PanelFileError("was cut")
    if error:
        raise OSError(error, os.strerror(error))
    return checksum


def _matrix(
    memory: npt.NDArray[np.uint8], entry: object, stream: BufferedReader | None = None
) -> PanelMatrix:
    """The matrix of an entry; whether it is the one that is wanted, its reader has to see. Its
    panels lie in `memory` as in the file, and are read from `stream` if there is one.
    """
    if not isinstance(entry, dict) or entry.keys() != _ENTRY.keys():
        raise PanelFileError("has an index of another kind")
    if not all(isinstance(entry[key], kind) for key, kind in _ENTRY.items()):
        raise PanelFileError("has an index of another kind")
    begin, n_bytes = entry["begin"], entry["n_bytes"]
    if not 0 <= begin <= begin + n_bytes <= memory.size or begin % _ALIGNMENT:
        raise PanelFileError("was cut")
    panels = memory[begin : begin + n_bytes]
    checksum = _checksum(panels) if stream is None else _read(stream, begin, panels)
    if checksum != entry["checksum"]:
        raise PanelFileError("is damaged")
    panels.flags.writeable = False
    shape = entry["n_out"], entry["n_in"]
    return PanelMatrix(panels, *shape, entry["format"], entry["is_woven"], entry["is_fetched"])


def _checksum(memory: npt.NDArray[np.uint8]) -> int:
    return kernels.checksum(native.address(memory), memory.size)
