"""generation_config.json: what the model's authors sample with, and where they stop.

Owns the file's keys. A silent file leaves the distribution as it is: the ecosystem's hidden default
(top-k 50) is not applied.
"""

from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidInputError, ModelLoadError
from ..files import JsonObject
from ..regular_file import is_there
from ..sampling.settings import SamplingSettings

GENERATION_FILE = "generation_config.json"


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """`eos_token_ids` is empty where the file names none."""

    settings: SamplingSettings
    eos_token_ids: tuple[int, ...]


def read_generation_config(path: Path, vocab_size: int) -> GenerationConfig:
    """Reads `path`/generation_config.json; a missing file is neutral. Raises ModelLoadError."""
    if not is_there(path / GENERATION_FILE):
        return GenerationConfig(SamplingSettings(), ())
    file = JsonObject.read(path / GENERATION_FILE)
    neutral = SamplingSettings()
    highest = 1e9  # the settings know their own intervals
    temperature = file.number("temperature", low=0.0, high=highest, default=neutral.temperature)
    if not file.boolean("do_sample", default=True):
        temperature = 0.0
    try:
        settings = SamplingSettings(
            temperature=temperature,
            top_k=file.integer("top_k", low=0, high=2**31 - 1, default=neutral.top_k),
            top_p=file.number("top_p", low=0.0, high=highest, default=neutral.top_p),
            min_p=file.number("min_p", low=0.0, high=highest, default=neutral.min_p),
            repetition_penalty=file.number(
                "repetition_penalty", low=0.0, high=highest, default=neutral.repetition_penalty
            ),
        )
    except InvalidInputError as error:
        raise ModelLoadError(f"{file.where}: {error}") from error
    return GenerationConfig(settings, file.token_ids("eos_token_id", vocab_size))
