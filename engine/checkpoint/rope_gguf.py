"""The rope keys of a GGUF file -> RopeConfig.

Owns their names and defaults, which are those of llama.cpp. An unknown rule is refused. Knows no
tables.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from .architecture_keys import ArchitectureKeys
from .limits import MAX_CONTEXT
from .ropes import (
    DividedScaling,
    LinearScaling,
    LongScaling,
    ProportionalScaling,
    RopeConfig,
    RopeScaling,
    YarnScaling,
)

_MAX_FACTOR = 1e6
# A divisor that leaves a frequency no turns: files say so that a part of a head is not rotated.
_STILL = 1e20
_DIMENSIONS = "rope.dimension_count"


class Factors(NamedTuple):
    """Divisors of the frequencies, from tensors; None for those that the file does not have."""

    divisors: Sequence[float] | None = None
    long: Sequence[float] | None = None
    short: Sequence[float] | None = None


def rotary_dim(keys: ArchitectureKeys, head_dim: int, key: str = _DIMENSIONS) -> int:
    """How much of a head is rotated. Raises ModelLoadError."""
    dim = keys.integer(key, low=2, high=head_dim, default=head_dim)
    if dim % 2:
        keys.fail(key, dim, "an even number")
    return dim


def rope_config(
    keys: ArchitectureKeys,
    head_dim: int,
    context: int,
    factors: Factors,
    *,
    rounds_yarn: bool = True,
) -> RopeConfig:
    """`context`: context_length; `rounds_yarn`: see Architecture. Raises ModelLoadError."""
    theta = keys.number("rope.freq_base", low=1.0, high=1e12, default=10000.0)
    if factors.long is not None and factors.short is not None:
        scaling: RopeScaling | None = _long(keys, factors.long, factors.short, context)
    else:
        scaling = _scaling(keys, theta, context, rounds_yarn)
    if factors.divisors is not None:
        scaling = _divided(keys, scaling, factors.divisors)
    return RopeConfig(theta, rotary_dim(keys, head_dim), scaling)


def sliding_rope(
    keys: ArchitectureKeys, head_dim: int, full: RopeConfig, theta: float
) -> RopeConfig:
    """That of sliding layers, without scaling; `theta`: the default, 0: that of `full`."""
    theta = keys.number("rope.freq_base_swa", low=1.0, high=1e12, default=theta or full.theta)
    key = "rope.dimension_count_swa"
    return RopeConfig(theta, rotary_dim(keys, head_dim, key if keys.has(key) else _DIMENSIONS))


def _scaling(
    keys: ArchitectureKeys, theta: float, context: int, rounds_yarn: bool
) -> RopeScaling | None:
    # Without a type, a factor means linear scaling.
    kind = keys.string("rope.scaling.type", default="linear")
    if kind == "none":
        return None
    name = "rope.scaling.factor" if keys.has("rope.scaling.factor") else "rope.scale_linear"
    factor = keys.number(name, low=0.0, high=_MAX_FACTOR, default=1.0) or 1.0
    if factor < 1.0:
        keys.fail(name, factor, f"a number between 1 and {_MAX_FACTOR:g}")
    if kind == "linear":
        return LinearScaling(factor) if factor > 1.0 else None
    if kind != "yarn":
        allowed = "none, linear or yarn, or longrope beside rope_factors_long and _short"
        keys.fail("rope.scaling.type", kind, allowed)
    if theta == 1.0:
        keys.fail("rope.freq_base", theta, "more than 1 for yarn")
    return _yarn(keys, factor, context, rounds_yarn)


def _yarn(keys: ArchitectureKeys, factor: float, context: int, rounds_yarn: bool) -> YarnScaling:
    key = "rope.scaling.original_context_length"
    spread = keys.number("rope.scaling.yarn_log_multiplier", low=0.0, high=_MAX_FACTOR, default=0.0)
    log = math.log(factor)
    attention_factor = (0.1 * log + 1.0) / (0.1 * spread * log + 1.0)
    more = keys.number("rope.scaling.attn_factor", low=0.0, high=_MAX_FACTOR, default=1.0)
    return YarnScaling(
        factor=factor,
        original_max_seq_len=keys.integer(key, low=2, high=MAX_CONTEXT, default=context),
        attention_factor=attention_factor * more,
        beta_fast=keys.number(
            "rope.scaling.yarn_beta_fast", low=0.0, high=_MAX_FACTOR, default=32.0
        )
        or 32.0,
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", low=0.0, high=_MAX_FACTOR, default=1.0)
        or 1.0,
        truncate=rounds_yarn,
    )


def _long(
    keys: ArchitectureKeys, long: Sequence[float], short: Sequence[float], context: int
) -> LongScaling:
    key = "rope.scaling.original_context_length"
    return LongScaling(
        tuple(short),
        tuple(long),
        keys.integer(key, low=2, high=MAX_CONTEXT, default=context),
        keys.number("rope.scaling.attn_factor", low=0.0, high=_MAX_FACTOR, default=1.0),
    )


def _divided(
    keys: ArchitectureKeys, scaling: RopeScaling | None, divisors: Sequence[float]
) -> DividedScaling | ProportionalScaling:
    """Divisors of their own, on top of what the keys say."""
    match scaling:
        case None:
            n_turning = sum(divisor < _STILL for divisor in divisors)
            turning, still = divisors[:n_turning], divisors[n_turning:]
            if still and set(turning) == {1.0} and min(still) >= _STILL:
                return ProportionalScaling(1.0, n_turning)
            return DividedScaling(tuple(divisors))
        case LinearScaling(factor):
            return DividedScaling(tuple(divisor * factor for divisor in divisors))
        case _:
            kind = keys.string("rope.scaling.type")
            keys.fail("rope.scaling.type", kind, "none or linear beside rope_freqs.weight")
