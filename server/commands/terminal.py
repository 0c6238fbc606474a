"""What the commands need for a terminal: one-line errors, progress, Ctrl-C, text safe to print.

Knows no model and no HTTP.
"""

import argparse
import re
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from tqdm import tqdm
from typing_extensions import override

from ..suggest import did_you_mean

# C0 and C1 controls and DEL, without tab and newline: a model's text must not control the terminal.
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


class CommandError(Exception):
    """The command cannot be done; the message is one line that says why."""


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, like every other error of the program."""

    def __init__(self, *, prog: str, usage: str, description: str, examples: str) -> None:
        """`usage`: what follows `prog`, without the options, which the help lists in groups.
        `examples`: command lines, one per line.
        """
        lines = (f"  {line}" for line in examples.strip().splitlines())
        super().__init__(
            prog=prog,
            usage=f"{prog} {usage}",
            description=description,
            epilog="\n".join(("examples:", *lines)),
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
        )

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """The options in `argv`. Raises CommandError."""
        values, unknown = self.parse_known_args(argv)
        if unknown:  # only the first word: the next may be a key after a misspelt flag
            word = unknown[0].partition("=")[0]
            options = [option for option in self._option_string_actions if option != "-h"]
            near = did_you_mean(word, options) if word.startswith("-") else ""
            self.error(f"unrecognized argument: {word}{near}")
        return values

    @override
    def error(self, message: str) -> NoReturn:
        for pattern, words in _OWN_WORDS:
            message = pattern.sub(words, message)
        raise CommandError(f"{message} (see {self.prog} --help)")


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Long options on the line of their help."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34)


# argparse's errors -> those of this program. A value's own error says what is allowed.
_OWN_WORDS = (
    (re.compile(r"^argument (\S+): expected one argument$"), r"\1 needs a value"),
    (re.compile(r"^argument (\S+): ignored explicit argument .*$"), r"\1 takes no value"),
    (re.compile(r"^argument (\S+): (?=must )"), r"\1 "),
    (re.compile(r"^argument (\S+): "), r"\1: "),
    (re.compile(r"^the following arguments are required: (.*)$"), r"\1 is missing"),
)


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
def without_echo() -> Iterator[None]:
    """Inside the block, keys do not show on the terminal; they are read after it."""
    try:
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
    except (ValueError, OSError, termios.error):  # not a terminal
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)


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
