"""Attention on CUDA, its kernels on the emulator: against its definition, and bit for bit against
itself, however rows and positions are shared out.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.device import reference as ops_ref
from engine.device.arguments import Attention
from engine.device.cuda import attention as cuda_attention
from engine.device.cuda.attention import CudaHeadRows
from engine.device.cuda.positions import CudaPositions
from tests.support.cuda_module import cuda, guarded, placed, set_knobs, step_state

__all__ = ["cuda", "placed", "set_knobs"]

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("placed")]

EPS = 1e-6
FORMATS = ("bfloat16", "8bit")
TILE = 64  # positions of a tile of heads up to 128 wide
SPLITS = 64  # of one kv head: so many tiles later, a block has its next one


class Layer:
    """One layer's sizes, tables and caches. What no row has written yet is NaN, or nearly NaN."""

    def __init__(
        self,
        cuda: ModuleType,
        n_heads: int,
        n_kv_heads: int,
        head_dim: int,
        *,
        kv: str,
        length: int = 200,
        rotary_half: int | None = None,
        with_norm: bool = False,
        window: int = 0,
        softcap: float = 0.0,
        with_sinks: bool = False,
    ) -> None:
        self.cuda, self.kv, self.window, self.softcap = cuda, kv, window, softcap
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, head_dim
        self.length, self.scale = length, head_dim**-0.5
        half = head_dim // 2 if rotary_half is None else rotary_half
        angles = torch.outer(torch.arange(length), 1e4 ** (-torch.arange(half) / (half + 1)))
        self.cos, self.sin = guarded(angles.cos()), guarded(angles.sin())
        self.q_norm = guarded(random(head_dim, seed=1) + 1) if with_norm else None
        self.k_norm = guarded(random(head_dim, seed=2) + 1) if with_norm else None
        # Some count more than all keys together, some next to nothing.
        self.sinks = guarded(6 * random(n_heads, seed=3)) if with_sinks else None
        self.keys, self.values = (self._cache() for _ in range(2))
        n_bytes = cuda.attention_scratch_bytes(n_heads, head_dim, length)
        self.next_weights: list[Tensor] = []
        self.scratch = guarded(torch.full((n_bytes // 4,), torch.nan))
        self.scratch.view(torch.int32)[: n_heads * cuda.MAX_ROWS] = 0  # counters

    def _cache(self) -> CudaHeadRows:
        shape = (self.n_kv_heads, self.length, self.head_dim)
        (cache,) = CudaHeadRows.zeros(1, shape, self.kv, torch.get_default_device())
        rows = guarded(cache.rows.fill_(99 if self.kv == "8bit" else torch.nan))
        scales = None if cache.scales is None else guarded(cache.scales.fill_(torch.nan))
        return CudaHeadRows(rows, scales, self.length, self.head_dim)

    def rows(self, n: int, *, seed: int = 0) -> Tensor:
        """Queries, keys and values of n positions."""
        width = (self.n_heads + 2 * self.n_kv_heads) * self.head_dim
        return guarded(random(n, width, seed=seed))

    def fill(self, n: int, *, seed: int = 3) -> None:
        """Any keys and values before position n."""
        for cache in (self.keys, self.values):
            values = random(self.n_kv_heads, n, self.head_dim, seed=seed)
            seed += 1
            cache.rows[:, :n] = 0
            if cache.scales is None:
                cache.rows[:, :n, : self.head_dim] = values.bfloat16()
            else:
                cache.scales[:, :n] = values.abs().amax(-1) / 127
                codes = (values / cache.scales[:, :n, None]).round() + 128
                cache.rows[:, :n, : self.head_dim] = codes.to(torch.uint8)

    def forget(self, begin: int) -> None:
        """Positions from `begin` on are as if no row had written them."""
        unwritten = self._cache()
        for cache in (self.keys, self.values):
            cache.rows[:, begin:] = unwritten.rows[:, begin:]
            if cache.scales is not None and unwritten.scales is not None:
                cache.scales[:, begin:] = unwritten.scales[:, begin:]

    def append(self, tape: Any, qkv: Tensor, out: Tensor) -> None:
        tape.attention(
            qkv=qkv.data_ptr(),
            **cuda_attention.fields(self.cuda, self.op(qkv, out), scratch=self.scratch),
            out=out.data_ptr(),
            next=[(weights.data_ptr(), weights.nbytes) for weights in self.next_weights],
        )

    def op(self, qkv: Tensor, out: Tensor) -> Attention[Tensor, CudaHeadRows]:
        return Attention(
            qkv=qkv,
            k_cache=self.keys,
            v_cache=self.values,
            n_heads=self.n_heads,
            q_norm=self.q_norm,
            k_norm=self.k_norm,
            eps=EPS,
            cos=self.cos,
            sin=self.sin,
            window=self.window,
            scale=self.scale,
            softcap=self.softcap,
            sinks=self.sinks,
            out=out,
        )

    def empty_out(self, n_rows: int) -> Tensor:
        return guarded(torch.full((n_rows, self.n_heads * self.head_dim), torch.nan))

    def run(self, qkv: Tensor, pos: int, *, max_length: int | None = None) -> Tensor:
        """The op on these rows, alone on a tape."""
        tape, out = self.cuda.Tape(), self.empty_out(len(qkv))
        self.append(tape, qkv, out)
        state = guarded(step_state(self.cuda, pos, [0] * len(qkv)))
        bound = max_length or max(1024, self.length)
        tape.run(state.data_ptr(), len(qkv), bound, 0)
        counters = self.scratch.view(torch.int32)[: self.n_heads * self.cuda.MAX_ROWS]
        assert not counters.any(), "counters must be as the next pass expects them"
        return out

    def run_chunk(self, qkv: Tensor, pos: int) -> Tensor:
        """Rows of a prompt."""
        out = torch.full((len(qkv), self.n_heads * self.head_dim), torch.nan).bfloat16()
        op, n = self.op(qkv, out), len(qkv)
        if self.softcap or self.sinks is not None:
            cuda_attention.attend_in_turn(
                self.cuda, op, n, pos=pos, scratch=self.scratch, out=out, stream=0
            )
        else:
            cuda_attention.attend_chunk(self.cuda, op, n, pos=pos, out=out, stream=0)
        return out

    def stored(self, cache: CudaHeadRows) -> Tensor:
        """The content of a cache, float64 (n_kv_heads, positions, head_dim)."""
        rows = cache.rows[:, :, : self.head_dim].double()
        return rows if cache.scales is None else (rows - 128) * cache.scales.double()[..., None]

    def expected(self, qkv: Tensor, pos: int) -> Tensor:
        """The definition, over the keys and values as they are stored."""
        queries = self._rotated(self._heads(qkv)[:, : self.n_heads], self.q_norm, pos)
        attended = ops_ref.attend(
            queries,
            self.stored(self.keys),
            self.stored(self.values),
            pos=pos,
            window=self.window,
            scale=self.scale,
            cap=self.softcap,
            sinks=self.sinks,
        )
        return attended.reshape(len(qkv), -1)

    def keys_values(self, qkv: Tensor, pos: int) -> tuple[Tensor, Tensor]:
        """What should be stored for these rows, each float64 (n_kv_heads, rows, head_dim)."""
        heads, end = self._heads(qkv), self.n_heads + self.n_kv_heads
        keys = self._rotated(heads[:, self.n_heads : end], self.k_norm, pos)
        return keys.transpose(0, 1), heads[:, end:].transpose(0, 1)

    def _heads(self, qkv: Tensor) -> Tensor:
        return qkv.double().view(len(qkv), -1, self.head_dim)

    def _rotated(self, heads: Tensor, norm: Tensor | None, pos: int) -> Tensor:
        if norm is not None:
            heads = heads / (heads.square().mean(-1, keepdim=True) + EPS).sqrt() * norm
        here, half = slice(pos, pos + len(heads)), self.cos.shape[1]
        cos, sin = self.cos[here, None].double(), self.sin[here, None].double()
        first, second, rest = heads.tensor_split((half, 2 * half), dim=2)
        return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], 2)


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def error_of(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


def assert_same_bits(actual: Tensor, expected: Tensor, what: str) -> None:
    different = torch.nonzero(actual.view(torch.int32) != expected.view(torch.int32))
    assert not len(different), f"{what}: {len(different)} numbers differ, first {different[0]}"


# Each makes a layer with caches of a format.
LAYERS: dict[str, Callable[[ModuleType, str], Layer]] = {
    "group-of-4": lambda cuda, kv: Layer(cuda, 8, 2, 128, kv=kv),
    "one-head-each": lambda cuda, kv: Layer(cuda, 3, 3, 64, kv=kv, window=40),
    "norm-and-window": lambda cuda, kv: Layer(cuda, 8, 1, 96, kv=kv, with_norm=True, window=100),
    "partial-rotary": lambda cuda, kv: Layer(cuda, 2, 2, 80, kv=kv, rotary_half=20),
    "no-rotary": lambda cuda, kv: Layer(cuda, 3, 1, 36, kv=kv, rotary_half=0, window=1),
    "widest": lambda cuda, kv: Layer(cuda, 3, 1, 256, kv=kv, with_norm=True, window=70),
    "narrowest": lambda cuda, kv: Layer(cuda, 2, 1, 2, kv=kv),
    "odd-group": lambda cuda, kv: Layer(cuda, 19, 1, 14, kv=kv, rotary_half=3, with_norm=True),
    "sinks": lambda cuda, kv: Layer(cuda, 8, 1, 64, kv=kv, with_sinks=True, window=40),
    "capped": lambda cuda, kv: Layer(cuda, 4, 2, 36, kv=kv, softcap=1.5, with_sinks=True),
}


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_is_its_definition(
    cuda: ModuleType, make: Callable[[ModuleType, str], Layer], kv: str
) -> None:
    layer = make(cuda, kv)
    pos = 0
    for n_rows in (1, 3, 2, 12, 16, 1):
        qkv = layer.rows(n_rows, seed=pos)
        error = error_of(layer.run(qkv, pos), layer.expected(qkv, pos))
        assert error < 2e-5, f"{n_rows} rows at {pos}"
        pos += n_rows
    layer.fill(TILE + 1)  # around the end of a tile
    for pos, n_rows in ((TILE - 9, 10), (TILE - 1, 1), (TILE, 1), (2 * TILE - 20, 1)):
        layer.fill(pos)
        qkv = layer.rows(n_rows, seed=pos)
        error = error_of(layer.run(qkv, pos), layer.expected(qkv, pos))
        assert error < 2e-5, f"{n_rows} rows at {pos}"


@pytest.mark.parametrize("n_rows", [16, 60])
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_what_is_stored(
    cuda: ModuleType, make: Callable[[ModuleType, str], Layer], n_rows: int
) -> None:
    layers = {kv: make(cuda, kv) for kv in FORMATS}
    qkv = layers["8bit"].rows(n_rows)
    qkv[7] = 0
    here = slice(20, 20 + n_rows)
    for layer in layers.values():
        layer.fill(20)
        before = layer.stored(layer.keys), layer.stored(layer.values)
        run = layer.run if n_rows <= cuda.MAX_ROWS else layer.run_chunk
        run(qkv, here.start)
        written = layer.keys_values(qkv, here.start)
        for cache, exact, old in zip((layer.keys, layer.values), written, before, strict=True):
            stored = layer.stored(cache)
            for others in (slice(0, here.start), slice(here.stop, None)):
                torch.testing.assert_close(
                    stored[:, others], old[:, others], rtol=0, atol=0, equal_nan=True
                )
            if cache.scales is None:
                torch.testing.assert_close(stored[:, here], exact, rtol=2**-8, atol=1e-6)
            else:
                largest = exact.abs().amax(-1)
                torch.testing.assert_close(
                    cache.scales[:, here].double(), largest / 127, rtol=1e-5, atol=0
                )
                step = cache.scales[:, here, None].double()
                assert ((stored[:, here] - exact).abs() <= 0.5001 * step).all(), "the nearest code"


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize(
    "make",
    [LAYERS[name] for name in ("group-of-4", "norm-and-window", "widest", "odd-group", "sinks")],
)
def test_a_row_is_the_same_in_every_pass(
    cuda: ModuleType, make: Callable[[ModuleType, str], Layer], kv: str
) -> None:
    layer = make(cuda, kv)
    pos = 2 * TILE - 7
    layer.fill(pos)
    qkv = layer.rows(16)
    whole = layer.run(qkv, pos)
    for begin, end in ((15, 16), (6, 8), (0, 3)):
        layer.forget(pos + begin)
        part = layer.run(guarded(qkv[begin:end]), pos + begin, max_length=4096)
        assert_same_bits(part, whole[begin:end], f"rows {begin} to {end}")


@pytest.mark.parametrize("window", [0, 1000])
@pytest.mark.parametrize("kv", FORMATS)
def test_a_long_context(cuda: ModuleType, kv: str, window: int) -> None:
    # Long enough for a block to have more tiles than copies under way at once.
    length = 7 * SPLITS * TILE
    layer = Layer(cuda, 2, 1, 36, kv=kv, length=length, window=window)
    pos = length - 5
    layer.fill(pos)
    qkv = layer.rows(2)
    out = layer.run(qkv, pos)
    assert error_of(out, layer.expected(qkv, pos)) < 2e-5
    layer.forget(pos + 1)
    assert_same_bits(layer.run(guarded(qkv[1:2]), pos + 1), out[1:2], "row 1 alone")


@pytest.mark.parametrize("kv", FORMATS)
def test_no_order_of_threads_matters(
    cuda: ModuleType, monkeypatch: pytest.MonkeyPatch, kv: str
) -> None:
    outs = []
    for seed in ("1", "2", "3"):
        monkeypatch.setenv("SOLITON_CUDA_EMULATOR_SEED", seed)
        layer = Layer(cuda, 8, 2, 64, kv=kv, with_norm=True)
        layer.fill(150)
        outs.append(layer.run(layer.rows(7), 150))
    for out in outs[1:]:
        assert_same_bits(out, outs[0], "another order")


def test_layers_follow_each_other(cuda: ModuleType) -> None:
    # The next launch begins while one ends; all share one scratch.
    layers = [Layer(cuda, 8, 2, 64, kv=kv, window=w) for kv in FORMATS for w in (0, 50)]
    inputs = [layer.rows(3, seed=seed) for seed, layer in enumerate(layers)]
    tape, outs, alone = cuda.Tape(), [], []
    for layer, qkv in zip(layers, inputs, strict=True):
        layer.fill(140)
        layer.scratch = layers[0].scratch
        alone.append(layer.run(qkv, 140))
        layer.forget(140)
        outs.append(layer.empty_out(3))
        layer.append(tape, qkv, outs[-1])
    state = step_state(cuda, 140, [0, 0, 0])
    tape.run(state.data_ptr(), 3, 1024, 0)
    for out, expected in zip(outs, alone, strict=True):
        assert_same_bits(out, expected, "in a tape")


@pytest.mark.parametrize("kv", FORMATS)
def test_what_the_next_ops_read_is_prefetched_to_its_end(
    cuda: ModuleType, set_knobs: Callable[..., None], kv: str
) -> None:
    layer = Layer(cuda, 8, 2, 64, kv=kv)
    layer.fill(140)
    qkv = layer.rows(2)
    plain = layer.run(qkv, 140)
    layer.next_weights = [guarded(torch.zeros(n, dtype=torch.uint8)) for n in (70_000, 3_008)]
    for n_bytes in (0, 20_000, 1 << 20):  # for a multiprocessor
        set_knobs(attention_prefetch_bytes=n_bytes)
        layer.forget(140)
        assert_same_bits(layer.run(qkv, 140), plain, f"{n_bytes} bytes prefetched")


@pytest.mark.parametrize("kv", FORMATS)
def test_large_scores_do_not_overflow(cuda: ModuleType, kv: str) -> None:
    layer = Layer(cuda, 4, 2, 64, kv=kv)
    layer.fill(100)
    qkv = layer.rows(2)
    qkv[:, : 4 * 64] *= 1000  # the queries; scores are in the thousands then
    out = layer.run(qkv, 100)
    torch.testing.assert_close(out.double(), layer.expected(qkv, 100), rtol=0, atol=2e-2)


def test_values_of_very_different_sizes(cuda: ModuleType) -> None:
    layer = Layer(cuda, 4, 1, 64, kv="8bit")
    layer.fill(150)
    assert layer.values.scales is not None
    layer.values.scales[:, :150] *= 10.0 ** torch.linspace(-9, 9, 150)[torch.randperm(150)]
    layer.values.scales[:, 3] = 0
    qkv = layer.rows(2)
    assert error_of(layer.run(qkv, 150), layer.expected(qkv, 150)) < 2e-5


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_a_nan_is_not_lost(cuda: ModuleType, part: str, kv: str) -> None:
    layer = Layer(cuda, 1, 1, 64, kv=kv)
    layer.fill(100)
    qkv = layer.rows(2)
    qkv[-1, ["query", "key", "value"].index(part) * 64 + 5] = torch.nan
    assert layer.run(qkv, 100)[-1].isnan().any(), f"a NaN of the {part}"


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_a_chunk_of_a_prompt(
    cuda: ModuleType, make: Callable[[ModuleType, str], Layer], kv: str
) -> None:
    layer = make(cuda, kv)
    for pos, n_rows in ((0, 40), (40, 90), (130, 20)):
        qkv = layer.rows(n_rows, seed=pos)
        out = layer.run_chunk(qkv, pos)
        # Queries and probabilities, and keys and values out of codes, are bfloat16.
        assert error_of(out, layer.expected(qkv, pos)) < 1e-2, f"{n_rows} rows at {pos}"


@pytest.mark.parametrize("kv", FORMATS)
def test_a_chunk_stores_what_single_rows_store(cuda: ModuleType, kv: str) -> None:
    chunk, single = (Layer(cuda, 2, 2, 80, kv=kv, with_norm=True) for _ in range(2))
    qkv = chunk.rows(20)
    chunk.run_chunk(qkv, 0)
    for row in range(20):
        single.run(guarded(qkv[row : row + 1]), row)
    for name in ("keys", "values"):
        one, other = getattr(chunk, name), getattr(single, name)
        assert torch.equal(one.rows[:, :20], other.rows[:, :20])
        if one.scales is not None:
            assert torch.equal(one.scales[:, :20], other.scales[:, :20])


@pytest.mark.parametrize("kv", FORMATS)
def test_a_chunk_with_sinks_has_the_bits_of_its_rows(cuda: ModuleType, kv: str) -> None:
    chunk, single = (LAYERS["sinks"](cuda, kv) for _ in range(2))
    qkv = chunk.rows(37)
    alone = [single.run(guarded(qkv[row : row + 1]), row) for row in range(37)]
    assert torch.equal(chunk.run_chunk(qkv, 0), torch.cat(alone).bfloat16())


def test_8bit_heads_in_tiles(cuda: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Layer(cuda, 6, 3, 64, kv="8bit")
    layer.fill(100)
    qkv = layer.rows(20)
    whole = layer.run_chunk(qkv, 100)
    monkeypatch.setattr(cuda_attention, "TILE_BYTES", 1)
    assert torch.equal(layer.run_chunk(qkv, 100), whole)


@pytest.mark.parametrize("kv", FORMATS)
def test_positions_are_copied(kv: str) -> None:
    layers = CudaHeadRows.zeros(6, (2, 40, 18), kv, torch.get_default_device())
    generator = torch.Generator().manual_seed(0)
    for cache in layers:
        cache.rows.copy_(torch.randint(0, 200, cache.rows.shape, generator=generator))
        if cache.scales is not None:
            cache.scales.copy_(torch.rand(cache.scales.shape, generator=generator))
    positions = CudaPositions(layers[:3], layers[3:])
    copied = np.zeros(positions.n_bytes(10) + 5, np.uint8)
    positions.copy_out(7, 17, copied)
    assert not copied[-5:].any()
    before = [(cache.rows.clone(), cache.scales) for cache in layers]
    for cache in layers:
        cache.rows[:, 20:27] = 1
    positions.copy_in(20, 27, copied[:-5], n_copied=10)
    for cache, (rows, scales) in zip(layers, before, strict=True):
        assert torch.equal(cache.rows[:, 20:27], rows[:, 7:14])
        assert torch.equal(cache.rows[:, :20], rows[:, :20])
        assert torch.equal(cache.rows[:, 27:], rows[:, 27:])
        if scales is not None:
            assert cache.scales is not None
            assert torch.equal(cache.scales[:, 20:27], scales[:, 7:14])
    with pytest.raises(ValueError, match="positions 0 to 11 of a copy of 10"):
        positions.copy_in(0, 11, copied, n_copied=10)


def test_positions_of_layers_that_lie_apart() -> None:
    one, other, third = (
        CudaHeadRows.zeros(1, (2, 16, 8), "bfloat16", torch.get_default_device())[0]
        for _ in range(3)
    )
    with pytest.raises(ValueError, match="follow each other in memory"):
        CudaPositions([one, other, third], [one, other, third])


def test_a_format_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="bfloat16 or 8bit, not float32"):
        CudaHeadRows.zeros(1, (2, 16, 8), "float32", torch.get_default_device())
