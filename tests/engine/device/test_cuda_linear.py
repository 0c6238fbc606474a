"""Products of a matrix and few rows on the CUDA kernels, run by the emulator: against float64, and
bit for bit against themselves, whatever the number of rows and the order in which threads go on.
"""

import os
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from torch import Tensor

from engine.device import reference as ops_ref
from engine.device.arguments import Linear, NormLinear
from engine.device.cuda import weights as cuda_weights
from engine.device.cuda.weights import FORMATS, CudaMatrix
from engine.device.ops import NotFiniteError
from engine.device.reference import TorchMatrix
from engine.device.step import StepState
from tests.support.cuda_module import cuda, guarded, placed, set_knobs, step_state

__all__ = ["cuda", "placed", "set_knobs"]

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("placed")]

EPS = 1e-5
# Rows of matrix and columns: one block; neither a whole panel nor a whole step; a second section.
SHAPES = [(16, 64), (40, 200), (21, 67), (35, 2117)]
ROW_COUNTS = (1, 2, 3, 4, 5, 8, 9, 16)
# Of the sum of the products' sizes. bfloat16: x is split in two parts of 8 bits. The emulator adds
# in float32; tensor cores align 16 products and the sum before they add, and cut off what is below:
# up to 2^-24 of the largest for each, in chains of 4 (codes) or 16 (bfloat16).
BOUNDS = {"bfloat16": 6e-6, "8bit": 1.5e-6, "4bit": 1.5e-6}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rows_of(count: int, width: int, seed: int = 0) -> Tensor:
    """Rows whose sizes differ by many powers of two."""
    return random(count, width, seed=seed) * torch.logspace(-4, 4, count).unsqueeze(1)


def pack(cuda: ModuleType, parts: list[Tensor], format_: str, *, gated: bool = False) -> CudaMatrix:
    matrix = cuda_weights.pack(parts, format_, cuda, gated=gated)
    kept = guarded(matrix.weights)
    return CudaMatrix(kept, matrix.n_out, matrix.n_in, format_, gated, cuda)


def content(matrix: CudaMatrix) -> Tensor:
    """The numbers that the matrix stands for, float32 (n_out, n_in)."""
    out = torch.empty(matrix.n_out, matrix.n_in)
    cuda_weights.gather(matrix, torch.arange(matrix.n_out), out)
    return out


def state_of(n_rows: int) -> StepState:
    state = StepState(n_rows)
    state.set([0] * n_rows, 0)
    return state


def address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def linear(
    matrix: CudaMatrix, x: Tensor, bias: Tensor | None = None, *, residual: Tensor | None = None
) -> Tensor:
    x, out = guarded(x), guarded(torch.full((len(x), matrix.n_out), torch.nan))
    residual = None if residual is None else guarded(residual)
    tape = matrix.kernels.Tape()
    tape.linear(
        x=address(x),
        **matrix.place(),
        bias=address(bias),
        residual=address(residual),
        out=address(out),
    )
    run(matrix.kernels, tape, len(x))
    return out


def norm_linear(
    matrix: CudaMatrix, residual: Tensor, norm: Tensor, *, bias: Tensor | None = None
) -> Tensor:
    """Gated if the matrix is."""
    kernels = matrix.kernels
    residual, norm = guarded(residual), guarded(norm)
    width = matrix.n_out // 2 if matrix.gated else matrix.n_out
    out = guarded(torch.full((len(residual), width), torch.nan))
    tape = kernels.Tape()
    tape.norm_linear(
        residual=address(residual),
        norm=address(norm),
        eps=EPS,
        **matrix.place(),
        bias=address(bias),
        out=address(out),
        epilogue=kernels.Epilogue.SILU_GATE if matrix.gated else kernels.Epilogue.NONE,
    )
    run(kernels, tape, len(residual))
    return out


def run(kernels: ModuleType, tape: object, n_rows: int) -> None:
    state = step_state(kernels, 0, [0] * n_rows)
    tape.run(address(state), n_rows, 1024, 0)  # type: ignore[attr-defined]


