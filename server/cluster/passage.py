"""One request on its way through the door, to a replica and back.

Owns when it may go to another replica: until the head of its answer is there. The bytes of an
answer are those that a replica's app made; a failure after the head becomes its last event. Knows
no Ray: `Replicas` is what it needs of it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from starlette.types import Send

from ..errors import QueueTimeoutError, ServerError, UnavailableError, error_response
from .failures import ReplicaLostError, ReplicaNonsenseError, failed_stream, shaped
from .routed import Accepted, Head, HeaderList, Part, Routed

T = TypeVar("T", Accepted, Head)

_logger = logging.getLogger(__name__)

CUT_OFF = "cut off"
"""With this message, a cancelled `run` still tells its client."""

_ATTEMPTS = 4
_RETRY_S = 0.05


class Replicas(Protocol):
    """What the door asks of the replicas."""

    def call(self, routed: Routed) -> AsyncGenerator[Part]:
        """The parts of an answer. Raises ReplicaLostError if its replica is gone; closing it ends
        the request there.
        """
        ...

    async def metrics(self, headers: HeaderList, seconds: float) -> Sequence[Any]:
        """What `Replica.metrics` returned at each, or raised. Raises TimeoutError."""
        ...


class Passage:
    """The request, and how far its answer is."""

    def __init__(
        self, replicas: Replicas, routed: Routed, send: Send, *, queue_s: float | None
    ) -> None:
        """`queue_s`: how long it may wait for a replica."""
        self._replicas = replicas
        self._routed = routed
        self._send = send
        self._queue_s = queue_s
        self._head: Head | None = None
        self._n_left: int | None = None  # bytes of the body, if its length was told
        self._is_complete = False

    async def run(self) -> None:
        """Answer it. If it fails where nothing can say so, the exception cuts the connection: half
        an answer must not look like a whole one.
        """
        try:
            await self._attempts()
        except ServerError as error:
            await self._fail(error)
        except asyncio.CancelledError as error:
            if error.args != (CUT_OFF,):
                raise
            await self._fail(UnavailableError("the server is shutting down"))

    async def _attempts(self) -> None:
        """What waits is not lost with its replica. What steers a stream is not done twice."""
        routed = self._routed
        is_repeatable = routed.prompt is not None or routed.method == "GET"
        for n_left in reversed(range(_ATTEMPTS if is_repeatable else 1)):
            try:
                await self._pass_on()
                return
            except ReplicaLostError as error:
                if self._head is not None or not n_left:
                    raise
                _logger.warning("%s: the request goes to another one", error)
                await asyncio.sleep(_RETRY_S)

    async def _pass_on(self) -> None:
        async with aclosing(self._replicas.call(self._routed)) as parts:
            name = (await self._accepted(parts)).replica
            head = await _next(parts, Head, f"replica {name}", "the head of an answer")
            self._head = head
            length = dict(head.headers).get(b"content-length")
            self._n_left = None if length is None else int(length)
            await self._send(
                {
                    "type": "http.response.start",
                    "status": head.status,
                    "headers": head.headers,
                }
            )
            await self._send_body(head.body)
            async for part in parts:
                if not isinstance(part, bytes):
                    raise ReplicaNonsenseError(_nonsense(f"replica {name}", part, "bytes"))
                await self._send_body(part)
        if not self._is_complete:
            await self._end(b"")

    async def _accepted(self, parts: AsyncGenerator[Part]) -> Accepted:
        """Wait for a replica. Raises QueueTimeoutError."""
        try:
            async with asyncio.timeout(self._queue_s):
                return await _next(parts, Accepted, "a replica", "its name")
        except TimeoutError:
            raise QueueTimeoutError(
                f"no replica took the request within {self._queue_s:g} s"
            ) from None

    async def _send_body(self, body: bytes) -> None:
        if self._n_left is not None:
            self._n_left -= len(body)
            if not self._n_left:
                # Whoever has it all may send the next request at once.
                await self._end(body)
                return
        if body:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _end(self, body: bytes) -> None:
        self._is_complete = self._routed.delivery.is_complete = True
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def _fail(self, error: ServerError) -> None:
        """An error instead of the answer, or as its end."""
        path = self._routed.path
        _logger.warning("%s %s: %s", self._routed.method, path, error)
        if self._is_complete:
            return
        if self._head is None:
            answer = shaped(path, error_response(error))
            start = {"status": answer.status_code, "headers": answer.raw_headers}
            await self._send({"type": "http.response.start", **start})
            ending = bytes(answer.body)
        elif not (ending := failed_stream(path, self._head.headers, error)):
            raise error
        await self._end(ending)


async def _next(parts: AsyncGenerator[Part], kind: type[T], who: str, expected: str) -> T:
    """The next part, which must be of a kind. Raises ReplicaNonsenseError."""
    part = await anext(parts, None)
    if not isinstance(part, kind):
        raise ReplicaNonsenseError(_nonsense(who, part, expected))
    return part


def _nonsense(who: str, part: object, expected: str) -> str:
    told = "nothing" if part is None else type(part).__name__
    return f"{who} answered nonsense: {told} instead of {expected}"
