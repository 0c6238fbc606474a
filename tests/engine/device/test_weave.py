"""The order of panels that is measured when a quantised model is loaded."""

import threading

import numpy as np
import pytest

from engine.device.cpu.memory import LargePages
from engine.device.cpu.ops import CpuOps
from engine.device.cpu.weave import APART, Order, decided, fastest_order
from engine.device.formats import DTYPES, EXACT_FORMATS, GGUF_FORMATS, QUANTIZED
from engine.device.step import StepState
from engine.native import _cpu
from engine.native.cpu import address
from tests.support.gguf_blocks import random_rows

FETCHED, WOVEN = Order(is_woven=True, is_fetched=True), Order(is_woven=True, is_fetched=False)
# Seconds of a round: which order is the fastest in it.
FETCHED_FIRST = {FETCHED: 1.0, WOVEN: 1.2, APART: 1.1}
APART_FIRST = {FETCHED: 1.0, WOVEN: 1.2, APART: 0.9}
WITHIN_NOISE = {FETCHED: 1.0, WOVEN: 0.99, APART: 0.98}


class NoMemory(LargePages):
    """For what needs none."""

    def ahead(self, n_bytes: int) -> np.ndarray:
        raise AssertionError("it was measured")


@pytest.mark.parametrize("format_", DTYPES)
def test_floats_are_not_woven(format_: str) -> None:
    assert fastest_order(format_, _cpu.isa(), NoMemory()) == APART


@pytest.mark.parametrize("format_", QUANTIZED)
def test_matrices_have_the_order_that_was_measured(format_: str) -> None:
    ops = CpuOps(format_, n_threads=1)
    weights = np.random.default_rng(0).standard_normal((100, 70), np.float32)
    (matrix,) = ops.matrix([weights], format_).sections
    # It is measured once: the second time it needs no memory.
    order = fastest_order(format_, _cpu.isa(), NoMemory())
    assert (matrix.is_woven, matrix.is_fetched) == order
    (again,) = ops.matrix([weights], format_).sections
    assert (again.is_woven, again.is_fetched) == order


@pytest.mark.parametrize("type_name", ["Q4_K", "MXFP4"])
def test_blocks_of_gguf_types_have_the_order_that_was_measured(type_name: str) -> None:
    format_ = EXACT_FORMATS[type_name]
    ops = CpuOps("float32", n_threads=1)
    (matrix,) = ops.matrix([random_rows(type_name, 100, 512)], format_).sections
    assert (matrix.is_woven, matrix.is_fetched) == fastest_order(format_, _cpu.isa(), NoMemory())


def test_one_sample_of_formats_decides_for_almost_all() -> None:
    isa = "a second instruction set of its own"
    order = fastest_order("8bit", isa, LargePages())
    alike = {*QUANTIZED, *GGUF_FORMATS} - {"q2_k"}
    assert {fastest_order(format_, isa, NoMemory()) for format_ in alike} == {order}
    with pytest.raises(AssertionError, match="measured"):  # unpacking is what limits it
        fastest_order("q2_k", isa, NoMemory())


def test_nothing_is_measured_while_another_thread_runs_ops() -> None:
    words, sums = np.ones(2**20, np.uint64), np.zeros(32, np.uint64)
    state, tape = StepState(1), _cpu.Tape()
    for _ in range(100_000):
        tape.read(words=address(words), n_words=2**20, piece_words=2**15, sums=address(sums))
    running = threading.Thread(target=run_when_possible, args=(tape, state))
    running.start()
    try:
        wait_until_refused()
        assert fastest_order("8bit", "an instruction set of its own", LargePages()) == APART
        assert running.is_alive()
    finally:
        state.abort_word[0] = 1
        running.join()


def run_when_possible(tape: _cpu.Tape, state: StepState) -> None:
    while True:
        try:
            tape.run(state.address)
        except RuntimeError:
            continue
        return


def wait_until_refused() -> None:
    tape, state = _cpu.Tape(), StepState(1)
    while True:
        try:
            tape.run(state.address)
        except RuntimeError:
            return


def test_rounds_that_agree_are_enough() -> None:
    rounds = iter(9 * [APART_FIRST])
    assert decided(rounds) == APART
    assert len(list(rounds)) == 6


def test_orders_that_take_the_same_time_leave_the_first() -> None:
    assert decided(9 * [WITHIN_NOISE]) == FETCHED


@pytest.mark.parametrize("lucky", range(9))
def test_one_lucky_time_does_not_decide(lucky: int) -> None:
    rounds = 9 * [FETCHED_FIRST]
    rounds[lucky] = {FETCHED: 1.0, WOVEN: 1.2, APART: 0.5}
    assert decided(rounds) == FETCHED
