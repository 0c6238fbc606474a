"""Clients that read more slowly than their answer is made: for how long, and how much is kept.

Owns what one connection still has to send, the time in which a client must read some of it, and how
much the unread parts of all answers may come to. Knows no route and no shape of an answer. Nobody
waits for a slow client: the engine is free when an answer is generated, whoever reads it and when.
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

# Of each connection, the kernel keeps at most so much that it has not sent. By default it takes
# megabytes, and a client that reads, but less than a third of them in time, would look like none.
_KERNEL_BYTES = 64 * 1024
# How often a connection that waits is looked at in its time.
_N_LOOKS = 32
# How often a connection with an answer is looked at in the time for acknowledging it.
_N_LOOKS_FOR_LIFE = 8
# After a connection was cut, until its request has ended.
_TOLD_S = 0.05


class UnreadAnswer(Protocol):
    """An answer that is being sent as it comes."""

    @property
    def unread_bytes(self) -> int:
        """About how much memory the part takes that nobody has read."""
        ...

    def give_up(self, error: Exception) -> None:
        """Forget that part, and end with `error`."""
        ...


class SlowReaders:
    """The connections and answers of one server. Used on the event loop only."""

    def __init__(
        self, *, send_timeout: float, max_bytes: int, acknowledge_seconds: float = 20.0
    ) -> None:
        """`send_timeout`: seconds in which a client must read something; `max_bytes`: what all
        answers together may leave unread before whoever keeps its connection waiting longest goes;
        `acknowledge_seconds`: in which a client's machine must acknowledge something.
        """
        self.send_timeout = send_timeout
        self.acknowledge_seconds = acknowledge_seconds
        self._max_bytes = max_bytes
        # Longest wait first: a connection that went on and waits again is behind all others.
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
        """The side of a new connection that sends."""
        return Outgoing(transport, self)

    @contextmanager
    def sending(self, answer: UnreadAnswer) -> Iterator[None]:
        """Count what is unread of `answer` while the block runs."""
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
        """Also what waits behind it may have grown. One of them counts for all."""
        if next(iter(self._waiting), None) is outgoing:
            self._make_room()

    def goes_on(self, outgoing: "Outgoing") -> None:
        self._waiting.pop(outgoing, None)

    def say_dropped(self, reason: str) -> None:
        """One line in the log; of many in a short time, their number."""
        self._log.say("dropped", f"dropped a client: {reason}")

    def _make_room(self) -> None:
        if self._making_room or not self._waiting or (n_bytes := self.n_bytes) <= self._max_bytes:
            return
        slowest = next(iter(self._waiting))
        slowest.drop(f"it is the slowest, and answers wait with {n_bytes} bytes")
        # What its stream kept is free when that has heard of the end: only then is more dropped.
        self._making_room = True
        asyncio.get_running_loop().call_later(_TOLD_S, self._look_again)

    def _look_again(self) -> None:
        self._making_room = False
        self._make_room()


class Outgoing:
    """What one connection still has to send. Its protocol tells it what the transport tells."""

    def __init__(self, transport: asyncio.Transport, readers: SlowReaders) -> None:
        self._transport = transport
        self._readers = readers
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._life_timer: asyncio.TimerHandle | None = None
        self._n_before = 0
        self._read_at = 0.0  # when something was last seen to be read
        # The protocol hears of every byte that the kernel does not take, and when it took the last.
        transport.set_write_buffer_limits(high=0)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):  # it is no TCP
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _KERNEL_BYTES)

    @property
    def n_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def begin(self) -> None:
        """An answer is awaited: look whether somebody is there."""
        if self._life_timer is None and self._transport.get_extra_info("socket") is not None:
            self._look_for_life_later(0.0)

    def end(self) -> None:
        """None is awaited."""
        if self._life_timer is not None:
            self._life_timer.cancel()
            self._life_timer = None

    def pause(self) -> None:
        """The kernel takes no more."""
        self._readers.waits(self)
        if self._timer is None:
            self._n_before, self._read_at = self.n_bytes, self._loop.time()
            self._look_later()

    def resume(self) -> None:
        """All has been sent, or is lost."""
        self._readers.goes_on(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def lost(self, error: Exception | None) -> None:
        """The connection has ended; `error`: not by the will of a side."""
        if isinstance(error, TimeoutError):
            self._readers.say_dropped("it acknowledged nothing for so long that the kernel gave up")
        self.end()
        self.resume()

    def drop(self, reason: str) -> None:
        """Cut the connection, what is unsent with it."""
        self._readers.say_dropped(reason)
        self.cut()

    def cut(self) -> None:
        self.end()
        self.resume()
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            # With a reset: else the kernel would keep its part, and who reads it see a plain end.
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
            self.drop(f"it read nothing for {seconds:g} s, {n_bytes} bytes wait")

    def _look_for_life_later(self, quiet_s: float) -> None:
        wait = self._readers.acknowledge_seconds / _N_LOOKS_FOR_LIFE
        self._life_timer = self._loop.call_later(wait, self._look_for_life, wait, quiet_s)

    def _look_for_life(self, waited_s: float, quiet_s: float) -> None:
        """`quiet_s`: since when nothing has been acknowledged of what was on its way."""
        if self._transport.is_closing():
            self._life_timer = None
            return
        since_s = unacknowledged_seconds(self._transport.get_extra_info("socket"))
        quiet_s = quiet_s + waited_s if since_s >= waited_s else 0.0
        if quiet_s < self._readers.acknowledge_seconds:
            self._look_for_life_later(quiet_s)
        else:
            self.drop(f"it acknowledged nothing for {quiet_s:g} s")
