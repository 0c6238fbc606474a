"""The open connections, and which of them is closed when there are too many.

Owns the phase of each connection, and the limits in total and per address. Knows no socket and no
HTTP.

At a limit, a newcomer takes the place of another connection, because most of the others may be
idle. A connection that has never sent a request goes first, then one that has been answered, then
one whose body is arriving. Within a phase, the connection that has been in it longest goes; at the
total limit, it is one of the address that has most of them. A connection that waits for an answer
stays.
"""

import ipaddress
from collections.abc import Collection
from enum import IntEnum
from typing import Protocol


class Phase(IntEnum):
    """What a connection is doing, in the order in which connections are displaced."""

    SILENT = 0
    """No request head has arrived yet."""
    KEPT = 1
    """Idle: every request has been answered, and the answers have been sent."""
    ARRIVING = 2
    """A body is arriving."""
    BUSY = 3
    """A response is being made or sent."""


class Connection(Protocol):
    """A connection that the table can close."""

    def make_room(self) -> None:
        """Close; it is no longer in the table."""
        ...

    def cut(self) -> None:
        """Close at once, even in the middle of a response."""
        ...


class _Peer:
    """The connections of one address, by phase, oldest first."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.phases: tuple[dict[Connection, None], ...] = tuple({} for _ in Phase)

    @property
    def n_connections(self) -> int:
        return sum(map(len, self.phases))


class ConnectionTable:
    """The connections of one listener. Used on the event loop only."""

    def __init__(self, *, limit: int, per_address: int, told: int) -> None:
        """`told`: how many connections that were turned away may stay open to read why."""
        self._limit = limit
        self._per_address = per_address
        self._n_told = told
        self._peers: dict[str, _Peer] = {}
        self._places: dict[Connection, tuple[_Peer, Phase]] = {}
        self._refused: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._places)

    def admit(self, connection: Connection, address: str) -> bool:
        """Whether a new connection gets a place, if need be that of another."""
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
        """The connection is in `phase` now. Repeating its phase does not change its age."""
        peer, before = self._places.get(connection, (None, phase))
        if peer is not None and phase is not before:
            del peer.phases[before][connection]
            peer.phases[phase][connection] = None
            self._places[connection] = peer, phase

    def turn_away(self, connection: Connection) -> None:
        """The connection was refused. It may stay to read that until others are refused."""
        self._leave_place(connection)
        self._refused[connection] = None
        while len(self._refused) > self._n_told:
            oldest = next(iter(self._refused))
            del self._refused[oldest]
            oldest.cut()

    def leave(self, connection: Connection) -> None:
        """The connection has ended."""
        self._refused.pop(connection, None)
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
    """The address, or its /64 network for IPv6: one client has 2**64 IPv6 addresses."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address)
    return str(parsed.ipv4_mapped or ipaddress.IPv6Network((int(parsed), 64), strict=False))
