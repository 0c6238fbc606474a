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
from typing import Any, NamedTuple, Protocol

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
    goals: Callable[[Run], list[Goal]] = lambda run: []
    after: str = ""  # the step that it depends on
    missing: str = ""  # what the machine lacks to run it
    is_shown: bool = False  # each of its lines is a result
    gate: Path | None = None
    figures: Path | None = None  # the JSON file that it writes, again and again


class Watcher(Protocol):
    """Hears of the steps as they run."""

    def line(self, step: Step, line: str) -> None: ...
    def end(self, step: Step, run: Run) -> None: ...


class _Process:
    """A running step."""

    def __init__(self, step: Step, logs: Path, root: Path, deadline: float) -> None:
        """`deadline`: the time.monotonic() at which it is killed in any case."""
        self.step = step
        self._last = deadline
        self._log = logs / f"{step.name}.log"
        self._n_shown = 0  # bytes of the log
        for file in self._files():
            file.unlink(missing_ok=True)
        self._started = time.monotonic()
        self._deadline = min(deadline, self._started + step.limit_s)
        self._is_released = False
        self._reason = ""
        # cmake and ninja are in the directory of the interpreter they were installed for.
        tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        with self._log.open("wb") as log:
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

    def new_lines(self) -> list[str]:
        """The whole lines that it has written since the last call."""
        with self._log.open("rb") as log:
            log.seek(self._n_shown)
            whole, newline, _ = log.read().rpartition(b"\n")
        self._n_shown += len(whole) + len(newline)
        return whole.decode(errors="replace").splitlines()

    def run(self) -> Run:
        """The result, after it has ended."""
        code = self._process.returncode
        reason = self._reason or (f"exit code {code}" if code else "")
        seconds = time.monotonic() - self._started
        return Run(reason, self._log.read_text(errors="replace"), seconds, self._figures())

    def _files(self) -> list[Path]:
        gate, figures = self.step.gate, self.step.figures
        return [*([ready(gate), go(gate)] if gate else []), *([figures] if figures else [])]

    def _figures(self) -> dict[str, Any]:
        if self.step.figures is None or not self.step.figures.exists():
            return {}
        figures: dict[str, Any] = json.loads(self.step.figures.read_text())
        return figures


def run_stage(
    steps: Sequence[Step], logs: Path, root: Path, *, time_s: float, watcher: Watcher
) -> None:
    """Runs `steps` at once, in `root`, with logs in `logs`, for at most `time_s`.

    Tells `watcher` each line of the shown ones when it is written, and each step's end.
    """
    deadline = time.monotonic() + time_s
    running = [_Process(step, logs, root, deadline) for step in steps]
    try:
        while running:
            ended = [each for each in running if each.has_ended()]
            for process in running:
                if process.step.is_shown:
                    for line in process.new_lines():
                        watcher.line(process.step, line)
            for process in ended:
                running.remove(process)
                watcher.end(process.step, process.run())
            if running and all(process.waits for process in running):
                running[0].release()
            time.sleep(_POLL_S)
    finally:
        for process in running:
            process.kill("interrupted")
