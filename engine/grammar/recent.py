"""A least-recently-used cache that several threads may share.

Owns the order of use and the limits. Knows nothing about its values.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most `limit` values; evicts the least recently used."""

    def __init__(self, limit: int, *, max_weight: float = math.inf) -> None:
        """`max_weight`: of all values together; the newest stays, whatever it weighs."""
        self._limit = limit
        self._max_weight = max_weight
        self._weight = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: K, value: V, *, weight: int = 0) -> None:
        with self._lock:
            _, before = self._values.pop(key, (value, 0))
            self._values[key] = value, weight
            self._weight += weight - before
            while len(self._values) > self._limit or (
                self._weight > self._max_weight and len(self._values) > 1
            ):
                _, (_, oldest) = self._values.popitem(last=False)
                self._weight -= oldest
