"""Packed weights that are used where the system caches their file: which are, and that they stay
what they were whatever happens to the name of the file.
"""

import mmap
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import engine.device.cpu.mapped
from engine.device.cpu.matrix import PanelMatrix
from engine.device.cpu.panel_file import WRITE_BUFFER, PanelWriter, read_panels
from engine.native.cpu import address

N_BYTES = 3_000_064  # not a whole number of large pages
NAMES = ("a", "b", "c")

OTHER_PROCESS = """
import re, sys
from pathlib import Path
from engine.device.cpu.panel_file import read_panels
matrices = read_panels(Path(sys.argv[1]), "key")
area = Path("/proc/self/smaps").read_text().split(sys.argv[1], 1)[1]
rss, pss = (int(re.search(rf"^{name}: +(\\d+)", area, re.M)[1]) for name in ("Rss", "Pss"))
print(sum(int(matrix.panels.sum()) for matrix in matrices.values()), pss < 0.75 * rss)
"""


def written(file: Path, seed: int = 0, n_bytes: int = N_BYTES) -> dict[str, PanelMatrix]:
    numbers = np.random.default_rng(seed)
    matrices = {
        name: PanelMatrix(
            numbers.integers(0, 256, n_bytes, np.uint8), 16, 16, "8bit", True, index > 0
        )
        for index, name in enumerate(NAMES)
    }
    with file.open("wb", buffering=WRITE_BUFFER) as stream:
        writer = PanelWriter(stream, "key")
        for name, matrix in matrices.items():
            writer.append(name, matrix)
        writer.finish()
    return matrices


def same(one: Mapping[str, PanelMatrix], other: Mapping[str, PanelMatrix]) -> bool:
    return all(
        np.array_equal(one[name].panels, other[name].panels)
        and one[name].is_woven == other[name].is_woven
        and one[name].is_fetched == other[name].is_fetched
        for name in NAMES
    )


def is_mapped(matrix: PanelMatrix, name: str) -> bool:
    """Whether it lies in a file whose path ends with `name`."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(number, 16) for number in line.split()[0].split("-"))
        if begin <= address(matrix.panels) < end:
            return name in line
    return False


def is_large(file: Path) -> bool:
    """Whether the system caches most of it in large pages, as it is."""
    n_bytes = file.stat().st_size
    with file.open("rb") as stream:
        pages = mmap.mmap(stream.fileno(), n_bytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        pages.madvise(mmap.MADV_HUGEPAGE)
        assert pages[::4096]  # touched
    area = Path("/proc/self/smaps").read_text().split(str(file), 1)[1]
    found = re.search(r"^FilePmdMapped: +(\d+) kB", area, re.M)
    pages.close()
    return found is not None and int(found[1]) * 1024 > n_bytes // 2


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """One that the system caches in large pages."""
    file = tmp_path / "weights.panels"
    written(file)
    if not is_mapped(read_panels(file, "key")["a"], file.name):
        pytest.skip("the system caches files of this directory in small pages")
    return file


def test_a_file_in_large_pages_is_used_where_it_is(file: Path) -> None:
    expected, kept = written(file), read_panels(file, "key")
    assert same(kept, expected)
    for name in NAMES:
        assert is_mapped(kept[name], file.name)
        assert address(kept[name].panels) % 64 == 0
        assert not kept[name].panels.flags.writeable


def test_a_file_that_others_left_in_small_pages_is_in_large_ones_again(file: Path) -> None:
    expected = read_panels(file, "key")
    copy = file.with_name("copy.panels")
    copy.write_bytes(b"")
    with copy.open("ab", buffering=0) as stream:
        data = file.read_bytes()
        for begin in range(0, len(data), 4096):  # each write makes a page
            stream.write(data[begin : begin + 4096])
        os.fsync(stream)
    assert not is_large(copy)
    kept = read_panels(copy, "key")
    assert is_mapped(kept["a"], copy.name)
    assert same(kept, expected)


def test_matrices_outlive_the_name_of_their_file(file: Path, tmp_path: Path) -> None:
    kept = read_panels(file, "key")
    before = {name: np.array(matrix.panels) for name, matrix in kept.items()}
    another = tmp_path / "another"
    expected = written(another, seed=1)
    another.replace(file)
    assert same(read_panels(file, "key"), expected)
    shutil.rmtree(tmp_path)
    for name in NAMES:
        assert np.array_equal(kept[name].panels, before[name])


def test_two_processes_share_the_memory_of_a_file(file: Path) -> None:
    kept = read_panels(file, "key")
    command = [sys.executable, "-c", OTHER_PROCESS, str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert said == [str(sum(int(matrix.panels.sum()) for matrix in kept.values())), "True"]


@pytest.mark.parametrize("what", ["_large_bytes", "_is_on_a_local_disk"])
def test_a_file_in_small_pages_or_on_a_network_is_read(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "weights.panels"
    expected = written(file)
    monkeypatch.setattr(engine.device.cpu.mapped, what, lambda _: 0)
    kept = read_panels(file, "key")
    assert same(kept, expected)
    assert not is_mapped(kept["a"], file.name)


def test_a_file_of_less_than_a_large_page_is_read(tmp_path: Path) -> None:
    file = tmp_path / "weights.panels"
    expected = written(file, n_bytes=64)
    kept = read_panels(file, "key")
    assert same(kept, expected)
    assert not is_mapped(kept["a"], file.name)


def test_a_file_in_a_directory_without_permission_to_write_is_used(file: Path) -> None:
    file.chmod(0o400)
    file.parent.chmod(0o500)
    try:
        assert is_mapped(read_panels(file, "key")["a"], file.name)
    finally:
        file.parent.chmod(0o700)
