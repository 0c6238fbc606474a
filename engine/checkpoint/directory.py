"""A path that is meant to be a model: whether it is a directory or a GGUF file that can be read,
and what else it may be.

Owns the errors that say how to get a model that can be read. Opens no file but its first bytes.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import ModelLoadError
from ..files import is_there, open_if_regular
from ..gguf.header import MAGIC

HOW_TO_GET_ONE = "get one with: hf download ORG/NAME --local-dir DIR"
_KINDS = "a model is a Hugging Face directory or a GGUF file"
_READS = "a model is a Hugging Face directory with safetensors, or a GGUF file"
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
# Parts of a split file after the first one, and what belongs to a model but is none.
_LATER_PART = re.compile(r".+-(?!00001)\d{5}-of-\d{5}\.gguf")
_COMPANION = "mmproj"
_MAX_NAMED = 5


def model_path(path: str | Path) -> Path:
    """`path` as a directory with a config.json, or as a GGUF file: it is one, or the only one in
    that directory. Raises ModelLoadError that says what it is.
    """
    path = Path(path)
    if not is_there(path):
        raise ModelLoadError(f"{path}: does not exist; {_KINDS}; {HOW_TO_GET_ONE}")
    if not path.is_dir():
        if path.suffix == ".gguf" or _begins_as_gguf(path):
            return path
        raise ModelLoadError(f"{path}: {_what_is(path)}; {HOW_TO_GET_ONE}")
    files = gguf_files(path)
    has_config = is_there(path / "config.json")
    if has_config and (not files or any(is_there(path / name) for name in _WEIGHTS)):
        return path
    if len(files) == 1:
        return files[0]
    if files:
        raise ModelLoadError(f"{path}: holds {len(files)} GGUF files: {_named(files)}; give one")
    raise ModelLoadError(f"{path}: is not a model: config.json is missing; {_instead(path)}")


def gguf_files(directory: Path) -> list[Path]:
    """The GGUF models in a directory, of a split one the first part."""
    return sorted(
        file
        for file in directory.glob("*.gguf")
        if not _LATER_PART.fullmatch(file.name) and not file.name.startswith(_COMPANION)
    )


def other_weights(path: Path) -> str | None:
    """The name of a file in a directory with weights in a format that is not read."""
    for pattern in ("*.bin", "*.pth", "*.pt", "*.onnx"):
        for file in sorted(path.glob(pattern)):
            return file.name
    return None


def _named(files: Sequence[Path]) -> str:
    names = ", ".join(file.name for file in files[:_MAX_NAMED])
    return names + (", ..." if len(files) > _MAX_NAMED else "")


def _what_is(file: Path) -> str:
    if file.suffix == ".safetensors":
        return f"is not a directory but its weights alone; {_READS}, config.json and tokenizer.json"
    return f"is not a directory; {_READS}"


def _instead(path: Path) -> str:
    if (found := other_weights(path)) is not None:
        return f"{found} is not supported; {_READS}; {HOW_TO_GET_ONE}"
    for pattern in ("*/config.json", "snapshots/*/config.json"):  # the second: the Hub's cache
        for file in sorted(path.glob(pattern)):
            return f"did you mean {file.parent}?"
    return f"{_KINDS}; {HOW_TO_GET_ONE}"


def _begins_as_gguf(file: Path) -> bool:
    try:
        stream = open_if_regular(file)
    except OSError:
        return False
    if stream is None:
        return False
    with stream:
        return stream.read(len(MAGIC)) == MAGIC
