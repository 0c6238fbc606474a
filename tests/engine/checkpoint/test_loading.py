"""Hostile weights: refused with file, tensor and reason, in bounded time and memory, and never
accepted where the reference reader of safetensors refuses."""

import json
import math
import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import engine.checkpoint.safetensors
from engine import Engine, ModelLoadError, NumericsError, SamplingSettings
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint, read_header
from engine.checkpoint.stored import plain_values
from engine.checkpoint.tensors import check_tensors, expected_shapes
from engine.device.torch_ops import TorchOps
from engine.model.loading import load_weights
from engine.model.weights import Weights
from engine.stored_tensor import StoredTensor
from tests.native.loader_fuzz import (
    FoundError,
    UnsoundError,
    check_against_reference,
    fuzz,
    safetensors_bytes,
)
from tests.support.tiny_models import byte_level_tokenizer, save_tokenizer

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
    "vocab_size": 320,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
NORM, DOWN = "model.norm.weight", "model.layers.0.mlp.down_proj.weight"
MIB = 2**20

Values = dict[str, npt.NDArray[np.float32]]


def sound_values(path: Path) -> Values:
    generator = np.random.default_rng(0)
    shapes = expected_shapes(model_config(path))
    return {name: generator.standard_normal(s, np.float32) for name, s in shapes.items()}


def model_bytes(values: Values) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, value in values.items():
        end = position + value.nbytes
        header[name] = {
            "dtype": "F32",
            "shape": list(value.shape),
            "data_offsets": [position, end],
        }
        position = end
    data = b"".join(value.tobytes() for value in values.values())
    return safetensors_bytes(json.dumps(header).encode(), data)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of one layer."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    (path / "model.safetensors").write_bytes(model_bytes(sound_values(path)))
    save_tokenizer(path, byte_level_tokenizer())
    return path


@pytest.fixture
def file(model: Path) -> Path:
    return model / "model.safetensors"


def tensors_of(model: Path) -> dict[str, StoredTensor]:
    return check_tensors(read_checkpoint(model), model_config(model))


def load(model: Path) -> Weights:
    return load_weights(tensors_of(model), model_config(model), TorchOps("cpu", "float32"))


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ModelLoadError) as caught:
        call()
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) <= 2000
    return text


# The header


@pytest.mark.parametrize("change", [-1, 1])
def test_a_header_length_that_is_off_by_one(model: Path, file: Path, change: int) -> None:
    data = file.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    file.write_bytes(struct.pack("<Q", n + change) + data[8:])
    assert refusal(lambda: load(model)).startswith(f"{file}: ")


ONE = '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'


def one(old: str = "", new: str = "") -> str:
    """A sound header with one part replaced."""
    return ONE.replace(old, new)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (one("}}", '},"__metadata__":{"a":1}}'), "__metadata__: must be an object of strings"),
        (one("}}", '},"__metadata__":[]}'), "__metadata__: must be an object of strings"),
        (one('"a"', '"\\ud800"'), "a lone surrogate"),
        (one("[0,", "[-0,"), "data_offsets are not a byte range"),
        (one("[1]", "[NaN]"), "NaN is not JSON"),
        (one("[1]", "[1e999]"), "not a shape"),
        (one("[1]", "[1.0]"), "not a shape"),
        (one("[1]", f"[{'9' * 5000}]"), "not valid JSON"),
        (one("[1]", f"[{','.join('1' * 1000)}]"), "at most 8 dimensions"),
        (one("[1]", "[4611686018427387904,4611686018427387904,0]"), "larger than any tensor"),
        ("\ufeff" + ONE, "not valid JSON"),
        (ONE + "\0", "not valid JSON"),
    ],
)
def test_headers_that_strict_readers_refuse(tmp_path: Path, header: str, message: str) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(safetensors_bytes(header.encode(), b"0000"))
    assert message in refusal(lambda: read_header(file))


