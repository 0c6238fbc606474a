"""A transport that closes in a way that lets the client read the last response.

When a socket is closed while the other side still sends, TCP sends a reset, and the reset overtakes
the response on its way. So `close` first ends only its own direction and discards what still
arrives, up to a limit of bytes and of time. Knows no HTTP.
"""

import asyncio
from collections.abc import Callable
from typing import Any

LINGER_BYTES = 64 * 2**20
LINGER_SECONDS = 5.0


class LingeringTransport:
    """An asyncio transport, except for `close`; its reader calls `discard` after that."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        more_comes: Callable[[], bool],
    ) -> None:
        """`more_comes` says at `close` whether the other side is still sending."""
        self._transport = transport
        self._loop = loop
        self._more_comes = more_comes
        self._n_discarded = 0
        self._timer: asyncio.TimerHandle | None = None
        self.write = transport.write  # called for every token, so without another call between

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    @property
    def lingering(self) -> bool:
        return self._timer is not None

    def is_closing(self) -> bool:
        return self.lingering or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._more_comes():
            self._transport.close()
            return
        self._timer = self._loop.call_later(LINGER_SECONDS, self._transport.abort)
        self._transport.write_eof()
        self._transport.resume_reading()

    def discard(self, n_bytes: int) -> None:
        """Count `n_bytes` that arrived after `close`. Ends the connection beyond the limit."""
        self._n_discarded += n_bytes
        if self._n_discarded > LINGER_BYTES:
            self._transport.abort()

    def lost(self) -> None:
        """The connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
