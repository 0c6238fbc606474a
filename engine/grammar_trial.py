"""Compiles a grammar in a process of its own before this one dares to.

Owns that process and its limits. Knows neither constraints nor tokens. The compiler's own limits
leave gaps: there are short grammars on which it runs for minutes, and others on which it overflows
the stack, which no handler catches. In the trial's process both are an error of that one request.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from .errors import EngineError

_CHILD = Path(__file__).with_name("grammar_trial_child.py")

COMPILE_SECONDS = 3  # of processor time, within the trial
_WALL_SECONDS = 30.0  # for a machine that is busy with other things
_MEMORY_BYTES = 1024 * 1024 * 1024
# Less than any thread of ours has: what passes here, passes there.
_STACK_BYTES = 1024 * 1024


class Limits(NamedTuple):
    """Of llguidance's compiler and parser, in its own units: names and order are its."""

    max_items_in_row: int = 2_000
    initial_lexer_fuel: int = 500_000
    step_lexer_fuel: int = 200_000
    step_max_items: int = 50_000
    max_lexer_states: int = 50_000
    max_grammar_size: int = 200_000


LIMITS = Limits()


def failure_of(
    grammar: str, *, library: str, n_tokens: int, special: Mapping[int, str]
) -> str | None:
    """Why the grammar cannot be used, in the compiler's words or ours; None when it can.

    `library`: the file of llguidance's extension; `special`: control tokens by id, below
    `n_tokens`, for grammars that name them.
    """
    task = {
        "grammar": grammar,
        "library": library,
        "limits": LIMITS._asdict(),
        "memory_bytes": _MEMORY_BYTES,
        "n_tokens": n_tokens,
        "seconds": COMPILE_SECONDS,
        "special": list(special.items()),
        "stack_bytes": _STACK_BYTES,
    }
    # Isolated, without site: nothing but the interpreter starts, in some hundredths of a second.
    command = [sys.executable, "-I", "-S", str(_CHILD)]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(task).encode(),
            capture_output=True,
            timeout=_WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it takes more than {_WALL_SECONDS:.0f} s to compile"
    except OSError as error:
        raise EngineError(f"a grammar cannot be tried at the moment: {error.strerror}") from error
    if done.returncode == 0:
        failure: str | None = json.loads(done.stdout)
        return failure
    if -done.returncode in (signal.SIGXCPU, signal.SIGKILL):
        return f"it takes more than {COMPILE_SECONDS} s to compile"
    if done.returncode < 0:
        return "it is too large or too deep to compile"
    reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    raise EngineError(f"the trial of a grammar failed: {' '.join(reason)}")
