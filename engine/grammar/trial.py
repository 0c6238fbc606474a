"""Compiles a new grammar in a separate process before this one does.

Owns that process and its limits. Knows neither constraints nor tokens. The compiler's own limits
have gaps: on some short grammars it runs for minutes, on others it overflows the stack, which no
handler can catch. In a separate process both are just an error of that request.
"""

import errno
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..abort import AbortFlag
from ..errors import EngineError

_CHILD = Path(__file__).with_name("trial_child.py")

COMPILE_SECONDS = 3  # of processor time, within the trial
_WALL_SECONDS = 60.0  # because the machine may be busy
_MEMORY_BYTES = 512 * 1024 * 1024
# Less than any of our threads has, so a grammar that passes here passes there.
_STACK_BYTES = 1024 * 1024
# A third of the weight of the engine's threads: a token waits for the slowest of them.
_NICE = 5
_LOOK_S = 0.02  # how often a trial checks whether it was aborted


class Limits(NamedTuple):
    """The limits of llguidance's compiler and parser, with its names, order and units."""

    max_items_in_row: int = 2_000
    initial_lexer_fuel: int = 500_000
    step_lexer_fuel: int = 200_000
    step_max_items: int = 50_000
    max_lexer_states: int = 50_000
    max_grammar_size: int = 200_000


LIMITS = Limits()


class Verdict(NamedTuple):
    """The result of a trial."""

    failure: str | None
    """Why the grammar cannot be used, in the compiler's words or ours; None if it can."""
    lasting: bool = True
    """Whether another trial would fail as well; False if the machine was too busy."""
    n_bytes: int = 0
    """About how much memory the compiled grammar takes."""


def verdict_on(
    grammar: str,
    *,
    library: str,
    n_tokens: int,
    special: Mapping[int, str],
    abort: AbortFlag | None = None,
) -> Verdict:
    """Whether the grammar can be used.

    `library`: the file of llguidance's extension; `special`: control tokens by id, below
    `n_tokens`, for grammars that name them. Setting `abort` kills the process. Raises MemoryError
    if there is no memory for the process, and EngineError if there is no verdict.
    """
    task = {
        "grammar": grammar,
        "library": library,
        "limits": LIMITS._asdict(),
        "memory_bytes": _MEMORY_BYTES,
        "n_tokens": n_tokens,
        "nice": _NICE,
        "seconds": COMPILE_SECONDS,
        "special": list(special.items()),
        "stack_bytes": _STACK_BYTES,
    }
    try:
        code, said, complaint = _ran(json.dumps(task).encode(), abort or AbortFlag())
    except subprocess.TimeoutExpired:
        return Verdict(f"it takes more than {_WALL_SECONDS:.0f} s to compile", lasting=False)
    except OSError as error:
        if error.errno in (errno.ENOMEM, errno.EAGAIN):
            raise MemoryError(f"for a grammar's trial: {error.strerror}") from error
        raise EngineError(f"the trial of a grammar cannot start: {error.strerror}") from error
    if code == 0:
        failure, n_bytes = json.loads(said)
        return Verdict(failure, n_bytes=n_bytes)
    if -code == signal.SIGXCPU:
        return Verdict(f"it takes more than {COMPILE_SECONDS} s to compile")
    if -code == signal.SIGKILL:  # by the same limit, or because the system is out of memory
        return Verdict("it takes too much time or memory to compile", lasting=False)
    if code < 0:
        return Verdict("it is too large or too deep to compile")
    reason = complaint.decode(errors="replace").strip().splitlines()[-1:]
    raise EngineError(f"the trial of a grammar failed: {' '.join(reason)}")


def _ran(task: bytes, abort: AbortFlag) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of the process. It has ended when this returns or raises."""
    # Isolated and without site, the interpreter starts in some hundredths of a second.
    command = [sys.executable, "-I", "-S", str(_CHILD)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdin is not None
        # The process reads all of this before it does anything else.
        with suppress(BrokenPipeError), child.stdin as task_pipe:
            task_pipe.write(task)
        child.stdin = None
        waited = 0.0
        try:
            while True:
                try:
                    output, complaint = child.communicate(timeout=_LOOK_S)
                except subprocess.TimeoutExpired:
                    waited += _LOOK_S
                    if waited >= _WALL_SECONDS:
                        raise
                else:
                    return child.returncode, output, complaint
                if abort.is_set():
                    raise EngineError("the request for this grammar was cancelled")
        finally:
            child.kill()  # does nothing if it has ended
