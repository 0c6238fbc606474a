"""The native attention op: against its definition in float64, and bit for bit against itself,
however rows and threads split the work.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.device.step import StepState
from engine.native import _cpu
from engine.native.cpu import address

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

pytestmark = pytest.mark.usefixtures("one_thread")

EPS = 1e-6
BLOCK = 256  # keys that are summed together
CHUNK = 64  # positions whose keys have the same taken from them
LANES = 16  # the rows of a panel of keys or values
WOVEN = 64  # the dimensions of panels of values whose rows take turns
# Beside int8, queries and probabilities are rounded to 15 bits.
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-5, "int8": 5e-4, "int4": 5e-4, "int8+int4": 5e-4}
# The formats of a cache, and numpy's type for each.
STORED: dict[str, Any] = {
    "float32": np.float32,
    "bfloat16": np.uint16,
    "int8": np.int8,
    "int4": np.uint8,
}
KV_TYPES = {
    "float32": _cpu.KvType.F32,
    "bfloat16": _cpu.KvType.BF16,
    "int8": _cpu.KvType.INT8,
    "int4": _cpu.KvType.INT4,
}
# Of keys and values, "+" between them where they differ.
KV_FORMATS = (*KV_TYPES, "int8+int4")


class Layer:
    """One layer's sizes, tables and caches. What no row has written yet is NaN, or nearly NaN."""

    def __init__(
        self,
        n_heads: int,
        n_kv_heads: int,
        head_dim: int,
        max_seq_len: int,
        *,
        kv: str = "float32",
        rotary_half: int | None = None,
        with_norm: bool = False,
        window: int = 0,
        with_sinks: bool = False,
        with_common: bool = False,
    ) -> None:
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, head_dim
        self.max_seq_len, self.kv, self.window = max_seq_len, kv, window
        self.half = head_dim // 2 if rotary_half is None else rotary_half
        self.scale = head_dim**-0.5
        angles = np.outer(np.arange(max_seq_len), 1e4 ** (-np.arange(self.half) / (self.half + 1)))
        self.cos, self.sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        self.q_norm = random(head_dim, seed=1) + 1 if with_norm else None
        self.k_norm = random(head_dim, seed=2) + 1 if with_norm else None
        # Some below, some above all scores, one far from them.
        self.sinks = 3 * random(n_heads, seed=7) if with_sinks else None
        if self.sinks is not None:
            self.sinks[0] = 300.0
            self.sinks[-1] = -300.0
        self.common: Floats | None = None
        if with_common and kv == "int4":
            self.common = random(n_kv_heads, 3, head_dim, seed=8)
            self.common[:, 2] = np.exp(self.common[:, 2] / 2)
        self.formats = (kv.partition("+")[0], kv.rpartition("+")[2])
        unwritten = {"float32": np.nan, "bfloat16": 0x7FC0, "int8": 99, "int4": 0x99}
        positions = -(-max_seq_len // LANES) * LANES
        width = positions * -(-head_dim // LANES) * LANES
        self._k, self._v = (
            np.full((n_kv_heads, width // (1 + (each == "int4"))), unwritten[each], STORED[each])
            for each in self.formats
        )
        # Of int4: pairs of bfloat16.
        n_rows = n_kv_heads * -(-head_dim // 64)
        self._scales = np.full((2, n_rows, positions), 0x7FC07FC0, np.uint32).view(np.float32)
        self._scratch = np.full(
            _cpu.attention_scratch_floats(n_heads, head_dim, max_seq_len), np.nan, np.float32
        )

    @property
    def k(self) -> npt.NDArray[Any]:
        """A copy as (n_kv_heads, max_seq_len, head_dim)."""
        return self._unpanelled(self._k, self.formats[0], lanes="positions")

    @property
    def v(self) -> npt.NDArray[Any]:
        """A copy as (n_kv_heads, max_seq_len, head_dim)."""
        return self._unpanelled(self._v, self.formats[1], lanes="dimensions")

    @property
    def k_scales(self) -> Floats:
        """As `_scales_of` gives them."""
        return self._scales_of(0)

    @property
    def v_scales(self) -> Floats:
        """As `_scales_of` gives them."""
        return self._scales_of(1)

    def _scales_of(self, part: int) -> Floats:
        """(n_kv_heads, max_seq_len), or of int4 (n_kv_heads, max_seq_len, head_dim)"""
        scales: Floats = self._scales[part]
        if self.formats[part] != "int4":
            return scales[: self.n_kv_heads, : self.max_seq_len]
        pairs = scales.view(np.uint32).reshape(self.n_kv_heads, -1, scales.shape[1])
        both = np.stack([pairs << 16, pairs & np.uint32(0xFFFF0000)], axis=-1).view(np.float32)
        blocks = both.swapaxes(1, 2).reshape(self.n_kv_heads, scales.shape[1], -1)
        wide: Floats = np.repeat(blocks, 32, axis=-1)
        return wide[:, : self.max_seq_len, : self.head_dim]

    def rows(self, n: int, *, seed: int = 0) -> Floats:
        """Queries, keys and values of n positions."""
        return random(n, (self.n_heads + 2 * self.n_kv_heads) * self.head_dim, seed=seed)

    def run(self, qkv: Floats, pos: int) -> Floats:
        """The op on these rows, alone on a tape."""
        n_rows = len(qkv)
        out = np.full((n_rows, self.n_heads * self.head_dim), np.nan, np.float32)
        state = StepState(n_rows)
        state.set([0] * n_rows, pos)
        tape = _cpu.Tape()
        tape.attention(self.op(qkv, out))
        assert tape.run(address(state.words)) == 1
        return out

    def op(self, qkv: Floats, out: Floats) -> "_cpu.Attention":
        """From `qkv` to `out`, (rows, ...)."""
        scaled = [each in ("int8", "int4") for each in self.formats]
        return _cpu.Attention(
            qkv=address(qkv),
            k_cache=address(self._k),
            v_cache=address(self._v),
            k_scales=address(self._scales[0] if scaled[0] else None),
            v_scales=address(self._scales[1] if scaled[1] else None),
            k_type=KV_TYPES[self.formats[0]],
            v_type=KV_TYPES[self.formats[1]],
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            head_dim=self.head_dim,
            max_seq_len=self.max_seq_len,
            q_norm=address(self.q_norm),
            k_norm=address(self.k_norm),
            eps=EPS,
            cos=address(self.cos),
            sin=address(self.sin),
            rotary_half=self.half,
            window=self.window,
            scale=self.scale,
            sinks=address(self.sinks),
            common_keys=address(self.common),
            scratch=address(self._scratch),
            out=address(out),
        )

    def run_chunks(self, qkv: Floats, size: int) -> Floats:
        """All rows from position 0 on, this many at a time."""
        return np.concatenate(
            [self.run(qkv[pos : pos + size], pos) for pos in range(0, len(qkv), size)]
        )

    def fill(self, *, seed: int = 3) -> None:
        """Puts any values into the whole cache."""
        caches = zip(self.formats, (self._k, self._v), self._scales, strict=True)
        for format_, cache, scales in caches:
            values = random(*cache.shape, seed=seed)
            seed += 1
            if format_ == "float32":
                cache[:] = values
            elif format_ == "bfloat16":
                cache[:] = values.view(np.uint32) >> 16
            elif format_ == "int4":
                cache[:] = values.view(np.uint32) >> 8
                scales.view(np.uint32)[:] = 0x3C003C00  # 0.0078, twice
            else:
                cache[:] = np.clip(values * 40, -127, 127)
                scales[:] = 0.025

    def stored(self, part: int) -> Doubles:
        """The content of the cache of keys (0) or values (1), in full precision."""
        format_, cache, scales = self.formats[part], (self.k, self.v)[part], self._scales_of(part)
        if format_ == "bfloat16":
            return (cache.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        if format_ == "int8":
            read: Doubles = cache.astype(np.float64) * scales[..., None] @ hadamard(self.head_dim)
            return read
        if format_ == "int4":
            read = LEVELS[cache] * scales @ hadamard(self.head_dim)
            return read if part else self.with_common(read)
        return cache.astype(np.float64)

    def with_common(self, keys: Doubles) -> Doubles:
        """Of all positions, from what is stored of them."""
        if self.common is None:
            return keys
        taken, scales = self._taken()
        return keys * scales + taken

    def without_common(self, keys: Doubles) -> Doubles:
        """What should be stored of the keys of all positions."""
        if self.common is None:
            return keys
        taken, scales = self._taken()
        return (keys - taken) / scales

    def _taken(self) -> tuple[Doubles, Doubles]:
        """What is taken from the key of each position, and what it is divided by."""
        assert self.common is not None
        first, mean, scales = self.common.astype(np.float64).swapaxes(0, 1)
        starts = np.arange(self.max_seq_len) // CHUNK * CHUNK
        cos, sin = self.cos[starts], self.sin[starts]
        low, high, rest = np.split(mean[:, None], (self.half, 2 * self.half), axis=2)
        both = low * cos - high * sin, high * cos + low * sin
        rest = np.broadcast_to(rest, (self.n_kv_heads, self.max_seq_len, rest.shape[2]))
        taken = np.concatenate((*both, rest), axis=2)
        taken[:, 0] = first
        return taken, scales[:, None]

    def keys_values(self, qkv: Floats, pos: int) -> tuple[Doubles, Doubles]:
        """What should be stored for these rows, each (n_kv_heads, rows, head_dim)."""
        heads = self._heads(qkv)
        keys = heads[:, self.n_heads : self.n_heads + self.n_kv_heads]
        values = heads[:, self.n_heads + self.n_kv_heads :]
        return self._rotated(keys, self.k_norm, pos).swapaxes(0, 1), values.swapaxes(0, 1)

    def expected(self, qkv: Floats, pos: int) -> Doubles:
        """The definition, over the keys and values as they are stored."""
        queries = self._rotated(self._heads(qkv)[:, : self.n_heads], self.q_norm, pos)
        keys, values = self.stored(0), self.stored(1)
        out = np.empty_like(queries)
        group = self.n_heads // self.n_kv_heads
        for row in range(len(qkv)):
            end = pos + row + 1
            seen = slice(max(0, end - self.window) if self.window else 0, end)
            for kv_head in range(self.n_kv_heads):
                heads = slice(kv_head * group, (kv_head + 1) * group)
                scores = queries[row, heads] @ keys[kv_head, seen].T * self.scale
                if self.sinks is not None:
                    sinks = self.sinks[heads, None].astype(np.float64)
                    scores = np.concatenate([scores, sinks], axis=-1)
                p = np.exp(scores - scores.max(-1, keepdims=True))
                p = (p / p.sum(-1, keepdims=True))[:, : values[kv_head, seen].shape[0]]
                out[row, heads] = p @ values[kv_head, seen]
        return out.reshape(len(qkv), -1)

    def _unpanelled(
        self, panels: npt.NDArray[Any], format_: str, *, lanes: str
    ) -> npt.NDArray[Any]:
        """A copy of a cache as (n_kv_heads, max_seq_len, head_dim)."""
        if format_ == "int4":
            # The low halves of four bytes, then the high ones.
            words = panels.reshape(-1, 1, 4)
            panels = np.concatenate([words & 15, words >> 4], axis=1).reshape(len(panels), -1)
        group = 8 if format_ == "int4" else 4 // panels.itemsize
        order = list(range(group))
        if group >= 4:
            order = [first + i for first in range(0, group, 4) for i in (0, 2, 1, 3)]
        wide = -(-self.head_dim // LANES) * LANES
        if lanes == "positions":
            grouped = panels.reshape(self.n_kv_heads, -1, wide // group, LANES, group)
            rows = grouped[..., order].swapaxes(2, 3)
            whole = rows.reshape(self.n_kv_heads, -1, wide)
        else:
            heads = panels.reshape(self.n_kv_heads, -1)
            n_positions = heads.shape[1] // wide
            cuts = [n_positions * dim for dim in range(WOVEN, wide, WOVEN)]
            whole = np.concatenate(
                [
                    part.reshape(self.n_kv_heads, n_positions // group, -1, group)[..., order]
                    .swapaxes(2, 3)
                    .reshape(self.n_kv_heads, n_positions, -1)
                    for part in np.split(heads, cuts, axis=1)
                ],
                axis=2,
            )
        return whole[:, : self.max_seq_len, : self.head_dim]

    def _heads(self, qkv: Floats) -> Doubles:
        return qkv.astype(np.float64).reshape(len(qkv), -1, self.head_dim)

    def _rotated(self, heads: Doubles, norm: Floats | None, pos: int) -> Doubles:
        if norm is not None:
            heads = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + EPS) * norm
        here = slice(pos, pos + len(heads))
        cos, sin = self.cos[here, None].astype(np.float64), self.sin[here, None].astype(np.float64)
        first, second = heads[..., : self.half], heads[..., self.half : 2 * self.half]
        rest = heads[..., 2 * self.half :]
        return np.concatenate(
            [first * cos - second * sin, second * cos + first * sin, rest], axis=-1
        )


# What codes of int4 stand for, in units of their scale.
LEVELS = np.array([-123, -99, -79, -62, -47, -33, -19, -6, 6, 19, 33, 47, 62, 79, 99, 123.0])


def hadamard(n: int) -> Doubles:
    """(n, n): n numbers times it are rotated, in blocks of the largest power of two that divides n.
    This is for reading what is stored: the inverse of the rotation and of its scale.
    """
    size = n & -n
    block = np.ones((1, 1))
    while len(block) < size:
        block = np.block([[block, block], [block, -block]])
    stored = 2.0 ** (int(np.log2(size)) // 2)
    return np.kron(np.eye(n // size), block * stored / size).astype(np.float64)


def random(*shape: int, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def assert_same_bits(actual: Floats, expected: Floats, what: str) -> None:
    different = np.argwhere(actual.view(np.uint32) != expected.view(np.uint32))
    assert not len(different), f"{what}: {len(different)} numbers differ, first {different[0]}"


# Each makes a layer with caches of a type and length.
LAYERS: dict[str, Callable[[str, int], Layer]] = {
    "grouped": lambda kv, n: Layer(8, 2, 64, n, kv=kv),
    "one-head-each": lambda kv, n: Layer(3, 3, 64, n, kv=kv, window=40),
    "norm-and-window": lambda kv, n: Layer(8, 1, 128, n, kv=kv, with_norm=True, window=100),
    "partial-rotary": lambda kv, n: Layer(6, 2, 80, n, kv=kv, rotary_half=20, window=300),
    "no-rotary": lambda kv, n: Layer(3, 1, 36, n, kv=kv, rotary_half=0, with_norm=True, window=1),
    "wide": lambda kv, n: Layer(5, 1, 256, n, kv=kv, with_norm=True, window=257),
    "widest": lambda kv, n: Layer(3, 1, 512, n, kv=kv, with_norm=True, rotary_half=64),
    "sinks": lambda kv, n: Layer(8, 2, 64, n, kv=kv, with_sinks=True),
    "sinks-and-window": lambda kv, n: Layer(6, 2, 24, n, kv=kv, with_sinks=True, window=30),
    "narrowest": lambda kv, n: Layer(2, 1, 2, n, kv=kv),
    "common": lambda kv, n: Layer(8, 2, 64, n, kv=kv, with_common=True),
    "common-partial-rotary-window-sinks": lambda kv, n: Layer(
        6, 2, 80, n, kv=kv, rotary_half=20, window=300, with_sinks=True, with_common=True
    ),
    "common-widest": lambda kv, n: Layer(3, 1, 512, n, kv=kv, rotary_half=7, with_common=True),
    "common-no-rotary": lambda kv, n: Layer(3, 1, 36, n, kv=kv, rotary_half=0, with_common=True),
    "odd-group": lambda kv, n: Layer(71, 1, 14, n, kv=kv, rotary_half=3, with_norm=True),
}


@pytest.mark.parametrize("kv", KV_FORMATS)
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_is_its_definition(isa: str, make: Callable[[str, int], Layer], kv: str) -> None:
    # Two blocks and a part of the third; the chunks end within blocks, on and next to boundaries.
    layer = make(kv, 2 * BLOCK + 9)
    qkv = layer.rows(layer.max_seq_len)
    pos = 0
    for size in (1, 3, 16, 17, 217, 1, 1, 1, 1, 254, 9):
        rows = qkv[pos : pos + size]
        out = layer.run(rows, pos)
        np.testing.assert_allclose(
            out,
            layer.expected(rows, pos),
            rtol=0,
            atol=TOLERANCE[kv],
            err_msg=f"{size} rows at {pos}",
        )
        pos += size
    assert pos == layer.max_seq_len


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_what_is_stored(isa: str, make: Callable[[str, int], Layer]) -> None:
    n = 40
    layers = {kv: make(kv, n + 5) for kv in KV_TYPES}
    qkv = layers["float32"].rows(n)
    qkv[7] = 0
    for layer in layers.values():
        layer.run_chunks(qkv, 25)
    exact = layers["float32"]
    keys, values = exact.keys_values(qkv, 0)
    np.testing.assert_allclose(exact.k[:, :n], keys, rtol=0, atol=2e-5)
    assert np.array_equal(exact.v[:, :n], values.astype(np.float32))
    assert np.isnan(exact.k[:, n:]).all(), "only the rows' own positions may be written"
    assert np.isnan(exact.v[:, n:]).all(), "only the rows' own positions may be written"

    for written, narrow, cut, scales in (
        (exact.k, layers["bfloat16"].k, layers["int8"].k, layers["int8"].k_scales),
        (exact.v, layers["bfloat16"].v, layers["int8"].v, layers["int8"].v_scales),
    ):
        written = written[:, :n]
        bits = written.view(np.uint32)
        to_even = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        assert np.array_equal(narrow[:, :n], to_even), "round to nearest, ties to even"

        rotated = written @ np.linalg.inv(hadamard(exact.head_dim))
        largest = np.abs(rotated).max(-1)
        np.testing.assert_allclose(scales[:, :n], largest / 127, rtol=1e-5)
        with np.errstate(invalid="ignore"):
            exact_codes = np.where(largest[..., None] > 0, rotated / largest[..., None] * 127, 0)
        assert np.abs(cut[:, :n] - exact_codes).max() < 0.5 + 1e-3, "the nearest code"
        assert np.isnan(scales[:, n:]).all(), "only the rows' own positions may be written"
    check_int4(layers["int4"], exact, n)


def check_int4(layer: Layer, exact: Layer, n: int) -> None:
    """The first n positions of 4 bits: the nearest levels of rotated heads, and nothing else."""
    rotation = np.linalg.inv(hadamard(layer.head_dim))
    of_parts = (
        (layer.without_common(exact.k.astype(np.float64)), layer.k, layer.k_scales),
        (exact.v, layer.v, layer.v_scales),
    )
    for written, codes, scales in of_parts:
        rotated, known = written[:, :n] @ rotation, scales[:, :n].astype(np.float64)
        largest = np.zeros_like(known)
        for begin in range(0, layer.head_dim, 32):
            block = slice(begin, begin + 32)
            largest[..., block] = np.abs(rotated[..., block]).max(-1, keepdims=True)
        assert (known <= largest / 127 * 1.11).all()
        assert (known >= largest / 127 * 0.69).all()
        units = np.divide(rotated, known, out=np.zeros_like(rotated), where=known > 0)
        distance = np.abs(LEVELS - units[..., None])
        chosen = np.take_along_axis(distance, codes[:, :n, :, None].astype(np.int64), -1)[..., 0]
        assert ((chosen <= distance.min(-1) + 1e-3) | (known == 0)).all(), "the nearest level"
        assert (codes[:, n:] == 9).all(), "only the rows' own positions may be written"
        assert np.isnan(scales[:, n:]).all(), "only the rows' own positions may be written"


@pytest.mark.parametrize("kv", KV_FORMATS)
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_a_row_is_the_same_in_every_chunk(
    isa: str, make: Callable[[str, int], Layer], kv: str
) -> None:
    n = 2 * BLOCK + 30
    whole, sixteens, odd, single = (make(kv, n) for _ in range(4))
    qkv = whole.rows(n)
    expected = whole.run_chunks(qkv, 300)
    assert_same_bits(sixteens.run_chunks(qkv, 16), expected, "16 rows at a time")
    assert_same_bits(odd.run_chunks(qkv, 37), expected, "37 rows at a time")
    single.run(qkv[: BLOCK - 3], 0)
    for pos in range(BLOCK - 3, BLOCK + 3):
        row = slice(pos, pos + 1)
        assert_same_bits(single.run(qkv[row], pos), expected[row], f"position {pos} alone")
    for layer in (sixteens, odd):
        assert np.array_equal(layer.k, whole.k, equal_nan=True)
        assert np.array_equal(layer.v, whole.v, equal_nan=True)


@pytest.mark.parametrize("kv", KV_FORMATS)
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_every_instruction_set_gives_the_same_bits(
    make: Callable[[str, int], Layer], kv: str
) -> None:
    best = _cpu.isa()
    outs, layers = [], []
    for isa in _cpu.supported_isas():
        assert _cpu.select_isa(isa)
        layer = make(kv, BLOCK + 40)
        qkv = layer.rows(layer.max_seq_len)
        outs.append(
            np.concatenate([layer.run_chunks(qkv[:-3], 90), layer.run(qkv[-3:], len(qkv) - 3)])
        )
        layers.append(layer)
    assert _cpu.select_isa(best)
    for out, layer in zip(outs[1:], layers[1:], strict=True):
        assert_same_bits(out, outs[0], "another instruction set")
        assert np.array_equal(layer.k, layers[0].k)
        assert np.array_equal(layer.v, layers[0].v)


@pytest.mark.parametrize("n_threads", [2, 3])
@pytest.mark.parametrize("n_rows", [1, 16, 300])
@pytest.mark.parametrize("kv", ["bfloat16", "int8", "int4"])
def test_threads_change_nothing(isa: str, kv: str, n_rows: int, n_threads: int) -> None:
    pos = BLOCK - 5
    results = []
    for threads in (1, n_threads):
        _cpu.set_threads(threads)
        layer = Layer(8, 2, 64, pos + n_rows, kv=kv, with_norm=True)
        layer.fill()
        results.append((layer.run(layer.rows(n_rows), pos), layer.k, layer.v))
    (expected, k, v), (actual, other_k, other_v) = results
    assert_same_bits(actual, expected, f"{n_threads} threads")
    assert np.array_equal(other_k, k)
    assert np.array_equal(other_v, v)


@pytest.mark.parametrize("window", [0, 1000])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_long_context(isa: str, n_threads: int, window: int) -> None:
    # So long that neither 16 rows nor one keep all of their blocks before merging them.
    length = 140_000
    layer = Layer(2, 1, 4, length, window=window)
    layer.fill()
    qkv = layer.rows(40)
    pos = length - 40
    _cpu.set_threads(n_threads)
    chunk = layer.run(qkv, pos)
    np.testing.assert_allclose(chunk, layer.expected(qkv, pos), rtol=0, atol=1e-5)
    assert_same_bits(layer.run(qkv[:16], pos), chunk[:16], "16 rows")
    for row in (0, 39):
        alone = layer.run(qkv[row : row + 1], pos + row)
        assert_same_bits(alone, chunk[row : row + 1], f"row {row} alone")


@pytest.mark.parametrize("n_rows", [1, 40])
@pytest.mark.parametrize("kv", KV_FORMATS)
def test_large_scores_do_not_overflow(isa: str, kv: str, n_rows: int) -> None:
    layer = Layer(4, 2, 64, 600, kv=kv)
    layer.fill()
    pos = 500
    qkv = layer.rows(n_rows)
    qkv[:, : 4 * 64] *= 1000  # the queries; scores are in the thousands then
    out = layer.run(qkv, pos)
    # Turning a query rounds it, and scores of thousands show that.
    np.testing.assert_allclose(out, layer.expected(qkv, pos), rtol=0, atol=5e-2)


@pytest.mark.parametrize("n_rows", [1, 40])
@pytest.mark.parametrize("kv", KV_FORMATS)
@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_a_nan_is_not_lost(isa: str, part: str, kv: str, n_rows: int) -> None:
    layer = Layer(1, 1, 64, 600, kv=kv)
    layer.fill()
    qkv = layer.rows(n_rows)
    qkv[-1, ["query", "key", "value"].index(part) * 64 + 5] = np.nan
    out = layer.run(qkv, 300)
    assert np.isnan(out[-1]).any(), f"a NaN of the {part}"
