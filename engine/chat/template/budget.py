"""What one rendering of a template may use: steps, bytes and, as a last resort, CPU time.

Owns the counters and the measure of a value's size. Knows no filter and no method. Steps and bytes
depend on the template and its arguments alone, so every machine accepts or refuses the same
renderings. Every value that a template makes is bounded when it is made; what it holds counts each
time that it is held. So a later walk over a value, such as comparing or writing it, can be counted
before it is done.
"""

import time
from typing import Any

from jinja2.runtime import Context

MAX_STEPS = 2_000_000
"""Operations; an operation on a whole text counts by its length."""
MAX_SECONDS = 30.0
"""CPU time of the thread. No rendering that was tried comes near it within its steps."""
MAX_BYTES = 256 * 1024 * 1024
"""All values that one rendering makes, even if it drops them at once."""
MAX_LENGTH = 16 * 1024 * 1024
"""One value: its characters, and LENGTH_OF_ITEM for each item that it holds."""
LENGTH_OF_ITEM = 32
MAX_BITS = 16_384
"""Size of numbers that are multiplied or divided."""

# Steps are counted in units, so that small pieces of work can be added up.
_UNITS = 1024  # per step; one unit per character that is found, compared or copied
_UNITS_PER_CHANGED = 32  # per character that is changed or written anew
_UNITS_PER_VISIT = 128  # per item that a walk visits
_STEPS_PER_LOOK = 4096  # between looks at the clock
_BYTES_OF_VALUE = 64
_BYTES_OF_OBJECT = 256
_BYTES_PER_ITEM = 16
_BYTES_PER_ENTRY = 128
# The most that a character, or an item, takes when a value is written as text.
_BYTES_PER_WRITTEN = 12
_LONGEST_FOUND = 100  # the time to find longer texts does not grow with their length
_NONE: dict[str, str] = {}
_LISTS: tuple[type, ...] = (
    list, tuple, set, frozenset, type(_NONE.keys()), type(_NONE.values()), type(_NONE.items()),
)  # fmt: skip
_HOLDERS = (dict, *_LISTS)
_NUMBERS = (int, float, type(None))


class TemplateLimitError(Exception):
    """A rendering would exceed one of its limits; the message says which."""