HUGE: dict[str, bytes] = {
    "bytes": b'{"a":"' + b"x" * (4 * MIB) + b'"}',
    "lists": b'{"a":[' + b"[]," * 1_300_000 + b"1]}",
    "names": b"{" + b",".join(b'"%d":{}' % i for i in range(99_000)) + b"}",
    "one wide character": b'{"a":"' + b"x" * (3 * MIB) + "\U0001f600".encode() + b'"}',
    "one long name": b'{"' + b"n" * MIB + b'":{}}',
    "depth": b'{"a":' * 500_000,
}


@pytest.mark.parametrize("kind", HUGE)
def test_huge_headers_take_neither_memory_nor_time(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(safetensors_bytes(HUGE[kind], b""))
    begin = time.thread_time()
    tracemalloc.start()
    refusal(lambda: read_header(file))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * MIB + len(HUGE[kind])
    assert time.thread_time() - begin < 5, "without the tracing it is hundredths of a second"


@pytest.mark.parametrize("name", ["", "n" * MIB, "a\0b", "../../x", "a\nb", "\x1b[31m", "\u202e"])
def test_any_name_is_told_on_one_short_line(model: Path, file: Path, name: str) -> None:
    values = sound_values(model)
    file.write_bytes(model_bytes({**values, name: np.zeros(1, np.float32)}))
    text = refusal(lambda: load(model))
    assert text.startswith(f"{file}: ")
    assert text.endswith("has no such tensor")
    assert len(text) < len(str(file)) + 200


DIMENSIONS = st.sampled_from([0, 1, 2, 3, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64])


@settings(max_examples=150, deadline=None)
@given(
    shape=st.lists(DIMENSIONS | st.integers(0, 2**64), max_size=4),
    dtype=st.sampled_from(["F32", "BF16", "I64", "U8"]),
)
@example(shape=[4194305, 4194305, 211106198978564], dtype="F32")
@example(shape=[0, 2**62], dtype="F32")
@example(shape=[2**32, 2**32, 2**32], dtype="U8")
def test_sizes_are_those_of_whole_numbers_without_bound(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], dtype: str
) -> None:
    """The file has as many bytes as products that wrap around at 64 bits would give."""
    n_bytes = math.prod(shape) * {"F32": 4, "BF16": 2, "I64": 8, "U8": 1}[dtype]
    wrapped = n_bytes % 2**64
    size = wrapped if wrapped <= 4096 else 4096
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}
    file = tmp_path_factory.getbasetemp() / "shape.safetensors"
    file.write_bytes(safetensors_bytes(json.dumps({"a": entry}).encode(), bytes(size)))
    try:
        tensor = read_header(file)["a"]
    except ModelLoadError:
        fits = n_bytes == size and all(n < 2**63 for n in shape)
        assert not fits or math.prod(max(1, n) for n in shape) >= 2**60
    else:
        assert tensor.n_bytes == n_bytes == size


# What is accepted here is accepted by the reference reader


OFFSETS = st.integers(0, 40)
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(
            ["F32", "F16", "BF16", "U8", "I64", "F64", "BOOL", "F8_E4M3", "C"]
        ),
        "shape": st.lists(st.sampled_from([0, 1, 2, 3, 2**62, -1, 1.0, True]), max_size=3),
        "data_offsets": st.tuples(OFFSETS, OFFSETS).map(sorted),
    },
    optional={"extra": st.just(1)},
)
HEADERS = st.dictionaries(st.text(max_size=3), ENTRIES, max_size=3)
METADATA = st.none() | st.dictionaries(st.text(max_size=2), st.text(max_size=2) | st.integers())
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1, "I64": 8, "F64": 8, "BOOL": 1, "F8_E4M3": 1}