def product_error(y: Tensor, matrix: CudaMatrix, x: Tensor, bias: Tensor | None) -> float:
    """The largest error, as a part of the sum of the products' sizes."""
    weights, wide = content(matrix).double(), x.double()
    exact = torch.empty(y.shape, dtype=torch.float64)
    wide_bias = None if bias is None else bias.double()
    op = Linear(x=wide, matrix=TorchMatrix(weights, "float64"), bias=wide_bias, out=exact)
    ops_ref.linear(op, state_of(len(x)))
    sizes = wide.abs() @ weights.abs().t() + (0 if bias is None else bias.abs())
    return float(((y - exact).abs() / sizes.clamp_min(1e-30)).max())


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(("n_out", "n_in"), SHAPES)
def test_a_product_is_that_of_float64_and_the_same_among_any_number_of_rows(
    cuda: ModuleType, n_out: int, n_in: int, format_: str
) -> None:
    matrix = pack(cuda, [random(n_out, n_in, seed=1)], format_)
    x, bias = rows_of(16, n_in), random(n_out, seed=2)
    together = linear(matrix, x, bias)
    assert product_error(together, matrix, x, bias) < BOUNDS[format_]
    for count in ROW_COUNTS:
        last = x[16 - count :]
        assert torch.equal(linear(matrix, last, bias), together[16 - count :]), count


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("n_in", [64, 90, 2117])
@pytest.mark.parametrize("gated", [False, True])
def test_norm_and_gate_are_those_of_float64(
    cuda: ModuleType, n_in: int, format_: str, gated: bool
) -> None:
    parts = [random(23, n_in, seed=3), random(23, n_in, seed=4)]
    matrix = pack(cuda, parts, format_, gated=gated)
    residual = rows_of(7, n_in, seed=5)
    norm, bias = 1 + random(n_in, seed=7) / 4, random(46, seed=8)
    y = norm_linear(matrix, residual, norm, bias=bias)

    exact = torch.empty(y.shape, dtype=torch.float64)
    op = NormLinear(
        residual=residual.double(),
        norm=norm.double(),
        eps=EPS,
        matrix=TorchMatrix(content(matrix).double(), "float64"),
        bias=bias.double(),
        gated=gated,
        out=exact,
    )
    ops_ref.norm_linear(op, state_of(len(residual)))
    assert (y - exact).abs().max() < 2e-6 * n_in**0.5 * exact.abs().max()
    for count in (1, 4, 6):
        assert torch.equal(norm_linear(matrix, residual[:count], norm, bias=bias), y[:count])


@pytest.mark.parametrize(
    ("format_", "n_in"),
    # The last one takes several passes.
    [*((format_, 90) for format_ in FORMATS), ("bfloat16", 10 * 2048 + 130)],
)
def test_a_residual_is_added_last(cuda: ModuleType, format_: str, n_in: int) -> None:
    matrix = pack(cuda, [random(40, n_in, seed=1)], format_)
    for count in (1, 5):
        x, residual, bias = rows_of(count, n_in), random(count, 40, seed=3), random(40, seed=2)
        product = linear(matrix, x, bias)
        assert torch.equal(linear(matrix, x, bias, residual=residual), residual + product)


@pytest.fixture
def shuffled() -> Iterator[list[str]]:
    name = "SOLITON_CUDA_EMULATOR_SEED"
    before = os.environ.get(name)
    yield ["1", "2", "3"]
    os.environ.pop(name)
    if before is not None:
        os.environ[name] = before


@pytest.mark.parametrize("format_", FORMATS)
def test_the_order_in_which_threads_go_on_changes_nothing(
    cuda: ModuleType, format_: str, shuffled: list[str]
) -> None:
    matrix = pack(cuda, [random(70, 330, seed=1), random(70, 330, seed=2)], format_, gated=True)
    residual, norm = random(5, 330), random(330, seed=4)
    results = []
    for seed in shuffled:
        os.environ["SOLITON_CUDA_EMULATOR_SEED"] = seed
        results.append(norm_linear(matrix, residual, norm))
    for result in results[1:]:
        assert torch.equal(result, results[0])


