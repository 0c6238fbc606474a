"""The server behind nginx, HAProxy and Caddy: whether tokens still arrive one by one, and a hang-up
still reaches the engine.

Needs the programs, which Debian packages as nginx-light, haproxy and caddy.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .goals import Goal, quantile
from .model import expected_reply
from .server import Options
from .site import Site, serving
from .wire import Leave, Reply, ask

OPTIONS = Options(token_s=0.02)
_N_TOKENS = 60
_LEAVES_S = 0.4
_ABORT_LIMIT_S = 1.0
# Buffering is left at its default, compression is on. Without its option HAProxy would hold
# packets back for up to 200 ms.
_NGINX = """
daemon off; pid {place}/pid; error_log stderr error;
events {{}}
http {{
    access_log off; gzip on; gzip_types *;
    client_body_temp_path {place}; proxy_temp_path {place}; fastcgi_temp_path {place};
    uwsgi_temp_path {place}; scgi_temp_path {place};
    server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{upstream}; }} }}
}}
"""
_HAPROXY = """
defaults
    mode http
    option http-no-delay
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend in
    bind 127.0.0.1:{port}
    compression algo gzip
    default_backend soliton
backend soliton
    server one 127.0.0.1:{upstream}
"""
_CADDY = """
{{
    admin off
    auto_https off
    log {{
        level FATAL
    }}
}}
http://127.0.0.1:{port} {{
    encode gzip
    reverse_proxy 127.0.0.1:{upstream}
}}
"""
_PROGRAMS = {
    "nginx": (_NGINX, ("-p", "{place}", "-c", "{file}")),
    "haproxy": (_HAPROXY, ("-db", "-q", "-f", "{file}")),
    "caddy": (_CADDY, ("run", "--adapter", "caddyfile", "--config", "{file}")),
}


def measure(scale: float) -> Iterator[Goal]:
    n = max(3, round(20 * scale))
    with serving(OPTIONS) as site:
        for program in _PROGRAMS:
            if shutil.which(program) is None:
                yield Goal(f"behind {program}", f"not measured: {program} is missing", "-", False)
                continue
            with _proxy(program, site.port) as port:
                yield from asyncio.run(goals(program, site, port, n))


async def goals(program: str, site: Site, port: int, n: int) -> list[Goal]:
    await site.start()
    direct: list[Reply] = []
    behind: list[Reply] = []
    aborts: list[float] = []
    for number in range(n):
        body = _body(f"{program} {number}", _N_TOKENS)
        for replies, at in ((direct, site.port), (behind, port)):
            replies.append(await ask(at, "/v1/completions", body))
        await site.idle()
        await site.audit()
        leave = Leave(("fin", "rst")[number % 2], after=_LEAVES_S)
        left = await ask(port, "/v1/completions", _body(f"left {number}", 5000), leave=leave)
        await site.idle()
        aborts += [record["freed_at"] - left.over_at for record in await site.audit()]
    wrong = sum(
        reply.end != "done" or reply.text != expected_reply(f"{program} {number}", _N_TOKENS)
        for number, reply in enumerate(behind)
    )
    alone, through = (quantile([r.gap for r in replies], 0.5) for replies in (direct, behind))
    slowest = max(aborts, default=float("inf"))
    return [
        Goal(f"behind {program}: answers that differ", f"{wrong} in {n}", "0", wrong == 0),
        Goal(
            f"behind {program}: longest silence between tokens",
            f"median {1000 * through:.1f} ms, {1000 * alone:.1f} without",
            "<= 1.5 times",
            through <= 1.5 * alone,
        ),
        Goal(
            f"behind {program}: a hang-up frees the engine",
            f"max {1000 * slowest:.1f} ms, n {len(aborts)}",
            f"<= {_ABORT_LIMIT_S:g} s",
            len(aborts) == n and slowest <= _ABORT_LIMIT_S,
        ),
    ]


@contextmanager
def _proxy(program: str, upstream: int) -> Iterator[int]:
    """The port from which the program passes requests on."""
    template, options = _PROGRAMS[program]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)  # nginx, started as root, works as another user
        file = Path(place) / "proxy.conf"
        file.write_text(template.format(place=place, port=port, upstream=upstream))
        words = [option.format(place=place, file=file) for option in options]
        # Caddy keeps its configuration in the home directory.
        process = subprocess.Popen([program, *words], env={**os.environ, "HOME": place})
        try:
            _wait_for(port)
            yield port
        finally:
            process.terminate()
            process.wait()


def _wait_for(port: int) -> None:
    """Raises ConnectionError if nobody listens within ten seconds."""
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.1)
        else:
            return
    raise ConnectionError(f"nobody listens at {port}")


def _body(prompt: str, n_tokens: int) -> dict[str, Any]:
    return {"model": "fake", "prompt": prompt, "max_tokens": n_tokens, "stream": True}
