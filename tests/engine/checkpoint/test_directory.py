"""What is said of a path that is not a model, and how to get one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import Engine, ModelLoadError, describe
from engine.checkpoint.directory import model_path

WAY_ON = "get one with: hf download ORG/NAME --local-dir DIR"

Make = Callable[[Path], Path]


def gguf_file(directory: Path, name: str = "model.gguf") -> Path:
    path = directory / name
    path.write_bytes(b"GGUF\x03\0\0\0")
    return path


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
        (pickle_directory, "config.json is missing; pytorch_model.bin is not supported"),
        (weights_alone, "is not a directory but its weights alone"),
        (text_file, "notes.txt: is not a directory; a model is a Hugging Face directory with"),
        (lambda path: path, "is not a model: config.json is missing; a model is a Hugging Face"),
        (lambda path: path / "qwen3", "qwen3: does not exist; a model is a Hugging Face directory"),
    ],
    ids=[
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


@pytest.mark.parametrize("reader", [Engine.load, describe])
def test_half_a_gguf_file_says_what_is_wrong(
    tmp_path: Path, reader: Callable[[Path], object]
) -> None:
    for path in (gguf_file(tmp_path), tmp_path):
        with pytest.raises(ModelLoadError, match=r"model\.gguf: byte 8: .*truncated.*get it again"):
            reader(path)


def test_a_gguf_file_is_a_model_whatever_its_name(tmp_path: Path) -> None:
    """Ollama keeps them under their digests."""
    for name in (
        "model.gguf",
        "sha256-8eeb52dfb3bb9aefdf9d1ef24b3bdbcfbe82238798c4b918278320b6fcef",
    ):
        path = gguf_file(tmp_path, name)
        assert model_path(path) == path


def test_a_directory_with_one_gguf_file_is_that_model(tiny_model: Path, tmp_path: Path) -> None:
    gguf = gguf_file(tmp_path)
    gguf_file(tmp_path, "mmproj-model.gguf")  # for pictures
    assert model_path(tmp_path) == gguf
    # Publishers of GGUF files add the original config.json.
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).write_bytes((tiny_model / file).read_bytes())
    assert model_path(tmp_path) == gguf
    (tmp_path / "model.safetensors").write_bytes((tiny_model / "model.safetensors").read_bytes())
    assert model_path(tmp_path) == tmp_path


def test_of_a_split_file_the_first_part_counts(tmp_path: Path) -> None:
    parts = [gguf_file(tmp_path, f"m-0000{i}-of-00003.gguf") for i in (1, 2, 3)]
    assert model_path(tmp_path) == parts[0]


def test_several_gguf_files_are_named(tmp_path: Path) -> None:
    for name in ("m-Q4_K_M.gguf", "m-Q8_0.gguf"):
        gguf_file(tmp_path, name)
    with pytest.raises(
        ModelLoadError, match=r"2 GGUF files: m-Q4_K_M\.gguf, m-Q8_0\.gguf; give one"
    ):
        model_path(tmp_path)


def test_a_directory_that_only_a_name_makes_a_gguf(tiny_model: Path, tmp_path: Path) -> None:
    link = tmp_path / "model.gguf"
    link.symlink_to(tiny_model)
    assert model_path(link) == link
