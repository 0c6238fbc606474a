"""Host names and addresses, read from options and Host headers. Resolves no name."""

import ipaddress
import re
from typing import NamedTuple

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAME = re.compile(r"[a-z0-9._-]{1,253}")
_HEADER = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")


class Host(NamedTuple):
    """A host in one canonical form: two spellings of it are equal."""

    text: str
    address: _Address | None
    """None for a name."""

    @property
    def is_loopback(self) -> bool:
        """Whether it can only be this machine."""
        return self.text == "localhost" if self.address is None else self.address.is_loopback


def host_of(option: str) -> Host:
    """The host in an option. Raises ValueError for what is neither a name nor an address."""
    text = option.lower()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    try:
        address: _Address = ipaddress.ip_address(text)
    except ValueError:
        if not _NAME.fullmatch(text):
            raise ValueError(f"{option!r} is neither a host name nor an IP address") from None
        return Host(text, None)
    if isinstance(address, ipaddress.IPv6Address):
        # A socket for both families reports IPv4 addresses in this form.
        address = address.ipv4_mapped or address
    return Host(str(address), address)


def host_of_header(value: str) -> Host | None:
    """The host in a Host header, without its port; None if it is not exactly one host."""
    match = _HEADER.fullmatch(value.lower())
    try:
        return host_of(match["host"]) if match else None
    except ValueError:
        return None


def url_on_this_machine(host: str, port: int | str) -> str:
    """Where a client on this machine finds a server that listens on `host`."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host.strip("[]"), host)
    return f"http://[{name}]:{port}" if ":" in name and "[" not in name else f"http://{name}:{port}"
