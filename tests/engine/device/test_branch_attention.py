"""The native attention op of branches: each row bit for bit what its branch alone gets."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from engine.device.cpu.branches import CpuBranches
from engine.device.step import StepState
from engine.native import _cpu
from engine.native.cpu import address
from tests.engine.device.test_attention import Layer

Floats = npt.NDArray[np.float32]

pytestmark = pytest.mark.usefixtures("one_thread")

MAX_SEQ_LEN = 600
FORMATS = {
    "float32": "float32",
    "bfloat16": "bfloat16",
    "int8": "8bit",
    "int4": "4bit",
    "int8+int4": "k8v4",
}


class Branched:
    """A layer whose cache holds a prefix, and the op over its branches."""

    def __init__(self, layer: Layer, prefix: Floats, *, n_branches: int, n_positions: int) -> None:
        self.layer, self.fork = layer, len(prefix)
        if len(prefix):
            layer.run_chunks(prefix, 16)
        shape = layer.n_kv_heads, layer.max_seq_len, layer.head_dim
        self.memory = CpuBranches(
            [shape],
            FORMATS[layer.kv],
            n_branches=n_branches,
            n_positions=n_positions,
            max_seq_len=len(layer.cos),
        )

    def run(self, rows: Sequence[tuple[int, int]], qkv: Floats) -> Floats:
        """Rows (branch, position) in one pass."""
        self.memory.place(self.fork, rows)
        out = np.full((len(rows), self.layer.n_heads * self.layer.head_dim), np.nan, np.float32)
        state = StepState(len(rows))
        state.set([0] * len(rows), 0)
        tails = self.memory.tails[0]
        tape = _cpu.Tape()
        tape.branch_attention(
            self.layer.op(qkv, out),
            fork=address(tails.words),
            rows=address(tails.words) + 8,
            k_tails=address(tails.keys.panels),
            v_tails=address(tails.values.panels),
            k_tail_scales=address(tails.keys.scales),
            v_tail_scales=address(tails.values.scales),
            tail_len=tails.keys.max_seq_len,
        )
        assert tape.run(state.address)
        return out


def alone(new_layer: "Layer", prefix: Floats, tail: Floats) -> Floats:
    """Of a sequence that has the cache to itself, the rows of its tail."""
    if len(prefix):
        new_layer.run_chunks(prefix, 16)
    return np.concatenate(
        [new_layer.run(tail[i : i + 1], len(prefix) + i) for i in range(len(tail))]
    )


# The first and the last position of a panel, both sides of a block's end, and one before anything.
@pytest.mark.parametrize("fork", [0, 5, 15, 16, 250, 256])
@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("shape", [(4, 2, 16, 0), (6, 3, 20, 40)])
def test_each_row_is_that_of_its_branch_alone(
    fork: int, kv: str, shape: tuple[int, int, int, int]
) -> None:
    n_heads, n_kv_heads, head_dim, window = shape
    check_branches(
        lambda: Layer(n_heads, n_kv_heads, head_dim, MAX_SEQ_LEN, kv=kv, window=window), fork
    )


@pytest.mark.parametrize("fork", [5, 290])
@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("window", [0, 100])
def test_rows_of_heads_with_sinks(fork: int, kv: str, window: int) -> None:
    check_branches(
        lambda: Layer(6, 3, 20, MAX_SEQ_LEN, kv=kv, window=window, with_sinks=True), fork
    )


# 64 queries go through a block together, 32 if they are wide.
@pytest.mark.parametrize("shape", [(40, 1, 16), (26, 2, 264), (70, 1, 16)])
def test_rows_may_be_divided(shape: tuple[int, int, int]) -> None:
    check_branches(lambda: Layer(*shape, MAX_SEQ_LEN, kv="bfloat16", with_sinks=True), 290)


def check_branches(layer: Callable[[], Layer], fork: int) -> None:
    """Three branches of 20 tokens each, not all of which are in every pass."""
    n_branches, n_tokens = 3, 20
    prefix = layer().rows(fork, seed=1)
    tails = [layer().rows(n_tokens, seed=2 + branch) for branch in range(n_branches)]
    wanted = [alone(layer(), prefix, tail) for tail in tails]
    branched = Branched(layer(), prefix, n_branches=n_branches, n_positions=n_tokens)
    # The second one starts later and ends with the others; the third is left out in between.
    done = [0] * n_branches
    for turn in range(2 * n_tokens):
        going = [
            branch
            for branch, n_done in enumerate(done)
            if n_done < n_tokens
            and not (branch == 1 and turn < 4)
            and not (branch == 2 and turn % 3)
        ]
        if not going:
            continue
        rows = [(branch, fork + done[branch]) for branch in going]
        found = branched.run(rows, np.concatenate([tails[b][done[b] : done[b] + 1] for b in going]))
        for branch, row in zip(going, found, strict=True):
            assert np.array_equal(row, wanted[branch][done[branch]]), (branch, done[branch])
            done[branch] += 1


def test_a_branch_can_go_back() -> None:
    def layer() -> Layer:
        return Layer(4, 2, 16, MAX_SEQ_LEN, kv="bfloat16")

    prefix, first, second = (layer().rows(n, seed=n) for n in (30, 9, 8))
    branched = Branched(layer(), prefix, n_branches=2, n_positions=16)
    for i in range(9):
        branched.run([(1, 30 + i), (0, 30 + i)], np.concatenate([first[i : i + 1]] * 2))
    wanted = alone(layer(), np.concatenate([prefix, first[:4]]), second)
    for i in range(8):
        (row,) = branched.run([(1, 34 + i)], second[i : i + 1])
        assert np.array_equal(row, wanted[i])


@pytest.mark.parametrize(
    "rows", [[(0, 9)], [(0, 26)], [(2, 10)], [(-1, 10)], [(0, 10), (0, 11)]], ids=str
)
def test_a_row_without_room_is_refused(rows: list[tuple[int, int]]) -> None:
    memory = CpuBranches([(2, 100, 16)], "float32", n_branches=2, n_positions=16, max_seq_len=100)
    memory.place(10, [(0, 10), (1, 25)])
    with pytest.raises(ValueError, match="branch"):
        memory.place(10, rows)
    with pytest.raises(ValueError, match="position 100"):
        memory.place(90, [(0, 100)])
