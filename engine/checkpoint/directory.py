"""A path that is meant to be a model: whether it is a directory that can be read, and what else it
may be.

Owns the errors that say how to get a model that can be read. Opens no file but its first bytes.
"""

from pathlib import Path

from ..errors import ModelLoadError
from ..files import is_there, open_if_regular

HOW_TO_GET_ONE = "get one with: hf download ORG/NAME --local-dir DIR"
_GGUF_MAGIC = b"GGUF"


def model_directory(path: str | Path) -> Path:
    """`path` as a directory with a config.json. Raises ModelLoadError that says what it is."""
    path = Path(path)
    if not is_there(path):
        raise ModelLoadError(
            f"{path}: does not exist; a model is a Hugging Face directory; {HOW_TO_GET_ONE}"
        )
    if not path.is_dir():
        raise ModelLoadError(f"{path}: {_what_is(path)}; {HOW_TO_GET_ONE}")
    if not is_there(path / "config.json"):
        raise ModelLoadError(f"{path}: is not a model: config.json is missing; {_instead(path)}")
    return path


def other_weights(path: Path) -> str | None:
    """The name of a file in a directory with weights in a format that is not read."""
    for pattern in ("*.gguf", "*.bin", "*.pth", "*.pt", "*.onnx"):
        for file in sorted(path.glob(pattern)):
            return file.name
    return None


def _what_is(file: Path) -> str:
    reads = "a model is a Hugging Face directory with safetensors"
    if file.suffix == ".gguf" or _begins_as_gguf(file):
        return f"is a GGUF file, which is not supported; {reads}"
    if file.suffix == ".safetensors":
        return f"is not a directory but its weights alone; {reads}, config.json and tokenizer.json"
    return f"is not a directory; {reads}"


def _instead(path: Path) -> str:
    if (found := other_weights(path)) is not None:
        return (
            f"{found} is not supported; a model is a Hugging Face directory with safetensors; "
            f"{HOW_TO_GET_ONE}"
        )
    for pattern in ("*/config.json", "snapshots/*/config.json"):  # the second: the Hub's cache
        for file in sorted(path.glob(pattern)):
            return f"did you mean {file.parent}?"
    return f"a model is a Hugging Face directory; {HOW_TO_GET_ONE}"


def _begins_as_gguf(file: Path) -> bool:
    try:
        stream = open_if_regular(file)
    except OSError:
        return False
    if stream is None:
        return False
    with stream:
        return stream.read(len(_GGUF_MAGIC)) == _GGUF_MAGIC
