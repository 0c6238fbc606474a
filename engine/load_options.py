"""How a model is loaded: one documented field per option.

Owns the options and their defaults. Knows no model and no device: the code that uses an option
checks its value against these.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from .errors import ModelLoadError

P = ParamSpec("P")
T = TypeVar("T")
TakesOptions = Callable[[type[T], str | Path, "LoadOptions"], T]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Device, number formats, context length, drafts and caches. By default nothing is written to
    disk. Raises ModelLoadError for a number of bytes below its minimum.
    """

    device: str = "auto"
    """Where the model runs: "auto" (CUDA if torch has it), "cpu", "cuda" or "cuda:N"."""
    dtype: str = "auto"
    """The format of the weights: "auto" (bfloat16 on CUDA; on the CPU as stored, without loss),
    "float32", "bfloat16" or, on CUDA, "float16".
    """
    max_seq_len: int | None = None
    """Context length in tokens. None means the model's own, at most 8192, what fits into memory
    and, with a rope scaling that depends on the length, the original one.
    """
    _: KW_ONLY
    quantize: str = "none"
    """Smaller weights: "none", "8bit", "4bit" or, on the CPU, "6bit" or "5bit"."""
    kv_cache: str = "auto"
    """The format of keys and values: "auto" (bfloat16 on CUDA; on the CPU float32, or bfloat16 with
    quantised weights), "bfloat16", "8bit" or, on the CPU, "float32". When torch computes, which on
    CUDA it does for float32 and float16, they have the format of the weights.
    """
    chat_template: Path | None = None
    """File with a chat template in Jinja's language. None means the model's own."""
    n_threads: int | None = None
    """CPU threads, for the whole process. None means all cores."""
    require_native: bool = False
    """Fail if the native kernels are missing, instead of falling back to torch."""
    panel_cache: Path | None = None
    """Directory that keeps the packed weights of larger models for the next start. None means no
    cache.
    """
    speculate: str = "off"
    """Drafts: "off", "ngram" (from the text so far and from recent answers), "draft" (also from a
    draft model), "mtp" (also from a block in the checkpoint that predicts more tokens) or "eagle"
    (also from an EAGLE-3 head).
    """
    draft_model: Path | None = None
    """The draft model, a directory or a GGUF file, or the folder of an EAGLE-3 head. None means the
    one in the model's directory.
    """
    prefix_bytes: int = 0
    """Memory for keys, values and states of past sequences. 0 keeps only the last sequence."""
    prefix_directory: Path | None = None
    """Directory for those that memory has no room for. None means that they are dropped."""
    prefix_disk_bytes: int = 2**32
    """Size limit of that directory, including the files of other models."""
    warm_up: bool = True
    """Whether `load` does what the first stream would wait for. If not, call `Engine.warm_up`."""
    on_progress: Callable[[int, int], None] | None = None
    """Called with (bytes read, bytes in total) while the weights are read."""

    def __post_init__(self) -> None:
        for name in ("prefix_bytes", "prefix_disk_bytes"):
            n_bytes = getattr(self, name)
            if n_bytes < 0:
                raise ModelLoadError(f"{name}: must be 0 or more, not {n_bytes}")


def fields_as_arguments(
    options: Callable[P, LoadOptions],
) -> Callable[[TakesOptions[T]], Callable[Concatenate[type[T], str | Path, P], T]]:
    """Lets a class method that takes LoadOptions be called with its fields instead.

    Type checkers and editors see each field, which `**fields: Any` would hide from them.
    """

    def decorate(load: TakesOptions[T]) -> Callable[Concatenate[type[T], str | Path, P], T]:
        @wraps(load)
        def with_fields(cls: type[T], path: str | Path, *args: P.args, **fields: P.kwargs) -> T:
            return load(cls, path, options(*args, **fields))

        own = (*signature(load).parameters.values(),)[:2]  # cls and path
        shown = Signature([*own, *signature(options).parameters.values()])
        with_fields.__signature__ = shown  # type: ignore[attr-defined]  # for help()
        return with_fields  # type: ignore[return-value]  # `path` may be a keyword, too

    return decorate
