"""What the kernel is told about connections, and how many of them there can be.

A peer whose machine or cable is gone says nothing. Without options the kernel would go on for ever
while nothing is sent. What is sent and not acknowledged is looked at by slow_readers.py: the
kernel's own limit for it, TCP_USER_TIMEOUT, also ends a peer that lives and acknowledges everything
but is slow, for it counts the time in which the receive window is shut.
"""

import resource
import socket
import struct
import sys

_IDLE_SECONDS = 10  # before the first probe
_PROBE_SECONDS = 5
_N_PROBES = 2
# In struct tcp_info: of the packets without an acknowledgement, and of the milliseconds since one.
_TCP_INFO_BYTES = 60
_N_UNACKNOWLEDGED = 24
_MS_SINCE_ONE = 56

# The event loop accepts so many in one go, before anybody can count them. Were it to run out of
# descriptors meanwhile, it would go on trying, with a traceback in the log for each.
ACCEPTED_AT_ONCE = 8
# How many wait in the kernel to be accepted.
BACKLOG = 1024
# Connections beyond the limit that may still read that they are; the oldest of more is cut off.
TOLD_OF_LIMIT = 8
# Of the listener for health checks.
HEALTH_CONNECTIONS = 8
# The process's own: model files while they load, caches, children.
_OWN_DESCRIPTORS = 24
_RESERVE = _OWN_DESCRIPTORS + TOLD_OF_LIMIT + ACCEPTED_AT_ONCE


def notice_lost_peers(sock: socket.socket) -> None:
    """Have a connection on which nothing is sent end 20 seconds behind its peer's disappearance."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        tcp = socket.IPPROTO_TCP
        sock.setsockopt(tcp, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
        sock.setsockopt(tcp, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
        sock.setsockopt(tcp, socket.TCP_KEEPCNT, _N_PROBES)


def unacknowledged_seconds(sock: socket.socket) -> float:
    """How long ago the peer acknowledged something, if not all that was sent; else 0."""
    if sys.platform != "linux":
        return 0.0
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    (n_unacknowledged,) = struct.unpack_from("=I", info, _N_UNACKNOWLEDGED)
    (milliseconds,) = struct.unpack_from("=I", info, _MS_SINCE_ONE)
    return milliseconds / 1000 if n_unacknowledged else 0.0


def affordable_connections(wanted: int, *, listens_for_health: bool = False) -> int:
    """At most `wanted`, as the limit of open files allows; raises the soft limit where it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserve = _RESERVE + listens_for_health * (HEALTH_CONNECTIONS + TOLD_OF_LIMIT)
    needed = wanted + reserve
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, soft - reserve)
