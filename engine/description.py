"""What a model directory holds, without loading the weights.

Owns the summary that `inspect` prints. Reads config.json and the headers of the safetensors files.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .chat.template.template import ChatTemplate
from .checkpoint.config import ModelConfig
from .checkpoint.tensors import matrix_dtypes
from .device.formats import kv_bytes_per_token, kv_format, stored_format
from .device.mixed import mixed_formats
from .model.weights import weight_bytes
from .model_files import ModelFiles
from .text.tokenizer import Tokenizer

# Which part of a split file it is.
_PART = re.compile(r"-\d{5}-of-\d{5}$")
DEFAULT_MODEL = Path(__file__).parent / "default_model"


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A model directory that passed every check that needs no weights."""

    path: Path
    model_id: str  # its name in the API, unless the server gives it others
    config: ModelConfig
    n_params: int  # as config.json implies; a tied head counts once
    stored_bytes: Mapping[str, int]  # bytes per stored dtype ("BF16"), of the tensors in use
    n_files: int  # safetensors files
    n_tokens: int  # ids that the tokenizer uses
    has_chat_template: bool
    default_format: str  # of the weights on the CPU, unless options say otherwise

    def weight_bytes(self, format_: str) -> int:
        """Bytes of the weights, loaded on the CPU in `format_` (a dtype, or 8bit to 4bit)."""
        return weight_bytes(self.config, mixed_formats(self.config, format_))

    def kv_bytes(self, n_tokens: int, format_: str, kv_cache: str = "auto") -> int:
        """Bytes of the KV cache for a context of `n_tokens`, with weights in `format_`.

        Raises ModelLoadError for an unknown `kv_cache`.
        """
        return n_tokens * kv_bytes_per_token(self.config, kv_format(kv_cache, format_))

    def memory_bytes(self, n_tokens: int, format_: str, kv_cache: str = "auto") -> int:
        """Weights and KV cache together; working memory comes on top (tens of megabytes)."""
        return self.weight_bytes(format_) + self.kv_bytes(n_tokens, format_, kv_cache)


def describe(path: str | Path) -> ModelDescription:
    """Reads the headers of the model in directory `path`. Raises ModelLoadError."""
    files = ModelFiles.open(path)
    config, tensors = files.config, files.tensors()
    tokenizer = files.tokenizer()
    stored_bytes: dict[str, int] = {}
    for tensor in tensors.values():
        stored_bytes[tensor.dtype] = stored_bytes.get(tensor.dtype, 0) + tensor.n_bytes
    return ModelDescription(
        path=files.path,
        model_id=model_id(files.path),
        config=config,
        n_params=sum(math.prod(tensor.shape) for tensor in tensors.values()),
        stored_bytes=stored_bytes,
        n_files=len({tensor.file for tensor in tensors.values()}),
        n_tokens=tokenizer.vocab_size,
        has_chat_template=chat_template(files, tokenizer) is not None,
        default_format=stored_format(matrix_dtypes(tensors)),
    )


def chat_template(
    files: ModelFiles, tokenizer: Tokenizer, file: Path | None = None
) -> ChatTemplate | None:
    """The model's own template, or the one in `file`. Raises ModelLoadError."""
    if files.gguf is None:
        return ChatTemplate.load(files.path, file)
    return ChatTemplate.of_metadata(files.gguf.metadata, tokenizer.special_tokens, file)


def model_id(path: Path) -> str:
    """The name of the model in a directory: that of the directory, or ORG/NAME in the cache of the
    Hub, which has it in models--ORG--NAME/snapshots/COMMIT. A GGUF file's is its own name.
    """
    if not path.is_dir():  # a link keeps its name: in caches it leads to a digest
        return _PART.sub("", path.name.removesuffix(".gguf"))
    resolved = path.resolve()
    if resolved == DEFAULT_MODEL.resolve():
        return "soliton-default"
    repository = resolved.parent.parent.name
    if resolved.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.removeprefix("models--").replace("--", "/")
    return resolved.name
