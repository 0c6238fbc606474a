"""Recorded passes on the CPU: what a program runs, keeps alive, refuses, and how it is stopped."""

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from engine.device.arguments import Embed, Linear, NormLinear
from engine.device.cpu.ops import CpuOps
from engine.device.cpu.program import CpuProgram
from engine.device.step import StepState
from engine.native import _cpu

Floats = npt.NDArray[np.float32]

# Both run far longer than the test waits, unless they are stopped.
LONG = """
import sys, threading, time, os
import numpy as np
from engine.device.arguments import Linear
from engine.device.cpu.ops import CpuOps
from engine.device.step import StepState

ops = CpuOps("float32", n_threads=2)
matrix = ops.matrix([np.zeros((512, 512), np.float32)], "float32")
x, out = ops.zeros((512, 512), "float32"), ops.zeros((512, 512), "float32")
program = ops.program(512)
for _ in range(20_000):
    program.append(Linear(x=x, matrix=matrix, out=out))
short = ops.program(512)
short.append(Linear(x=x, matrix=matrix, out=out))
state, one = StepState(512), StepState(1)
state.set([0] * 512, 0)
one.set([0], 0)
runner = threading.Thread(target=program.run, args=(state,), daemon=True)
runner.start()
time.sleep(0.2)
"""
EXITS = LONG + "print('done')\n"
FORKS = (
    LONG
    + """
try:
    short.run(one)
except RuntimeError as error:
    print(error)
child = os.fork()
if child == 0:
    os._exit(0 if short.run(one) else 1)
_, status = os.waitpid(child, 0)
print("child", status)
state.abort_word[0] = 1
runner.join(10)
print("stopped", not runner.is_alive())
print("again", short.run(one))
"""
)

# Memory that is given back to the system when it is freed, so that reading it would be noticed.
FREES = """
import gc, time
import numpy as np
from engine.device.arguments import Linear
from engine.device.cpu.ops import CpuOps
from engine.device.step import StepState

state = StepState(1)
state.set([0], 0)
for number in range(10):
    ops = CpuOps("float32", n_threads=2)
    matrix = ops.matrix([np.zeros((1536, 1536), np.float32)], "float32")
    x, out = ops.zeros((1, 1536), "float32"), ops.zeros((1, 1536), "float32")
    program = ops.program(1)
    for _ in range(1000):
        program.append(Linear(x=x, matrix=matrix, out=out))
    program.run(state)
    program.begin(state)
    # In a circle that the garbage collector breaks, in an order of its own.
    circle = [matrix, program] if number % 2 else [program, matrix]
    circle.append(circle)
    del ops, matrix, x, out, program, circle
    gc.collect()
    time.sleep(0.02)  # far less than the pass would take
print("done")
"""


