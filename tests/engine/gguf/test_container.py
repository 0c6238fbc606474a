"""The container against the `gguf` package, and what it says about files of bad faith."""

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import ModelLoadError
from engine.gguf.container import GgufFile, read_gguf
from engine.gguf.cursor import MAX_STRING_BYTES
from tests.support import gguf_bytes as raw
from tests.support.gguf_bytes import ARRAY, BOOL, STRING, U8, U16, U32, U64, Entry

ROOT = Path(__file__).parents[3]
VECTOR = Entry("v", (8,), 0, 0)


def read(path: Path, data: bytes) -> GgufFile:
    file = path / "model.gguf"
    file.write_bytes(data)
    return read_gguf(file)


def refusal(path: Path, data: bytes) -> str:
    with pytest.raises(ModelLoadError) as caught:
        read(path, data)
    message = str(caught.value)
    assert message.startswith(f"{path / 'model.gguf'}: "), message
    assert "\n" not in message
    return message


def written(path: Path) -> gguf.GGUFWriter:
    """All kinds of values and three tensors, by the package."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a.u8", 255)
    writer.add_int8("a.i8", -128)
    writer.add_uint16("a.u16", 65535)
    writer.add_int16("a.i16", -32768)
    writer.add_uint32("a.u32", 2**32 - 1)
    writer.add_int32("a.i32", -(2**31))
    writer.add_uint64("a.u64", 2**64 - 1)
    writer.add_int64("a.i64", -(2**63))
    writer.add_float32("a.f32", 0.5)
    writer.add_float64("a.f64", 1e-300)
    writer.add_bool("a.yes", True)
    writer.add_bool("a.no", False)
    writer.add_string("a.text", "naïve 你好 🦦")
    writer.add_array("a.texts", ["", "a", "ÿ", "你", "🦦" * 40])
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.floats", [0.5, -1.5])
    writer.add_array("a.bools", [True, False, True])
    writer.add_tensor("matrix", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("half", np.arange(5, dtype=np.float16))
    blocks = gguf.quants.quantize(np.eye(2, 64, dtype=np.float32), gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("blocks", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    return writer


def finished(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_everything_that_the_package_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    finished(written(path))
    read_file = read_gguf(path)
    values = read_file.metadata.values
    assert read_file.parts == (path,)
    assert values["general.architecture"] == "llama"
    assert (values["a.u8"], values["a.i8"]) == (255, -128)
    assert (values["a.u16"], values["a.i16"]) == (65535, -32768)
    assert (values["a.u32"], values["a.i32"]) == (2**32 - 1, -(2**31))
    assert (values["a.u64"], values["a.i64"]) == (2**64 - 1, -(2**63))
    assert (values["a.f32"], values["a.f64"]) == (0.5, 1e-300)
    assert values["a.yes"] is True
    assert values["a.no"] is False
    assert values["a.text"] == "naïve 你好 🦦"
    assert values["a.texts"] == ["", "a", "ÿ", "你", "🦦" * 40]
    assert values["a.ints"].tolist() == [1, -2, 3]
    assert values["a.floats"].tolist() == [0.5, -1.5]
    assert values["a.bools"].tolist() == [True, False, True]
    for theirs in gguf.GGUFReader(path).tensors:
        ours = read_file.tensors[theirs.name]
        assert ours.dtype == theirs.tensor_type.name
        assert ours.shape == tuple(reversed(theirs.shape.tolist()))
        assert (ours.begin, ours.n_bytes) == (theirs.data_offset, theirs.n_bytes)
        assert ours.modified_ns == path.stat().st_mtime_ns


@pytest.mark.parametrize("n_texts", [1, 70_000])
def test_arrays_longer_than_what_is_read_at_once(tmp_path: Path, n_texts: int) -> None:
    texts = [f"token {i} é" * 3 for i in range(n_texts)]
    numbers = np.arange(500_000, dtype=np.int32)
    body = raw.array("texts", STRING, texts) + raw.pair("after", U8, 7)
    body += raw.string("numbers") + raw.u32(ARRAY) + raw.u32(5) + raw.u64(numbers.size)
    body += numbers.tobytes() + raw.pair("last", STRING, "end")
    values = read(tmp_path, raw.gguf([body], n_pairs=4)).metadata.values
    assert values["texts"] == texts
    assert values["after"] == 7
    assert np.array_equal(values["numbers"], numbers)
    assert values["last"] == "end"


def test_version_2_and_other_alignments_are_read(tmp_path: Path) -> None:
    pairs = [raw.pair("general.alignment", U32, 8)]
    entries = [VECTOR, Entry("w", (2, 3), 30, 40)]
    data = raw.gguf(pairs, entries, bytes(52), version=2, alignment=8)
    tensors = read(tmp_path, data).tensors
    assert tensors["w"].shape == (3, 2)
    assert tensors["w"].begin == tensors["v"].begin + 40 == len(data) - 12


def test_metadata_getters_name_file_key_value_and_what_is_allowed(tmp_path: Path) -> None:
    pairs = [
        raw.pair("n", U32, 5),
        raw.pair("flag", BOOL, 1),
        raw.pair("nan", 6, float("nan")),
        raw.array("nans", 6, [1.0, float("nan")]),
        raw.array("big", U64, [2**63]),
        raw.array("texts", STRING, ["a"]),
    ]
    metadata = read(tmp_path, raw.gguf(pairs)).metadata
    assert metadata.integer("n", low=0, high=9) == 5
    assert metadata.integer("other", low=0, high=9, default=3) == 3
    assert metadata.number("n", low=0, high=9) == 5.0
    assert metadata.boolean("flag") is True
    assert metadata.strings("texts") == ["a"]
    for call, parts in (
        (lambda: metadata.integer("n", low=6, high=9), ("n: must be", "6 and 9", "not 5")),
        (lambda: metadata.integer("flag", low=0, high=9), ("flag: must be", "not True")),
        (lambda: metadata.string("n"), ("n: must be a string", "not 5")),
        (lambda: metadata.boolean("n"), ("n: must be true or false", "not 5")),
        (lambda: metadata.number("nan", low=0, high=1), ("nan: must be a number", "not nan")),
        (lambda: metadata.numbers("nans"), ("nans: must be", "without NaN")),
        (lambda: metadata.integers("big"), ("big: must be", "2^63", "9223372036854775808")),
        (lambda: metadata.integers("nans"), ("nans: must be an array of integers", "array of 2")),
        (lambda: metadata.strings("n"), ("n: must be an array of strings", "not 5")),
        (lambda: metadata.string("gone"), ("gone: missing",)),
    ):
        with pytest.raises(ModelLoadError) as caught:
            call()
        message = str(caught.value)
        assert message.startswith(f"{tmp_path / 'model.gguf'}: ")
        assert all(part in message for part in parts), message


HOSTILE: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", ("byte 0", "the magic", "ends at byte 0")),
    "other magic": (raw.gguf(magic=b"GGML"), ("byte 0", "b'GGML'", "not a GGUF file")),
    "big endian": (raw.gguf(version=3 << 24), ("byte 4", "big endian", "little endian")),
    "version 1": (raw.gguf(version=1), ("byte 4", "version 1", "2 and 3")),
    "version 4": (raw.gguf(version=4), ("byte 4", "version 4", "2 and 3")),
    "no counts": (raw.gguf()[:12], ("byte 8", "number of tensors", "ends at byte 12")),
    "2^63 tensors": (raw.gguf(n_entries=2**63), ("byte 8", "number of tensors", str(2**63))),
    "2^64 - 1 keys": (raw.gguf(n_pairs=2**64 - 1), ("byte 16", "number of keys", str(2**64 - 1))),
    "no key": (raw.gguf(n_pairs=2, data=bytes(40)), ("byte 24", "a key of 0 bytes", "1 to 65535")),
    "long key": (raw.gguf([raw.pair("k" * 65536, U8, 1)]), ("byte 24", "65536 bytes")),
    "key past the end": (
        raw.gguf([raw.u64(99) + b"abcdefgh"]),
        ("byte 24", "a key", "string of 99 bytes"),
    ),
    "key not UTF-8": (raw.gguf([raw.pair(b"ab\xff", U8, 1)]), ("byte 34", "a key", "not UTF-8")),
    "surrogate": (
        raw.gguf([raw.pair("k", STRING, b"\xed\xa0\x80")]),
        ("byte 45", "k:", "not UTF-8"),
    ),
    "twice the key": (
        raw.gguf([raw.pair("k", U8, 1), raw.pair("k", U8, 1)]),
        ("byte 38", "the key k occurs twice"),
    ),
    "kind of value": (
        raw.gguf([raw.string("k") + raw.u32(13) + bytes(8)]),
        ("byte 33", "k: unknown type of value 13"),
    ),
    "kind of array": (
        raw.gguf([raw.string("k") + raw.u32(ARRAY) + raw.u32(77) + raw.u64(1) + bytes(8)]),
        ("byte 37", "k: unknown type of array 77"),
    ),
    "array of arrays": (
        raw.gguf([raw.string("k") + raw.u32(ARRAY) + raw.u32(ARRAY) + raw.u64(1) + bytes(64)]),
        ("byte 37", "k: an array of arrays"),
    ),
    "2^63 strings": (
        raw.gguf([raw.array("k", STRING, ["a"], count=2**63)]),
        ("byte 41", "k: the length of the array", str(2**63)),
    ),
    "2^62 doubles": (
        raw.gguf([raw.array("k", 12, [1.0], count=2**62)]),
        ("byte 41", "k: the length of the array", str(2**62)),
    ),
    "string past the end": (
        raw.gguf([raw.string("k") + raw.u32(STRING) + raw.u64(2**64 - 1)]),
        ("byte 37", "k: a string of 18446744073709551615 bytes"),
    ),
    "long string": (
        raw.gguf([raw.pair("k", STRING, "a" * (MAX_STRING_BYTES + 1))]),
        ("byte 37", "k: a string of 2097153 bytes", "at most 2097152"),
    ),
    "bool of 2": (raw.gguf([raw.pair("k", BOOL, 2)]), ("byte 37", "k: a bool is 2", "0 or 1")),
    "bools of 255": (
        raw.gguf([raw.array("k", BOOL, [1, 0, 255])]),
        ("byte 51", "k: a bool is 255"),
    ),
    "value past the end": (
        raw.gguf([raw.pair("k", U64, 1)])[:41],
        ("byte 41", "k: the file ends at byte 41"),
    ),
    "alignment 0": (
        raw.gguf([raw.pair("general.alignment", U32, 0)]),
        ("general.alignment: must be", "not 0"),
    ),
    "alignment 24": (
        raw.gguf([raw.pair("general.alignment", U32, 24)]),
        ("general.alignment: must be a power of two", "not 24"),
    ),
    "alignment a string": (
        raw.gguf([raw.pair("general.alignment", STRING, "32")]),
        ("general.alignment: must be an integer", "not '32'"),
    ),
    "twice the tensor": (
        raw.gguf([], [VECTOR, VECTOR._replace(offset=32)], bytes(64)),
        ("byte 57", "the tensor v occurs twice"),
    ),
    "no dimension": (
        raw.gguf([], [Entry("v", (), 0, 0)], bytes(64)),
        ("byte 33", "v: has 0 dimensions", "1 to 4"),
    ),
    "5 dimensions": (
        raw.gguf([], [Entry("v", (1,) * 5, 0, 0)], bytes(64)),
        ("byte 33", "v: has 5 dimensions", "1 to 4"),
    ),
    "2^32 - 1 dimensions": (
        raw.gguf([], [Entry("v", (1,), 0, 0, n_dims=2**32 - 1)], bytes(64)),
        ("byte 33", "v: has 4294967295 dimensions"),
    ),
    "dimension of 0": (
        raw.gguf([], [Entry("v", (4, 0), 0, 0)], bytes(64)),
        ("byte 45", "v: a dimension of 0"),
    ),
    "dimension of 2^63": (
        raw.gguf([], [Entry("v", (2**63,), 0, 0)], bytes(64)),
        ("byte 37", "v: a dimension of 9223372036854775808"),
    ),
    "product past 2^64": (
        raw.gguf([], [Entry("v", (2**62, 2**62, 4), 0, 0)], bytes(64)),
        ("byte 24", "v: F32 of shape [4, 4611686018427387904", "the file ends at"),
    ),
    "unknown type": (
        raw.gguf([], [VECTOR._replace(type_id=999)], bytes(64)),
        ("byte 24", "v: is of the type with the unknown number 999", "Q4_K"),
    ),
    "IQ2_XXS": (
        raw.gguf([], [Entry("v", (256,), 16, 0)], bytes(96)),
        ("byte 24", "v: is of the type IQ2_XXS, which is not read"),
    ),
    "TQ1_0": (raw.gguf([], [Entry("v", (256,), 34, 0)], bytes(96)), ("type TQ1_0",)),
    "NVFP4": (raw.gguf([], [Entry("v", (256,), 40, 0)], bytes(96)), ("type NVFP4",)),
    "removed type": (raw.gguf([], [Entry("v", (256,), 31, 0)], bytes(96)), ("Q4_0_4_4",)),
    "half a block": (
        raw.gguf([], [Entry("v", (128, 2), 12, 0)], bytes(144)),
        ("byte 24", "v: rows of 128", "blocks of 256 (Q4_K)"),
    ),
    "misaligned": (
        raw.gguf([], [VECTOR._replace(offset=4)], bytes(64)),
        ("byte 24", "v: data at offset 4", "multiple of 32"),
    ),
    "overlapping": (
        raw.gguf([], [Entry("v", (9,), 0, 0), Entry("w", (8,), 0, 32)], bytes(96)),
        ("w: its data begin at byte 128", "v end at byte 132", "overlap"),
    ),
    "the same data": (
        raw.gguf([], [VECTOR, VECTOR._replace(name="w")], bytes(96)),
        ("w: its data begin at byte 96", "overlap"),
    ),
    "data past the end": (
        raw.gguf([], [VECTOR], bytes(31)),
        ("byte 24", "v: F32 of shape [8]", "64 to 96", "ends at 95", "truncated"),
    ),
    "offset of 2^64 - 32": (
        raw.gguf([], [VECTOR._replace(offset=2**64 - 32)], bytes(32)),
        ("byte 24", "v: F32 of shape [8]", "the file ends at 96"),
    ),
    "control characters": (
        raw.gguf([raw.pair("a\nb\x1b[31m", U8, 1)] * 2),
        ("the key 'a\\nb\\x1b[31m' occurs twice",),
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_by_what_where_and_value(tmp_path: Path, name: str) -> None:
    data, parts = HOSTILE[name]
    message = refusal(tmp_path, data)
    assert all(part in message for part in parts), message


def test_a_header_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    pairs = [raw.pair("a", U32, 1), raw.array("t", STRING, ["x", "yy"]), raw.array("b", BOOL, [1])]
    whole = raw.gguf(pairs, [VECTOR, Entry("w", (32, 2), 8, 32)], bytes(100))
    assert read(tmp_path, whole).tensors.keys() == {"v", "w"}
    for length in range(len(whole)):
        refusal(tmp_path, whole[:length])


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"none\.gguf: does not exist"):
        read_gguf(tmp_path / "none.gguf")
    with pytest.raises(ModelLoadError, match="is not a regular file"):
        read_gguf(tmp_path)


def _strings(item: str, n: int) -> bytes:
    body = raw.string("k") + raw.u32(ARRAY) + raw.u32(STRING) + raw.u64(n) + raw.string(item) * n
    return raw.gguf([body])


def _keys(n: int) -> bytes:
    flag = raw.pair("123456", U8, 1)
    return raw.gguf([flag.replace(b"123456", b"%06x" % i) for i in range(n)])


def _tensors(n: int) -> bytes:
    head, tail = Entry("123456", (8,), 0, 0).packed()[:-8].split(b"123456")
    entries = [head + b"%06x" % i + tail + raw.u64(32 * i) for i in range(n)]
    return raw.gguf([], (), b"".join(entries) + bytes(32 * n + 32), n_entries=n, alignment=1)


LARGE: dict[str, Callable[[], bytes]] = {
    "short strings": lambda: _strings("ab", 700_000),
    "two-byte strings": lambda: _strings("\u00e91", 700_000),
    "wide strings": lambda: raw.gguf(
        [raw.pair(f"k{i}", STRING, "a" * 2_000_000 + "\U0001f9a6") for i in range(12)]
    ),
    "numbers": lambda: raw.gguf([raw.array(f"k{i}", U16, [7] * 400_000) for i in range(3)]),
    "keys": lambda: _keys(160_000),
    "tensors": lambda: _tensors(60_000),
}


# Reads each file in a process of its own, which may allocate its size and 64 MB.
LIMITED = """
import os, resource, sys
from engine.errors import ModelLoadError
from engine.gguf.container import read_gguf
for file in sys.argv[1:]:
    child = os.fork()
    if not child:
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * resource.getpagesize() + os.path.getsize(file) + 64 * 10**6
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            read_gguf(file)
        except ModelLoadError as error:
            print(error)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, file
"""


def test_no_header_takes_much_more_memory_than_its_file(tmp_path: Path) -> None:
    for name, data in LARGE.items():
        (tmp_path / name).write_bytes(data())
    command = [sys.executable, "-c", LIMITED, *(str(tmp_path / name) for name in LARGE)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr
    for name in ("two-byte strings", "wide strings", "keys"):
        size = (tmp_path / name).stat().st_size
        assert f"takes more memory than {size} bytes of file and 48 MB" in run.stdout, name


def test_damage_never_ends_in_another_error(tmp_path: Path) -> None:
    """A few thousand damaged headers; tests/native/gguf_fuzz.py runs as many as one likes."""
    rng = np.random.default_rng(0)
    file = tmp_path / "model.gguf"
    finished(written(file))
    whole = file.read_bytes()
    n_refused = 0
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(0, 1000))
            wild = (0, 1, 2**31, 2**63, 2**64 - 1, int(rng.integers(0, 2**16)))
            data[at : at + 8] = struct.pack("<Q", wild[rng.integers(len(wild))])[: len(data) - at]
        file.write_bytes(data)
        try:
            read_gguf(file)
        except ModelLoadError:
            n_refused += 1
    assert 1000 < n_refused < 3000
