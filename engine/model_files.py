"""A model on disk, whichever way it is stored: a Hugging Face directory or a GGUF file.

Owns where either has configuration, tensors, tokenizer and recommended settings. Reads no weights.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from .checkpoint.config import ModelConfig
from .checkpoint.config_gguf import gguf_config
from .checkpoint.config_json import model_config
from .checkpoint.directory import model_path
from .checkpoint.families.predictor import PredictorSources
from .checkpoint.generation_config import (
    GenerationConfig,
    metadata_generation,
    read_generation_config,
)
from .checkpoint.safetensors import read_checkpoint
from .checkpoint.stored import Checkpoint
from .checkpoint.tensors import check_tensors, predictor_tensors
from .checkpoint.text_part import text_tensors
from .gguf.container import GgufFile, read_gguf
from .stored_tensor import StoredTensor
from .text.gguf.tokenizer import gguf_tokenizer
from .text.tokenizer import Tokenizer
from .text.tokenizer_json import TOKENIZER_FILE

logger = logging.getLogger(__name__)

# Gate and up of all experts of a layer in one tensor.
_FUSED = re.compile(r".*\.mlp\.experts\.gate_up_proj")


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
            return cls(found, _as_stored(model_config(found), found), None)
        file = read_gguf(found)
        return cls(found, gguf_config(file), file)

    def tensors(self) -> Mapping[str, StoredTensor]:
        """Those that the model needs. Raises ModelLoadError if it does not have them."""
        return check_tensors(self._checkpoint(), self.config)

    def predictor(self) -> tuple[PredictorSources, Mapping[str, StoredTensor]] | None:
        """The block that predicts one token more, and its tensors. Raises ModelLoadError."""
        return predictor_tensors(self._checkpoint(), self.config)

    def tokenizer(self) -> Tokenizer:
        """Raises ModelLoadError."""
        if self.gguf is None:
            return Tokenizer.load(self.path, self.config.vocab_size)
        return gguf_tokenizer(self.gguf.metadata, self.config.vocab_size)

    @property
    def tokenizer_kind(self) -> str:
        """For people: its file, or what a GGUF file says it is."""
        if self.gguf is None:
            return TOKENIZER_FILE
        metadata = self.gguf.metadata
        kind = metadata.string("tokenizer.ggml.model", default="none")
        pre = metadata.string("tokenizer.ggml.pre", default="")
        return f"{kind}, pre {pre}" if pre else kind

    def generation(self) -> GenerationConfig:
        """What the authors recommend. Raises ModelLoadError."""
        if self.gguf is None:
            return read_generation_config(self.path, self.config.vocab_size)
        return metadata_generation(self.gguf.metadata)

    def _checkpoint(self) -> Checkpoint:
        if self.gguf is None:
            checkpoint, left_out = text_tensors(read_checkpoint(self.path))
            if left_out:
                names = ", ".join(left_out)
                logger.warning("%s: only the text is served, without %s", self.path, names)
            return checkpoint
        return Checkpoint(self.gguf.file, self.gguf.tensors, described_in="metadata")

    @property
    def described_in(self) -> Path:
        """The file that says what the model is."""
        return self.path / "config.json" if self.gguf is None else self.path


def _as_stored(config: ModelConfig, path: Path) -> ModelConfig:
    """`config` with what only the tensors of a directory say: how experts are stored."""
    if all(layer.mlp.experts is None for layer in config.layers):
        return config
    names = read_checkpoint(path).tensors
    return replace(config, fused_experts=any(map(_FUSED.fullmatch, names)))
