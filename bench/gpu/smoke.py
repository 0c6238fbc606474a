"""Whether the CUDA kernels compute what they should, at the sizes of an 8B model: a verdict within
a minute, without pytest.

Owns what is checked and how close it must be. Each check prints a line as soon as it is known. The
tests in tests/engine/device check more, at smaller sizes.
"""

import traceback
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from engine.cache.kv import KVCache
from engine.device.arguments import Attention, Linear, NormLinear, Op
from engine.device.cuda import weights as cuda_weights
from engine.device.cuda.attention import CudaHeadRows
from engine.device.cuda.ops import CudaOps
from engine.device.cuda.sampler import DeviceSampler
from engine.device.cuda.weights import FORMATS, CudaMatrix
from engine.device.reference import attend
from engine.device.step import StepState
from engine.model.model import Model
from engine.native import cuda as cuda_native
from tests.support.sample_requests import assert_close, reference, usual_request

from . import knobs, smoke_experts
from .own import release
from .place import AMOUNT, DEVICE, config_of, open_device
from .weights import random_weights

CONFIG = config_of("8B", n_layers=4)
LAYER = CONFIG.layers[0]
ROW_COUNTS = (1, 2, 8)
POSITIONS = (0, min(699, AMOUNT.depth // 2), AMOUNT.depth - 2)  # 1, 700 and 32,767 keys
# Of the sum of the products' sizes: x is split into two parts of 8 bits for bfloat16 weights. A
# tensor core cuts off what it adds, which costs up to 2e-7.
MOST_PRODUCT = {"bfloat16": 4e-6, "8bit": 1e-6, "4bit": 1e-6}
MOST_ATTENTION = 2e-5  # of the norm, as
MOST_EXPERTS = 1e-5

Check = Callable[[], str]
"""Returns what it measured, or raises AssertionError."""


def main() -> int:
    """Runs all checks; 1 if one failed."""
    n_failed = 0
    for name, check in checks():
        try:
            print(f"PASS {name}: {check()}", flush=True)
        except Exception as error:  # noqa: BLE001  # whatever a card comes up with
            n_failed += 1
            print(f"FAIL {name}: {type(error).__name__}: {error}".splitlines()[0], flush=True)
            if not isinstance(error, AssertionError):
                traceback.print_exc()
        release()
    return 1 if n_failed else 0


def checks() -> Iterator[tuple[str, Check]]:
    for format_ in FORMATS:
        yield f"products, {format_}", partial(products, format_)
    for kv in ("bfloat16", "8bit"):
        yield f"attention, {kv} keys and values", partial(attention, kv)
        yield (
            f"attention, {kv}, with a window, sinks and a cap",
            partial(attention, kv, extras=True),
        )
    for format_ in (*FORMATS, "mxfp4"):
        yield f"experts, {format_}", partial(experts, format_)
    yield "sampler", sampler
    for format_ in FORMATS:
        yield f"model of {CONFIG.n_layers} layers, {format_}", partial(model, format_)


def products(format_: str) -> str:
    """The matrices of a layer and the head with 1, 2 and 8 rows, against float64."""
    ops = open_device(format_)
    attention, hidden_dim = LAYER.attention, LAYER.mlp.hidden_dim
    worst = max(
        product_error(ops, format_, n_out, n_in, gated=gated)
        for n_out, n_in, gated in (
            (attention.qkv_dim, CONFIG.dim, False),
            (2 * hidden_dim, CONFIG.dim, True),
            (CONFIG.dim, hidden_dim, False),
            (CONFIG.vocab_size, CONFIG.dim, False),
        )
    )
    return at_most(worst, MOST_PRODUCT[format_])


def product_error(ops: CudaOps, format_: str, n_out: int, n_in: int, *, gated: bool) -> float:
    """The largest error of a product, as a part of the sum of its products' sizes. Gated: after
    norm and gate, whose error is of the largest result.
    """
    n_parts = 2 if gated else 1
    parts = [drawn(n_out // n_parts, n_in).mul_(n_in**-0.5).bfloat16() for _ in range(n_parts)]
    matrix = ops.matrix(parts, format_, gated=gated)
    n = max(ROW_COUNTS)
    x = drawn(n, n_in) * torch.logspace(-2, 2, n, device=DEVICE).unsqueeze(1)
    norm = drawn(n_in) if gated else None
    out = torch.full((n, n_out // n_parts), torch.nan, device=DEVICE)
    op = (
        Linear(x=x, matrix=matrix, bias=None, out=out)
        if norm is None
        else NormLinear(residual=x, norm=norm, eps=1e-5, matrix=matrix, out=out, gated=True)
    )
    exact, sizes = exact_product(x, norm, matrix)
    errors = []
    for n_rows in ROW_COUNTS:
        run(ops, op, [0] * n_rows, pos=0)
        errors.append((out[:n_rows] - exact[:n_rows]).abs() / sizes[:n_rows])
    return max(float(error.max()) for error in errors)


def exact_product(x: Tensor, norm: Tensor | None, matrix: CudaMatrix) -> tuple[Tensor, Tensor]:
    """The float64 result (rows, n_out), and the size that its error is compared with."""
    wide = x.double()
    if norm is not None:
        wide = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.double()
    weights = torch.empty(matrix.n_out, matrix.n_in, device=DEVICE)
    cuda_weights.gather(matrix, torch.arange(matrix.n_out, device=DEVICE), weights)
    exact, sizes = torch.empty(2, len(x), matrix.n_out, dtype=torch.float64, device=DEVICE)
    for begin in range(0, matrix.n_out, 16_384):  # float64 copies of gigabytes would be slow
        here = weights[begin : begin + 16_384].double().t()
        exact[:, begin : begin + 16_384] = wide @ here
        sizes[:, begin : begin + 16_384] = wide.abs() @ here.abs()
    if norm is None:
        return exact, sizes
    (gate, up), (gate_size, up_size) = exact.chunk(2, dim=-1), sizes.chunk(2, dim=-1)
    return gate * gate.sigmoid() * up, gate_size * (up.abs() + up_size)


def experts(format_: str) -> str:
    """A mixture of them with 1, 2 and 8 rows, against float64."""
    ops = open_device("bfloat16")
    op = smoke_experts.experts_op(cuda_native.kernels, format_)
    right = smoke_experts.exact(op)
    errors = []
    for n_rows in ROW_COUNTS:
        run(ops, op, [0] * n_rows, pos=0)
        errors.append((op.out[:n_rows] - right[:n_rows]).norm() / right[:n_rows].norm())
    return at_most(max(map(float, errors)), MOST_EXPERTS)


def attention(kv: str, *, extras: bool = False) -> str:
    """A row that sees 1, 700 and 32,767 positions, against float64 over what is stored. With
    `extras` a window, sinks and capped scores.
    """
    window, cap = (AMOUNT.depth // 4, 20.0) if extras else (0, 0.0)
    ops = open_device("bfloat16", kv_cache=kv)
    n_heads, n_kv, head_dim = LAYER.attention.n_heads, *CONFIG.kv_shapes[0]
    length = AMOUNT.depth
    shape = (n_kv, length, head_dim)
    caches = CudaHeadRows.zeros(2, shape, ops.kv_format, ops.device)
    for cache in caches:
        fill(cache)
    half = head_dim // 2
    angles = torch.outer(torch.arange(length).double(), 1e4 ** -(torch.arange(half) / half))
    cos, sin = angles.cos().float().to(DEVICE), angles.sin().float().to(DEVICE)
    sinks = 4 * drawn(n_heads) if extras else None
    worst = 0.0
    for pos in POSITIONS:
        qkv = drawn(1, (n_heads + 2 * n_kv) * head_dim)
        out = torch.full((1, n_heads * head_dim), torch.nan, device=DEVICE)
        op = Attention(
            qkv=qkv, k_cache=caches[0], v_cache=caches[1], n_heads=n_heads, q_norm=None,
            k_norm=None, eps=1e-5, cos=cos, sin=sin, window=window, scale=head_dim**-0.5,
            softcap=cap, sinks=sinks, out=out,
        )  # fmt: skip
        run(ops, op, [0], pos=pos)
        keys, values = (stored(cache, pos + 1, head_dim) for cache in caches)
        heads = qkv.double().view(-1, head_dim)
        rotated = [turned(each, cos[pos], sin[pos]) for each in (heads[:n_heads], heads[n_heads:])]
        step = 2**-7 if kv == "8bit" else 2**-8
        written = (keys[:, pos] - rotated[1][:n_kv]).abs().max() / rotated[1][:n_kv].abs().max()
        assert float(written) < step, f"the key at {pos} is stored with an error of {written:.1e}"
        exact = attend(
            rotated[0].double().unsqueeze(0), keys, values, pos=pos, window=window,
            scale=head_dim**-0.5, cap=cap, sinks=None if sinks is None else sinks.double(),
        ).view(1, -1)  # fmt: skip
        worst = max(worst, float((out - exact).norm() / exact.norm()))
    return at_most(worst, MOST_ATTENTION)


def fill(cache: CudaHeadRows) -> None:
    """Random content."""
    if cache.scales is None:
        cache.rows.normal_()
    else:
        cache.rows.random_(1, 256)
        cache.scales.uniform_(0.005, 0.02)


def stored(cache: CudaHeadRows, n: int, head_dim: int) -> Tensor:
    """The first `n` positions, float64 (n_kv_heads, n, head_dim)."""
    rows = cache.rows[:, :n, :head_dim].double()
    return rows if cache.scales is None else (rows - 128) * cache.scales[:, :n, None].double()


def turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """heads (n, head_dim), rotated."""
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def sampler() -> str:
    """Greedy, filters and penalties over the whole vocabulary, against the reference."""
    device = DeviceSampler(cuda_native.kernels, CONFIG.vocab_size, max_context=1000, device=DEVICE)
    requests = (
        usual_request(temperature=0.0),
        usual_request(temperature=0.8, top_k=40, top_p=0.95, min_p=0.02, u=0.37, n_top=5),
        usual_request(u=0.71, n_top=20, context=[5, 7, 5], repetition_penalty=1.2),
    )
    logits = np.random.default_rng(1).standard_normal(CONFIG.vocab_size).astype(np.float32) * 3
    for request in requests:
        assert device.supports(request)
        device.begin(torch.from_numpy(logits).to(DEVICE), request)
        assert_close(device.result(), reference(logits, request), logits)
    return f"{len(requests)} requests"


def model(format_: str) -> str:
    """The same bits again and again, without overlapping launches, op by op, and among 16 rows."""
    ops = open_device(format_)
    length = 64
    decoder = Model(random_weights(CONFIG, ops), CONFIG, ops, max_seq_len=length)
    cache = KVCache(CONFIG, ops, max_seq_len=length)
    token_ids = [(7919 * i) % CONFIG.vocab_size for i in range(32)]
    decoder.decode(token_ids[:16], cache)
    together = logits_of(decoder, token_ids[16:], cache)
    for row, token_id in enumerate(token_ids[16:]):
        cache.rollback(16 + row)
        assert_same(logits_of(decoder, [token_id], cache)[0], together[row], f"row {row} alone")
    assert bool(together.isfinite().all()), "logits must be finite"
    last = token_ids[-1:]
    for number in range(AMOUNT.replays):
        cache.rollback(31)
        assert_same(logits_of(decoder, last, cache)[0], together[-1], f"replay {number}")
    if has_overlap := "overlap" in knobs.current():
        with knobs.turned(overlap=False):
            cache.rollback(31)
            assert_same(logits_of(decoder, last, cache)[0], together[-1], "without overlap")
    cache.rollback(31)
    buffer = decoder.decode(last, cache).values  # type: ignore[attr-defined]
    cache.rollback(31)
    buffer.zero_()
    decoder.profile(last, cache)
    assert_same(buffer[0], together[-1], "op by op")
    apart = ", no overlap" if has_overlap else ""
    return f"{AMOUNT.replays} replays, 16 rows{apart} and op by op give the same bits"


def logits_of(decoder: Model, token_ids: list[int], cache: KVCache) -> Tensor:
    """A copy on the device."""
    values: Tensor = decoder.decode(token_ids, cache).values[: len(token_ids)]  # type: ignore[attr-defined]
    return values.clone()


def assert_same(actual: Tensor, expected: Tensor, what: str) -> None:
    n = int((actual.view(torch.int32) != expected.view(torch.int32)).sum())
    assert not n, f"{what}: {n} of {actual.numel()} logits differ"


def run(ops: CudaOps, op: Op, token_ids: list[int], *, pos: int) -> None:
    """The op alone, on as many rows as there are ids."""
    program = ops.program(len(token_ids))
    state = StepState(len(token_ids))
    state.set(token_ids, pos)
    program.append(op)
    program.run(state)
    ops.wait()


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE)


def at_most(value: float, limit: float) -> str:
    figure = f"error {value:.1e}, at most {limit:.0e}"
    assert value <= limit, figure
    return figure
