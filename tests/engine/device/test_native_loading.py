"""What native code does with memory and files while a model loads."""

import errno
import mmap
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from engine.device.cpu.kv import CpuPositions, rows_of_layers
from engine.device.cpu.memory import CACHE_LINE, Scratch
from engine.device.cpu.ops import CpuOps
from engine.native.cpu import address, kernels

MADV_POPULATE_WRITE = 23  # as Linux has it


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


@pytest.mark.parametrize("format_", ["float32", "bfloat16", "8bit", "4bit"])
def test_touching_changes_nothing(format_: str) -> None:
    shapes = [(3, 100, 40)] * 2
    keys, values = rows_of_layers(shapes, format_), rows_of_layers(shapes, format_)
    for rows in (*keys, *values):
        rows.panels.view(np.uint8).fill(1)
        if rows.scales is not None:
            rows.scales.view(np.uint8).fill(1)
    positions = CpuPositions(keys, values)
    positions.touch(33)
    positions.touch(1000)  # more than there are
    found = np.zeros(positions.n_bytes(112), np.uint8)
    positions.copy_out(0, 112, found)
    assert (found == 1).all()


def n_faults() -> int:
    """The system counts every page that is used for the first time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_touched_positions_have_their_pages() -> None:
    page = resource.getpagesize()
    with mmap.mmap(-1, page) as memory:
        try:
            memory.madvise(MADV_POPULATE_WRITE)
        except OSError:
            pytest.skip("only Linux from 5.14 on gives pages when it is asked")
    shapes = [(4, 4096, 64)] * 4
    keys, values = rows_of_layers(shapes, "float32"), rows_of_layers(shapes, "float32")
    CpuPositions(keys, values).touch(512)
    heads = [head for rows in (*keys, *values) for head in rows.panels]
    firsts = [head.reshape(-1)[: 512 * 64] for head in heads]
    before = n_faults()
    for first in firsts:
        first[:: page // 4] = 1.0
    assert n_faults() - before < sum(first.nbytes for first in firsts) // page // 20


def test_scratch_grows_and_keeps_what_was_given_before() -> None:
    scratch = Scratch()
    small = scratch.of(1000)
    large = scratch.of(5 * 2**20)
    assert scratch.of(1000) is large, "the largest block serves all later ones"
    small.fill(1)
    large.fill(2)
    assert (small == 1).all()
    assert address(small) % CACHE_LINE == address(large) % CACHE_LINE == 0