def arranged(header: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The header with offsets that fit, as far as there are any, and how many bytes they take."""
    position = 0
    for entry in header.values():
        shape = [n if isinstance(n, int) and 0 <= n < 9 else 1 for n in entry["shape"]]
        n_bytes = math.prod(shape) * SIZES.get(entry["dtype"], 1)
        entry["data_offsets"] = [position, position + n_bytes]
        position += n_bytes
    return header, position


@st.composite
def candidates(draw: st.DrawFn) -> bytes:
    """Files that are sound, or nearly so: in structure, in bytes or in length."""
    header: dict[str, Any] = draw(HEADERS)
    size = draw(st.integers(0, 40))
    if draw(st.booleans()):
        header, size = arranged(header)
    if draw(st.booleans()):
        header["__metadata__"] = draw(METADATA)
    raw = json.dumps(header, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    data = bytearray(safetensors_bytes(raw, bytes(size)))
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(
            st.binary(max_size=2) | st.sampled_from([b"-0", b"1.", b"\\ud800", b" ", b"NaN", b"e1"])
        )
    return bytes(data)


def check_file(file: Path, data: bytes) -> bool:
    """Whether it is accepted; raises UnsoundError where the reference does not agree."""
    file.write_bytes(data)
    try:
        tensors = read_header(file)
    except ModelLoadError:
        return False
    check_against_reference(data, tensors)
    return True


@settings(max_examples=150, deadline=None)
@given(data=candidates())
def test_the_reference_accepts_what_is_accepted(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    check_file(tmp_path_factory.getbasetemp() / "candidate.safetensors", data)


def no_check(*_: object) -> None: ...


def any_numbers(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int | float) for item in value)


PLANTED: dict[str, tuple[str, Any, str]] = {
    "metadata of any kind": ("_check_metadata", no_check, one("}}", '},"__metadata__":[]}')),
    "floats as numbers": ("_naturals", any_numbers, one("[0,4]", "[-0,4]")),
    "sizes without bound": (
        "_MAX_TENSOR_BYTES",
        2**200,
        one("[1]", "[4611686018427387904,4611686018427387904,0]").replace("[0,4]", "[0,0]"),
    ),
    "another dtype": ("_ELEMENT_BYTES", {**SIZES, "C": 4}, one("F32", "C")),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_each_planted_bug_is_found(
    bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: a reader that is too lenient is noticed."""
    name, value, header = PLANTED[bug]
    data = safetensors_bytes(header.encode(), b"" if "[0,0]" in header else b"0000")
    assert not check_file(tmp_path / "x", data)
    monkeypatch.setattr(engine.checkpoint.safetensors, name, value)
    with pytest.raises(UnsoundError, match="the reference says"):
        check_file(tmp_path / "x", data)


def test_the_fuzzer_finds_a_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.checkpoint.safetensors, "_check_metadata", no_check)
    with pytest.raises(FoundError, match=r"the reference says.*--only header --seed 1 --first"):
        fuzz(4000, seed=1, only="header")


def test_a_thousand_damaged_inputs_of_every_kind() -> None:
    """What `python tests/native/loader_fuzz.py` does, on a small scale."""
    counts = fuzz(1000, seed=2)
    assert all(count.accepted and count.refused for count in counts.values()), counts


# The data


def test_a_file_cut_at_every_page(model: Path, file: Path) -> None:
    data = file.read_bytes()
    for size in range(0, len(data), 4096):
        file.write_bytes(data[:size])
        assert refusal(lambda: load(model)).startswith(f"{file}: truncated")


def cut(file: Path) -> None:
    os.truncate(file, 4096)


