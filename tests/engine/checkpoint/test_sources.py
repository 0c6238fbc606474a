"""A family is data: weights that a checkpoint stores in another way are loaded as the same model.

Each case rewrites the checkpoint of a Llama as some family stores it, and describes that with
sources; what is loaded must be bit for bit what the plain checkpoint gives.
"""

import dataclasses
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine import ModelLoadError
from engine.checkpoint.config import ModelConfig
from engine.checkpoint.config_json import model_config
from engine.checkpoint.families.known import FAMILIES
from engine.checkpoint.families.llama import LLAMA_NAMES
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.sources import LayerSources, ModelSources, Source
from engine.checkpoint.tensors import check_tensors
from engine.device.cpu.ops import CpuOps
from engine.device.cpu.panel_cache import open_panels
from engine.device.mixed import mixed_formats
from engine.device.ops import Ops
from engine.device.torch_ops import TorchOps
from engine.model.loading import load_weights
from engine.model.weights import Weights, weight_bytes
from tests.support.tiny_models import save_model

Tensors = dict[str, Tensor]
OPS: dict[str, Callable[[], Ops]] = {
    "native": lambda: CpuOps("float32"),
    "torch": lambda: TorchOps("cpu", "float32"),
}
LLAMA = "LlamaForCausalLM"


def q_proj(index: int) -> str:
    return f"model.layers.{index}.self_attn.q_proj.weight"


def fuse(tensors: Tensors, index: int, names: tuple[str, ...], fused: str) -> None:
    """Several tensors of a layer become one, one below the other."""
    prefix = f"model.layers.{index}."
    parts = [tensors.pop(f"{prefix}{name}.weight") for name in names]
    tensors[f"{prefix}{fused}.weight"] = torch.cat(parts)


def parts_of(name: str, n_rows: list[int], n_in: int) -> tuple[Source, ...]:
    ends = np.cumsum([0, *n_rows]).tolist()
    shape = (ends[-1], n_in)
    return tuple(Source(name, shape, rows=(begin, end)) for begin, end in pairwise(ends))


@dataclasses.dataclass(frozen=True)
class Case:
    """How a checkpoint is written, and the sources that say so, of one layer."""

    rewrite: Callable[[Tensors, int], object]
    sources: Callable[[LayerSources, ModelConfig, int], Mapping[str, Any]]


def split_qkv(layer: LayerSources, config: ModelConfig, index: int) -> Mapping[str, Any]:
    name = f"model.layers.{index}.self_attn.qkv_proj.weight"
    return {"wqkv": parts_of(name, [source.shape[0] for source in layer.wqkv], config.dim)}


def split_gate_up(layer: LayerSources, config: ModelConfig, index: int) -> Mapping[str, Any]:
    name = f"model.layers.{index}.mlp.gate_up_proj.weight"
    hidden = config.layers[index].mlp.hidden_dim
    return {"w_gate_up": parts_of(name, [hidden, hidden], config.dim)}


def transpose(tensors: Tensors, index: int) -> None:
    name = f"model.layers.{index}.mlp.down_proj.weight"
    tensors[name] = tensors[name].t().contiguous()


def transposed(layer: LayerSources, config: ModelConfig, index: int) -> Mapping[str, Any]:
    (down,) = layer.w_down
    return {"w_down": (dataclasses.replace(down, shape=down.shape[::-1], transposed=True),)}


def less_one(tensors: Tensors, index: int) -> None:
    # Sums with 1 that float32 has exactly.
    name = f"model.layers.{index}.input_layernorm.weight"
    tensors[name] -= 1


def plus_one(layer: LayerSources, config: ModelConfig, index: int) -> Mapping[str, Any]:
    return {"attention_norm": (dataclasses.replace(layer.attention_norm[0], plus=1.0),)}


def in_pairs(tensors: Tensors, index: int) -> None:
    """As the first Llama, and llama.cpp, store queries: a pair that is rotated stands together."""
    rows = tensors[q_proj(index)]
    n_heads = 4
    halves = rows.view(n_heads, 2, -1, rows.shape[1])
    tensors[q_proj(index)] = halves.transpose(1, 2).reshape(rows.shape).contiguous()


