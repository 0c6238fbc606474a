"""What is done with one stream between two of its tokens, at the request of others.

Owns the way from the event loop to the engine thread and back: calls are made in the order in which
they came, each before the next token. Knows nothing of what a call does.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from engine import EngineError

from ..errors import EngineFailedError, ServerError, StreamStateError, is_out_of_memory

T = TypeVar("T")


class Call(Generic[T]):
    """One of them. Made on the event loop, where its result is awaited."""

    def __init__(self, work: Callable[[T], Any]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self.result: asyncio.Future[Any] = self._loop.create_future()

    def make(self, subject: T) -> None:
        """On the engine thread. Errors of the engine and the server go to the caller; those of a
        library go up, too.
        """
        try:
            value = self._work(subject)
        except (EngineError, ServerError) as error:
            self.fail(error)
        except BaseException as error:
            if is_out_of_memory(error):
                self.fail(MemoryError(str(error)))
            else:
                self.fail(EngineFailedError("the engine failed in this request"))
            raise
        else:
            self._loop.call_soon_threadsafe(self._settle, value, None)

    def fail(self, error: Exception) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._settle, None, error)

    def _settle(self, value: Any, error: Exception | None) -> None:
        if self.result.done():
            return
        if error is None:
            self.result.set_result(value)
        else:
            self.result.set_exception(error)


class Steering(Generic[T]):
    """The calls of one stream that wait for the next gap between two tokens."""

    def __init__(self) -> None:
        self.waiting: deque[Call[T]] = deque()
        """Both threads use it: adding and taking are atomic."""
        self._closed = False

    def add(self, call: Call[T]) -> None:
        self.waiting.append(call)
        if self._closed:  # meanwhile
            self.close()

    def make_all(self, subject: T) -> None:
        """On the engine thread."""
        while self.waiting:
            self.waiting.popleft().make(subject)

    def close(self) -> None:
        """There is no next token: refuse the calls that wait, and those to come."""
        self._closed = True
        self.refuse(StreamStateError("the stream has ended"))

    def refuse(self, error: Exception) -> None:
        """Refuse the calls that wait. From any thread."""
        while self.waiting:
            try:
                call = self.waiting.popleft()
            except IndexError:  # the other thread was faster
                return
            call.fail(error)
