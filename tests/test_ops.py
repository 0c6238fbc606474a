"""The ops of the decoder: native kernels against their twins in torch, the twins against plain
definitions.
"""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from engine import _native, ops_ref
from engine.ops import Ops

DTYPES = (torch.float32, torch.bfloat16)
EPS = 1e-5


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def assert_close(actual: Tensor, expected: Tensor) -> None:
    # A sum in another order may round a bfloat16 to its neighbour, 2^-8 away.
    tolerance = 2e-5 if actual.dtype == torch.float32 else 2**-7
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=_native.supported_isas())
def ops(request: pytest.FixtureRequest) -> Iterator[Ops]:
    best = _native.isa()
    assert _native.select_isa(request.param)
    yield Ops("cpu", require_native=True)
    assert _native.select_isa(best)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [1, 3, 17, 64, 257, 4096])
@pytest.mark.parametrize("rows", [1, 5, 33])
def test_rms_norm(ops: Ops, rows: int, dim: int, dtype: torch.dtype) -> None:
    x, weight = random(rows, dim, dtype=dtype), random(dim, dtype=dtype)
    actual, expected = torch.empty_like(x), torch.empty_like(x)
    ops.rms_norm(x, weight, eps=EPS, out=actual)
    ops_ref.rms_norm(x, weight, eps=EPS, out=expected)
    assert_close(actual, expected)

    in_place = x.clone()
    ops.rms_norm(in_place, weight, eps=EPS, out=in_place)
    assert torch.equal(in_place, actual), "writing over x must give the same"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [1, 3, 17, 64, 257, 4096])
@pytest.mark.parametrize("rows", [1, 5, 33])
def test_add_rms_norm(ops: Ops, rows: int, dim: int, dtype: torch.dtype) -> None:
    before, x = random(rows, dim, dtype=dtype), random(rows, dim + 1, dtype=dtype)[:, 1:].clone()
    weight = random(dim, dtype=dtype)
    residuals = before.clone(), before.clone()
    actual, expected = torch.empty_like(x), torch.empty_like(x)
    ops.add_rms_norm(residuals[0], x, weight, eps=EPS, out=actual)
    ops_ref.add_rms_norm(residuals[1], x, weight, eps=EPS, out=expected)
    assert torch.equal(residuals[0], residuals[1]), "the sum is rounded once, so it must be equal"
    assert_close(actual, expected)


def test_norms_of_special_values(ops: Ops) -> None:
    for dtype in DTYPES:
        x = torch.tensor([[0.0, 0.0], [torch.nan, 1.0], [1e-20, 1e-20]], dtype=dtype)
        out = torch.empty_like(x)
        ops.rms_norm(x, torch.ones(2, dtype=dtype), eps=EPS, out=out)
        assert out[0].tolist() == [0.0, 0.0]
        assert out[1].isnan().all(), "a NaN must not get lost"
        assert out[2].isfinite().all()


def test_other_dtypes_take_the_reference(ops: Ops) -> None:
    x, weight = random(3, 8, dtype=torch.float64), random(8, dtype=torch.float64)
    actual, expected = torch.empty_like(x), torch.empty_like(x)
    ops.rms_norm(x, weight, eps=EPS, out=actual)
    ops_ref.rms_norm(x, weight, eps=EPS, out=expected)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(8)}, r"x: expected shape \(rows, dim\), got \(8,\)"),
        ({"x": torch.zeros(8, 2).t()}, "x: expected contiguous memory, got strides"),
        ({"x": torch.zeros(2, 0)}, "x: expected shape"),
        ({"weight": torch.zeros(7)}, r"weight: expected shape \(8,\), got \(7,\)"),
        (
            {"weight": torch.zeros(8).bfloat16()},
            "weight: expected torch.float32, got torch.bfloat16",
        ),
        ({"out": torch.zeros(3, 8)}, r"out: expected shape \(2, 8\), got \(3, 8\)"),
        ({"out": torch.zeros(2, 8).double()}, "out: expected torch.float32, got torch.float64"),
        (
            {"out": torch.zeros(2, 8, device="meta")},
            "out: expected a tensor on the CPU, got .*meta",
        ),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Tensor], message: str) -> None:
    right = {"x": torch.zeros(2, 8), "weight": torch.zeros(8), "out": torch.zeros(2, 8)}
    with pytest.raises(ValueError, match=f"^{message}"):
        Ops("cpu").rms_norm(**(right | changes), eps=EPS)
    if "x" in changes:
        changes, message = {"residual": changes["x"]}, message.replace("x:", "residual:")
    right = {"residual": torch.zeros(2, 8), "x": torch.zeros(2, 8)} | right
    with pytest.raises(ValueError, match=f"^{message}"):
        Ops("cpu").add_rms_norm(**(right | changes), eps=EPS)


def test_embed_linear_silu_add_logits() -> None:
    table, token_ids = random(11, 6), torch.tensor([3, 3, 10])
    x = torch.empty(3, 6)
    ops_ref.embed(table, token_ids, out=x)
    assert torch.equal(x, table[token_ids])

    weight, bias = random(8, 6), random(8)
    for given_bias in (None, bias):
        out = torch.empty(3, 8)
        ops_ref.linear(x, weight, bias=given_bias, out=out)
        assert_close(out, x @ weight.t() + (0 if given_bias is None else bias))

    gated = torch.empty(3, 4)
    ops_ref.silu_mul(out, out=gated)
    assert_close(gated, out[:, :4] * torch.sigmoid(out[:, :4]) * out[:, 4:])

    total = x.clone()
    ops_ref.add(total, x)
    assert torch.equal(total, 2 * x)

    for dtype in DTYPES:
        logits = torch.empty(3, 11)
        ops_ref.logits(x.to(dtype), table.to(dtype), out=logits)
        assert_close(logits.to(dtype), (x @ table.t()).to(dtype))


