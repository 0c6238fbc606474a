"""`soliton serve` in a process of its own that notes what it does to files, networks and programs.

As a program: python -m tests.audited_server NOTES serve …
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.live_server import LiveServer

ROOT = Path(__file__).parents[2]
_KINDS = (
    "open", "import", "os.", "shutil.", "socket.", "subprocess.", "pickle.", "ctypes.dlopen",
    "glob.", "pathlib.", "tempfile.", "urllib.", "http.",
)  # fmt: skip


class Event(NamedTuple):
    """One of Python's audit events: its name, and its arguments as text."""

    name: str
    arguments: list[str]


@dataclass(frozen=True, slots=True)
class AuditedServer:
    """A server that runs in another process."""

    server: LiveServer
    notes: Path
    log: Path

    def events(self) -> list[Event]:
        """What it has done since its very start."""
        return [Event(*json.loads(line)) for line in self.notes.read_text().splitlines()]

    def output(self) -> bytes:
        """What it wrote to stdout and stderr."""
        return self.log.read_bytes()


@contextmanager
def audited_server(
    model: Path, directory: Path, *options: str, env: Mapping[str, str] = {}
) -> Iterator[AuditedServer]:
    """Serve on a free port for as long as the block runs; `directory` gets the notes."""
    notes, log = directory / "notes", directory / "log"
    notes.touch()
    command = [
        sys.executable, "-m", "tests.support.audited_server", str(notes), "serve", str(model),
        "--port", "0", *options,
    ]  # fmt: skip
    with (
        log.open("wb") as file,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=file, env={**os.environ, **env}
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            file.write(line)
            file.flush()
            found = re.search(rb" is ready at http://[^ ]*:([0-9]+) ", line)
            assert found, log.read_bytes()
            app: Any = None  # it is in the other process
            yield AuditedServer(
                LiveServer(int(found[1]), app, process.terminate, set()), notes, log
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def _main() -> int:
    notes = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)

    def note(name: str, arguments: tuple[Any, ...]) -> None:
        if name.startswith(_KINDS):
            os.write(notes, json.dumps([name, [str(item) for item in arguments]]).encode() + b"\n")

    sys.addaudithook(note)
    from server.__main__ import main

    return main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(_main())