def cut_keeping_its_time(file: Path) -> None:
    stat = file.stat()
    os.truncate(file, 4096)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def replace(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    os.utime(other, (1, 1))
    other.replace(file)


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("change", [cut, cut_keeping_its_time, replace, remove])
def test_a_file_that_changes_after_its_header_was_read(
    model: Path, file: Path, change: Callable[[Path], None]
) -> None:
    """An error that names the tensor, and no signal."""
    tensors = tensors_of(model)
    change(file)
    ops = TorchOps("cpu", "float32")
    text = refusal(lambda: load_weights(tensors, model_config(model), ops))
    assert text.startswith(f"{file}: ")
    assert text.endswith(("the file has changed since its header was read", "does not exist"))


def test_what_was_read_stays_when_the_file_is_cut(model: Path, file: Path) -> None:
    tensor = tensors_of(model)[DOWN]
    values = plain_values(tensor)
    before = values.copy()
    os.truncate(file, 0)
    assert np.array_equal(values, before)


def test_a_norm_of_zeros_is_a_hole_in_a_file(model: Path, file: Path) -> None:
    values = sound_values(model)
    file.write_bytes(model_bytes({**values, NORM: 0 * values[NORM]}))
    assert refusal(lambda: load(model)) == f"{file}: {NORM}: all zeros; the file may be incomplete"
    file.write_bytes(model_bytes({**values, DOWN: 0 * values[DOWN]}))
    load(model)


@pytest.mark.parametrize("format_", ["none", "8bit", "5bit", "4bit"])
@pytest.mark.parametrize("value", [1e-41, 3e38])
def test_extreme_numbers_are_errors_of_a_request_or_harmless(
    model: Path, file: Path, format_: str, value: float
) -> None:
    values = sound_values(model)
    file.write_bytes(model_bytes({**values, DOWN: np.full_like(values[DOWN], value)}))
    generator = Engine.load(model, device="cpu", quantize=format_).generator
    generator.begin_stream_ex([5, 6, 7], SamplingSettings(temperature=0.0), max_new_tokens=2)
    try:
        while not generator.stream_ex().eos:
            pass
    except NumericsError:
        assert value > 1


def test_every_changed_bit_of_a_header_is_refused_or_in_the_metadata(
    model: Path, file: Path
) -> None:
    data = bytearray(file.read_bytes())
    (n,) = struct.unpack("<Q", data[:8])
    sound, accepted = tensors_of(model), set()
    for place in range(8 + n):
        changed = data[: 8 + n]
        changed[place] ^= 1 << place % 8
        with file.open("r+b") as stream:
            stream.write(changed)
        try:
            tensors = tensors_of(model)
        except ModelLoadError as error:
            message = str(error)
        else:
            message = f"{file}: "
            accepted.add(place)
            for name, tensor in tensors.items():
                assert (tensor.shape, tensor.begin) == (sound[name].shape, sound[name].begin)
        assert message.startswith(f"{file}: ")
    metadata = data.index(b'"__metadata__"')
    assert accepted <= set(range(metadata, data.index(b"}", metadata)))


# Something else in place of a file


@pytest.fixture
def sharded(model: Path, file: Path) -> Path:
    names = list(sound_values(model))
    file.rename(model / "a.safetensors")
    index = {"weight_map": dict.fromkeys(names, "a.safetensors")}
    (model / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    return model


def put_directory(path: Path) -> None:
    path.mkdir()


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def put_loop(path: Path) -> None:
    path.symlink_to(path.name)


def put_text_from_outside(path: Path) -> None:
    path.symlink_to("/etc/passwd")


PLACED: list[Callable[[Path], None]] = [
    put_directory, put_pipe, put_device, put_loop, put_text_from_outside,
]  # fmt: skip


@pytest.mark.parametrize("name", ["a.safetensors", "model.safetensors.index.json", "config.json"])
@pytest.mark.parametrize("put", PLACED, ids=lambda put: put.__name__)
def test_what_is_no_file_of_a_model_is_refused_and_told_without_its_content(
    sharded: Path, name: str, put: Callable[[Path], None]
) -> None:
    (sharded / name).unlink()
    put(sharded / name)
    text = refusal(lambda: load(sharded))
    assert str(sharded) in text
    assert "root:" not in text


@pytest.mark.parametrize(
    "shard", ["a\0.safetensors", "..", "/dev/zero", "a.safetensors/", "n" * MIB + ".safetensors"]
)
def test_names_of_shards(sharded: Path, shard: str) -> None:
    index = {"weight_map": {"x": "a.safetensors", "n" * MIB: shard}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    refusal(lambda: load(sharded))


def test_shards_that_are_links_into_a_cache_outside_are_read(sharded: Path) -> None:
    blob = sharded.parent / "blobs" / "0123"
    blob.parent.mkdir()
    (sharded / "a.safetensors").rename(blob)
    (sharded / "a.safetensors").symlink_to(Path("..") / "blobs" / "0123")
    load(sharded)
