"""What a model's files hold, without loading the weights.

Owns the summary that `inspect` prints. Reads config.json and the headers of the weights.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .cache.states import snapshot_bytes, state_bytes
from .chat.template.template import ChatTemplate
from .checkpoint.config import ModelConfig
from .checkpoint.tensors import matrix_dtypes, model_sources
from .device.formats import STORED, kv_format, stored_format
from .device.mixed import ModelFormats, mixed_formats, stored_formats
from .device.windows import PASS_ROWS, kv_bytes
from .model.stored_groups import StoredGroup, stored_groups
from .model.weights import step_bytes, weight_bytes
from .model_files import ModelFiles
from .text.tokenizer import Tokenizer

# Which part of a split file it is.
_PART = re.compile(r"-\d{5}-of-\d{5}$")
DEFAULT_MODEL = Path(__file__).parent / "default_model"


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A model that passed every check that needs no weights."""

    path: Path
    model_id: str  # its name in the API, unless the server gives it others
    config: ModelConfig
    n_params: int  # of the tensors in use; a tied head counts once
    stored_bytes: Mapping[str, int]  # bytes per stored dtype ("BF16"), of the tensors in use
    dtypes: Mapping[str, str]  # of these tensors, by name
    groups: Sequence[StoredGroup]  # the same tensors by their part, loaded in `default_format`
    is_gguf: bool
    n_files: int  # safetensors or GGUF files
    n_tokens: int  # ids that the tokenizer uses
    tokenizer: str  # where it comes from, or its kind
    has_chat_template: bool
    default_format: str  # of the weights on the CPU, unless options say otherwise; or STORED
    table_bytes: int = 0  # of the embeddings of each layer, which are not loaded

    def weight_bytes(self, format_: str) -> int:
        """Bytes of the weights, loaded on the CPU in `format_` (a dtype, 8bit to 4bit, STORED)."""
        return weight_bytes(self.config, _formats(self.config, self.dtypes, format_))

    def step_bytes(self, format_: str) -> int:
        """Those of them that are read for each token."""
        return step_bytes(self.config, _formats(self.config, self.dtypes, format_))

    def kv_bytes(self, n_tokens: int, format_: str, kv_cache: str = "auto") -> int:
        """Bytes of the KV cache for a context of `n_tokens`, with weights in `format_`.

        Raises ModelLoadError for an unknown `kv_cache`.
        """
        return kv_bytes(self.config, kv_format(kv_cache, format_), n_tokens, PASS_ROWS)

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of recurrent layers, whatever the context."""
        return state_bytes(self.config)

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of a copy of these states in the prefix cache."""
        return snapshot_bytes(self.config)

    def memory_bytes(self, n_tokens: int, format_: str, kv_cache: str = "auto") -> int:
        """Weights and KV cache together, with the states of recurrent layers; working memory comes
        on top (tens of megabytes).
        """
        weights, kv = self.weight_bytes(format_), self.kv_bytes(n_tokens, format_, kv_cache)
        return weights + kv + self.state_bytes


def describe(path: str | Path) -> ModelDescription:
    """Reads the headers of a model, a directory or a GGUF file. Raises ModelLoadError."""
    files = ModelFiles.open(path)
    config, tensors = files.config, files.tensors()
    tokenizer = files.tokenizer()
    stored_bytes: dict[str, int] = {}
    for tensor in tensors.values():
        stored_bytes[tensor.dtype] = stored_bytes.get(tensor.dtype, 0) + tensor.n_bytes
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
    default_format = stored_format(matrix_dtypes(tensors))
    return ModelDescription(
        path=files.path,
        model_id=model_id(files.path),
        config=config,
        n_params=sum(math.prod(tensor.shape) for tensor in tensors.values()),
        stored_bytes=stored_bytes,
        dtypes=dtypes,
        groups=stored_groups(config, tensors, _formats(config, dtypes, default_format)),
        is_gguf=files.gguf is not None,
        n_files=len({tensor.file for tensor in tensors.values()}),
        n_tokens=tokenizer.vocab_size,
        tokenizer=files.tokenizer_kind,
        has_chat_template=chat_template(files, tokenizer) is not None,
        default_format=default_format,
        table_bytes=sum(tensors[each.name].n_bytes for each in model_sources(config).layer_table),
    )


def _formats(config: ModelConfig, dtypes: Mapping[str, str], format_: str) -> ModelFormats:
    if format_ == STORED:
        return stored_formats(config, dtypes)
    return mixed_formats(config, format_)


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
