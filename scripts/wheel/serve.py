"""Serves the built-in model from a wheel, and measures that.

Runs with any Python >= 3.11 and nothing else: scripts/wheel_trials.py starts it in a fresh root.
usage: serve.py WHEEL          installs the wheel into a new environment first
       serve.py -- COMMAND...  the wheel is installed, and this command serves from it
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

READY_S = 300
# What the built-in model writes at temperature 0; a test compares it with the source build.
PROMPT, N_TOKENS = "Once upon a time", 12
EXPECTED = ", there was a little girl named Lily. She loved to"


def main(*arguments: str) -> None:
    if arguments[0] == "--":
        serve([*arguments[1:]])
        return
    (wheel,) = arguments
    compilers = [name for name in ("c++", "cc", "g++", "gcc", "clang") if shutil.which(name)]
    print(f"  compilers: {compilers or 'none'}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        environment, packages = Path(folder, "environment"), Path(folder, "packages")
        start = time.monotonic()
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        pip = [str(environment / "bin/python"), "-m", "pip", "--quiet"]
        subprocess.run([*pip, "download", "--dest", str(packages), wheel], check=True)
        local = ["--no-index", "--find-links", str(packages)]
        subprocess.run([*pip, "install", *local, wheel], check=True)
        print(f"  to download: {megabytes(packages):.0f} MB")
        print(f"  on disk: {megabytes(environment):.0f} MB")
        print(f"  installed after {time.monotonic() - start:.1f} s", flush=True)
        serve([str(environment / "bin/soliton"), "serve"])


def serve(command: list[str]) -> None:
    start = time.monotonic()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([*command, "--port", str(port)])
    try:
        wait_until_ready(server, url)
        print(f"  ready after {time.monotonic() - start:.1f} s", flush=True)
        print(f"  the page has {len(read_page(url))} files", flush=True)
        text = complete(url)
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(30)
    print(f"  {PROMPT}{text}; exit status {code}", flush=True)
    if text != EXPECTED:
        sys.exit(f"expected {EXPECTED!r}")
    if code:
        sys.exit("expected exit status 0")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


def wait_until_ready(server: "subprocess.Popen[bytes]", url: str) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health/ready", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    ended = server.poll()
    sys.exit(f"not ready after {READY_S} s" if ended is None else f"the server ended with {ended}")


def read_page(url: str) -> set[str]:
    """The names of the page's files. Each is asked for, as a browser does; a missing one raises
    HTTPError.
    """
    names: set[str] = set()
    waiting = ["ui"]
    while waiting:
        with urllib.request.urlopen(f"{url}/{waiting.pop()}", timeout=60) as answer:
            text = answer.read().decode()
        named = {
            *re.findall(r'(?:src|href)="ui/([\w.]+)"', text),
            *re.findall(r'from "\./([\w.]+)"', text),
        }
        waiting += [f"ui/{name}" for name in named - names]
        names |= named
    return names


def complete(url: str) -> str:
    body = {"model": "soliton-default", "prompt": PROMPT, "max_tokens": N_TOKENS}
    body |= {"temperature": 0}
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), headers=headers
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        text = json.load(answer)["choices"][0]["text"]
        assert isinstance(text, str)
        return text


def megabytes(folder: Path) -> float:
    """The disk that the files below a folder take."""
    files = (os.lstat(path) for path in folder.rglob("*"))
    return sum(file.st_blocks * 512 for file in files) / 1e6


if __name__ == "__main__":
    main(*sys.argv[1:])
