"""A limit on the decoding time of one completion.

Owns the clock; to the engine it is an abort flag like any other.
"""

import time
from typing import Any

from engine import AbortFlag


class TimeLimit(AbortFlag):
    """Set with `flag`, by `stop`, or once `seconds` have passed since `start`; None: never."""

    def __init__(self, flag: AbortFlag, seconds: float | None) -> None:
        super().__init__()
        self._flag = flag
        self._seconds = seconds
        self._end: float | None = None
        self.is_over = False
        """Whether the engine was stopped because the time has passed."""
        self.is_stopped = False

    def start(self) -> None:
        if self._seconds is not None:
            self._end = time.monotonic() + self._seconds

    def stop(self) -> None:
        """Between two steps."""
        self.is_stopped = True

    def is_set(self) -> bool:
        if self._flag.is_set() or self.is_stopped:
            return True
        if self._end is not None and time.monotonic() >= self._end:
            self.is_over = True
        return self.is_over

    def set(self) -> None:
        self._flag.set()

    def write_to(self, word: Any) -> None:
        self._flag.write_to(word)
