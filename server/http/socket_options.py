"""Socket options of connections, and how many connections are possible.

A peer whose machine or network is gone sends nothing. By default the kernel keeps such a connection
for ever while nothing is sent on it. slow_readers.py checks data that was sent but not
acknowledged: the kernel's own limit for that, TCP_USER_TIMEOUT, also ends a peer that is alive and
acknowledges everything but is slow, because it counts the time while the receive window is shut.
"""

import resource
import socket
import struct
import sys

_IDLE_SECONDS = 10  # before the first probe
_PROBE_SECONDS = 5
_N_PROBES = 2
# Offsets in struct tcp_info: unacknowledged packets, milliseconds since an acknowledgement.
_TCP_INFO_BYTES = 60
_N_UNACKNOWLEDGED = 24
_MS_SINCE_ONE = 56

# Connections that the event loop accepts at once, before they can be counted. If it ran out of
# descriptors meanwhile, it would retry with a traceback in the log each time.
ACCEPTED_AT_ONCE = 8
# Connections that may wait in the kernel to be accepted.
BACKLOG = 1024
# Connections beyond the limit that may stay to read that; of more, the oldest is cut.
TOLD_OF_LIMIT = 8
# Limit of the listener for health checks.
HEALTH_CONNECTIONS = 8
# Descriptors of the process itself: model files while they load, caches, children.
_OWN_DESCRIPTORS = 24
_RESERVE = _OWN_DESCRIPTORS + TOLD_OF_LIMIT + ACCEPTED_AT_ONCE


def notice_lost_peers(sock: socket.socket) -> None:
    """Have an idle connection end 20 seconds after its peer disappears."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        tcp = socket.IPPROTO_TCP
        sock.setsockopt(tcp, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
        sock.setsockopt(tcp, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
        sock.setsockopt(tcp, socket.TCP_KEEPCNT, _N_PROBES)


def unacknowledged_seconds(sock: socket.socket) -> float:
    """Seconds since the peer last acknowledged something; 0 if nothing is outstanding."""
    if sys.platform != "linux":
        return 0.0
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES:  # some emulated kernels say less
        return 0.0
    (n_unacknowledged,) = struct.unpack_from("=I", info, _N_UNACKNOWLEDGED)
    (milliseconds,) = struct.unpack_from("=I", info, _MS_SINCE_ONE)
    return milliseconds / 1000 if n_unacknowledged else 0.0


def affordable_connections(wanted: int, *, listens_for_health: bool = False) -> int:
    """At most `wanted`, as far as the open-file limit allows; raises the soft limit if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserve = _RESERVE + listens_for_health * (HEALTH_CONNECTIONS + TOLD_OF_LIMIT)
    needed = wanted + reserve
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, soft - reserve)
