"""Engine.load: a model directory becomes something that generates.

Owns the composition: config, weights, tokenizer, template, cache and generator. Knows no HTTP.
One engine per process and device, not thread-safe by design: the caller serialises.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .cache import KVCache
from .chat import encode_chat
from .checkpoint import Checkpoint, read_checkpoint
from .config import ModelConfig
from .errors import ModelLoadError, TemplateError
from .families import model_config
from .generation_config import read_generation_config
from .generator import StreamingGenerator
from .memory import available_bytes, check_weights_fit, context_length
from .model import Model
from .sampling import SamplingSettings
from .template import ChatTemplate
from .tokenizer import Tokenizer
from .weights import load_weights

DEFAULT_MODEL = Path(__file__).parent / "default_model"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """A loaded model with all that belongs to it."""

    model_id: str
    config: ModelConfig
    tokenizer: Tokenizer
    template: ChatTemplate | None
    generator: StreamingGenerator
    max_seq_len: int
    default_settings: SamplingSettings  # of generation_config.json; neutral where it is silent
    eos_token_ids: tuple[int, ...]
    created: int  # when config.json was written, in seconds since 1970
    fingerprint: str  # changes with the weights, the tokenizer, the dtype and the kind of device

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: str = "auto",
        dtype: str = "auto",
        max_seq_len: int | None = None,
        *,
        on_progress: Callable[[int, int], None] | None = None,
        n_threads: int | None = None,
    ) -> "Engine":
        """Loads a Hugging Face directory of the Llama family.

        `device`: "auto" (CUDA where torch has it), "cpu", "cuda" or "cuda:N". `dtype`: "auto"
        (float32 on the CPU, bfloat16 on CUDA), "float32", "bfloat16" or "float16". `max_seq_len`
        None: the model's own, at most 8192 and what fits into memory. `on_progress` gets (bytes
        read, bytes in all). `n_threads`: threads of torch's CPU operations, for the whole process.

        Raises ModelLoadError with one line that names file, tensor or key, and reason.
        """
        path = _directory(path)
        torch_device = _device(device)
        torch_dtype = _dtype(dtype, torch_device)
        if n_threads is not None:
            if n_threads < 1:
                raise ModelLoadError(f"n_threads: must be 1 or more, not {n_threads}")
            torch.set_num_threads(n_threads)
        # The cheap checks come first: a wrong tokenizer is told before gigabytes are read.
        config = model_config(path)
        generation = read_generation_config(path, config.vocab_size)
        tokenizer = Tokenizer.load(path, config.vocab_size)
        template = ChatTemplate.load(path)
        fingerprint = _fingerprint(path, read_checkpoint(path), torch_dtype, torch_device)
        element_bytes = torch_dtype.itemsize
        available = available_bytes(torch_device)
        check_weights_fit(config, element_bytes=element_bytes, available=available)
        weights = load_weights(
            path, config, device=torch_device, dtype=torch_dtype, on_progress=on_progress
        )
        length = context_length(
            config,
            max_seq_len,
            element_bytes=element_bytes,
            available=available_bytes(torch_device),
        )
        model = Model(weights, config, device=torch_device, dtype=torch_dtype, max_seq_len=length)
        cache = KVCache(config, max_seq_len=length, device=torch_device, dtype=torch_dtype)
        eos_token_ids = generation.eos_token_ids or config.eos_token_ids or tokenizer.eos_token_ids
        return cls(
            model_id=_model_id(path),
            config=config,
            tokenizer=tokenizer,
            template=template,
            generator=StreamingGenerator(model, cache, tokenizer, eos_token_ids=eos_token_ids),
            max_seq_len=length,
            default_settings=generation.settings,
            eos_token_ids=eos_token_ids,
            created=int((path / "config.json").stat().st_mtime),
            fingerprint=fingerprint,
        )

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Prompt ids of `messages`, of which no text can become a control token.

        Raises TemplateError (no template, or it refuses the messages) and InvalidInputError.
        """
        if self.template is None:
            raise TemplateError(f"{self.model_id} has no chat template")
        return encode_chat(
            self.template, self.tokenizer, messages, add_generation_prompt=add_generation_prompt
        )


def _directory(path: str | Path) -> Path:
    path = Path(path)
    if not path.exists():
        raise ModelLoadError(f"{path}: does not exist")
    if not path.is_dir():
        raise ModelLoadError(f"{path}: is no directory; a model is a Hugging Face directory")
    if not (path / "config.json").exists():
        raise ModelLoadError(f"{path}: is no model: config.json is missing")
    return path


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not (kind == "cuda" and index.isdecimal())):
        raise ModelLoadError(f"device: must be auto, cpu, cuda or cuda:N, not {name!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError(f"device: {name}: torch finds no CUDA device")
    if index and int(index) >= torch.cuda.device_count():
        raise ModelLoadError(f"device: {name}: torch finds {torch.cuda.device_count()} devices")
    return torch.device(name)


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in _DTYPES:
        raise ModelLoadError(f"dtype: must be auto, {', '.join(_DTYPES)}, not {name!r}")
    return _DTYPES[name]


def _model_id(path: Path) -> str:
    resolved = path.resolve()
    return "soliton-default" if resolved == DEFAULT_MODEL.resolve() else resolved.name


def _fingerprint(
    path: Path, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device
) -> str:
    """Twelve digits that differ when the same request may get another answer.

    Of the files' contents only tokenizer.json is read; the weights count by header, size and time.
    """
    digest = hashlib.sha256(f"{dtype} {device.type} {torch.__version__}".encode())
    for name, tensor in sorted(checkpoint.tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
    for file in sorted({tensor.file for tensor in checkpoint.tensors.values()}):
        stat = file.stat()
        digest.update(f"{stat.st_size} {stat.st_mtime_ns}".encode())
    digest.update((path / "config.json").read_bytes())
    digest.update((path / "tokenizer.json").read_bytes())
    return f"fp_{digest.hexdigest()[:12]}"
