"""The ops of the decoder in torch, against plain definitions."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.device import reference as ops_ref
from engine.device.arguments import Attention, Embed, Linear, NormLinear
from engine.device.reference import TorchHeadRows, TorchMatrix
from engine.device.step import StepState

DTYPES = (torch.float32, torch.bfloat16)
EPS = 1e-5


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def assert_close(actual: Tensor, expected: Tensor) -> None:
    # A sum in another order may round a bfloat16 to its neighbour, 2^-8 away.
    tolerance = 2e-5 if actual.dtype == torch.float32 else 2**-7
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def matrix_of(weights: Tensor) -> TorchMatrix:
    return TorchMatrix(weights, "float32")


def state_of(n_rows: int, *, pos: int = 0) -> StepState:
    state = StepState(n_rows)
    state.set([0] * n_rows, pos)
    return state


def normed(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def test_embed_and_linear() -> None:
    table, x, state = random(11, 6), torch.empty(3, 6), StepState(3)
    state.set([3, 3, 10], 0)
    ops_ref.embed(Embed(table=matrix_of(table), out=x), state)
    assert torch.equal(x, table[[3, 3, 10]])

    weight, bias, out = random(8, 6), random(8), torch.empty(3, 8)
    ops_ref.linear(Linear(x=x, matrix=matrix_of(weight), out=out), state)
    assert_close(out, x @ weight.t())
    ops_ref.linear(Linear(x=x, matrix=matrix_of(weight), bias=bias, out=out), state)
    assert_close(out, x @ weight.t() + bias)
    residual = random(5, 8)
    ops_ref.linear(Linear(x=x, matrix=matrix_of(weight), residual=residual, out=out), state)
    assert_close(out, residual[:3] + x @ weight.t())
    with pytest.raises(ValueError, match="out: it must be another array than residual"):
        Linear(x=x, matrix=matrix_of(weight), residual=out, out=out)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_norm_linear(with_bias: bool, gated: bool) -> None:
    residual, norm = random(3, 6), random(6)
    matrix, bias = random(8, 6), random(8)
    out = torch.empty(3, 4 if gated else 8)
    op = NormLinear(
        residual=residual,
        norm=norm,
        eps=EPS,
        matrix=matrix_of(matrix),
        bias=bias if with_bias else None,
        gated=gated,
        out=out,
    )
    ops_ref.norm_linear(op, state_of(3))
    expected = normed(residual, norm) @ matrix.t() + (bias if with_bias else 0)
    if gated:
        expected = expected[:, :4] * torch.sigmoid(expected[:, :4]) * expected[:, 4:]
    assert_close(out, expected)


def test_logits_are_float32() -> None:
    residual, head = random(2, 6, dtype=torch.bfloat16), random(9, 6, dtype=torch.bfloat16)
    logits = torch.empty(2, 9)
    norm = random(6).bfloat16()
    op = NormLinear(residual=residual, norm=norm, eps=EPS, matrix=matrix_of(head), out=logits)
    ops_ref.norm_linear(op, state_of(2))
    x = normed(residual.float(), random(6).bfloat16().float())
    torch.testing.assert_close(logits, x @ head.float().t(), rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norms_of_special_values(dtype: torch.dtype) -> None:
    x = torch.tensor([[0.0, 0.0], [torch.nan, 1.0], [1e-20, 1e-20]], dtype=dtype)
    out = ops_ref.rms_norm(x, torch.ones(2, dtype=dtype), EPS)
    assert out[0].tolist() == [0.0, 0.0]
    assert out[1].isnan().all(), "a NaN must not get lost"
    assert out[2].isfinite().all()


@pytest.mark.parametrize("rotary_dim", [4, 8])
def test_rope(rotary_dim: int) -> None:
    n_heads, head_dim, rows, pos = 3, 8, 4, 5
    half = rotary_dim // 2
    angles = torch.outer(torch.arange(pos, pos + rows), 10.0 ** -torch.arange(half))
    heads = random(rows, n_heads, head_dim)
    expected = heads.clone()
    for row in range(rows):
        for head in range(n_heads):
            for i in range(half):
                cosine, sine = angles[row, i].cos(), angles[row, i].sin()
                first, second = heads[row, head, i], heads[row, head, i + half]
                expected[row, head, i] = first * cosine - second * sine
                expected[row, head, i + half] = second * cosine + first * sine
    assert_close(ops_ref.rope(heads, angles.cos(), angles.sin()), expected)


N_HEADS, N_KV_HEADS, HEAD_DIM, MAX_SEQ_LEN = 6, 2, 16, 48
NO_ROTATION: dict[str, Any] = {
    "cos": torch.ones(MAX_SEQ_LEN, 8),
    "sin": torch.zeros(MAX_SEQ_LEN, 8),
}


def attend(
    qkv: Tensor, caches: tuple[Tensor, Tensor], *, pos: int, window: int, **options: Any
) -> Tensor:
    out = torch.empty(qkv.shape[0], N_HEADS * HEAD_DIM, dtype=qkv.dtype)
    k_cache, v_cache = (TorchHeadRows(cache, "float32") for cache in caches)
    op = Attention(
        qkv=qkv,
        k_cache=k_cache,
        v_cache=v_cache,
        n_heads=N_HEADS,
        eps=EPS,
        window=window,
        scale=HEAD_DIM**-0.5,
        out=out,
        **(NO_ROTATION | options),
    )
    ops_ref.attention(op, state_of(len(qkv), pos=pos))
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


def test_attention_norms_and_rotates_queries_and_keys_alone() -> None:
    angles = torch.outer(torch.arange(float(MAX_SEQ_LEN)), 10.0 ** -torch.arange(8))
    tables = {"cos": angles.cos(), "sin": angles.sin()}
    q_norm, k_norm = random(HEAD_DIM), random(HEAD_DIM) + 1
    qkv = random(4, (N_HEADS + 2 * N_KV_HEADS) * HEAD_DIM)
    caches, expected_caches = some_caches(), some_caches()
    out = attend(qkv, caches, pos=7, window=0, q_norm=q_norm, k_norm=k_norm, **tables)

    heads = qkv.view(4, -1, HEAD_DIM).clone()
    heads[:, :N_HEADS] = normed(heads[:, :N_HEADS], q_norm)
    heads[:, N_HEADS:-N_KV_HEADS] = normed(heads[:, N_HEADS:-N_KV_HEADS], k_norm)
    turned = heads[:, :-N_KV_HEADS]
    turned.copy_(ops_ref.rope(turned, angles[7:11].cos(), angles[7:11].sin()))
    assert_close(out, attend(heads.view(4, -1), expected_caches, pos=7, window=0))
    for cache, expected in zip(caches, expected_caches, strict=True):
        assert_close(cache, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [0, 5])
def test_attention_of_a_row_is_the_same_in_any_company(window: int, dtype: torch.dtype) -> None:
    qkv = random(12, (N_HEADS + 2 * N_KV_HEADS) * HEAD_DIM, dtype=dtype)
    together = attend(qkv, some_caches(dtype), pos=0, window=window)
    caches = some_caches(dtype)
    for start, end in ((0, 1), (1, 6), (6, 7), (7, 12)):
        part = attend(qkv[start:end], caches, pos=start, window=window)
        assert_close(part, together[start:end])
