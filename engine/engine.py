"""Engine.load: a model directory becomes something that generates.

Owns the composition: config, weights, tokenizer, template, cache and generator. Knows no HTTP.
One engine per process and device, not thread-safe by design: the caller serialises.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cache import KVCache
from .chat import encode_chat
from .checkpoint import StoredTensor, read_checkpoint
from .config import ModelConfig
from .constrain import ConstraintCompiler
from .draft import Speculator
from .errors import ModelLoadError, TemplateError
from .families import model_config
from .generation_config import read_generation_config
from .generator import StreamingGenerator
from .layout import kv_bytes_per_token
from .memory import check_weights_fit, context_length
from .model import Model
from .ops import Ops, open_ops
from .prefix import PrefixCache
from .sampling_settings import SamplingSettings
from .speculation import draft_source, open_speculator
from .template import ChatTemplate
from .tokenizer import Tokenizer
from .weights import check_tensors, load_weights, matrix_dtypes, weight_bytes

if TYPE_CHECKING:
    from .panel_cache import PanelCache

DEFAULT_MODEL = Path(__file__).parent / "default_model"


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """A loaded model with all that belongs to it."""

    model_id: str
    config: ModelConfig
    tokenizer: Tokenizer
    template: ChatTemplate | None
    model: Model
    generator: StreamingGenerator
    speculator: Speculator | None  # its counts of what drafts have brought
    max_seq_len: int
    default_settings: SamplingSettings  # of generation_config.json; neutral where it is silent
    eos_token_ids: tuple[int, ...]
    created: int  # when config.json was written, in seconds since 1970
    fingerprint: str  # changes with the weights, their format, the tokenizer and what computes

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: str = "auto",
        dtype: str = "auto",
        max_seq_len: int | None = None,
        *,
        quantize: str = "none",
        kv_cache: str = "auto",
        n_threads: int | None = None,
        require_native: bool = False,
        panel_cache: Path | None = None,
        speculate: str = "off",
        draft_model: Path | None = None,
        prefix_bytes: int = 0,
        prefix_directory: Path | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> "Engine":
        """Loads a Hugging Face directory of the Llama family.

        `device`: "auto" (CUDA where torch has it), "cpu", "cuda" or "cuda:N". `dtype`: "auto"
        (bfloat16 on CUDA; on the CPU as stored, without loss), "float32", "bfloat16" or, with
        torch, "float16". `quantize`: "none", "8bit" or "4bit", on the CPU. `kv_cache`: what keys
        and values are held in, on the CPU: "auto" (float32, beside quantised weights bfloat16),
        "float32", "bfloat16" or "8bit". `max_seq_len` None: the model's own, at most 8192 and what
        fits into memory. `n_threads`: of the CPU, for the whole process; None: all cores.
        `require_native`: refuse to compute on the CPU with torch. `panel_cache`: a directory where
        the packed weights of larger models are kept for the next start; None: nowhere, for a
        library writes only where it is told to. `speculate`: "off", "ngram" (what a text repeats of
        itself and of recent answers) or "draft" (and a draft model beside it, `draft_model` or the
        model's own). `prefix_bytes`: what copies of keys and values of past sequences may take in
        memory; what is put out goes to `prefix_directory`. `on_progress` gets (bytes read, bytes in
        all).

        Raises ModelLoadError with one line that names file, tensor or key, and reason.
        """
        path = _directory(path)
        # The cheap checks come first: a wrong tokenizer is told before gigabytes are read.
        config = model_config(path)
        generation = read_generation_config(path, config.vocab_size)
        tokenizer = Tokenizer.load(path, config.vocab_size)
        template = ChatTemplate.load(path)
        draft = draft_source(speculate, draft_model, path, config, tokenizer)
        tensors = check_tensors(read_checkpoint(path), config)
        ops = open_ops(
            device=device,
            dtype=dtype,
            quantize=quantize,
            kv_cache=kv_cache,
            stored_dtypes=matrix_dtypes(tensors),
            n_threads=n_threads,
            require_native=require_native,
        )
        needed = weight_bytes(config, ops.format)
        check_weights_fit(needed, ops.available_bytes())
        fingerprint = _fingerprint(path, tensors, ops)
        with _panels(panel_cache, tensors, ops, needed) as panels:
            weights = load_weights(tensors, config, ops, panels=panels, on_progress=on_progress)
        length = context_length(
            config,
            max_seq_len,
            bytes_per_token=sum(
                kv_bytes_per_token(each, ops.kv_format)
                for each in (config, *([draft.config] if draft else []))
            ),
            available=ops.available_bytes(),
        )
        model = Model(weights, config, ops, max_seq_len=length)
        cache = KVCache(config, ops, max_seq_len=length)
        speculator = open_speculator(speculate, draft, model, cache)
        prefix = PrefixCache(
            cache, byte_budget=prefix_bytes, directory=prefix_directory, fingerprint=fingerprint
        )
        eos_token_ids = generation.eos_token_ids or config.eos_token_ids or tokenizer.eos_token_ids
        return cls(
            model_id=_model_id(path),
            config=config,
            tokenizer=tokenizer,
            template=template,
            model=model,
            generator=StreamingGenerator(
                model,
                prefix,
                tokenizer,
                eos_token_ids=eos_token_ids,
                speculator=speculator,
                constraints=ConstraintCompiler(tokenizer, config.vocab_size, eos_token_ids),
            ),
            speculator=speculator,
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


def _panels(
    directory: Path | None, tensors: Mapping[str, StoredTensor], ops: Ops, n_bytes: int
) -> "AbstractContextManager[PanelCache | None]":
    if directory is None or not ops.packs:
        return nullcontext()
    from . import panel_cache  # needs the native module

    if n_bytes < panel_cache.SMALLEST_BYTES:
        return nullcontext()
    return panel_cache.open_panels(directory, tensors, ops.format, n_bytes=n_bytes)


def _model_id(path: Path) -> str:
    resolved = path.resolve()
    return "soliton-default" if resolved == DEFAULT_MODEL.resolve() else resolved.name


def _fingerprint(path: Path, tensors: Mapping[str, StoredTensor], ops: Ops) -> str:
    """Twelve digits that differ when the same request may get another answer.

    Of the files' contents only tokenizer.json is read; the weights count by header, size and time.
    """
    digest = hashlib.sha256(f"{ops.format} {ops.kv_format} {ops.name}".encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
    for file in sorted({tensor.file for tensor in tensors.values()}):
        stat = file.stat()
        digest.update(f"{stat.st_size} {stat.st_mtime_ns}".encode())
    digest.update((path / "config.json").read_bytes())
    digest.update((path / "tokenizer.json").read_bytes())
    return f"fp_{digest.hexdigest()[:12]}"
