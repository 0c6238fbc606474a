"""`soliton health`: whether a server is ready, as an exit code for a container's health check.

It runs every few seconds on the cores that the server computes on. So it reads the few variables
that say where the server listens, and does not load the settings.
"""

import os
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from ..http.host_names import url_on_this_machine
from .terminal import CommandParser

_EXAMPLES = """
soliton health
soliton health --url http://127.0.0.1:8080
"""
_TIMEOUT_S = 30  # containers set a shorter limit
_MAX_BYTES = 65_536


def main(argv: list[str]) -> int:
    """Print one line. Returns 0 if the server takes requests and 1 if not. Raises CommandError."""
    parser = CommandParser(
        prog="soliton health",
        usage="[OPTION …]",
        description="Ask a server whether it takes requests. The exit code is 0 if it does and 1\n"
        "if not. Without --url, the server is the one on this machine that the variables\n"
        "SOLITON_HOST and SOLITON_PORT (or SOLITON_HEALTH_PORT, if set) describe.",
        examples=_EXAMPLES,
    )
    parser.add_argument("--url", metavar="URL", help="the server, such as http://127.0.0.1:8000")
    url = parser.read(argv).url
    if url is None:
        url = _own_url()
    elif not url.startswith(("http://", "https://")):
        parser.error(f"--url {url!r} must begin with http:// or https://")
    try:
        status = _ready_status(url)
    except (OSError, HTTPException, ValueError) as error:
        print(f"not ready: {url}: {getattr(error, 'strerror', None) or error or 'no answer'}")
        return 1
    print(f"{'ready' if status == 200 else 'not ready'}: {url} answered {status}")
    return 0 if status == 200 else 1


def _own_url() -> str:
    """An empty variable counts as not set. Port 0 means any port, so it says nothing either."""
    host = os.environ.get("SOLITON_HOST") or "127.0.0.1"
    ports = [os.environ.get(name) for name in ("SOLITON_HEALTH_PORT", "SOLITON_PORT")]
    port = next((port for port in ports if port and port != "0"), "8000")
    return url_on_this_machine(host, port)


def _ready_status(url: str) -> int:
    """The status of /health/ready, asked without a proxy. Raises ValueError for a wrong URL."""
    parts = urlsplit(url.rstrip("/").removesuffix("/v1"))
    if not parts.hostname:
        raise ValueError("the URL names no host")
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connect(parts.hostname, parts.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", f"{parts.path}/health/ready")
        response = connection.getresponse()
        response.read(_MAX_BYTES)
        return response.status
    finally:
        connection.close()