@pytest.mark.parametrize("format_", FORMATS)
def test_more_columns_than_fit_at_once_change_nothing(cuda: ModuleType, format_: str) -> None:
    n_in = 10 * 2048 + 130  # 1 row takes two passes, 16 take eleven
    matrix = pack(cuda, [random(16, n_in, seed=1)], format_)
    x, norm = rows_of(16, n_in), random(n_in, seed=2)
    together = norm_linear(matrix, x, norm)
    for row in (0, 15):
        alone = norm_linear(matrix, x[row : row + 1], norm)
        assert torch.equal(alone[0], together[row])
    y = linear(matrix, x)
    assert product_error(y, matrix, x, None) < BOUNDS[format_]


def test_rows_that_do_not_fit_at_once_go_one_part_after_the_other(cuda: ModuleType) -> None:
    # A block has so many panels that their sums, of 16 rows, leave no room for x.
    n_panels = 52 * cuda.properties(0)["n_multiprocessors"]
    few = pack(cuda, [random(16, 2049)], "bfloat16")
    many = pack(cuda, [random(16, 2049).repeat(n_panels, 1)], "bfloat16")
    x = rows_of(16, 2049)
    y = linear(many, x)
    assert torch.equal(y, linear(few, x).repeat(1, n_panels))


@pytest.mark.parametrize("format_", ["8bit", "4bit"])
@pytest.mark.parametrize("n_in", [200, 2048 + 130])
def test_two_blocks_on_a_multiprocessor_change_no_bit(
    cuda: ModuleType, set_knobs: Callable[..., None], n_in: int, format_: str
) -> None:
    """One row, and several, have kernels of their own."""
    n_panels = 2 * cuda.properties(0)["n_multiprocessors"] + 1
    parts = [random(16 * n_panels - 5, n_in, seed=seed) for seed in (1, 2)]
    matrices = [
        pack(cuda, parts[:1], format_),
        pack(cuda, [part[:100] for part in parts], format_, gated=True),
    ]
    norm = random(n_in, seed=3)
    for count in (1, 3):
        x = rows_of(count, n_in, seed=count)
        set_knobs(q4_blocks=1, q8_blocks=1)
        plain = [norm_linear(matrix, x, norm) for matrix in matrices]
        set_knobs(q4_blocks=2, q8_blocks=2)
        for matrix, expected in zip(matrices, plain, strict=True):
            assert torch.equal(norm_linear(matrix, x, norm), expected)


