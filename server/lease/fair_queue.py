"""Who is next: the keys take turns, and within a key requests keep their order of arrival.

Owns the order and nothing else: no thread, no clock, no limit. With one key it is a plain queue.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """Items that wait, each under a key; no item twice.

    Keys take turns. The key that had the last turn comes after all others, even those that begin to
    wait only now.
    """

    def __init__(self) -> None:
        # Keys in order of their turns, each with its items in order of arrival. No empty keys.
        self._waiting: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        self._length = 0
        self._last_key: str | None = None

    def __len__(self) -> int:
        return self._length

    def append(self, key: str, item: T) -> None:
        self._waiting.setdefault(key, OrderedDict())[item] = None
        self._length += 1

    def pop(self) -> T:
        """Take out the next item. Raises KeyError when the queue is empty."""
        if self._last_key is not None and self._last_key in self._waiting:
            self._waiting.move_to_end(self._last_key)
        key = self._last_key = next(iter(self._waiting), "")
        item, _ = self._waiting[key].popitem(last=False)
        self._forget(key)
        return item

    def remove(self, key: str, item: T) -> bool:
        """Take out an item wherever it waits. Returns whether it was waiting."""
        items = self._waiting.get(key)
        if items is None or item not in items:
            return False
        del items[item]
        self._forget(key)
        return True

    def count(self, key: str) -> int:
        """How many items wait under a key."""
        return len(self._waiting.get(key, ()))

    @property
    def greediest(self) -> str:
        """The key under which most items wait. The queue must not be empty."""
        return max(self._waiting, key=self.count)

    def take_newest(self, key: str) -> T:
        """Take out the newest item under a key under which some wait."""
        item, _ = self._waiting[key].popitem()
        self._forget(key)
        return item

    def position(self, key: str, item: T) -> int | None:
        """How many items come before this one, if nothing changes; None if it does not wait. Takes
        time linear in the length of the queue.
        """
        items = self._waiting.get(key, OrderedDict[T, None]())
        if item not in items:
            return None
        rounds = next(i for i, other in enumerate(items) if other == item)
        position, is_before = rounds, True
        for other_key, others in self._waiting.items():
            if other_key == key:
                is_before = key == self._last_key
            else:
                in_this_round = is_before and other_key != self._last_key
                position += min(len(others), rounds + in_this_round)
        return position

    def clear(self) -> list[T]:
        """Take out all items, in the order of their turns."""
        return [self.pop() for _ in range(self._length)]

    def _forget(self, key: str) -> None:
        self._length -= 1
        if not self._waiting[key]:
            del self._waiting[key]
