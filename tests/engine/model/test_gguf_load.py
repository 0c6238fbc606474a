"""Engine.load on GGUF files: formats, tokenizer, template, and what else belongs to a model."""

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import Engine, ModelLoadError, SamplingSettings, describe
from engine.device.cpu import panel_cache
from engine.device.cuda.load import PinnedReader
from engine.device.reference import TorchMatrix
from engine.device.torch_ops import TorchOps
from engine.model.loading import load_weights
from engine.model_files import ModelFiles
from tests.support.gguf_models import Type, write_gguf
from tests.support.tiny_models import FAMILIES, oracle


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A Llama in Q4_0, its v and down in Q8_0, the embedding in Q5_0: (file, oracle)."""
    path = tmp_path_factory.mktemp("gguf") / "otter-Q4_0.gguf"
    model = oracle(FAMILIES["llama-tied"])
    write_gguf(path, model, types=_type_of, more={"general.sampling.temp": 0.5})
    return path, model


def _type_of(name: str) -> Type:
    if "attn_v" in name or "ffn_down" in name:
        return Type.Q8_0
    return Type.Q5_0 if "token_embd" in name else Type.Q4_0


def load(path: Path, **options: Any) -> Engine:
    return Engine.load(path, device="cpu", **options)


def greedy(engine: Engine, token_ids: list[int], n: int) -> list[int]:
    settings = SamplingSettings(temperature=0.0)
    engine.generator.begin_stream_ex(token_ids, settings, max_new_tokens=n, ignore_eos=True)
    generated = []
    while True:
        result = engine.generator.stream_ex()
        generated += [token.token_id for token in result.tokens]
        if result.eos:
            return generated


def test_weights_keep_the_types_of_the_file(saved: tuple[Path, Any]) -> None:
    engine = load(saved[0])
    weights, ops = engine.model.weights, engine.model.ops
    assert (ops.format, ops.kv_format) == ("stored", "bfloat16")
    assert weights.embedding is weights.head
    assert weights.embedding.format == "q5_0"
    layer = weights.layers[0]
    assert [layer.wqkv.format, layer.wo.format, layer.w_gate_up.format, layer.w_down.format] == [
        "q4_0+8bit",
        "q4_0",
        "q4_0",
        "8bit",
    ]


@pytest.mark.parametrize(
    ("options", "format_", "kv_format"),
    [
        ({"dtype": "float32"}, "float32", "float32"),
        ({"dtype": "bfloat16"}, "bfloat16", "float32"),
        ({"quantize": "8bit"}, "8bit", "bfloat16"),
        ({"quantize": "6bit"}, "6bit", "bfloat16"),
        ({"kv_cache": "float32"}, "stored", "float32"),
    ],
)
def test_options_choose_other_formats(
    saved: tuple[Path, Any], options: dict[str, Any], format_: str, kv_format: str
) -> None:
    engine = load(saved[0], **options)
    assert (engine.model.ops.format, engine.model.ops.kv_format) == (format_, kv_format)
    wanted = "q4_0+8bit" if format_ == "stored" else format_
    assert engine.model.weights.layers[0].wqkv.format == wanted


def test_the_file_says_what_else_belongs_to_a_model(saved: tuple[Path, Any]) -> None:
    path, _ = saved
    engine = load(path)
    assert engine.model_id == "otter-Q4_0"
    assert engine.created == int(path.stat().st_mtime)
    assert engine.default_settings.temperature == 0.5
    assert engine.eos_token_ids == (0, 4)
    message = [{"role": "user", "content": "the river"}]
    text = engine.render_chat(message, add_generation_prompt=True)
    assert text == "<|user|>the river<|end|><|assistant|>"
    token_ids = engine.encode_chat(message, add_generation_prompt=True)
    assert engine.tokenizer.decode(token_ids) == text
    assert token_ids[0] == engine.tokenizer.added_token_id("<|user|>")


def test_greedy_text_is_that_of_transformers(saved: tuple[Path, Any]) -> None:
    path, model = saved
    engine = load(path, dtype="float32")
    prompt = engine.tokenizer.encode("Once upon a time there was")
    ours = greedy(engine, prompt, 20)
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ours])).logits[0]
    assert ours == logits[len(prompt) - 1 : -1].argmax(-1).tolist()


def test_a_directory_with_the_file_is_the_model(saved: tuple[Path, Any]) -> None:
    assert load(saved[0].parent).model_id == "otter-Q4_0"


def test_a_part_of_a_split_file_gives_its_name(tmp_path: Path) -> None:
    write_gguf(tmp_path / "otter.gguf", oracle(FAMILIES["llama"]), tensors_per_part=20)
    assert load(tmp_path).model_id == "otter"


def test_the_fingerprint_changes_with_the_metadata(tmp_path: Path) -> None:
    """Even if size and time of the file stay: another tokenizer gives other answers."""
    model = oracle(FAMILIES["llama"])
    digits = []
    for name in ("name one", "name two"):
        path = tmp_path / "model.gguf"
        write_gguf(path, model, more={"general.name": name})
        os.utime(path, (1, 1))
        digits.append(load(path, dtype="float32").fingerprint)
    assert digits[0] != digits[1]


def test_torch_computes_the_same_without_native_blocks(saved: tuple[Path, Any]) -> None:
    path, model = saved
    files = ModelFiles.open(path)
    weights = load_weights(files.tensors(), files.config, TorchOps("cpu", "float32"))
    stored = model.model.embed_tokens.weight.detach().numpy()
    assert isinstance(weights.embedding, TorchMatrix)
    assert np.array_equal(weights.embedding.weights.numpy(), stored)


def test_the_reader_for_cuda_devices_decodes_blocks(saved: tuple[Path, Any]) -> None:
    path, model = saved
    tensor = ModelFiles.open(path).tensors()["token_embd.weight"]
    with PinnedReader(torch.device("cpu")) as read:
        assert torch.equal(read(tensor), model.model.embed_tokens.weight)


def test_a_draft_model_may_be_a_file_too(saved: tuple[Path, Any]) -> None:
    engine = load(saved[0], speculate="draft", draft_model=saved[0])
    prompt = engine.tokenizer.encode("Once upon a time")
    assert greedy(engine, prompt, 30) == greedy(load(saved[0]), prompt, 30)


def test_packed_panels_are_kept_for_each_file(
    saved: tuple[Path, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(panel_cache, "SMALLEST_BYTES", 0)
    other = saved[0].with_name("other.gguf")
    write_gguf(other, oracle(FAMILIES["llama-tied"], seed=1), types=_type_of)
    kept = tmp_path / "panels"
    try:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                for path in (saved[0], other):
                    load(path, panel_cache=kept)
    finally:
        other.unlink()
    assert len(list(kept.glob("stored-*.panels"))) == 2
    assert not caplog.records


def test_what_is_in_a_file_is_described(saved: tuple[Path, Any]) -> None:
    description = describe(saved[0])
    assert description.is_gguf
    assert description.default_format == "stored"
    assert description.tokenizer == "gpt2, pre gpt-2"
    assert description.has_chat_template
    assert sum(description.stored_bytes.values()) == sum(g.n_bytes for g in description.groups)
    of_parts = {(g.part, g.dtype): (g.n_tensors, g.format) for g in description.groups}
    assert of_parts == {
        ("embedding and head", "Q5_0"): (1, "q5_0"),
        ("q, k, v", "Q4_0"): (6, "q4_0"),
        ("q, k, v", "Q8_0"): (3, "8bit"),
        ("attention output", "Q4_0"): (3, "q4_0"),
        ("gate and up", "Q4_0"): (6, "q4_0"),
        ("down", "Q8_0"): (3, "8bit"),
        ("norms and biases", "F32"): (7, "float32"),
    }
    assert not any(group.is_wider for group in description.groups)
    weights = load(saved[0]).model.weights
    matrices = [weights.embedding] + [
        matrix
        for layer in weights.layers
        for matrix in (layer.wqkv, layer.wo, layer.w_gate_up, layer.w_down)
    ]
    norms = 4 * 64 * 7
    assert description.step_bytes("stored") == sum(each.n_bytes for each in matrices) + norms


def test_what_becomes_wider_in_memory_is_said(tmp_path: Path) -> None:
    def types(name: str) -> Type:
        return Type.F16 if "attn_output" in name else Type.Q4_0

    path = tmp_path / "model.gguf"
    write_gguf(path, oracle(FAMILIES["llama"]), types=types)
    wider = {(g.part, g.dtype, g.format) for g in describe(path).groups if g.is_wider}
    assert wider == {("attention output", "F16", "float32")}
    assert load(path).model.weights.layers[0].wo.format == "float32"


def test_gate_and_up_of_two_types_have_no_more_bytes_than_the_file(tmp_path: Path) -> None:
    def types(name: str) -> Type:
        return {"ffn_gate": Type.Q4_K, "ffn_up": Type.Q6_K}.get(name.split(".")[-2], Type.Q8_0)

    path = tmp_path / "model.gguf"
    write_gguf(path, oracle(FAMILIES["llama"], hidden_size=256), types=types)
    described = describe(path)
    assert not any(group.is_wider for group in described.groups)
    matrices = load(path).model.weights.layers
    assert {layer.w_gate_up.format for layer in matrices} == {"q4_k+q6_k"}
    of_file = sum(each.n_bytes for each in described.groups if each.part == "gate and up")
    assert sum(layer.w_gate_up.n_bytes for layer in matrices) == of_file
    in_step = sum(each.n_bytes for each in described.groups if each.part != "embedding")
    assert described.step_bytes("stored") == in_step


def test_a_weight_that_is_not_finite_is_named_where_it_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    model = oracle(FAMILIES["llama"])
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight[9, 5] = float("nan")
    write_gguf(path, model)
    # Row 9 of the first head of 16 stands third there: rows 0, 8, 1, 9.
    with pytest.raises(ModelLoadError, match=r"blk\.1\.attn_k\.weight: not finite at \[3, 5\]"):
        load(path)