def paired(layer: LayerSources, config: ModelConfig, index: int) -> Mapping[str, Any]:
    q, k, v = layer.wqkv
    return {"wqkv": (dataclasses.replace(q, rope_heads=4), k, v)}


def partly_in_pairs(tensors: Tensors, index: int) -> None:
    """The first half of each head is rotated."""
    rows = tensors[q_proj(index)]
    heads = rows.view(4, 16, -1)
    pairs = heads[:, :8].view(4, 2, 4, -1).transpose(1, 2).reshape(4, 8, -1)
    tensors[q_proj(index)] = torch.cat([pairs, heads[:, 8:]], dim=1).view(rows.shape).contiguous()


def partly_paired(layer: LayerSources, config: ModelConfig, index: int) -> Mapping[str, Any]:
    q, k, v = layer.wqkv
    return {"wqkv": (dataclasses.replace(q, rope_heads=4, rope_rows=8), k, v)}


def fuse_by_head(tensors: Tensors, index: int) -> None:
    """As GPT-NeoX stores them: q, k and v of each key head stand together."""
    prefix = f"model.layers.{index}.self_attn."
    parts = [tensors.pop(f"{prefix}{name}_proj.weight") for name in "qkv"]
    by_head = [part.view(2, -1, part.shape[1]) for part in parts]
    tensors[f"{prefix}qkv_proj.weight"] = torch.cat(by_head, dim=1).flatten(0, 1).contiguous()


def fused_by_head(layer: LayerSources, config: ModelConfig, index: int) -> Mapping[str, Any]:
    name, shape = f"model.layers.{index}.self_attn.qkv_proj.weight", (128, config.dim)
    rows = ((0, 32), (32, 48), (48, 64))
    return {"wqkv": tuple(Source(name, shape, groups=2, rows=each) for each in rows)}


def in_rows(tensors: Tensors, index: int) -> None:
    name = f"model.layers.{index}.input_layernorm.weight"
    tensors[name] = tensors[name].view(8, 8).contiguous()


def flattened(layer: LayerSources, config: ModelConfig, index: int) -> Mapping[str, Any]:
    (norm,) = layer.attention_norm
    return {"attention_norm": (dataclasses.replace(norm, shape=(8, 8), flattened=True),)}


def stack_experts(tensors: Tensors, index: int) -> None:
    """The up projection becomes the second expert of three, stored as (n_in, n_out)."""
    name = f"model.layers.{index}.mlp.up_proj.weight"
    up = tensors[name].t()
    tensors[name] = torch.stack([torch.zeros_like(up), up, torch.ones_like(up)])


def of_experts(layer: LayerSources, config: ModelConfig, index: int) -> Mapping[str, Any]:
    gate, up = layer.w_gate_up
    shape = (3, *up.shape[::-1])
    return {"w_gate_up": (gate, dataclasses.replace(up, shape=shape, expert=1, transposed=True))}


CASES = {
    "split qkv": Case(
        lambda t, i: fuse(
            t, i, ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "self_attn.qkv_proj"
        ),
        split_qkv,
    ),
    "split gate and up": Case(
        lambda t, i: fuse(t, i, ("mlp.gate_proj", "mlp.up_proj"), "mlp.gate_up_proj"),
        split_gate_up,
    ),
    "transposed": Case(transpose, transposed),
    "norm less one": Case(less_one, plus_one),
    "rope pairs": Case(in_pairs, paired),
    "partial rope pairs": Case(partly_in_pairs, partly_paired),
    "fused by head": Case(fuse_by_head, fused_by_head),
    "norm in rows": Case(in_rows, flattened),
    "experts": Case(stack_experts, of_experts),
}


def write(path: Path, case: Case) -> None:
    """Rewrites the checkpoint in `path`."""
    file = path / "model.safetensors"
    tensors = load_file(file)
    for index in range(model_config(path).n_layers):
        case.rewrite(tensors, index)
    save_file(tensors, file)


