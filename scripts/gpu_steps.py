"""Steps of scripts/gpu_check.py as processes, several at once, each with a time limit and a log.

Owns how they are started, waited for and ended. Knows no step.

A step with a gate prepares while others run, for instance by compiling, and then waits until it has
the machine to itself: bench/gpu/gate.py.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.gpu.gate import go, ready
from tests.soak.goals import Goal

_POLL_S = 0.05
_ALONE_S = 25.0


class Run(NamedTuple):
    """The result of a step."""

    reason: str  # why it failed, or ""
    log: str
    seconds: float
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and the goals of its run."""

    name: str
    command: Sequence[str | Path]
    limit_s: float  # time limit until it ends, or waits at its gate; then it gets _ALONE_S more
    log: str  # the file for its output, which steps may share
    goals: Callable[[Run], list[Goal]] = lambda run: []
    after: str = ""  # the step that it depends on
    missing: str = ""  # what the machine lacks to run it
    is_optional: bool = False  # not reported if something is missing
    gate: Path | None = None
    figures: Path | None = None  # the JSON file that it writes, again and again


class _Process:
    """A running step."""

    def __init__(self, step: Step, directory: Path, root: Path, deadline: float) -> None:
        """`deadline`: the time.monotonic() at which it is killed in any case."""
        self.step = step
        self._last = deadline
        self._log = directory / step.log
        self._log_begin = self._log.stat().st_size if self._log.exists() else 0
        for file in self._files():
            file.unlink(missing_ok=True)
        self._started = time.monotonic()
        self._deadline = min(deadline, self._started + step.limit_s)
        self._is_released = False
        self._reason = ""
        # cmake and ninja are in the directory of the interpreter they were installed for.
        tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in step.command],
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": tools, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    @property
    def waits(self) -> bool:
        """Whether it is ready, and waits to be alone."""
        gate = self.step.gate
        return gate is not None and not self._is_released and ready(gate).exists()

    def release(self) -> None:
        """Let it run: it has the machine to itself now."""
        if self.step.gate is not None:
            self._is_released = True
            self._deadline = min(self._last, time.monotonic() + _ALONE_S)
            go(self.step.gate).touch()

    def has_ended(self) -> bool:
        """Whether it has ended. Kills it if its time is over."""
        if self._process.poll() is not None:
            return True
        if time.monotonic() < (self._last if self.waits else self._deadline):
            return False
        self.kill(f"not done after {time.monotonic() - self._started:.0f} s")
        return True

    def kill(self, reason: str) -> None:
        """Kills it and all its child processes."""
        self._reason = reason
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def run(self) -> Run:
        """The result, after it has ended."""
        code = self._process.returncode
        log = self._log.read_bytes()[self._log_begin :].decode(errors="replace")
        reason = self._reason or (f"exit code {code}" if code else "")
        return Run(reason, log, time.monotonic() - self._started, self._figures())

    def _files(self) -> list[Path]:
        gate, figures = self.step.gate, self.step.figures
        return [*([ready(gate), go(gate)] if gate else []), *([figures] if figures else [])]

    def _figures(self) -> dict[str, Any]:
        if self.step.figures is None or not self.step.figures.exists():
            return {}
        figures: dict[str, Any] = json.loads(self.step.figures.read_text())
        return figures


def run_stage(
    steps: Sequence[Step],
    directory: Path,
    root: Path,
    *,
    time_s: float,
    on_end: Callable[[Step, Run], None],
) -> None:
    """Runs `steps` at once, in `root`, with logs in `directory`, for at most `time_s`.

    Calls `on_end` with each step and its result, as soon as it has ended.
    """
    deadline = time.monotonic() + time_s
    running = [_Process(step, directory, root, deadline) for step in steps]
    try:
        while running:
            for process in [each for each in running if each.has_ended()]:
                running.remove(process)
                on_end(process.step, process.run())
            if running and all(process.waits for process in running):
                running[0].release()
            time.sleep(_POLL_S)
    finally:
        for process in running:
            process.kill("interrupted")
