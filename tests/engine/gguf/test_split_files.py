"""Models in several files: the first part stands for all, and wrong ones are named."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import ModelLoadError
from engine.gguf.container import read_gguf
from tests.support import gguf_bytes as raw
from tests.support.gguf_bytes import STRING, U16, Entry

VECTOR = Entry("v", (8,), 0, 0)


def part(number: int, count: int, n_tensors: int, *entries: Entry, more: bytes = b"") -> bytes:
    pairs = [
        raw.pair("split.no", U16, number),
        raw.pair("split.count", U16, count),
        raw.pair("split.tensors.count", 5, n_tensors),
    ]
    return raw.gguf([*pairs, *([more] if more else [])], entries, bytes(32 * len(entries)))


def split(path: Path, *parts: bytes) -> Path:
    """The first of the parts, with their proper names."""
    for index, data in enumerate(parts, 1):
        (path / f"m-{index:05}-of-{len(parts):05}.gguf").write_bytes(data)
    return path / f"m-00001-of-{len(parts):05}.gguf"


def test_the_first_part_stands_for_all(tmp_path: Path) -> None:
    more = raw.pair("general.name", STRING, "x")
    w, x = VECTOR._replace(name="w"), VECTOR._replace(name="x", offset=32)
    first = split(tmp_path, part(0, 3, 3, more=more), part(1, 3, 3, VECTOR), part(2, 3, 3, w, x))
    # In a cache of downloads each name is a link to a file with another name.
    (tmp_path / "blob").write_bytes(first.read_bytes())
    first.unlink()
    first.symlink_to("blob")
    whole = read_gguf(first)
    assert [file.name for file in whole.parts] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert whole.metadata.string("general.name") == "x"
    files = {name: tensor.file.name for name, tensor in whole.tensors.items()}
    assert files == {
        "v": "m-00002-of-00003.gguf",
        "w": "m-00003-of-00003.gguf",
        "x": "m-00003-of-00003.gguf",
    }


def test_parts_that_the_package_writes_are_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=1)
    for name in "abc":
        writer.add_tensor(name, np.full((2, 3), ord(name), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    whole = read_gguf(tmp_path / "m-00001-of-00003.gguf")
    assert whole.tensors.keys() == set("abc")
    assert len(whole.parts) == 3


@pytest.mark.parametrize(
    ("given", "parts", "removed", "said"),
    [
        (1, (part(0, 2, 1), part(1, 2, 1, VECTOR)), (2,), ("1 missing", "m-00002-of-00002.gguf")),
        (2, (part(0, 2, 1), part(1, 2, 1, VECTOR)), (), ("part 2 of 2", "m-00001-of-00002.gguf")),
        (1, (part(0, 3, 1), part(1, 3, 1)), (), ("part 1 of 3", "NAME-00001-of-00003.gguf")),
        (1, (part(1, 2, 1), part(1, 2, 1)), (), ("part 2 of 2", "NAME-00002-of-00002.gguf")),
        (1, (part(0, 2, 1), part(0, 2, 1)), (), ("m-00002-of", "split.no: must be 1", "not 0")),
        (1, (part(0, 2, 1), part(1, 3, 1)), (), ("m-00002-of", "split.count: must be 2")),
        (1, (part(0, 2, 1), part(1, 2, 5)), (), ("m-00002-of", "split.tensors.count: must be 1")),
        (1, (part(0, 2, 1), part(1, 2, 1)), (), ("split.tensors.count: must be 0", "not 1")),
        (
            1,
            (part(0, 2, 2, VECTOR), part(1, 2, 2, VECTOR)),
            (),
            ("m-00002-of-00002.gguf: v: is also in m-00001-of-00002.gguf",),
        ),
        (1, (part(0, 2, 1), b"GGUF"), (), ("m-00002-of-00002.gguf: byte 4", "truncated")),
        (1, (part(0, 2, 1), raw.gguf()), (), ("m-00002-of", "split.no: missing")),
    ],
)
def test_wrong_and_missing_parts_are_named(
    tmp_path: Path,
    given: int,
    parts: tuple[bytes, ...],
    removed: tuple[int, ...],
    said: tuple[str, ...],
) -> None:
    first = split(tmp_path, *parts)
    for index in removed:
        (tmp_path / f"m-{index:05}-of-{len(parts):05}.gguf").unlink()
    with pytest.raises(ModelLoadError) as caught:
        read_gguf(first.with_name(f"m-{given:05}-of-{len(parts):05}.gguf"))
    assert all(each in str(caught.value) for each in said), caught.value


def test_a_part_under_another_name_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(part(0, 2, 1, VECTOR))
    with pytest.raises(ModelLoadError, match=r"part 1 of 2 .* named NAME-00001-of-00002\.gguf"):
        read_gguf(file)


def test_a_count_of_one_is_no_split(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(part(0, 1, 1, VECTOR))
    assert read_gguf(file).tensors.keys() == {"v"}
