"""Which connections there are, and which of them goes when there are too many.

Owns what a connection is at, in the terms that decide this, and the limits of all and of one
address. Knows no socket and no HTTP.

At a limit a newcomer takes the place of another, for it may be somebody who asks while most of the
others do not. Who has never asked anything goes first, then who has been answered, then whose body
is on its way; of these the one that has been so for longest, and where all places are taken, of
the address that has most of them. Who waits for an answer stays.
"""

import ipaddress
from collections.abc import Collection
from enum import IntEnum
from typing import Protocol


class Phase(IntEnum):
    """What a connection is at, those first that go first."""

    SILENT = 0
    """No head of a request has come on it."""
    KEPT = 1
    """All that was asked has been answered, and the answer has left."""
    ARRIVING = 2
    """A body is on its way."""
    BUSY = 3
    """An answer is made or sent."""


class Connection(Protocol):
    """One that can be told to go."""

    def make_room(self) -> None:
        """End. It is no longer in the table."""
        ...

    def cut(self) -> None:
        """End at once, whatever is still sent."""
        ...


class _Peer:
    """The connections of one address, in each phase the oldest first."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.phases: tuple[dict[Connection, None], ...] = tuple({} for _ in Phase)

    @property
    def n_connections(self) -> int:
        return sum(map(len, self.phases))


class ConnectionTable:
    """The connections of one listener. Used on the event loop only."""

    def __init__(self, *, limit: int, per_address: int, told: int) -> None:
        """`told`: how many of those that were turned away may still be read to."""
        self._limit = limit
        self._per_address = per_address
        self._n_told = told
        self._peers: dict[str, _Peer] = {}
        self._places: dict[Connection, tuple[_Peer, Phase]] = {}
        self._turned_away: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._places)

    def admit(self, connection: Connection, address: str) -> bool:
        """Whether there is a place for a new connection, another's if need be."""
        address = _network_of(address)
        peer = self._peers.get(address) or _Peer(address)
        has_place = True
        if peer.n_connections >= self._per_address:
            has_place = self._displace([peer])
        elif len(self._places) >= self._limit:
            has_place = self._displace(self._peers.values())
        if has_place:
            self._peers[address] = peer
            peer.phases[Phase.SILENT][connection] = None
            self._places[connection] = peer, Phase.SILENT
        return has_place

    def place(self, connection: Connection, phase: Phase) -> None:
        """It is at `phase` now. To say so again makes it no younger."""
        peer, before = self._places.get(connection, (None, phase))
        if peer is not None and phase is not before:
            del peer.phases[before][connection]
            peer.phases[phase][connection] = None
            self._places[connection] = peer, phase

    def turn_away(self, connection: Connection) -> None:
        """It has been told that there is no place for it, and may read that until others come."""
        self._leave_place(connection)
        self._turned_away[connection] = None
        while len(self._turned_away) > self._n_told:
            oldest = next(iter(self._turned_away))
            del self._turned_away[oldest]
            oldest.cut()

    def leave(self, connection: Connection) -> None:
        """It has ended."""
        self._turned_away.pop(connection, None)
        self._leave_place(connection)

    def _leave_place(self, connection: Connection) -> None:
        peer, phase = self._places.pop(connection, (None, Phase.SILENT))
        if peer is None:
            return
        del peer.phases[phase][connection]
        if not peer.n_connections:
            del self._peers[peer.address]

    def _displace(self, peers: Collection[_Peer]) -> bool:
        for phase in (Phase.SILENT, Phase.KEPT, Phase.ARRIVING):
            peer = max(peers, key=lambda peer: len(peer.phases[phase]))
            if peer.phases[phase]:
                connection = next(iter(peer.phases[phase]))
                self._leave_place(connection)
                connection.make_room()
                return True
        return False


def _network_of(address: str) -> str:
    """Whose address it is: whoever has one of IPv6 has 2**64 of them."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address)
    return str(parsed.ipv4_mapped or ipaddress.IPv6Network((int(parsed), 64), strict=False))
