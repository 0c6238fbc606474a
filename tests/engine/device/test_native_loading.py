"""What native code does with memory and files while a model loads."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from engine.device.cpu.kv import CpuPositions, rows_of_layers
from engine.device.cpu.memory import CACHE_LINE, Scratch
from engine.device.cpu.ops import CpuOps
from engine.native.cpu import address, kernels


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("n_bytes", [0, 100, 2**20, 3 * 2**20 + 7])
def test_a_file_is_read_with_its_checksum(tmp_path: Path, n_bytes: int, n_threads: int) -> None:
    CpuOps("8bit", n_threads=n_threads)
    written = np.random.default_rng(0).integers(0, 256, n_bytes + 5, np.uint8)
    file = tmp_path / "file"
    file.write_bytes(written.tobytes())
    memory = np.zeros(n_bytes, np.uint8)
    with file.open("rb") as stream:
        found = kernels.read(stream.fileno(), 5, address(memory), n_bytes)
        assert stream.tell() == 0
    assert np.array_equal(memory, written[5:])
    assert found == (0, kernels.checksum(address(memory), n_bytes))


def test_a_file_that_ends_too_soon_and_one_that_cannot_be_read(tmp_path: Path) -> None:
    memory = np.zeros(2 * 2**20, np.uint8)
    file = tmp_path / "file"
    file.write_bytes(bytes(memory.size - 1))
    with file.open("rb") as stream:
        error, _ = kernels.read(stream.fileno(), 0, address(memory), memory.size)
    assert error == kernels.FILE_ENDS
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        error, _ = kernels.read(directory, 0, address(memory), memory.size)
    finally:
        os.close(directory)
    assert error == errno.EISDIR


@pytest.mark.parametrize("head_dim", [40, 64, 96, 192])
@pytest.mark.parametrize("format_", ["float32", "bfloat16", "8bit", "4bit"])
def test_the_first_positions_of_a_cache_are_cleared_and_no_others(
    head_dim: int, format_: str
) -> None:
    n_layers, n_kv_heads, max_seq_len, n_cleared = 2, 3, 100, 33
    shapes = [(n_kv_heads, max_seq_len, head_dim)] * n_layers
    keys, values = rows_of_layers(shapes, format_), rows_of_layers(shapes, format_)
    for rows in (*keys, *values):
        rows.panels.view(np.uint8).fill(1)
        if rows.scales is not None:
            rows.scales.view(np.uint8).fill(1)
    positions = CpuPositions(keys, values)
    positions.touch(n_cleared)
    n_bytes, n_kept = positions.n_bytes(48), positions.n_bytes(112) - positions.n_bytes(48)
    cleared, kept = np.ones(n_bytes, np.uint8), np.zeros(n_kept, np.uint8)
    positions.copy_out(0, 48, cleared)
    positions.copy_out(48, 112, kept)
    assert not cleared.any(), "48 positions are three blocks of 16"
    assert (kept == 1).all()
    positions.touch(1000)  # more than there are
    positions.copy_out(48, 112, kept)
    assert not kept.any()


def test_scratch_grows_and_keeps_what_was_given_before() -> None:
    scratch = Scratch()
    small = scratch.of(1000)
    large = scratch.of(5 * 2**20)
    assert scratch.of(1000) is large, "the largest block serves all later ones"
    small.fill(1)
    large.fill(2)
    assert (small == 1).all()
    assert address(small) % CACHE_LINE == address(large) % CACHE_LINE == 0
