"""Clients that read their answer more slowly than it is made.

Owns what a connection still has to send, the time in which a client must read some of it, and the
memory limit for the unread parts of all answers. Knows no route and no shape of an answer. Nobody
waits for a slow client: the engine is free as soon as an answer is generated, read or not.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from .seldom_log import SeldomLog
from .socket_options import unacknowledged_seconds

_logger = logging.getLogger(__name__)

# Most unsent bytes that the kernel keeps per connection. By default it keeps megabytes, and a
# client that reads less than a third of them in time would look as if it read nothing.
_KERNEL_BYTES = 64 * 1024
# Checks of a waiting connection within the send timeout.
_N_LOOKS = 32
# Checks of a connection with an answer within the time for acknowledging it.
_N_LOOKS_FOR_LIFE = 8
# Time for a request to end after its connection was cut.
_NOTICE_S = 0.05


class UnreadAnswer(Protocol):
    """An answer that is sent while it is generated."""

    @property
    def unread_bytes(self) -> int:
        """About how much memory its unread part takes."""
        ...

    def give_up(self, error: Exception) -> None:
        """Forget the unread part, and end with `error`."""
        ...


class SlowReaders:
    """The connections and answers of one server. Used on the event loop only."""

    def __init__(
        self, *, send_timeout: float, max_bytes: int, acknowledge_seconds: float = 20.0
    ) -> None:
        """`send_timeout`: seconds in which a client must read something.
        `max_bytes`: unread bytes of all answers together; beyond that, the client that has kept its
        connection waiting longest is dropped.
        `acknowledge_seconds`: time in which a client's machine must acknowledge something.
        """
        self.send_timeout = send_timeout
        self.acknowledge_seconds = acknowledge_seconds
        self._max_bytes = max_bytes
        # Longest wait first: a connection that went on and waits again comes last.
        self._waiting: dict[Outgoing, None] = {}
        self._answers: dict[UnreadAnswer, None] = {}
        self._making_room = False
        self._log = SeldomLog(_logger, logging.WARNING)

    @property
    def n_bytes(self) -> int:
        """About how much memory the unread parts of all answers take."""
        n_waiting = sum(outgoing.n_bytes for outgoing in self._waiting)
        return n_waiting + sum(answer.unread_bytes for answer in self._answers)

    def watch(self, transport: asyncio.Transport) -> "Outgoing":
        """The sending side of a new connection."""
        return Outgoing(transport, self)

    @contextmanager
    def sending(self, answer: UnreadAnswer) -> Iterator[None]:
        """Count the unread part of `answer` while the block runs."""
        self._answers[answer] = None
        self._make_room()
        try:
            yield
        finally:
            del self._answers[answer]

    def end_all(self, error: Exception) -> None:
        """End every answer that is being sent with `error`."""
        for answer in list(self._answers):
            answer.give_up(error)

    def waits(self, outgoing: "Outgoing") -> None:
        self._waiting[outgoing] = None
        self._make_room()

    def still_waits(self, outgoing: "Outgoing") -> None:
        """Check the limit again: unread parts may have grown. One check serves all connections."""
        if next(iter(self._waiting), None) is outgoing:
            self._make_room()

    def goes_on(self, outgoing: "Outgoing") -> None:
        self._waiting.pop(outgoing, None)

    def say_dropped(self, reason: str) -> None:
        """Log that a client was dropped, at most every ten seconds."""
        self._log.say("dropped", f"dropped a client: {reason}")

    def _make_room(self) -> None:
        if self._making_room or not self._waiting or (n_bytes := self.n_bytes) <= self._max_bytes:
            return
        slowest = next(iter(self._waiting))
        slowest.drop(f"it is the slowest, and {n_bytes} bytes of answers are unread")
        # Its stream frees its memory once it notices the end. Drop no other client until then.
        self._making_room = True
        asyncio.get_running_loop().call_later(_NOTICE_S, self._look_again)

    def _look_again(self) -> None:
        self._making_room = False
        self._make_room()


class Outgoing:
    """What one connection still has to send. Its protocol passes on the transport's callbacks."""

    def __init__(self, transport: asyncio.Transport, readers: SlowReaders) -> None:
        self._transport = transport
        self._readers = readers
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._life_timer: asyncio.TimerHandle | None = None
        self._n_before = 0
        self._read_at = 0.0  # when the client was last seen to read something
        # The transport reports any byte that the kernel does not take, and when it took the last.
        transport.set_write_buffer_limits(high=0)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):  # not a TCP socket
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _KERNEL_BYTES)

    @property
    def n_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def begin(self) -> None:
        """An answer is awaited: check regularly that the client's machine is alive."""
        if self._life_timer is None and self._transport.get_extra_info("socket") is not None:
            self._look_for_life_later(0.0)

    def end(self) -> None:
        """No answer is awaited any more."""
        if self._life_timer is not None:
            self._life_timer.cancel()
            self._life_timer = None

    def pause(self) -> None:
        """The kernel's buffer is full."""
        self._readers.waits(self)
        if self._timer is None:
            self._n_before, self._read_at = self.n_bytes, self._loop.time()
            self._look_later()

    def resume(self) -> None:
        """Everything has been sent, or is lost."""
        self._readers.goes_on(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def lost(self, error: Exception | None) -> None:
        """The connection has ended; `error` if neither side closed it."""
        if isinstance(error, TimeoutError):
            self._readers.say_dropped("it acknowledged nothing until the kernel gave up")
        self.end()
        self.resume()

    def drop(self, reason: str) -> None:
        """Cut the connection and discard what is unsent."""
        self._readers.say_dropped(reason)
        self.cut()

    def cut(self) -> None:
        self.end()
        self.resume()
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            # With a reset: otherwise the kernel would keep and send its part, and the client would
            # see a normal end.
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._readers.send_timeout / _N_LOOKS, self._look)

    def _look(self) -> None:
        now, seconds, n_bytes = self._loop.time(), self._readers.send_timeout, self.n_bytes
        if n_bytes < self._n_before:
            self._read_at = now
        self._n_before = n_bytes
        if now < self._read_at + seconds:
            self._look_later()
            self._readers.still_waits(self)
        else:
            self.drop(f"it read nothing for {seconds:g} s, with {n_bytes} bytes unread")

    def _look_for_life_later(self, quiet_s: float) -> None:
        wait = self._readers.acknowledge_seconds / _N_LOOKS_FOR_LIFE
        self._life_timer = self._loop.call_later(wait, self._look_for_life, wait, quiet_s)

    def _look_for_life(self, waited_s: float, quiet_s: float) -> None:
        """`quiet_s`: for how long unacknowledged data has seen no acknowledgement."""
        if self._transport.is_closing():
            self._life_timer = None
            return
        since_s = unacknowledged_seconds(self._transport.get_extra_info("socket"))
        quiet_s = quiet_s + waited_s if since_s >= waited_s else 0.0
        if quiet_s < self._readers.acknowledge_seconds:
            self._look_for_life_later(quiet_s)
        else:
            self.drop(f"it acknowledged nothing for {quiet_s:g} s")
