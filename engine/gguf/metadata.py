"""What a GGUF file says about itself: values by key.

Owns getters whose errors name file, key, value and what is allowed, in the manner of
`engine/files.py`. Knows no key by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

import numpy as np
import numpy.typing as npt

from ..errors import ModelLoadError
from ..files import shown, shown_name


@dataclass(frozen=True, slots=True)
class Metadata:
    """A getter with a default returns it for a missing key; without one it raises."""

    where: str
    """The file, for errors."""
    values: Mapping[str, Any]
    """int, float, bool, str; lists of str; arrays (n,) of numbers or bools."""

    def has(self, key: str) -> bool:
        return key in self.values

    def integer(self, key: str, *, low: int, high: int, default: int | None = None) -> int:
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.fail(key, value, f"an integer between {low} and {high}")
        return value

    def number(self, key: str, *, low: float, high: float, default: float | None = None) -> float:
        value = self._get(key, default)
        if not _is_number(value) or not low <= value <= high:
            self.fail(key, value, f"a number between {low:g} and {high:g}")
        return float(value)

    def boolean(self, key: str, *, default: bool | None = None) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            self.fail(key, value, "a bool")
        return value

    def string(self, key: str, *, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            self.fail(key, value, "a string")
        return value

    def strings(self, key: str, *, default: list[str] | None = None) -> list[str]:
        value = self._get(key, default)
        if not isinstance(value, list):
            self.fail(key, value, "an array of strings")
        return value

    def integers(self, key: str) -> npt.NDArray[np.int64]:
        """An array (n,) of whole numbers."""
        value = self._get(key, None)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
            self.fail(key, value, "an array of integers")
        if value.dtype == np.uint64 and value.size and value.max() >= 2**63:
            self.fail(key, int(value.max()), "integers below 2^63")
        return value.astype(np.int64)

    def numbers(self, key: str) -> npt.NDArray[np.float64]:
        """An array (n,) of numbers, none of which is NaN."""
        value = self._get(key, None)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
            self.fail(key, value, "an array of numbers")
        if value.dtype.kind == "f" and np.isnan(value).any():
            self.fail(key, float("nan"), "an array of numbers without NaN")
        return value.astype(np.float64)

    def fail(self, key: str, value: object, allowed: str) -> NoReturn:
        is_array = isinstance(value, list | np.ndarray)
        said = f"an array of {len(value)}" if is_array else shown(value)  # type: ignore[arg-type]
        raise ModelLoadError(f"{self.where}: {shown_name(key)}: must be {allowed}, not {said}")

    def _get(self, key: str, default: object) -> Any:
        value = self.values.get(key, default)
        if value is None:
            raise ModelLoadError(f"{self.where}: {shown_name(key)}: missing")
        return value


def _is_number(value: object) -> TypeGuard[float]:
    """NaN is not a number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
