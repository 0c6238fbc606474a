"""What one rendering of a template may use: steps, processor time and memory.

Owns the counters and how long a value is. Knows no filter and no method. Every value that a
template makes is bounded when it is made, with all that it holds counted as often as it is held; so
whatever walks a value later, as comparing or writing it does, takes a bounded time.
"""

import sys
import time
from typing import Any

from jinja2.runtime import Context

MAX_STEPS = 4_000_000
MAX_SECONDS = 2.0  # of processor time of the thread
MAX_BYTES = 256 * 1024 * 1024
"""Of all values that one rendering makes, even if it forgets them at once."""
MAX_LENGTH = 16 * 1024 * 1024
"""Of one value: its characters, and LENGTH_OF_ITEM for each thing that it holds."""
LENGTH_OF_ITEM = 32
MAX_BITS = 16_384
"""Of numbers that are multiplied or divided."""

_STEPS_PER_LOOK = 16  # at the clock
_LARGE = 64 * 1024
_NONE: dict[str, str] = {}
_LISTS: tuple[type, ...] = (
    list, tuple, set, frozenset, type(_NONE.keys()), type(_NONE.values()), type(_NONE.items()),
)  # fmt: skip


class TemplateLimitError(Exception):
    """A rendering would go beyond one of its limits; the message says which."""


class Budget:
    """The rest of what one rendering may use."""

    def __init__(self) -> None:
        self._bytes_left = MAX_BYTES
        self._n_steps = 0
        self._deadline = time.thread_time() + MAX_SECONDS

    def step(self, n_bytes: int = 0) -> None:
        """Counts one thing done, which takes `n_bytes` of memory."""
        self._n_steps += 1
        if n_bytes:
            self._bytes_left -= n_bytes
            if self._bytes_left < 0:
                raise TemplateLimitError(f"made more than {MAX_BYTES} bytes of values")
        if self._n_steps % _STEPS_PER_LOOK == 0 or n_bytes > _LARGE:
            self._look()

    def made(self, value: Any) -> Any:
        """Counts a step that made `value`; returns it."""
        if isinstance(value, str):
            if len(value) > MAX_LENGTH:
                self.check_length(len(value))
            self.step(sys.getsizeof(value))
        elif isinstance(value, (dict, *_LISTS)):
            length = length_of(value)
            self.check_length(length)
            self.step(sys.getsizeof(value))
            if length > _LARGE:
                self._look()
        else:
            self.step()
        return value

    def check_length(self, n: int) -> None:
        """Refuses a value of length `n`, before or after it is made."""
        if n > MAX_LENGTH:
            raise TemplateLimitError(f"made a value of more than {MAX_LENGTH} characters")
        self.check_bytes(n)

    def _look(self) -> None:
        if self._n_steps > MAX_STEPS:
            raise TemplateLimitError(f"took more than {MAX_STEPS} steps")
        if time.thread_time() > self._deadline:
            raise TemplateLimitError(f"ran for more than {MAX_SECONDS:g} s")

    def check_bytes(self, n: int) -> None:
        """Refuses what will take `n` bytes."""
        if n > self._bytes_left:
            raise TemplateLimitError(f"made more than {MAX_BYTES} bytes of values")


class BudgetContext(Context):
    """The variables of one rendering, and what is left of its budget."""

    budget: Budget

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        """A context within this one, on the same budget."""
        context = super().derived(locals)
        assert isinstance(context, BudgetContext)
        context.budget = self.budget
        return context


def length_of(value: Any) -> int:
    """What MAX_LENGTH bounds, or a little more than MAX_LENGTH where it is more than that."""
    length = 0
    waiting: list[Any] = [(value,)]
    while waiting and length <= MAX_LENGTH:
        for item in waiting.pop():
            length += LENGTH_OF_ITEM
            if isinstance(item, str):
                length += len(item)
            elif isinstance(item, int):
                length += item.bit_length() // 3
            elif isinstance(item, dict):
                waiting += (item.keys(), item.values())
            elif isinstance(item, _LISTS):
                waiting.append(item)
            if length > MAX_LENGTH:
                break
    return length