@pytest.mark.parametrize("format_", FORMATS)
def test_numbers_of_any_size_are_multiplied(cuda: ModuleType, format_: str) -> None:
    matrix = pack(cuda, [random(16, 256, seed=1)], format_)
    x = random(5, 256) * torch.tensor([1e-37, 1e-20, 1.0, 1e20, 1e34]).unsqueeze(1)
    x[3, 64:] = 0
    assert product_error(linear(matrix, x), matrix, x, None) < BOUNDS[format_]
    x[2, 7] = 1e30  # the rest of its group may be lost beside it
    weights = content(matrix).double()
    # With 4 bits a weight is a product and a minimum: the error is that of these, although their
    # sum may be near zero.
    sizes = 1e30 * weights[:, :64].abs().amax(1)
    error = linear(matrix, x)[2] - x[2].double() @ weights.t()
    assert float((error.abs() / sizes).max()) < BOUNDS[format_]
    x[1, 5] = torch.nan
    x[4, 70] = torch.inf
    y = linear(matrix, x)
    assert not y[[1, 4]].isfinite().any()
    assert y[[0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("format_", FORMATS)
def test_what_is_packed_is_near_and_comes_back_row_by_row(
    cuda: ModuleType, format_: str, gated: bool
) -> None:
    parts = [random(19, 150, seed=1), random(19, 150, seed=2).bfloat16()]
    parts[0][3] *= 1e-3
    parts[0][4] = 0
    parts[1][5, :64] = 7.0
    matrix = pack(cuda, parts, format_, gated=gated)
    values, held = torch.cat([part.float() for part in parts]), content(matrix)
    if format_ == "bfloat16":
        assert torch.equal(held, values.bfloat16().float())
    else:
        share = {"8bit": 0.51 / 127, "4bit": 0.5 / 15 + 0.15}[format_]
        groups = torch.nn.functional.pad(values, (0, 42)).view(38, 3, 64)
        reach = groups.abs().amax(-1) if format_ == "8bit" else groups.amax(-1) - groups.amin(-1)
        far = share * reach.repeat_interleave(64, dim=1)[:, :150] + 1e-6
        assert ((held - values).abs() <= far).all()
        assert (held[4] == 0).all()
    order = torch.tensor([37, 0, 18, 19, 19])
    gathered = torch.empty(5, 150)
    cuda_weights.gather(matrix, order, gathered)
    assert torch.equal(gathered, held[order])
    for begin, end in ((0, 38), (18, 20), (20, 21), (7, 7)):
        out = guarded(torch.zeros(end - begin, 150, dtype=torch.bfloat16))
        cuda_weights.rows(matrix, begin, end, out)
        assert torch.equal(out, held[begin:end].bfloat16())


def test_many_columns_come_back_in_whole_words(cuda: ModuleType) -> None:
    for format_ in ("8bit", "4bit"):
        matrix = pack(cuda, [random(33, 1072)], format_)
        out = guarded(torch.zeros(33, 1072, dtype=torch.bfloat16))
        cuda_weights.rows(matrix, 0, 33, out)
        assert torch.equal(out, content(matrix).bfloat16())


def test_four_bits_in_groups_of_64_lose_little(cuda: ModuleType) -> None:
    values = random(64, 512)
    assert ((content(pack(cuda, [values], "4bit")) - values).norm() / values.norm()) < 0.084
    # A group with numbers far from the rest: cutting off nothing would cost more.
    values[:, ::64] = 8
    plain = torch.round((values - values.min()) / (values.max() - values.min()) * 15)
    plain = plain / 15 * (values.max() - values.min()) + values.min()
    held = content(pack(cuda, [values], "4bit"))
    assert (held - values).norm() < 0.9 * (plain - values).norm()


@pytest.mark.parametrize("format_", FORMATS)
def test_what_is_not_finite_is_named(cuda: ModuleType, format_: str) -> None:
    parts = [random(3, 70), random(5, 70)]
    parts[1][2, 69] = torch.inf
    with pytest.raises(NotFiniteError) as found:
        cuda_weights.pack(parts, format_, cuda)
    assert found.value.index == (5, 69)


@pytest.mark.parametrize("dim", [64, 90, 5000])
def test_norm_of_many_rows(cuda: ModuleType, dim: int) -> None:
    residual, norm = guarded(rows_of(19, dim)), random(dim, seed=2)
    out = guarded(torch.zeros(19, dim, dtype=torch.bfloat16))
    cuda.rms_norm(
        residual=address(residual),
        norm=address(norm),
        eps=EPS,
        n_rows=19,
        dim=dim,
        out=address(out),
        stream=0,
    )
    exact = ops_ref.rms_norm(residual.double(), norm.double(), EPS)
    assert ((out - exact).abs() <= 2.0**-8 * exact.abs() + 1e-30).all()


@pytest.mark.parametrize("width", [64, 90, 1500])
def test_silu_gate_of_many_rows(cuda: ModuleType, width: int) -> None:
    gate_up = guarded(3 * random(19, 2 * width).bfloat16())
    out = guarded(torch.zeros(19, width, dtype=torch.bfloat16))
    cuda.activate(
        x=address(gate_up),
        n_rows=19,
        width=width,
        epilogue=cuda.Epilogue.SILU_GATE,
        out=address(out),
        stream=0,
    )
    gate, up = gate_up.double().chunk(2, dim=1)
    exact = ops_ref.activated(gate, "silu") * up
    assert ((out - exact).abs() <= 2.0**-8 * exact.abs() + 1e-30).all()
