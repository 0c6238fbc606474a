"""Mistakes with the MODEL argument: each command says in one line what is wrong and what to do."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from server.__main__ import main
from tests.support import gguf_bytes as raw

COMMANDS = {
    "serve": ["serve", "--port", "0"],
    "chat": ["chat"],
    "complete": ["complete", "Hello"],
    "inspect": ["inspect"],
    "bench": ["bench", "--only", "decode", "--buffer-mb", "1"],
}
HOW_TO_GET_ONE = "hf download ORG/NAME --local-dir DIR"

Make = Callable[[Path], object]


def half_gguf(directory: Path) -> Path:
    path = directory / "model.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0")
    return path


def gguf_of(architecture: str) -> Make:
    def make(directory: Path) -> Path:
        path = directory / "model.gguf"
        path.write_bytes(raw.gguf([raw.pair("general.architecture", raw.STRING, architecture)]))
        return path

    return make


def two_ggufs(directory: Path) -> Path:
    (directory / "config.json").unlink()
    for name in ("m-Q4_K_M.gguf", "m-Q8_0.gguf"):
        half_gguf(directory).rename(directory / name)
    return directory


def with_config(**keys: object) -> Make:
    def make(directory: Path) -> Path:
        config = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps({**config, **keys}))
        return directory

    return make


def without(name: str) -> Make:
    def make(directory: Path) -> Path:
        (directory / name).unlink()
        return directory

    return make


# Mistake -> how it is made in a copy of a model, what is said, and the way on.
MISTAKES: dict[str, tuple[Make, str, str]] = {
    "half a GGUF": (half_gguf, "model.gguf: byte 8: the number of tensors", "get it again"),
    "two GGUF": (two_ggufs, "2 GGUF files: m-Q4_K_M.gguf, m-Q8_0.gguf", "give one"),
    "GGUF architecture": (
        gguf_of("gemma5"),
        "gemma5 is not supported; the nearest family is gemma",
        "choose a model of a family that docs/models.md lists",
    ),
    "weights": (lambda path: path / "model.safetensors", "its weights alone", HOW_TO_GET_ONE),
    "file": (lambda path: path / "config.json", "is not a directory", HOW_TO_GET_ONE),
    "nothing": (lambda path: path / "nowhere", "nowhere: does not exist", HOW_TO_GET_ONE),
    "directory above": (lambda path: path.parent, "is not a model", "did you mean"),
    "no config": (without("config.json"), "config.json is missing", HOW_TO_GET_ONE),
    "no weights": (without("model.safetensors"), "only safetensors are read", HOW_TO_GET_ONE),
    "architecture": (
        with_config(architectures=["GemmaForCausalLM"]),
        "GemmaForCausalLM is not supported; the nearest family is Gemma2ForCausalLM",
        "choose a model of a family that docs/models.md lists",
    ),
    "AWQ": (
        with_config(quantization_config={"quant_method": "awq"}),
        "quantized weights are not supported (quant_method 'awq')",
        "load the original model and quantize it here",
    ),
    "GPTQ": (
        with_config(quantization_config={"quant_method": "gptq"}),
        "quantized weights are not supported (quant_method 'gptq')",
        "load the original model and quantize it here",
    ),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(("make", "what", "way_on"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_with_a_way_on(
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    make: Make,
    what: str,
    way_on: str,
) -> None:
    model = tmp_path / "models" / "tiny"
    shutil.copytree(tiny_model, model)
    assert main([*command, "--model", str(make(model))]) == 2
    error = capsys.readouterr().err
    assert error.startswith("soliton: error: ")
    assert error.count("\n") == 1
    assert what in error
    assert way_on in error


def test_the_model_has_two_forms(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for form in ([str(tiny_model)], ["--model", str(tiny_model)], [f"--model={tiny_model}"]):
        assert main(["inspect", *form]) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert str(tiny_model) in texts[0]
    assert main(["inspect", str(tiny_model), "--model", str(tiny_model)]) == 2
    assert "the model is given twice" in capsys.readouterr().err


def test_a_home_directory_is_expanded(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tiny_model.parent))
    assert main(["inspect", f"--model=~{os.sep}{tiny_model.name}"]) == 0
    assert str(tiny_model) in capsys.readouterr().out


@pytest.mark.parametrize("command", ["serve", "chat", "complete"])
def test_a_chat_template_that_cannot_be_used(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    file = tmp_path / "own.jinja"
    file.write_text("{% if %}")
    options = ["--model", str(tiny_model), "--chat-template", str(file)]
    assert main([*COMMANDS[command], *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"soliton: error: {file}: line 1: ")
    assert error.count("\n") == 1
