"""Safetensors files: what is loaded, and how damaged or false files are refused."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine import ModelLoadError
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors
from engine.device.arguments import Matrix
from engine.device.reference import TorchMatrix
from engine.device.torch_ops import TorchOps
from engine.model.loading import load_weights
from engine.model.weights import Weights
from tests.support.tiny_models import save_model

Edit = Callable[[dict[str, Any]], object]


def load(
    path: Path, format_: str = "float32", on_progress: Callable[[int, int], None] | None = None
) -> Weights:
    config = model_config(path)
    tensors = check_tensors(read_checkpoint(path), config)
    return load_weights(tensors, config, TorchOps("cpu", format_), on_progress=on_progress)


def refusal(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load(path)
    text = str(caught.value)
    assert "\n" not in text
    return text


def edit_tensors(path: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = path / "model.safetensors"
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file)


def edit_header(file: Path, edit: Edit) -> None:
    """Rewrites the header as `edit` leaves it; the data stay as they are."""
    data = file.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n])
    edit(header)
    raw = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(raw)) + raw + data[8 + n :])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tmp_path)
    return tmp_path


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    save_model(tmp_path, shards=True)
    return tmp_path


def values(matrix: Matrix) -> Tensor:
    return cast(TorchMatrix, matrix).weights


def test_fused_matrices_hold_their_parts_in_order(model: Path) -> None:
    stored = load_file(model / "model.safetensors")
    layer = load(model).layers[1]
    prefix = "model.layers.1."
    qkv = [stored[f"{prefix}self_attn.{name}_proj.weight"] for name in "qkv"]
    assert torch.equal(values(layer.wqkv), torch.cat(qkv))
    gate_up = [stored[f"{prefix}mlp.{name}_proj.weight"] for name in ("gate", "up")]
    assert torch.equal(values(layer.w_gate_up), torch.cat(gate_up))
    assert layer.bqkv is layer.bo is layer.b_down is layer.q_norm is None


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("format_", ["bfloat16", "float32"])
def test_dtypes_are_converted(model: Path, stored: torch.dtype, format_: str) -> None:
    edit_tensors(model, lambda t: t.update({name: v.to(stored) for name, v in t.items()}))
    weights = load(model, format_)
    stored_tensors = load_file(model / "model.safetensors")
    norm = cast(Tensor, weights.norm)
    for name, loaded in (("model.norm", norm), ("lm_head", values(weights.head))):
        expected = stored_tensors[f"{name}.weight"].to(getattr(torch, format_))
        assert loaded.dtype == expected.dtype
        assert torch.equal(loaded, expected)


def test_data_at_an_odd_place_are_read(model: Path) -> None:
    before, file = load(model), model / "model.safetensors"
    data = file.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    file.write_bytes(struct.pack("<Q", n + 1) + data[8 : 8 + n] + b" " + data[8 + n :])
    assert torch.equal(values(load(model).head), values(before.head))


def test_progress_counts_bytes(model: Path) -> None:
    seen: list[tuple[int, int]] = []
    load(model, on_progress=lambda *done: seen.append(done))
    n_bytes = 4 * model_config(model).n_params
    assert seen[-1] == (n_bytes, n_bytes)
    assert sorted(seen) == seen


def test_a_tied_head_is_the_embedding_and_a_stored_one_is_ignored(tmp_path: Path) -> None:
    save_model(tmp_path, "llama-tied")
    edit_tensors(tmp_path, lambda t: t.update({"lm_head.weight": torch.zeros(320, 64)}))
    weights = load(tmp_path)
    assert weights.head is weights.embedding
    edit_tensors(tmp_path, lambda t: t.update({"lm_head.weight": torch.zeros(320, 63)}))
    assert "lm_head.weight: has shape [320, 63], config.json asks for [320, 64]" in refusal(
        tmp_path
    )


def test_rotary_tables_of_old_checkpoints_are_ignored(model: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_tensors(model, lambda t: t.update({name: torch.zeros(8)}))
    load(model)


UP = "model.layers.2.mlp.up_proj.weight"


@pytest.mark.parametrize("name", [UP, "model.norm.weight", "lm_head.weight"])
@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_a_weight_that_is_no_number_is_named(model: Path, name: str, value: float) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name].view(-1)[63 + 64 * (tensors[name].ndim - 1)] = value

    edit_tensors(model, spoil)
    index = "[63]" if name == "model.norm.weight" else "[1, 63]"
    assert refusal(model) == f"{model / 'model.safetensors'}: {name}: not finite at {index}"


TENSOR_EDITS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "missing": (lambda t: t.pop(UP), f"{UP}: missing; config.json asks for shape [96, 64]"),
    "no head": (lambda t: t.pop("lm_head.weight"), "lm_head.weight: missing"),
    "extra": (
        lambda t: t.update({"model.layers.3.mlp.up_proj.weight": torch.zeros(96, 64)}),
        "model.layers.3.mlp.up_proj.weight: a LlamaForCausalLM with this config.json has no such",
    ),
    "unexpected bias": (
        lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)}),
        "model.layers.0.self_attn.q_proj.bias: a LlamaForCausalLM with this config.json has no",
    ),
    "transposed": (
        lambda t: t.update({UP: t[UP].t().contiguous()}),
        f"{UP}: has shape [64, 96], config.json asks for [96, 64]",
    ),
    "integers": (lambda t: t.update({UP: t[UP].to(torch.int32)}), f"{UP}: dtype I32 is not"),
    "float64": (lambda t: t.update({UP: t[UP].double()}), "allowed: F32, F16, BF16"),
}


@pytest.mark.parametrize("case", TENSOR_EDITS)
def test_tensors_that_do_not_fit_the_config(model: Path, case: str) -> None:
    edit, message = TENSOR_EDITS[case]
    edit_tensors(model, edit)
    text = refusal(model)
    assert text.startswith(f"{model / 'model.safetensors'}: ")
    assert message in text


def test_another_number_of_layers(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 4}))
    assert "model.layers.3." in refusal(model)
    (model / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    assert "model.layers.2." in refusal(model)


@pytest.mark.parametrize("keep", [0, 7, 8, 100, 4096, -1])
def test_truncated_at_any_place(model: Path, keep: int) -> None:
    file = model / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:keep])
    assert refusal(model).startswith(f"{file}: truncated")


def test_trailing_bytes(model: Path) -> None:
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes() + b"\0")
    assert "the header describes" in refusal(model)


@pytest.mark.parametrize("length", [0, 1, 100_000_001, 2**63, 2**64 - 1])
def test_lying_header_length(model: Path, length: int) -> None:
    file = model / "model.safetensors"
    file.write_bytes(struct.pack("<Q", length) + file.read_bytes()[8:])
    assert refusal(model).startswith(f"{file}: ")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"not json", "header: not valid JSON"),
        (b"[]", "header: must be a JSON object"),
        (b"\xff\xff", "header: not UTF-8"),
        (b'{"a":{},"a":{}}', "header: not valid JSON (the key 'a' occurs twice)"),
        (b'{"a":' * 50_000, "header: nested too deeply"),
    ],
    ids=["text", "array", "bytes", "duplicate", "deep"],
)
def test_damaged_header(model: Path, header: bytes, message: str) -> None:
    file = model / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header)
    assert message in refusal(model)


def described(**keys: Any) -> Edit:
    return lambda header: header[UP].update(keys)


HEADER_EDITS: dict[str, tuple[Edit, str]] = {
    "unknown dtype": (described(dtype="F128"), "unknown dtype 'F128'"),
    "dtype no string": (described(dtype=32), "unknown dtype 32"),
    "negative dimension": (described(shape=[-96, -64]), "not a shape"),
    "shape no list": (described(shape=6144), "not a shape"),
    "boolean dimension": (described(shape=[True, 6144]), "not a shape"),
    "a thousand dimensions": (described(shape=[1] * 1000), "not a shape of at most 8 dimensions"),
    "product wraps 64 bits": (
        described(shape=[4194305, 4194305, 211106198978564]),
        "is larger than any tensor",
    ),
    "empty but huge": (described(shape=[0, 2**62]), "is larger than any tensor"),
    "shape and bytes differ": (described(shape=[96, 63]), "needs 24192 bytes"),
    "offsets swapped": (described(data_offsets=[8, 0]), "data_offsets are not a byte range"),
    "offsets of floats": (described(data_offsets=[0.0, 8.0]), "data_offsets are not a byte range"),
    "three offsets": (described(data_offsets=[0, 8, 16]), "data_offsets are not a byte range"),
    "past the end": (described(data_offsets=[2**40, 2**40 + 24576]), "data begins at byte"),
    "unknown key": (described(extra=1), "must have dtype, shape and data_offsets"),
    "entry no object": (lambda h: h.update({UP: 1}), "must have dtype, shape and data_offsets"),
    "overlap": (
        lambda h: h[UP].update(data_offsets=h[UP.replace("up", "gate")]["data_offsets"]),
        "data begins at byte",
    ),
}


@pytest.mark.parametrize("case", HEADER_EDITS)
def test_lying_header(model: Path, case: str) -> None:
    edit, message = HEADER_EDITS[case]
    file = model / "model.safetensors"
    edit_header(file, edit)
    text = refusal(model)
    assert text.startswith(f"{file}: model.layers.2.")
    assert message in text


def test_a_hole_between_tensors(model: Path) -> None:
    file = model / "model.safetensors"
    edit_header(file, lambda h: h.pop(UP))
    assert "data begins at byte" in refusal(model)


def edit_index(path: Path, edit: Edit) -> None:
    file = path / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    edit(index)
    file.write_text(json.dumps(index))


def test_shards_are_read(sharded: Path) -> None:
    assert values(load(sharded).embedding).shape == (320, 64)


@pytest.mark.parametrize(
    "shard",
    ["../x.safetensors", "/etc/x.safetensors", "a/x.safetensors", "a\\x.safetensors", "..", ""],
)
def test_shard_names_cannot_leave_the_directory(sharded: Path, shard: str) -> None:
    edit_index(sharded, lambda index: index["weight_map"].update({UP: shard}))
    assert f"weight_map: {UP}: must be a file name" in refusal(sharded)


def test_a_pickle_shard_is_refused_unopened(sharded: Path) -> None:
    edit_index(sharded, lambda index: index["weight_map"].update({UP: "pytorch_model.bin"}))
    assert "must be a file name ending in .safetensors" in refusal(sharded)


def test_missing_shard(sharded: Path) -> None:
    file = sorted(sharded.glob("model-*.safetensors"))[1]
    file.unlink()
    assert refusal(sharded) == f"{file}: does not exist"


def test_a_tensor_that_is_not_in_its_shard(sharded: Path) -> None:
    shards = sorted(path.name for path in sharded.glob("model-*.safetensors"))
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    other = next(name for name in shards if name != index["weight_map"][UP])
    edit_index(sharded, lambda index: index["weight_map"].update({UP: other}))
    assert f"{UP}: model.safetensors.index.json does not place it here" in refusal(sharded)


def test_a_tensor_that_is_nowhere(sharded: Path) -> None:
    shard = sorted(path.name for path in sharded.glob("model-*.safetensors"))[0]
    edit_index(sharded, lambda index: index["weight_map"].update({"ghost": shard}))
    assert f"{sharded / shard}: ghost: " in refusal(sharded)


def test_a_tensor_in_two_shards(sharded: Path) -> None:
    files = sorted(sharded.glob("model-*.safetensors"))
    copied = load_file(files[0])
    name = next(iter(copied))
    save_file({**load_file(files[1]), name: copied[name]}, files[1])
    assert f"{name}: " in refusal(sharded)


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {UP: 1}}])
def test_damaged_index(sharded: Path, index: dict[str, Any]) -> None:
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model.safetensors.index.json: weight_map" in refusal(sharded)


def test_no_weights_at_all_and_only_pickled_ones(model: Path) -> None:
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    assert "no weights" in refusal(model)
    assert "only safetensors are read" in refusal(model)


def test_links_into_a_cache_of_blobs_are_followed(model: Path, tmp_path: Path) -> None:
    blob = tmp_path / "blobs" / "0123"
    blob.parent.mkdir()
    (model / "model.safetensors").rename(blob)
    (model / "model.safetensors").symlink_to(Path("blobs") / "0123")
    load(model)


def test_a_pipe_in_place_of_a_file_is_not_opened(model: Path) -> None:
    (model / "model.safetensors").unlink()
    os.mkfifo(model / "model.safetensors")
    assert "is not a regular file" in refusal(model)


def test_headers_alone_are_read(model: Path) -> None:
    checkpoint = read_checkpoint(model)
    assert checkpoint.file == model / "model.safetensors"
    tensor = checkpoint.tensors["lm_head.weight"]
    assert (tensor.dtype, tensor.shape, tensor.n_bytes) == ("F32", (320, 64), 320 * 64 * 4)
