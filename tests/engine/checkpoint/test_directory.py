"""What is said of a path that is not a model, and how to get one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import Engine, ModelLoadError, describe
from engine.checkpoint.directory import model_path

WAY_ON = "get one with: hf download ORG/NAME --local-dir DIR"

Make = Callable[[Path], Path]


def gguf_file(directory: Path) -> Path:
    path = directory / "model.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0")
    return path


def ollama_blob(directory: Path) -> Path:
    path = directory / "sha256-8eeb52dfb3bb9aefdf9d1ef24b3bdbcfbe82238798c4b918278320b6fcef18fe"
    path.write_bytes(b"GGUF\x03\0\0\0")
    return path


def gguf_directory(directory: Path) -> Path:
    gguf_file(directory)
    return directory


def pickle_directory(directory: Path) -> Path:
    (directory / "pytorch_model.bin").write_bytes(b"PK")
    return directory


def weights_alone(directory: Path) -> Path:
    path = directory / "model.safetensors"
    path.write_bytes(b"\0" * 8)
    return path


def text_file(directory: Path) -> Path:
    path = directory / "notes.txt"
    path.write_text("GG")
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (gguf_file, "model.gguf: is a GGUF file, which is not supported; a model is a Hugging"),
        (ollama_blob, "is a GGUF file, which is not supported"),
        (gguf_directory, "config.json is missing; model.gguf is not supported; a model is"),
        (pickle_directory, "config.json is missing; pytorch_model.bin is not supported"),
        (weights_alone, "is not a directory but its weights alone"),
        (text_file, "notes.txt: is not a directory; a model is a Hugging Face directory with"),
        (lambda path: path, "is not a model: config.json is missing; a model is a Hugging Face"),
        (lambda path: path / "qwen3", "qwen3: does not exist; a model is a Hugging Face directory"),
    ],
    ids=[
        "GGUF",
        "Ollama",
        "directory of GGUF",
        "pickle",
        "safetensors",
        "text",
        "empty",
        "nothing",
    ],
)
@pytest.mark.parametrize("reader", [Engine.load, describe, model_path])
def test_what_is_not_a_model_says_how_to_get_one(
    tmp_path: Path, make: Make, message: str, reader: Callable[[Path], object]
) -> None:
    with pytest.raises(ModelLoadError) as caught:
        reader(make(tmp_path))
    text = str(caught.value)
    assert message in text
    assert WAY_ON in text
    assert "\n" not in text


@pytest.mark.parametrize("inner", ["qwen3", "snapshots/0123abcd"])
def test_the_directory_above_a_model_names_the_model(tmp_path: Path, inner: str) -> None:
    (tmp_path / inner).mkdir(parents=True)
    (tmp_path / inner / "config.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=f"did you mean {tmp_path / inner}\\?"):
        model_path(tmp_path)


def test_a_gguf_in_place_of_the_weights_is_named(tiny_model: Path, tmp_path: Path) -> None:
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).write_bytes((tiny_model / file).read_bytes())
    gguf_file(tmp_path)
    with pytest.raises(ModelLoadError, match=r"no weights: .*; model\.gguf is not supported; get"):
        Engine.load(tmp_path)


def test_a_directory_that_only_a_name_makes_a_gguf(tiny_model: Path, tmp_path: Path) -> None:
    link = tmp_path / "model.gguf"
    link.symlink_to(tiny_model)
    assert model_path(link) == link
