"""A limit on the decoding time of one completion.

Owns the clock; to the engine it is an abort flag like any other.
"""

import time
from typing import Any

from engine import AbortFlag


class TimeLimit(AbortFlag):
    """Set with `flag`, or once `seconds` have passed since `start`."""

    def __init__(self, flag: AbortFlag, seconds: float) -> None:
        super().__init__()
        self._flag = flag
        self._seconds = seconds
        self._end: float | None = None
        self.is_over = False
        """Whether the engine was stopped because the time has passed."""

    def start(self) -> None:
        self._end = time.monotonic() + self._seconds

    def is_set(self) -> bool:
        if self._flag.is_set():
            return True
        if self._end is not None and time.monotonic() >= self._end:
            self.is_over = True
        return self.is_over

    def set(self) -> None:
        self._flag.set()

    def write_to(self, word: Any) -> None:
        self._flag.write_to(word)
