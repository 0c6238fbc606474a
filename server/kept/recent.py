"""The streams that are there unpacked besides: those that ended or were read last.

Owns how much memory these take. A branch of one of them waits for no unpacking.
"""

from collections import OrderedDict

from .streams import KeptStream


class RecentStreams:
    """As many as fit into `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # By identity, the least recently used first.
        self._streams: OrderedDict[int, tuple[KeptStream, int]] = OrderedDict()
        self.n_bytes = 0
        """About how much memory they take besides."""

    def used(self, stream: KeptStream) -> None:
        """It is there unpacked, and was read; others may have to let go."""
        self.forget(stream)
        n_bytes = stream.n_unpacked_bytes
        if n_bytes > self._max_bytes:
            stream.let_go()
            return
        self._streams[id(stream)] = stream, n_bytes
        self.n_bytes += n_bytes
        while self.n_bytes > self._max_bytes:
            _, (other, n_bytes) = self._streams.popitem(last=False)
            self.n_bytes -= n_bytes
            other.let_go()

    def forget(self, stream: KeptStream) -> None:
        """It is there no longer, or goes on."""
        _, n_bytes = self._streams.pop(id(stream), (stream, 0))
        self.n_bytes -= n_bytes
