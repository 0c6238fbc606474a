"""The mixture of formats that is called 4bit: never more bytes in a step than with four bits in all
layers and eight in the head, and as planned in memory.
"""

import json
from pathlib import Path

import pytest

from engine import Engine
from engine.benchmark.shapes import SHAPES
from engine.checkpoint.config import ModelConfig
from engine.checkpoint.config_json import model_config
from engine.checkpoint.tensors import model_sources
from engine.device.cpu.matrix import PanelMatrix
from engine.device.formats import DTYPES, in_super_blocks, matrix_bytes
from engine.device.mixed import ModelFormats, mixed_formats, uniform_formats
from engine.model.weights import format_of, step_bytes, weight_bytes


@pytest.fixture(params=["tiny", *SHAPES])
def config(request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path) -> ModelConfig:
    if request.param == "tiny":
        return model_config(tiny_model)
    (tmp_path / "config.json").write_text(json.dumps(SHAPES[request.param].config()))
    return model_config(tmp_path)


def before(config: ModelConfig) -> ModelFormats:
    """Four bits in all layers and eight in the head."""
    return ModelFormats("8bit", "8bit", uniform_formats(config, "4bit").layers)


def test_a_step_reads_no_more_than_with_four_bits_everywhere(config: ModelConfig) -> None:
    formats = mixed_formats(config, "4bit")
    mixed, plain = step_bytes(config, formats), step_bytes(config, before(config))
    assert mixed <= plain
    # What is left over is too little for any other matrix.
    for layer in formats.layers:
        if layer.wo == "4bit":
            shape = config.dim, config.layers[0].attention.q_dim
            assert plain - mixed < matrix_bytes("5bit", *shape) - matrix_bytes("4bit", *shape)


def test_the_most_sensitive_matrices_come_first(config: ModelConfig) -> None:
    layers, five_bits = mixed_formats(config, "4bit").layers, ("5bit", "q5_k")
    if any(layer.w_gate_up in five_bits for layer in layers):
        assert all(layer.wo in five_bits and layer.w_down in five_bits for layer in layers)


@pytest.mark.parametrize("format_", [*DTYPES, "8bit", "6bit", "5bit"])
def test_the_other_formats_are_uniform_but_for_super_blocks(
    config: ModelConfig, format_: str
) -> None:
    sources = model_sources(config)
    n_in = {
        source.part: source.part_shape[-1]
        for layer in sources.layers
        for source in (*layer.wqkv, *layer.wo, *layer.w_gate_up, *layer.w_down)
    }
    mixed, uniform = (
        format_of(sources, formats(config, format_)) for formats in (mixed_formats, uniform_formats)
    )
    assert n_in
    for part, columns in n_in.items():
        assert mixed[part] == in_super_blocks(uniform[part], columns)


def test_rows_of_whole_super_blocks_are_held_in_them(config: ModelConfig) -> None:
    for format_ in ("6bit", "5bit", "4bit"):
        sources, formats = model_sources(config), mixed_formats(config, format_)
        of = format_of(sources, formats)
        for layer in sources.layers:
            for source in (*layer.wqkv, *layer.wo, *layer.w_gate_up, *layer.w_down):
                assert of[source.part].endswith("_k") == (source.part_shape[-1] % 256 == 0)
        assert formats.head.endswith("_k") == (config.dim % 256 == 0)


def test_what_is_loaded_is_what_was_planned(tiny_model: Path) -> None:
    engine = Engine.load(tiny_model, device="cpu", quantize="4bit")
    config, weights = engine.config, engine.model.weights
    formats = mixed_formats(config, "4bit")
    n_bytes = 0
    for table in (weights.embedding, weights.head):
        assert isinstance(table, PanelMatrix)
        assert table.format == formats.embedding == formats.head
        n_bytes += table.panels.nbytes
    for layer, planned in zip(weights.layers, formats.layers, strict=True):
        for kind in ("wqkv", "wo", "w_gate_up", "w_down"):
            matrix = getattr(layer, kind)
            assert isinstance(matrix, PanelMatrix)
            assert matrix.format == getattr(planned, kind)
            n_bytes += matrix.panels.nbytes
    norms = 4 * config.dim * (1 + 2 * config.n_layers)
    assert n_bytes + norms == weight_bytes(config, formats)
