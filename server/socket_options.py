"""What the kernel is told about connections, and how many of them there can be.

A peer whose machine or cable is gone says nothing. Without options the kernel would go on for a
quarter of an hour with bytes that nobody acknowledges, and for ever without any.
"""

import resource
import socket
import sys

_IDLE_SECONDS = 10  # before the first probe
_PROBE_SECONDS = 5
_N_PROBES = 3
_UNACKNOWLEDGED_MS = 20_000

# The event loop accepts so many in one go, before anybody can count them. Were it to run out of
# descriptors meanwhile, it would go on trying, with a traceback in the log for each.
ACCEPTED_AT_ONCE = 8
# How many wait in the kernel to be accepted.
BACKLOG = 1024
# Connections beyond the limit that are told so; those beyond these are only closed.
TOLD_OF_LIMIT = 8
# The process's own: model files while they load, caches, children.
_OWN_DESCRIPTORS = 24
_RESERVE = _OWN_DESCRIPTORS + TOLD_OF_LIMIT + ACCEPTED_AT_ONCE


def notice_lost_peers(sock: socket.socket) -> None:
    """Have the connection end within 25 seconds of its peer's disappearance."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        tcp = socket.IPPROTO_TCP
        sock.setsockopt(tcp, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
        sock.setsockopt(tcp, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
        sock.setsockopt(tcp, socket.TCP_KEEPCNT, _N_PROBES)
        sock.setsockopt(tcp, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)


def affordable_connections(wanted: int) -> int:
    """At most `wanted`, as the limit of open files allows; raises the soft limit where it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _RESERVE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, soft - _RESERVE)