class Budget:
    """What one rendering may still use."""

    def __init__(self) -> None:
        self._bytes_left = MAX_BYTES
        self._units_left = MAX_STEPS * _UNITS
        self._next_look = self._units_left - _STEPS_PER_LOOK * _UNITS
        self._deadline = time.thread_time() + MAX_SECONDS

    @property
    def n_steps(self) -> int:
        return MAX_STEPS - self._units_left // _UNITS

    @property
    def n_bytes(self) -> int:
        return MAX_BYTES - self._bytes_left

    def step(self, n_bytes: int = 0) -> None:
        """Counts one operation, which takes `n_bytes` of memory."""
        self._units_left -= _UNITS
        if self._units_left < self._next_look:
            self._look()
        self._bytes_left -= n_bytes
        if self._bytes_left < 0:
            raise TemplateLimitError(f"made more than {MAX_BYTES} bytes of values")

    def look_at(self, n: int) -> None:
        """Counts `n` characters that are found, compared or copied."""
        self._spend(n)

    def change(self, n: int) -> None:
        """Counts `n` characters that are each changed or written anew."""
        self._spend(n * _UNITS_PER_CHANGED)

    def visit(self, n: int) -> None:
        """Counts `n` items that are walked over."""
        self._spend(n * _UNITS_PER_VISIT)

    def find(self, part: str, text: str) -> None:
        """Counts looking for `part` in all of `text`."""
        self._spend(len(text) * (1 + min(len(part), _LONGEST_FOUND) // 16))

    def write(self, value: Any) -> None:
        """Counts the intermediate memory and work of writing a value as text or JSON; a text counts
        by its length.
        """
        length = len(value) + LENGTH_OF_ITEM if isinstance(value, str) else self.length_of(value)
        self.change(length)
        self.step(_BYTES_PER_WRITTEN * length)

    def compare(self, left: Any, right: Any) -> None:
        """Counts comparing two values, which reads no more than the size of the smaller one."""
        if isinstance(left, str):
            if isinstance(right, str):
                self._spend(min(len(left), len(right)))
        elif isinstance(left, _HOLDERS) and isinstance(right, _HOLDERS):
            self._spend(min(self.length_of(left), self.length_of(right)))

    def contain(self, item: Any, values: Any) -> None:
        """Counts looking for `item` in `values`."""
        if isinstance(values, str):
            if isinstance(item, str):
                self.find(item, values)
        elif isinstance(item, str) and len(item) > _UNITS and isinstance(values, _LISTS):
            self._spend(self.length_of(values))
        elif isinstance(item, _HOLDERS):
            self._spend(self.length_of(item) + self.length_of(values))
        elif isinstance(values, (range, *_LISTS)):
            self.visit(len(values))  # type: ignore[arg-type]

    def made(self, value: Any) -> Any:
        """Counts a step that made `value`, and returns the value."""
        if isinstance(value, str):
            n = len(value)
            if n > MAX_LENGTH:
                self.check_length(n)
            self._units_left -= n
            self.step(_BYTES_OF_VALUE + (n if value.isascii() else 4 * n))
        elif isinstance(value, _HOLDERS):
            self.check_length(self.length_of(value))
            keyed = not isinstance(value, list | tuple)
            one = _BYTES_PER_ENTRY if keyed else _BYTES_PER_ITEM
            self.step(_BYTES_OF_VALUE + one * len(value))  # type: ignore[arg-type]
        else:
            self.step(0 if isinstance(value, _NUMBERS) else _BYTES_OF_OBJECT)
        return value

    def made_parts(self, parts: list[str] | tuple[str, ...]) -> None:
        """Counts the texts of a new list, but not the list."""
        self.step(_BYTES_OF_VALUE * len(parts) + sum(map(bytes_of, parts)))

    def length_of(self, value: Any) -> int:
        """The length that MAX_LENGTH bounds; for longer values a little more than MAX_LENGTH.

        Counts the walk, not the characters.
        """
        length, n_visited = length_of(value)
        self._spend(n_visited * _UNITS_PER_VISIT)
        return length

    def check_length(self, n: int) -> None:
        """Refuses a value of length `n`, before or after it is made."""
        if n > MAX_LENGTH:
            raise TemplateLimitError(f"made a value of more than {MAX_LENGTH} characters")
        self.check_bytes(n)

    def check_bytes(self, n: int) -> None:
        """Refuses an operation that will take `n` bytes, if fewer are left."""
        if n > self._bytes_left:
            raise TemplateLimitError(f"made more than {MAX_BYTES} bytes of values")

    def _spend(self, units: int) -> None:
        self._units_left -= units
        if self._units_left < self._next_look:
            self._look()

    def _look(self) -> None:
        if self._units_left < 0:
            raise TemplateLimitError(f"took more than {MAX_STEPS} steps")
        self._next_look = max(0, self._units_left - _STEPS_PER_LOOK * _UNITS)
        if time.thread_time() > self._deadline:
            raise TemplateLimitError(f"ran for more than {MAX_SECONDS:g} s")


class BudgetContext(Context):
    """The variables of one rendering, and its budget."""

    budget: Budget

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        """A context within this one, on the same budget."""
        context = super().derived(locals)
        assert isinstance(context, BudgetContext)
        context.budget = self.budget
        return context


def bytes_of(text: str) -> int:
    """The most that its characters take in memory."""
    return len(text) if text.isascii() else 4 * len(text)


def length_of(value: Any) -> tuple[int, int]:
    """The length of a value, and the number of items visited to measure it."""
    length = n_visited = 0
    waiting: list[Any] = [(value,)]
    while waiting and length <= MAX_LENGTH:
        for item in waiting.pop():
            n_visited += 1
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
    return length, n_visited
