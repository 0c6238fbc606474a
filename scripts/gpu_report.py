"""What scripts/gpu_check.py says and writes: each line at once, because the machine may be taken
away.

Owns summary.txt, results.json and log.txt in the directory of the results, and the table of goals.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.gpu.figures import Groups, merged
from scripts.gpu_steps import Run, Step
from tests.soak.goals import Goal

SUMMARY, RESULTS, LOG = "summary.txt", "results.json", "log.txt"
_LOG_TAIL = 1_000  # characters shown of a failed step's log
_LOG_BYTES = 15 * 2**20


@dataclass(slots=True)
class Report:
    """The results so far."""

    directory: Path
    machine: dict[str, Any]
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)
    figures: Groups = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in (SUMMARY, RESULTS, LOG):
            (self.directory / name).unlink(missing_ok=True)
        self.say(" ".join(f"{key} {value}" for key, value in self.machine.items()))

    @property
    def is_good(self) -> bool:
        """Whether all steps ran and all goals are met."""
        return all(not step["reason"] for step in self.steps.values()) and all(
            goal.met for goal in self.goals
        )

    def say(self, line: str) -> None:
        print(line, flush=True)
        with (self.directory / SUMMARY).open("a") as summary:
            print(line, file=summary)

    def line(self, step: Step, line: str) -> None:
        self.say(f"{step.name}: {line}")

    def end(self, step: Step, run: Run) -> None:
        self.steps[step.name] = {"seconds": round(run.seconds, 1), "reason": run.reason}
        goals = step.goals(run)
        self.goals += goals
        self.figures = merged((self.figures, run.figures))
        self._keep(f"=== {step.name}: {run.reason or 'ok'}\n{run.log}\n")
        self.say(f"{step.name}: {run.reason or 'ok'} ({run.seconds:.0f} s)")
        if run.reason and run.log.strip():
            self.say(run.log.strip()[-_LOG_TAIL:])
        for line in table(goals):
            self.say(line)
        self.write()

    def judge(self, goals: Sequence[Goal]) -> None:
        """Goals of several steps, and the end."""
        self.goals += goals
        for line in table(goals):
            self.say(line)
        n_missed = sum(not goal.met for goal in self.goals)
        self.say(f"{len(self.goals) - n_missed} goals met, {n_missed} missed")
        self.write()

    def write(self) -> None:
        content = {
            "machine": self.machine,
            "steps": self.steps,
            "goals": [goal._asdict() for goal in self.goals],
            "figures": self.figures,
        }
        (self.directory / RESULTS).write_text(json.dumps(content, indent=1) + "\n")

    def _keep(self, log: str) -> None:
        file = self.directory / LOG
        n_left = _LOG_BYTES - (file.stat().st_size if file.exists() else 0)
        with file.open("ab") as kept:
            kept.write(log.encode()[-n_left:] if n_left > 0 else b"")


def table(goals: Sequence[Goal]) -> list[str]:
    name = max((len(goal.name) for goal in goals), default=0)
    return [
        f"{'ok  ' if goal.met else 'MISS'} {goal.name:<{name}}  {goal.figure[:90]}  ({goal.limit})"
        for goal in goals
    ]
