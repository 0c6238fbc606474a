"""A process in a terminal: what is typed into it, and what its user sees, which pyte draws."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyte

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0


class Terminal:
    """The user's side. `raw` is all that was sent, escape sequences included."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int, columns: int, rows: int) -> None:
        self.process = process
        self.raw = b""
        self._fd = fd
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=1.0)
        self._stream = pyte.ByteStream(self._screen)
        self.resize(columns, rows)

    @property
    def lines(self) -> list[str]:
        """All lines so far, those above the screen included, without spaces at their ends."""
        screen = self._screen
        above = ["".join(row[x].data for x in range(screen.columns)) for row in screen.history.top]
        lines = [line.rstrip() for line in [*above, *screen.display]]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def ctrl_c(self) -> None:
        """As the key does: the terminal sends the signal."""
        self.type("\x03")

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if (columns, rows) != (self._screen.columns, self._screen.lines):
            self._screen.resize(rows, columns)
            self.process.send_signal(signal.SIGWINCH)

    def wait_for(self, is_shown: str | Callable[[list[str]], bool]) -> None:
        """Read until a text is on the screen, or until something holds of its lines."""
        end = time.monotonic() + DEADLINE_S
        while not (is_shown in self.text if isinstance(is_shown, str) else is_shown(self.lines)):
            assert self._read(end - time.monotonic()), f"should show {is_shown!r}:\n{self.text}"

    def wait_for_prompt(self, n: int = 1) -> None:
        """Until an empty prompt stands on the last line, after `n` prompts altogether."""
        self.wait_for(
            lambda lines: lines[-1:] == [">"] and sum(line[:1] == ">" for line in lines) >= n
        )

    def wait_for_end(self) -> int:
        """Read the rest. Returns the exit code."""
        end = time.monotonic() + DEADLINE_S
        while self._read(end - time.monotonic()):
            pass
        return self.process.wait(DEADLINE_S)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], max(0.0, seconds))
        try:
            data = os.read(self._fd, 65536) if ready else b""
        except OSError:  # the process has closed its side
            data = b""
        self.raw += data
        self._stream.feed(data)
        return bool(data)


@contextmanager
def in_terminal(
    *command: str,
    columns: int = 80,
    rows: int = 24,
    term: str = "xterm-256color",
    env: Mapping[str, str] | None = None,
) -> Iterator[Terminal]:
    """`soliton COMMAND` in a terminal of its own."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "server", *command],
            cwd=ROOT,
            env={**clean, "TERM": term, **(env or {})},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_with_terminal,
        ) as process:
            os.close(theirs)
            try:
                yield Terminal(process, ours, columns, rows)
            finally:
                process.kill()
    finally:
        os.close(ours)


_UNWANTED = ("NO_COLOR", "COLUMNS", "LINES", "INPUTRC")


def _with_terminal() -> None:
    """Ctrl-C comes from this terminal, even if the tests run in the background and ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
