"""What the commands need for a terminal: one-line errors, progress, Ctrl-C, text safe to print.

Knows no model and no HTTP.
"""

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from tqdm import tqdm

# C0 and C1 controls and DEL, without tab and newline: a model's text must not control the terminal.
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


class CommandError(Exception):
    """The command cannot be done; the message is one line that says why."""


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, like every other error of the program."""

    def __init__(self, *, prog: str, description: str, usage: str | None = None) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)")


def printable(text: str) -> str:
    """`text` with control characters replaced, if it goes to a terminal; unchanged in a pipe."""
    return text.translate(_CONTROLS) if sys.stdout.isatty() else text


class ProgressBar:
    """The engine's `on_progress(done, total)` as a bar on stderr, shown after half a second."""

    def __init__(self, label: str, unit: str) -> None:
        self._bar = tqdm(
            desc=label, unit=unit, unit_scale=True, leave=False, delay=0.5, disable=None
        )

    def __call__(self, done: int, total: int) -> None:
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        self._bar.close()


@contextmanager
def progress_bar(label: str, *, unit: str) -> Iterator[ProgressBar]:
    """A progress bar for the time of the block; hidden without a terminal."""
    bar = ProgressBar(label, unit)
    try:
        yield bar
    finally:
        bar.close()


@contextmanager
def on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Inside the block, Ctrl-C calls `act` instead of raising KeyboardInterrupt.

    An exception in the middle of a step would lose the cache; a flag stops the engine between two
    steps.
    """

    def handle(_signum: int, _frame: FrameType | None) -> None:
        act()

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
