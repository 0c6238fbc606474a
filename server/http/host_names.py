"""Hosts as text: names and addresses, as options and as a Host header write them. Resolves none."""

import ipaddress
import re
from typing import NamedTuple

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAME = re.compile(r"[a-z0-9._-]{1,253}")
_HEADER = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")


class Host(NamedTuple):
    """Two ways to write one host are equal."""

    text: str
    address: _Address | None
    """None: it is a name."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can mean it."""
        return self.text == "localhost" if self.address is None else self.address.is_loopback


def host_of(option: str) -> Host:
    """Of an option. Raises ValueError for what is neither a name nor an address."""
    text = option.lower()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    try:
        address: _Address = ipaddress.ip_address(text)
    except ValueError:
        if not _NAME.fullmatch(text):
            raise ValueError(f"{option!r} is neither a name nor an address") from None
        return Host(text, None)
    if isinstance(address, ipaddress.IPv6Address):
        # What a socket for both families calls an IPv4 address.
        address = address.ipv4_mapped or address
    return Host(str(address), address)


def host_of_header(value: str) -> Host | None:
    """Of a Host header, whatever the port; None for what is not exactly one."""
    match = _HEADER.fullmatch(value.lower())
    try:
        return host_of(match["host"]) if match else None
    except ValueError:
        return None
