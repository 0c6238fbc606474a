"""The keys of one architecture in the metadata of a GGUF file.

Owns that their names begin with its own, and that some have one value for all layers or one for
each. Knows no key but the number of layers.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ..gguf.metadata import Metadata
from .limits import MAX_LAYERS

_HIGHEST = 1e6


class ArchitectureKeys:
    """Getters as those of `Metadata`, by the name without that of the architecture."""

    def __init__(self, metadata: Metadata, architecture: str) -> None:
        """Raises ModelLoadError for a file without a number of layers."""
        self._metadata = metadata
        self._architecture = architecture
        self._n_blocks = self.integer("block_count", low=1, high=MAX_LAYERS)
        predictors = "nextn_predict_layers"
        n_predictors = self.integer(predictors, low=0, high=self._n_blocks - 1, default=0)
        self.n_layers = self._n_blocks - n_predictors
        """Without those that predict more tokens, which come last."""

    def has(self, key: str) -> bool:
        return self._metadata.has(self._name(key))

    def get(self, key: str, default: object) -> Any:
        """The value as it is, of whatever type."""
        return self._metadata.values.get(self._name(key), default)

    def integer(self, key: str, *, low: int, high: int, default: int | None = None) -> int:
        return self._metadata.integer(self._name(key), low=low, high=high, default=default)

    def number(self, key: str, *, low: float, high: float, default: float | None = None) -> float:
        return self._metadata.number(self._name(key), low=low, high=high, default=default)

    def string(self, key: str, *, default: str | None = None) -> str:
        return self._metadata.string(self._name(key), default=default)

    def of_layers(
        self, key: str, *, high: int, low: int = 1, default: Sequence[int] | None = None
    ) -> Sequence[int]:
        """Between `low` and `high`, of each layer."""
        value = self.get(key, None)
        if value is None and default is not None:
            return default
        if not isinstance(value, np.ndarray):
            return [self.integer(key, low=low, high=high)] * self.n_layers
        numbers: list[int] = self._metadata.integers(self._name(key)).tolist()
        if len(numbers) != self._n_blocks or not all(low <= each <= high for each in numbers):
            allowed = (
                f"a number between {low} and {high}, or one for each of {self._n_blocks} layers"
            )
            self.fail(key, numbers, allowed)
        return numbers[: self.n_layers]

    def plain_numbers(self, key: str) -> list[float]:
        """Of each layer, under a name that does not begin with that of the architecture."""
        if not isinstance(self._metadata.values.get(key), np.ndarray):
            return [self._metadata.number(key, low=-_HIGHEST, high=_HIGHEST)] * self.n_layers
        numbers: list[float] = self._metadata.numbers(key).tolist()
        if len(numbers) != self._n_blocks or not all(abs(each) <= _HIGHEST for each in numbers):
            allowed = f"a number up to {_HIGHEST:g}, or one for each of {self._n_blocks} layers"
            self._metadata.fail(key, numbers, allowed)
        return numbers[: self.n_layers]

    def fail(self, key: str, value: object, allowed: str) -> NoReturn:
        self._metadata.fail(self._name(key), value, allowed)

    def _name(self, key: str) -> str:
        return f"{self._architecture}.{key}"
