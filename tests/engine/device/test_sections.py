"""Matrices whose parts lie in several formats: bit for bit what separate matrices give, however
rows, threads and instruction sets share the work, and kept on disk as others are.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors
from engine.device.arguments import Linear, NormLinear
from engine.device.cpu.matrix import PanelMatrix, StackedMatrix
from engine.device.cpu.ops import CpuOps
from engine.device.cpu.panel_cache import open_panels
from engine.device.cpu.program import CpuProgram
from engine.device.formats import common_format, matrix_bytes, sections
from engine.device.mixed import LayerFormats, ModelFormats, uniform_formats
from engine.device.ops import NotFiniteError
from engine.device.step import StepState
from engine.device.torch_ops import TorchOps
from engine.model.loading import load_weights
from engine.model.weights import step_bytes, weight_bytes
from engine.native import _cpu

Floats = npt.NDArray[np.float32]

EPS = 1e-5
# Two of codes, codes and floats, neighbours in one format, and the most that there can be.
MIXTURES = [
    ("8bit", "4bit", "6bit"),
    ("8bit", "8bit", "float32"),
    ("float32", "5bit", "bfloat16"),
    ("bfloat16", "float32", "float32"),
    ("4bit", "6bit", "4bit", "8bit"),
]
ROW_COUNTS = [1, 5, 16, 17, 40]
ROWS_OF_PARTS = [150, 40, 67, 16]


def random(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng((seed, *shape)).standard_normal(shape, dtype=np.float32)


def parts_of(n: int, n_in: int) -> list[Floats]:
    return [random(rows, n_in, seed=i) for i, rows in enumerate(ROWS_OF_PARTS[:n])]


def run(program: CpuProgram, n_rows: int) -> None:
    state = StepState(n_rows)
    state.set([0] * n_rows, 0)
    assert program.run(state)


def linear(
    ops: CpuOps, matrix: Any, x: Floats, bias: Floats | None, *, residual: Floats | None = None
) -> Floats:
    out = np.full((len(x), matrix.n_out), np.nan, np.float32)
    program = ops.program(len(x))
    program.append(Linear(x=x, matrix=matrix, bias=bias, residual=residual, out=out))
    run(program, len(x))
    return out


def norm_linear(ops: CpuOps, matrix: Any, x: Floats, bias: Floats | None) -> Floats:
    out = np.full((len(x), matrix.n_out), np.nan, np.float32)
    program = ops.program(len(x))
    program.append(
        NormLinear(
            residual=x,
            norm=random(x.shape[1], seed=9),
            eps=EPS,
            matrix=matrix,
            bias=bias,
            out=out,
        )
    )
    run(program, len(x))
    return out


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("formats", MIXTURES, ids="+".join)
@pytest.mark.usefixtures("isa")
def test_products_are_those_of_separate_matrices(formats: tuple[str, ...], n_threads: int) -> None:
    ops, parts = CpuOps("8bit", n_threads=n_threads), parts_of(len(formats), 201)
    n_out = sum(map(len, parts))
    matrix = ops.matrix(parts, formats)
    alone = [ops.matrix([part], own) for part, own in zip(parts, formats, strict=True)]
    ends = np.cumsum([0, *map(len, parts)])
    assert (matrix.n_out, matrix.n_in) == (n_out, 201)
    for n_rows in ROW_COUNTS:
        x = 3 * random(n_rows, 201, seed=7)
        for bias in (None, random(n_out, seed=8)):
            biases = [bias if bias is None else bias[a:b] for a, b in pairwise(ends)]
            each = list(zip(alone, biases, strict=True))
            expected = np.hstack([linear(ops, one, x, own) for one, own in each])
            assert np.array_equal(linear(ops, matrix, x, bias), expected)
            residual = random(n_rows, n_out, seed=9)
            sums = linear(ops, matrix, x, bias, residual=residual)
            assert np.array_equal(sums, residual + expected)
            normed = [norm_linear(ops, one, x, own) for one, own in each]
            assert np.array_equal(norm_linear(ops, matrix, x, bias), np.hstack(normed))


def test_neighbours_in_one_format_are_one_section() -> None:
    ops, parts = CpuOps("4bit"), parts_of(3, 96)
    two = ops.matrix(parts, ("4bit", "4bit", "6bit"))
    assert two.format == "4bit+6bit"
    assert two.n_bytes == matrix_bytes("4bit", 190, 96) + matrix_bytes("6bit", 67, 96)
    whole, same = ops.matrix(parts, "4bit"), ops.matrix(parts, ("4bit",) * 3)
    assert isinstance(same, PanelMatrix)
    assert isinstance(whole, PanelMatrix)
    assert np.array_equal(same.panels, whole.panels)


def gated(matrix: Any, x: Floats, bias: Floats | None) -> Floats:
    """Of a matrix of gate and up."""
    out = np.full((len(x), matrix.n_out // 2), np.nan, np.float32)
    program = CpuProgram(len(x))
    program.append(
        NormLinear(
            residual=x,
            norm=np.ones(x.shape[1], np.float32),
            eps=EPS,
            matrix=matrix,
            bias=bias,
            gated=True,
            out=out,
        )
    )
    run(program, len(x))
    return out


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("format_", ["float32", "bfloat16", "8bit", "4bit"])
@pytest.mark.usefixtures("isa")
def test_gate_and_up_give_the_same_apart(format_: str, n_threads: int) -> None:
    ops = CpuOps("8bit", n_threads=n_threads)
    parts, bias = [random(150, 201, seed=seed) for seed in (1, 2)], random(300, seed=3)
    together = ops.matrix(parts, format_, gated=True)
    (gate,), (up,) = (ops.matrix([part], format_).sections for part in parts)
    for n_rows in ROW_COUNTS:
        x = random(n_rows, 201, seed=7)
        for own in (None, bias):
            apart = gated(StackedMatrix((gate, up)), x, own)
            assert np.array_equal(apart, gated(together, x, own))


@pytest.mark.parametrize("formats", [("8bit", "4bit"), ("6bit", "float32")], ids="+".join)
@pytest.mark.usefixtures("isa")
def test_gate_and_up_may_have_two_formats(formats: tuple[str, str]) -> None:
    parts, x = [random(150, 201, seed=seed) for seed in (1, 2)], random(40, 201, seed=7)
    results = []
    for n_threads in (1, 3):
        ops = CpuOps("8bit", n_threads=n_threads)
        matrix = ops.matrix(parts, formats, gated=True)
        assert matrix.format == "+".join(formats)
        assert matrix.n_bytes == sum(matrix_bytes(each, 150, 201) for each in formats)
        whole = gated(matrix, x, None)
        assert all(np.array_equal(gated(matrix, x[:n], None), whole[:n]) for n in ROW_COUNTS)
        results.append(whole)
    assert np.array_equal(results[0], results[1])
    values = x / np.sqrt(np.square(x.astype(np.float64)).mean(1, keepdims=True) + EPS)
    gate, up = (
        linear(ops, ops.matrix([part], each), values.astype(np.float32), None).astype(np.float64)
        for part, each in zip(parts, formats, strict=True)
    )
    np.testing.assert_allclose(whole, gate / (1 + np.exp(-gate)) * up, rtol=1e-3, atol=0.3)


def test_other_devices_need_one_format() -> None:
    parts = [random(40, 96), random(40, 96, seed=1)]
    torch_ops = TorchOps("cpu", "float32")
    assert torch_ops.matrix(parts, ("float32", "float32")).format == "float32"
    with pytest.raises(ValueError, match="float32, bfloat16"):
        torch_ops.matrix(parts, ("float32", "bfloat16"))


def test_formats_belong_to_parts() -> None:
    assert sections("8bit", 3) == [("8bit", slice(0, 3))]
    mixed = sections(("4bit", "4bit", "6bit", "4bit"), 4)
    assert mixed == [("4bit", slice(0, 2)), ("6bit", slice(2, 3)), ("4bit", slice(3, 4))]
    assert common_format(("6bit", "6bit")) == common_format("6bit") == "6bit"
    with pytest.raises(ValueError, match="2 formats for 3 parts"):
        sections(("8bit", "4bit"), 3)


def test_a_weight_that_is_no_number_is_counted_through_all_sections() -> None:
    parts = parts_of(3, 96)
    parts[2][60, 33] = np.nan
    with pytest.raises(NotFiniteError) as caught:
        CpuOps("4bit").matrix(parts, ("4bit", "6bit", "8bit"))
    assert caught.value.index == (150 + 40 + 60, 33)


@pytest.mark.parametrize("n", [0, 5])
def test_a_tape_refuses_more_sections_than_it_has_room_for(n: int) -> None:
    part = CpuOps("8bit").matrix([random(16, 32)], "8bit")
    assert isinstance(part, PanelMatrix)
    with pytest.raises(ValueError, match="1 to 4 sections"):
        _cpu.linear_scratch_bytes([part.place()] * n, 1)
    with pytest.raises(ValueError, match="1 to 4 sections"):
        _cpu.Tape().linear(x=0, sections=[part.place()] * n, bias=0, residual=0, out=0, scratch=0)


class MixedOps(CpuOps):
    """As if a file had stored q, k and v in these formats."""

    wqkv: tuple[str, ...] = ("8bit", "4bit", "6bit")

    def formats(self, config: Any, dtypes: Any) -> ModelFormats:
        layer = LayerFormats(self.wqkv, "8bit", ("4bit", "4bit"), "6bit")
        return ModelFormats("8bit", "8bit", (layer,) * config.n_layers)


def test_a_model_with_mixed_matrices_is_kept_on_disk_and_starts_from_there(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, ops = model_config(tiny_model), MixedOps("8bit", n_threads=1)
    tensors = check_tensors(read_checkpoint(tiny_model), config)
    with open_panels(tmp_path, tensors, "mixed", n_bytes=1000) as panels:
        first = load_weights(tensors, config, ops, panels=panels)
    monkeypatch.setattr(CpuOps, "matrix", None)  # nothing may be packed any more
    with open_panels(tmp_path, tensors, "mixed", n_bytes=1000) as panels:
        second = load_weights(tensors, config, ops, panels=panels)
    for one, other in zip(first.layers, second.layers, strict=True):
        assert isinstance(one.wqkv, StackedMatrix)
        assert isinstance(other.wqkv, StackedMatrix)
        assert one.wqkv.format == other.wqkv.format == "8bit+4bit+6bit"
        for a, b in zip(one.wqkv.sections, other.wqkv.sections, strict=True):
            assert np.array_equal(a.panels, b.panels)


def test_a_section_of_another_format_is_packed_anew(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, ops = model_config(tiny_model), MixedOps("8bit", n_threads=1)
    tensors = check_tensors(read_checkpoint(tiny_model), config)
    with open_panels(tmp_path, tensors, "mixed", n_bytes=1000) as panels:
        load_weights(tensors, config, ops, panels=panels)
    monkeypatch.setattr(MixedOps, "wqkv", ("8bit", "4bit", "8bit"))
    with open_panels(tmp_path, tensors, "mixed", n_bytes=1000) as panels:
        weights = load_weights(tensors, config, ops, panels=panels)
    assert {layer.wqkv.format for layer in weights.layers} == {"8bit+4bit+8bit"}


def test_sizes_count_each_part_in_its_format(tiny_model: Path) -> None:
    config = model_config(tiny_model)
    plain, mixed = uniform_formats(config, "8bit"), MixedOps("8bit").formats(config, {})
    layer = config.layers[0]
    attention = layer.attention
    q, kv = attention.q_dim, attention.n_kv_heads * attention.head_dim
    less = (
        matrix_bytes("8bit", kv, config.dim) * 2
        - matrix_bytes("4bit", kv, config.dim)
        - matrix_bytes("6bit", kv, config.dim)
        + 2 * matrix_bytes("8bit", layer.mlp.hidden_dim, config.dim)
        - 2 * matrix_bytes("4bit", layer.mlp.hidden_dim, config.dim)
        + matrix_bytes("8bit", config.dim, layer.mlp.hidden_dim)
        - matrix_bytes("6bit", config.dim, layer.mlp.hidden_dim)
    )
    assert q > 0
    for size in (weight_bytes, step_bytes):
        assert size(config, plain) - size(config, mixed) == config.n_layers * less