def describe(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Llama is stored as in this case from now on."""

    def sources(config: ModelConfig) -> ModelSources:
        plain = LLAMA_NAMES.sources(config)
        layers = tuple(
            dataclasses.replace(layer, **case.sources(layer, config, index))
            for index, layer in enumerate(plain.layers)
        )
        return dataclasses.replace(plain, layers=layers)

    monkeypatch.setitem(FAMILIES, LLAMA, dataclasses.replace(FAMILIES[LLAMA], sources=sources))


def load(path: Path, ops: Ops, **options: Any) -> Weights:
    config = model_config(path)
    return load_weights(check_tensors(read_checkpoint(path), config), config, ops, **options)


def arrays(weights: Weights) -> list[Any]:
    """All weights, as numpy arrays."""
    layers = [getattr(each, f.name) for each in weights.layers for f in dataclasses.fields(each)]
    every = [weights.embedding, weights.norm, weights.head, *layers]
    inner = [getattr(each, "panels", getattr(each, "weights", each)) for each in every]
    return [np.asarray(each) for each in inner if each is not None]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tmp_path)
    return tmp_path


@pytest.mark.parametrize("ops", OPS.values(), ids=OPS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_checkpoint_stored_in_another_way_is_the_same_model(
    model: Path, case: Case, ops: Callable[[], Ops], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = arrays(load(model, ops()))
    write(model, case)
    describe(case, monkeypatch)
    for ours, expected in zip(arrays(load(model, ops())), plain, strict=True):
        assert np.array_equal(ours, expected)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_memory_is_counted_by_what_is_loaded(
    model: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = model_config(model)
    formats = mixed_formats(config, "4bit")
    expected = weight_bytes(config, formats)
    describe(case, monkeypatch)
    assert weight_bytes(config, formats) == expected


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_progress_reaches_all_that_is_read(
    model: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(model, case)
    describe(case, monkeypatch)
    reports: list[tuple[int, int]] = []
    load(model, OPS["torch"](), on_progress=lambda *done: reports.append(done))
    done, total = reports[-1]
    assert done == total == 4 * model_config(model).n_params


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_value_that_is_not_finite_is_named_by_its_place_in_the_file(
    model: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(model, case)
    describe(case, monkeypatch)
    config = model_config(model)
    changed = FAMILIES[LLAMA].sources(config).layers[1]
    plain = LLAMA_NAMES.sources(config).layers[1]
    (field,) = case.sources(plain, config, 1)
    source = next(each for each in getattr(changed, field) if each.part != each.name)
    file = model / "model.safetensors"
    tensors = load_file(file)
    begin = source.rows[0] if source.rows else 0
    place = [begin + 3, 2] if len(source.shape) == 2 else [1, 5, 2][-len(source.shape) :]
    tensors[source.name][tuple(place)] = torch.nan
    save_file(tensors, file)
    for ops in OPS.values():
        with pytest.raises(ModelLoadError) as caught:
            load(model, ops())
        assert str(caught.value) == f"{file}: {source.name}: not finite at {place}"


def test_packed_parts_are_kept_under_names_of_their_own(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Gate and up come out of one tensor, whose name alone would not tell them from each other."""
    case = CASES["split gate and up"]
    write(model, case)
    describe(case, monkeypatch)
    tensors = check_tensors(read_checkpoint(model), model_config(model))
    loaded = []
    for _ in range(2):
        with open_panels(tmp_path / "cache", tensors, "float32", n_bytes=10**6) as panels:
            loaded.append(arrays(load(model, OPS["native"](), panels=panels)))
    first, second = loaded
    for kept, packed in zip(second, first, strict=True):
        assert np.array_equal(kept, packed)


def test_a_whole_tensor_has_its_own_name_and_a_part_says_which() -> None:
    assert Source("a.weight", (4, 2)).part == "a.weight"
    assert Source("a.weight", (4, 2), rows=(2, 4)).part == "a.weight[rows=(2, 4)]"
    assert Source("a.weight", (3, 4, 2), expert=0).part == "a.weight[expert=0]"


def test_columns_are_a_part_of_a_matrix() -> None:
    stored = np.arange(24).reshape(4, 6)
    part = Source("fc", (4, 6), columns=(2, 5))
    found = part.of(stored)
    assert found.flags.c_contiguous
    assert np.array_equal(found, stored[:, 2:5])
    assert part.part_shape == (4, 3)
    assert part.share == 0.5
    assert stored[part.stored_index((3, 1))] == found[3, 1]
