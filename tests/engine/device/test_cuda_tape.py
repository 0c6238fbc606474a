"""Tapes of CUDA launches on the emulator: eager, replayed as a graph, profiled; and the embed op,
run from a tape.
"""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from tests.support.cuda_module import cuda, emulated, guarded, placed, set_knobs, step_state

__all__ = ["cuda", "emulated", "placed", "set_knobs"]

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("placed")]

VOCAB = 21  # the last panel is not full
IDS = [0, 20, 15, 16, 7, 7, 8]


def padded(values: Tensor) -> Tensor:
    """(panels, 2, 8, blocks, 4, 2, 8): row g or g + 8 of a panel; then in a block of 64 columns the
    four lanes of a row, both halves of their columns, and these. Filled up with zeros.
    """
    rows, columns = values.shape
    filled = values.new_zeros(-(-rows // 16) * 16, -(-columns // 64) * 64)
    filled[:rows, :columns] = values
    return filled.view(-1, 2, 8, filled.shape[1] // 64, 4, 2, 8)


def scales(dim: int, seed: int) -> Tensor:
    """float16 (panels, 16, blocks), some of them subnormal."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(-(-VOCAB // 16), 16, -(-dim // 64), generator=generator) * 2 - 1
    numbers[:, 1] *= 2.0**-20
    return numbers.half()


def weights_of(codes: Tensor, scale: Tensor, minimum: Tensor | None = None) -> Tensor:
    """float32 (panels * 16, blocks * 64)."""
    numbers = codes.float().view(-1, 16, codes.shape[3], 64) * scale.float()[..., None]
    if minimum is not None:
        numbers += minimum.float()[..., None]
    return numbers.view(codes.shape[0] * 16, -1)


def bf16_table(dim: int) -> tuple[Tensor, Tensor]:
    values = torch.randn(VOCAB, dim, generator=torch.Generator().manual_seed(0)).bfloat16()
    table = values.new_zeros(VOCAB, -(-dim // 64) * 64)
    table[:, :dim] = values
    return table, values.float()


def q8_table(dim: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    codes = padded(torch.randint(-127, 128, (VOCAB, dim), generator=generator))
    scale = scales(dim, 2)
    # Blocks of (half, g, lane of a row, first or second row, column).
    bytes_ = (
        (codes + 128).to(torch.uint8).permute(0, 3, 5, 2, 4, 1, 6).reshape(*codes.shape[::3], -1)
    )
    of_rows = scale.transpose(1, 2).contiguous().view(torch.uint8)
    table = torch.cat((bytes_.view(*of_rows.shape[:2], -1), of_rows), dim=2)
    return table, weights_of(codes, scale)[:VOCAB, :dim]


def q4_table(dim: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    codes = padded(torch.randint(0, 16, (VOCAB, dim), generator=generator))
    scale, minimum = scales(dim, 4), scales(dim, 5)
    pairs = codes[..., 0, :] | codes[..., 1, :] << 4  # panels, 2, 8, blocks, 4, 8
    bytes_ = pairs.to(torch.uint8).permute(0, 3, 2, 4, 1, 5)
    both = torch.stack((scale, minimum), dim=-1).transpose(1, 2).contiguous()
    of_rows = both.view(*both.shape[:2], -1).view(torch.uint8)
    table = torch.cat((bytes_.reshape(*of_rows.shape[:2], -1), of_rows), dim=2)
    return table, weights_of(codes, scale, minimum)[:VOCAB, :dim]


TABLES = {"BF16": bf16_table, "Q8": q8_table, "Q4": q4_table}


@pytest.mark.parametrize("dim", [64, 136, 1030, 1088])
@pytest.mark.parametrize("layout", TABLES)
def test_embed_is_its_twin(cuda: ModuleType, layout: str, dim: int) -> None:
    table, weights = TABLES[layout](dim)
    table = guarded(table)
    out = guarded(torch.full((len(IDS), dim), torch.nan))
    tape = cuda.Tape()
    tape.embed(
        weights=table.data_ptr(),
        n_out=VOCAB,
        n_in=dim,
        layout=cuda.Layout[layout],
        out=out.data_ptr(),
    )
    state = step_state(cuda, 0, IDS)
    tape.run(state.data_ptr(), len(IDS), 1024, 0)
    assert torch.equal(out, weights[IDS].to(out.dtype))


class Pass:
    """A tape that looks tokens up in two tables, one after the other, and where it writes."""

    def __init__(self, cuda: ModuleType, max_rows: int) -> None:
        self.tables = [torch.randn(VOCAB, 64).bfloat16() for _ in range(2)]
        self.outs = [torch.zeros(max_rows, 64) for _ in self.tables]
        self.state = step_state(cuda, 0, [0] * max_rows)
        self.tape = cuda.Tape()
        for table, out in zip(self.tables, self.outs, strict=True):
            self.append(cuda, table, out)

    def append(self, cuda: ModuleType, table: Tensor, out: Tensor) -> None:
        self.tape.embed(
            weights=table.data_ptr(),
            n_out=VOCAB,
            n_in=64,
            layout=cuda.Layout.BF16,
            out=out.data_ptr(),
        )

    def wrote(self, token_ids: list[int], call: str, max_length: int = 1024) -> list[Tensor]:
        """The rows that the tables gave; every other row is NaN."""
        for out in self.outs:
            out.fill_(torch.nan)
        self.state[1] = len(token_ids)
        self.state[8 : 8 + len(token_ids)] = torch.tensor(token_ids)
        getattr(self.tape, call)(self.state.data_ptr(), len(token_ids), max_length, 0)
        return [out.clone() for out in self.outs]

    def expected(self, token_ids: list[int]) -> list[Tensor]:
        wanted = [torch.full_like(out, torch.nan) for out in self.outs]
        for out, table in zip(wanted, self.tables, strict=True):
            out[: len(token_ids)] = table[token_ids].float()
        return wanted


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x.nan_to_num(7e7), y.nan_to_num(7e7)) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("call", ["run", "replay", "profile"])
def test_every_way_to_run_does_all_ops_with_the_tokens_of_now(cuda: ModuleType, call: str) -> None:
    one = Pass(cuda, 5)
    for token_ids in ([3, 1, 20], [4, 0, 2], [5], [6], [1, 1, 1, 1, 1], [7, 8, 9]):
        for max_length in (1024, 2048, 1024):
            assert same(one.wrote(token_ids, call, max_length), one.expected(token_ids))


def test_an_op_that_is_appended_after_a_replay_is_replayed_too(cuda: ModuleType) -> None:
    one = Pass(cuda, 2)
    for _ in range(2):
        one.wrote([3, 4], "replay")
    one.tables.append(torch.randn(VOCAB, 64).bfloat16())
    one.outs.append(torch.zeros(2, 64))
    one.append(cuda, one.tables[-1], one.outs[-1])
    assert one.tape.names() == ["embed"] * 3
    assert len(one.tape) == 3
    for _ in range(3):
        assert same(one.wrote([5, 6], "replay"), one.expected([5, 6]))


def test_a_graph_that_was_prepared_does_all_ops(cuda: ModuleType) -> None:
    one = Pass(cuda, 2)
    one.wrote([1, 2], "run")
    for _ in range(2):
        one.tape.prepare(one.state.data_ptr(), 2, 4096, 0)
    assert same(one.wrote([5, 6], "replay", 4096), one.expected([5, 6]))


def test_each_set_of_knobs_has_its_own_graph(
    cuda: ModuleType, set_knobs: Callable[..., None]
) -> None:
    one = Pass(cuda, 2)
    for overlap in (True, False, True):
        set_knobs(overlap=overlap)
        assert cuda.knobs()["overlap"] == overlap
        for token_ids in ([3, 4], [5, 6]):
            assert same(one.wrote(token_ids, "replay"), one.expected(token_ids))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"q4_blocks": 3}, "q4_blocks and q8_blocks must be 1 or 2"),
        ({"q8_blocks": 0}, "q4_blocks and q8_blocks must be 1 or 2"),
        ({"attention_prefetch_bytes": -1}, "must be at least 0"),
    ],
    ids=str,
)
def test_values_that_no_knob_has(
    cuda: ModuleType, set_knobs: Callable[..., None], values: dict[str, int], message: str
) -> None:
    before = cuda.knobs()
    with pytest.raises(ValueError, match=message):
        set_knobs(**values)
    assert cuda.knobs() == before


def test_the_profile_has_a_time_for_every_op(cuda: ModuleType) -> None:
    one = Pass(cuda, 1)
    assert all(ns > 0 for ns in one.tape.profile(one.state.data_ptr(), 1, 1024, 0))
    assert cuda.Tape().profile(one.state.data_ptr(), 1, 1024, 0) == []


@pytest.mark.parametrize("call", ["run", "replay", "profile"])
def test_an_error_names_the_op(emulated: ModuleType, call: str) -> None:
    with torch.device("cpu"):  # where the emulator runs, also if there is a GPU
        one = Pass(emulated, 1)
        one.tape.embed(
            weights=one.tables[0].data_ptr() + 2,
            n_out=VOCAB,
            n_in=64,
            layout=emulated.Layout.BF16,
            out=one.outs[0].data_ptr(),
        )
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"^embed: .*a misaligned address at embed\.cu:"):
                one.wrote([1], call)
    with pytest.raises(RuntimeError, match=r"^embed: invalid configuration argument"):
        getattr(one.tape, call)(one.state.data_ptr(), 0, 1024, 0)


def test_properties_are_those_of_the_device(emulated: ModuleType) -> None:
    properties = emulated.properties(0)
    assert properties["name"] == "emulated"
    assert properties["n_multiprocessors"] == 4
    assert properties["max_shared_bytes"] > 48 * 1024
    with pytest.raises(RuntimeError, match="the properties of the device: invalid device ordinal"):
        emulated.properties(1)
