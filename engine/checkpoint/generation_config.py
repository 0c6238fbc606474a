"""The sampling and the stop tokens that a model's authors recommend: generation_config.json, or
keys of a GGUF file.

Owns the file's keys. A missing key stays missing: the ecosystem's hidden default (top-k 50) is not
applied. Knows no sampler; that checks the values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import JsonObject, is_there
from ..gguf.metadata import Metadata

GENERATION_FILE = "generation_config.json"
_HIGHEST = 1e9  # the sampler checks the range of each setting
_METADATA = {
    "temperature": "temp",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """`sampling` has the given values by name of the setting; `eos_token_ids` is empty if the file
    has none.
    """

    where: str
    """The file, for messages."""
    sampling: Mapping[str, Any]
    eos_token_ids: tuple[int, ...]


def read_generation_config(path: Path, vocab_size: int) -> GenerationConfig:
    """Reads `path`/generation_config.json, if it exists. Raises ModelLoadError."""
    where = path / GENERATION_FILE
    if not is_there(where):
        return GenerationConfig(str(where), {}, ())
    file = JsonObject.read(where)
    sampling: dict[str, Any] = {
        key: file.number(key, low=0.0, high=_HIGHEST)
        for key in ("temperature", "top_p", "min_p", "repetition_penalty")
        if file.values.get(key) is not None
    }
    if file.values.get("top_k") is not None:
        sampling["top_k"] = file.integer("top_k", low=0, high=2**31 - 1)
    if not file.boolean("do_sample", default=True):
        sampling["temperature"] = 0.0
    return GenerationConfig(file.where, sampling, file.token_ids("eos_token_id", vocab_size))


def metadata_generation(metadata: Metadata) -> GenerationConfig:
    """The keys `general.sampling.*`, which few files have. Raises ModelLoadError."""
    sampling: dict[str, Any] = {
        setting: metadata.number(key, low=0.0, high=_HIGHEST)
        for setting, name in _METADATA.items()
        if metadata.has(key := f"general.sampling.{name}")
    }
    if metadata.has("general.sampling.top_k"):
        sampling["top_k"] = metadata.integer("general.sampling.top_k", low=0, high=2**31 - 1)
    return GenerationConfig(metadata.where, sampling, ())
