"""A model on disk, whichever way it is stored: a Hugging Face directory or a GGUF file.

Owns which of the two a path is, and the configuration and tensors of either. Knows no tokenizer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..gguf.container import GgufFile, read_gguf
from .config import ModelConfig
from .config_gguf import gguf_config
from .config_json import model_config
from .directory import model_path
from .gguf import gguf_checkpoint
from .safetensors import read_checkpoint
from .stored import Checkpoint, StoredTensor
from .tensors import check_tensors


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The headers of a model."""

    path: Path
    """The directory, or the GGUF file."""
    config: ModelConfig
    gguf: GgufFile | None
    """None for a directory."""

    @classmethod
    def open(cls, path: str | Path) -> "ModelFiles":
        """`path`: a Hugging Face directory, a GGUF file, or a directory with exactly one.

        Raises ModelLoadError that says what else the path may be.
        """
        found = model_path(path)
        if found.is_dir():
            return cls(found, model_config(found), None)
        file = read_gguf(found)
        return cls(found, gguf_config(file), file)

    def tensors(self) -> Mapping[str, StoredTensor]:
        """Those that the model needs. Raises ModelLoadError if it does not have them."""
        return check_tensors(self._checkpoint(), self.config)

    def _checkpoint(self) -> Checkpoint:
        return read_checkpoint(self.path) if self.gguf is None else gguf_checkpoint(self.gguf)

    @property
    def described_in(self) -> Path:
        """The file that says what the model is."""
        return self.path / "config.json" if self.gguf is None else self.path
