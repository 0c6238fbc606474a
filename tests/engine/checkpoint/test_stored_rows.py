"""Rows that are read from a file when they are needed: the numbers that loading the whole gives."""

from pathlib import Path

import numpy as np
import pytest

from engine.checkpoint.stored import as_float32, plain_values
from engine.checkpoint.stored_rows import StoredRows
from engine.errors import ModelLoadError
from engine.gguf.types import READ
from engine.stored_tensor import StoredTensor
from tests.support.gguf_blocks import BLOCK_TYPES, random_rows

N_ROWS, N_IN, BEGIN = 7, 512, 96
WANTED = [6, 0, 3, 3]


def stored(path: Path, dtype: str) -> StoredTensor:
    """A matrix behind other bytes."""
    file = path / "tensors"
    if dtype in BLOCK_TYPES:
        data = random_rows(dtype, N_ROWS, N_IN).rows.tobytes()
    else:
        values = np.random.default_rng(0).standard_normal((N_ROWS, N_IN), np.float32)
        kinds = {"F32": np.float32, "F16": np.float16}
        wide = values.view(np.uint32) >> 16
        data = (
            values.astype(kinds[dtype]).tobytes()
            if dtype in kinds
            else (wide.astype(np.uint16).tobytes())
        )
    file.write_bytes(bytes(BEGIN) + data + bytes(BEGIN))
    modified_ns = file.stat().st_mtime_ns
    return StoredTensor(file, "t", dtype, (N_ROWS, N_IN), len(data), BEGIN, modified_ns)


@pytest.mark.parametrize("dtype", READ)
def test_rows_are_those_of_the_whole(tmp_path: Path, dtype: str) -> None:
    tensor = stored(tmp_path, dtype)
    rows = StoredRows(tensor)
    found = rows.read(WANTED)
    assert (rows.n_out, rows.n_in, found.dtype.name) == (N_ROWS, N_IN, "float32")
    assert np.array_equal(found, as_float32(plain_values(tensor))[WANTED])


def test_a_file_that_changes_is_not_read(tmp_path: Path) -> None:
    tensor = stored(tmp_path, "F32")
    rows = StoredRows(tensor)
    with tensor.file.open("r+b") as stream:
        stream.truncate(BEGIN + 4 * N_IN)
    told = r"tensors: t: the file has changed since the model was loaded; load it again"
    with pytest.raises(ModelLoadError, match=told):
        rows.read([0])


def test_a_file_that_is_replaced_or_removed_is_still_read(tmp_path: Path) -> None:
    """As a download of a newer version does it."""
    tensor = stored(tmp_path, "BF16")
    rows = StoredRows(tensor)
    before = rows.read([2])
    (tmp_path / "new").write_bytes(b"newer")
    (tmp_path / "new").replace(tensor.file)
    assert np.array_equal(rows.read([2]), before)


def test_a_short_file_is_named(tmp_path: Path) -> None:
    tensor = stored(tmp_path, "F32")
    longer = StoredTensor(
        tensor.file, "t", "F32", (2 * N_ROWS, N_IN), 2 * tensor.n_bytes, BEGIN, tensor.modified_ns
    )
    with pytest.raises(ModelLoadError, match="t: the file has changed"):
        StoredRows(longer).read([2 * N_ROWS - 1])
