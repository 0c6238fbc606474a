"""A limit on the time that one completion decodes.

Owns the clock, and shows it to the engine as an abort flag like any other.
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
        """Whether the engine was shown that the time has passed."""

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