@pytest.mark.parametrize("rotary_dim", [4, 8])
@pytest.mark.parametrize("with_norm", [False, True])
def test_head_norm_rope(with_norm: bool, rotary_dim: int) -> None:
    n_heads, n_kv_heads, head_dim, rows, pos = 4, 2, 8, 3, 5
    half = rotary_dim // 2
    angles = torch.outer(torch.arange(16.0), 10.0 ** -torch.arange(half))
    weights = random(2, head_dim)
    qkv = random(rows, (n_heads + 2 * n_kv_heads) * head_dim)
    expected = qkv.clone().view(rows, -1, head_dim)
    for row in range(rows):
        for head in range(n_heads + n_kv_heads):
            vector = expected[row, head]
            if with_norm:
                weight = weights[0 if head < n_heads else 1]
                vector = vector / math.sqrt(vector.square().mean() + EPS) * weight
            rotated = vector.clone()
            for i in range(half):
                cosine, sine = angles[pos + row, i].cos(), angles[pos + row, i].sin()
                rotated[i] = vector[i] * cosine - vector[i + half] * sine
                rotated[i + half] = vector[i + half] * cosine + vector[i] * sine
            expected[row, head] = rotated

    ops_ref.head_norm_rope(
        qkv,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        q_weight=weights[0] if with_norm else None,
        k_weight=weights[1] if with_norm else None,
        eps=EPS,
        cos=angles.cos(),
        sin=angles.sin(),
        pos=pos,
    )
    assert_close(qkv.view(rows, -1, head_dim), expected)


N_HEADS, N_KV_HEADS, HEAD_DIM, MAX_SEQ_LEN = 6, 2, 16, 48


def attend(qkv: Tensor, caches: tuple[Tensor, Tensor], *, pos: int, window: int) -> Tensor:
    out = torch.empty(qkv.shape[0], N_HEADS * HEAD_DIM, dtype=qkv.dtype)
    ops_ref.kv_write(qkv, *caches, n_heads=N_HEADS, pos=pos)
    ops_ref.attention(
        qkv,
        *caches,
        n_heads=N_HEADS,
        pos=pos,
        window=window,
        scale=HEAD_DIM**-0.5,
        out=out,
    )
    return out


def some_caches(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Filled with noise, so that a look past the end would show."""
    shape = (N_KV_HEADS, MAX_SEQ_LEN, HEAD_DIM)
    return random(*shape, dtype=dtype), random(*shape, dtype=dtype) + 1


@pytest.mark.parametrize("window", [0, 1, 3, 7, 40])
@pytest.mark.parametrize(("pos", "rows"), [(0, 1), (0, 9), (20, 1), (20, 2), (20, 16), (5, 40)])
def test_attention(pos: int, rows: int, window: int) -> None:
    qkv = random(rows, (N_HEADS + 2 * N_KV_HEADS) * HEAD_DIM)
    k_cache, v_cache = some_caches()
    out = attend(qkv, (k_cache, v_cache), pos=pos, window=window)

    heads = qkv.view(rows, -1, HEAD_DIM)
    assert torch.equal(k_cache[:, pos : pos + rows], heads[:, N_HEADS:-N_KV_HEADS].transpose(0, 1))
    assert torch.equal(v_cache[:, pos : pos + rows], heads[:, -N_KV_HEADS:].transpose(0, 1))
    for row in range(rows):
        last = pos + row
        first = max(0, last - window + 1) if window else 0
        for head in range(N_HEADS):
            keys = k_cache[head // (N_HEADS // N_KV_HEADS), first : last + 1].double()
            values = v_cache[head // (N_HEADS // N_KV_HEADS), first : last + 1].double()
            probs = torch.softmax(keys @ heads[row, head].double() / math.sqrt(HEAD_DIM), 0)
            actual = out[row, head * HEAD_DIM : (head + 1) * HEAD_DIM]
            assert_close(actual, (probs @ values).float())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [0, 5])
def test_attention_of_a_row_is_the_same_in_any_company(window: int, dtype: torch.dtype) -> None:
    qkv = random(12, (N_HEADS + 2 * N_KV_HEADS) * HEAD_DIM, dtype=dtype)
    together = attend(qkv, some_caches(dtype), pos=0, window=window)
    caches = some_caches(dtype)
    for start, end in ((0, 1), (1, 6), (6, 7), (7, 12)):
        part = attend(qkv[start:end], caches, pos=start, window=window)
        assert_close(part, together[start:end])


def test_one_row_leaves_the_cache_where_it_is() -> None:
    # A copy of the cache would show as an allocation of its size.
    caches: Any = tuple(torch.zeros(N_KV_HEADS, 8192, HEAD_DIM) for _ in range(2))
    qkv = random(1, (N_HEADS + 2 * N_KV_HEADS) * HEAD_DIM)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        attend(qkv, caches, pos=8000, window=0)
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in profile.key_averages())
    assert allocated < caches[0].nbytes / 4, f"{allocated} bytes allocated"
