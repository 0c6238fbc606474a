"""Who is next among requests for several models: each model has a queue, and the models take turns.

Owns the order and nothing else: no thread, no clock, no limit. Whether a model's turn may end is
the caller's to say. With one model it is that model's fair queue.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from .fair_queue import FairQueue

M = TypeVar("M", bound=Hashable)
T = TypeVar("T", bound=Hashable)


class ModelQueue(Generic[M, T]):
    """Items that wait, each under a model and a key; no item twice.

    A model is free if no other one has to leave memory for it. Free models take turns, item by
    item. Another one gets its turn when `pop` may swap, and then before every model that has had
    one since it began to wait.
    """

    def __init__(
        self,
        is_free: Callable[[M], bool],
        new_queue: Callable[[], FairQueue[T]] = FairQueue,
    ) -> None:
        self._is_free = is_free
        self._new_queue = new_queue
        # A queue stays when it is empty: it knows which key had the last turn.
        self._queues: dict[M, FairQueue[T]] = {}
        # Those with items, in order of the turns of their models.
        self._waiting: OrderedDict[M, FairQueue[T]] = OrderedDict()
        self._length = 0
        self._last: M | None = None

    def __len__(self) -> int:
        return self._length

    def n_waiting(self, model: M) -> int:
        """How many items wait for a model."""
        return len(self._queues.get(model, ()))

    def append(self, model: M, key: str, item: T) -> None:
        queue = self._queues.get(model)
        if queue is None:
            queue = self._queues[model] = self._new_queue()
        queue.append(key, item)
        self._waiting[model] = queue
        self._length += 1

    def has_next(self, *, may_swap: bool) -> bool:
        """Whether `pop` would find an item."""
        return bool(self._waiting) if may_swap else any(map(self._is_free, self._waiting))

    def pop(self, *, may_swap: bool) -> T | None:
        """Take out the next item: of a model that is free, unless `may_swap`. None if there is
        none.
        """
        last = self._last
        if last is not None and last in self._waiting:
            self._waiting.move_to_end(last)  # even behind those that began to wait only now
        for model, queue in self._waiting.items():
            if may_swap or self._is_free(model):
                self._last = model
                item = queue.pop()
                self._forget(model)
                return item
        return None

    def remove(self, model: M, key: str, item: T) -> bool:
        """Take out an item wherever it waits. Returns whether it was waiting."""
        queue = self._waiting.get(model)
        if queue is None or not queue.remove(key, item):
            return False
        self._forget(model)
        return True

    def displace(self, model: M, key: str) -> T | None:
        """Take out the item that must make room for a newcomer: the newest one of the model and the
        key with the most. None if these would then have fewer items than the newcomer's.
        """
        if not self._waiting:
            return None
        most = max(self._waiting, key=lambda other: _most(self._waiting[other]))
        queue, own = self._waiting[most], self._waiting.get(model)
        if _most(queue) < (own.count(key) if own else 0) + 2:
            return None
        item = queue.take_newest(queue.greediest)
        self._forget(most)
        return item

    def position(self, model: M, key: str, item: T) -> int | None:
        """How many items come before this one, if nothing changes and no turn ends while the model
        that has it is asked for more; None if it does not wait.
        """
        queue = self._waiting.get(model)
        rounds = None if queue is None else queue.position(key, item)
        if rounds is None:
            return None
        position, is_before, is_free = rounds, True, self._is_free(model)
        for other, items in self._waiting.items():
            if other == model:
                is_before = model == self._last
                continue
            comes_first = is_before and other != self._last
            if is_free and self._is_free(other):
                position += min(len(items), rounds + comes_first)
            elif comes_first or self._is_free(other):
                position += len(items)
        return position

    def clear(self) -> list[T]:
        """Take out all items, model by model in the order of their turns."""
        items = [item for queue in self._waiting.values() for item in queue.clear()]
        self._waiting.clear()
        self._length = 0
        return items

    def _forget(self, model: M) -> None:
        self._length -= 1
        if not self._waiting[model]:
            del self._waiting[model]


def _most(queue: FairQueue[T]) -> int:
    return queue.count(queue.greediest)