def script(text: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", text]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = _cpu.threads()
    yield
    _cpu.set_threads(before)


def random(*shape: int) -> Floats:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def state_of(n_rows: int) -> StepState:
    state = StepState(max(n_rows, 1))
    state.set(list(range(n_rows)), 0)
    return state


class Example:
    """embed, norm_linear (gated), linear: enough to see order and memory."""

    def __init__(self, *, max_rows: int = 64, n_threads: int = 2) -> None:
        ops = CpuOps("float32", n_threads=1)
        _cpu.set_threads(n_threads)
        self.table = random(80, 48)
        self.gate_up, self.down, self.norm = random(64, 48), random(48, 32), random(48)
        self.residual, self.out = (ops.zeros((max_rows, 48), "float32") for _ in range(2))
        self.gated = ops.zeros((max_rows, 32), "float32")
        self.program = ops.program(max_rows)
        table = ops.matrix([self.table], "float32")
        self.program.append(Embed(table=table, out=self.residual))
        self.program.append(
            NormLinear(
                residual=self.residual,
                norm=self.norm,
                eps=1e-5,
                matrix=ops.matrix([self.gate_up[:32], self.gate_up[32:]], "float32", gated=True),
                gated=True,
                out=self.gated,
            )
        )
        down = ops.matrix([self.down], "float32")
        self.program.append(Linear(x=self.gated, matrix=down, out=self.out))

    def expected(self, ids: list[int]) -> Floats:
        x = self.table[ids].astype(np.float64)
        x = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * self.norm
        gate, up = np.split(x @ self.gate_up.T, 2, axis=1)
        result: Floats = ((gate / (1 + np.exp(-gate)) * up) @ self.down.T).astype(np.float32)
        return result


def test_a_program_runs_for_other_ids_and_row_counts() -> None:
    example, state = Example(), StepState(64)
    for ids in ([3], [79, 0, 5], list(range(40))):
        state.set(ids, 0)
        example.out.fill(-1)
        assert example.program.run(state)
        expected = example.expected(ids)
        np.testing.assert_allclose(example.out[: len(ids)], expected, rtol=1e-3, atol=1e-3)
        assert (example.out[len(ids) :] == -1).all(), "rows of no id must be left alone"


@pytest.mark.parametrize("n_rows", [1, 16, 50])
def test_the_number_of_threads_changes_no_bit(n_rows: int) -> None:
    results = []
    for n_threads in (1, 2, 3, 8):
        example = Example(n_threads=n_threads)
        assert example.program.run(state_of(n_rows))
        results.append(example.out)
    assert all(np.array_equal(result, results[0]) for result in results)


def test_a_program_keeps_its_arrays_and_no_longer_than_itself() -> None:
    ops = CpuOps("float32", n_threads=1)
    values = random(16, 32)
    matrix = ops.matrix([values], "float32")
    panels = weakref.ref(matrix.sections[0].panels)
    out = ops.zeros((1, 32), "float32")
    program = ops.program(1)
    program.append(Embed(table=matrix, out=out))
    del matrix
    gc.collect()
    assert panels() is not None
    state = StepState(1)
    state.set([7], 0)
    program.run(state)
    assert np.array_equal(out[0], values[7])
    del program
    gc.collect()
    assert panels() is None


@pytest.mark.parametrize("n_threads", [1, 2, 8])
def test_a_pass_that_was_begun_is_the_one_that_is_run(n_threads: int) -> None:
    example, other = Example(n_threads=n_threads), Example(n_threads=n_threads)
    wanted, state, elsewhere = {}, StepState(64), StepState(64)
    for token_id in (3, 5):
        state.set([token_id], 0)
        assert example.program.run(state)
        wanted[token_id] = example.out[0].copy()
    for token_id in (3, 5) * 20:
        state.set([3], 0)
        example.program.begin(state)
        if token_id == 5:
            state.set([5], 0)
            elsewhere.set([7], 0)
            assert other.program.run(elsewhere)
        assert example.program.run(state)
        assert np.array_equal(example.out[0], wanted[token_id])


def test_a_pass_that_was_begun_reads_nothing_that_is_freed() -> None:
    assert script(FREES) == ["done"]


def test_an_aborted_state_runs_nothing() -> None:
    example, state = Example(), state_of(2)
    state.abort_word[0] = 1
    assert not example.program.run(state)
    assert not example.out.any()
    assert not example.residual.any()


@pytest.mark.parametrize("n_threads", [1, 2])
def test_another_thread_can_end_a_run(n_threads: int) -> None:
    ops = CpuOps("float32", n_threads=n_threads)
    matrix = ops.matrix([np.zeros((256, 256), np.float32)], "float32")
    x, out = ops.zeros((256, 256), "float32"), ops.zeros((256, 256), "float32")
    program, state = ops.program(256), state_of(256)
    for _ in range(20_000):
        program.append(Linear(x=x, matrix=matrix, out=out))
    finished = []
    runner = threading.Thread(target=lambda: finished.append(program.run(state)))
    runner.start()
    time.sleep(0.05)  # holding the interpreter's lock would stop this thread here
    state.abort_word[0] = 1
    begin = time.monotonic()
    runner.join()
    assert finished == [False]
    assert time.monotonic() - begin < 2


def test_one_run_at_a_time_and_a_fork_has_threads_of_its_own() -> None:
    refused, *others = script(FORKS)
    assert refused == "native ops are running in another thread of this process"
    assert others == ["child 0", "stopped True", "again True"]


def test_the_interpreter_ends_while_ops_run() -> None:
    assert script(EXITS) == ["done"]


def test_the_profile_names_each_op_with_its_time() -> None:
    profile = Example().program.profile(state_of(8))
    assert [op.name.split()[0] for op in profile] == ["embed", "norm_linear", "linear"]
    assert all(op.ns > 0 for op in profile)


@pytest.mark.parametrize("n_rows", [0, 65])
def test_a_pass_of_more_rows_than_memory_is_refused(n_rows: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 64 rows, not {n_rows}"):
        Example().program.run(state_of(n_rows))


def test_memory_that_does_not_fit_is_refused_by_name() -> None:
    ops, program = CpuOps("float32", n_threads=1), CpuProgram(4)
    matrix = ops.matrix([random(16, 32)], "float32")
    x, out = ops.zeros((4, 32), "float32"), ops.zeros((4, 16), "float32")
    with pytest.raises(ValueError, match=r"out: expected shape \(4, 16\)"):
        program.append(Linear(x=x, matrix=matrix, out=x))
    with pytest.raises(ValueError, match="x: expected float32, got float64"):
        program.append(Linear(x=x.astype(np.float64), matrix=matrix, out=out))
    with pytest.raises(ValueError, match="bias: expected shape"):
        program.append(Linear(x=x, matrix=matrix, bias=x[0], out=out))
    with pytest.raises(ValueError, match="x: expected contiguous memory"):
        program.append(Linear(x=random(4, 64)[:, ::2], matrix=matrix, out=out))
