"""What a GGUF file says about itself: values by key.

Owns the getters of its arrays. Knows no key by name.
"""

import numpy as np
import numpy.typing as npt

from ..files import Values, shown


class Metadata(Values):
    """int, float, bool, str; lists of str; arrays (n,) of numbers or bools."""

    def strings(self, key: str, *, default: list[str] | None = None) -> list[str]:
        value = self._get(key, default)
        if not isinstance(value, list):
            self.fail(key, value, "an array of strings")
        return value

    def integers(self, key: str) -> npt.NDArray[np.int64]:
        """An array (n,) of whole numbers."""
        value = self._get(key)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
            self.fail(key, value, "an array of integers")
        if value.dtype == np.uint64 and value.size and value.max() >= 2**63:
            self.fail(key, int(value.max()), "integers below 2^63")
        return value.astype(np.int64)

    def numbers(self, key: str) -> npt.NDArray[np.float64]:
        """An array (n,) of numbers, none of which is NaN."""
        value = self._get(key)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
            self.fail(key, value, "an array of numbers")
        if value.dtype.kind == "f" and np.isnan(value).any():
            self.fail(key, float("nan"), "an array of numbers without NaN")
        return value.astype(np.float64)

    def shown(self, value: object) -> str:
        is_array = isinstance(value, list | np.ndarray)
        return f"an array of {len(value)}" if is_array else shown(value)  # type: ignore[arg-type]
