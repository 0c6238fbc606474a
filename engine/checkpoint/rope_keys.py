"""The rope keys of config.json -> RopeConfig.

Owns Hugging Face's spellings, old (`rope_theta`, `rope_scaling`) and new (`rope_parameters`), and
the defaults, which are those of transformers. An unknown rule is refused. Knows no tables.
"""

import math
from dataclasses import dataclass

from ..files import JsonObject
from .limits import MAX_CONTEXT
from .ropes import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongScaling,
    ProportionalScaling,
    RopeConfig,
    RopeScaling,
    YarnScaling,
)

_MAX_FACTOR = 1e6
_FULL, _SLIDING = _LAYER_KINDS = ("full_attention", "sliding_attention")


@dataclass(frozen=True, slots=True)
class RopeDefaults:
    """What a family takes for missing keys, and how it calls them."""

    theta: float = 10000.0
    partial: float | None = None
    """How much of a head is rotated; None: all of it, and a file must not say otherwise."""
    theta_key: str = "rope_theta"
    partial_key: str = "partial_rotary_factor"


PLAIN_ROPE = RopeDefaults()


def rope_config(
    file: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> RopeConfig:
    """`max_positions`: `max_position_embeddings` of the same file."""
    rope = _rope_object(file)
    for kind in _LAYER_KINDS:
        if rope.has(kind):
            rope.fail(
                kind, rope.values[kind], "left out: here there is one rope rule for all layers"
            )
    return _rope_config(file, rope, head_dim, max_positions, defaults)


def two_ropes(
    file: JsonObject,
    head_dim: int,
    max_positions: int,
    defaults: RopeDefaults,
    *,
    sliding_theta_key: str = "",
    sliding_theta: float,
    full_head_dim: int | None = None,
) -> tuple[RopeConfig, RopeConfig]:
    """Of full layers, then of sliding ones, which no old key scales. `full_head_dim`: where full
    layers have other heads.
    """
    rope = _rope_object(file)
    if not any(kind in rope.values for kind in _LAYER_KINDS):
        full = _rope_config(file, rope, head_dim, max_positions, defaults)
        if sliding_theta_key:
            theta = file.number(sliding_theta_key, low=1.0, high=1e12, default=sliding_theta)
        else:
            theta = full.theta
        return full, RopeConfig(theta, head_dim)
    both = []
    for kind, theta, width in (
        (_FULL, defaults.theta, full_head_dim or head_dim),
        (_SLIDING, sliding_theta, head_dim),
    ):
        own = rope.nested(kind) if rope.has(kind) else JsonObject({}, f"{rope.where}: {kind}")
        kind_defaults = RopeDefaults(theta, defaults.partial)
        both.append(_rope_config(file, own, width, max_positions, kind_defaults))
    return both[0], both[1]


def _rope_object(file: JsonObject) -> JsonObject:
    # If both are given, transformers reads the old one.
    key = "rope_scaling" if file.values.get("rope_scaling") else "rope_parameters"
    return file.nested(key) if file.has(key) else JsonObject({}, f"{file.where}: {key}")


def _rope_config(
    file: JsonObject, rope: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> RopeConfig:
    holder, key = (rope, "rope_theta") if rope.has("rope_theta") else (file, defaults.theta_key)
    theta = holder.number(key, low=1.0, high=1e12, default=defaults.theta)
    if rope.string("rope_type", default="") == "proportional":
        return RopeConfig(theta, head_dim, _proportional(rope, head_dim))
    rotary_dim = _rotary_dim(file, rope, head_dim, defaults)
    keys = _Keys(file, rope, max_positions)
    return RopeConfig(theta, rotary_dim, keys.scaling(theta, rotary_dim))


def _proportional(rope: JsonObject, head_dim: int) -> ProportionalScaling:
    partial = rope.number("partial_rotary_factor", low=0.0, high=1.0, default=1.0)
    factor = rope.number("factor", low=1.0, high=_MAX_FACTOR, default=1.0)
    return ProportionalScaling(factor, int(partial * head_dim // 2))


def _rotary_dim(file: JsonObject, rope: JsonObject, head_dim: int, defaults: RopeDefaults) -> int:
    key = "partial_rotary_factor"
    holder, key = (rope, key) if rope.has(key) else (file, defaults.partial_key)
    partial = holder.number(key, low=0.0, high=1.0, default=defaults.partial or 1.0)
    if partial == 1.0:
        return head_dim
    rotary_dim = int(head_dim * partial)
    if defaults.partial is None or rotary_dim < 2 or rotary_dim % 2:
        allowed = "1" if defaults.partial is None else f"an even part of the {head_dim} of a head"
        holder.fail(key, partial, allowed)
    return rotary_dim


def longest_context(rope: RopeConfig, max_positions: int) -> int:
    """How many tokens the model is made for: `max_position_embeddings`, or the stretched original
    length if that is longer.
    """
    match rope.scaling:
        case LinearScaling(factor):
            stretched = max_positions * factor
        case DynamicScaling(factor, original) | YarnScaling(factor, original):
            stretched = original * factor
        case _:  # the length in the file is the scaled one
            stretched = max_positions
    return min(max(max_positions, int(stretched)), MAX_CONTEXT)


class _Keys:
    """The keys of one scaling. `file`, which contains it, may hold the original length."""

    def __init__(self, file: JsonObject, rope: JsonObject, max_positions: int) -> None:
        self._file = file
        self._rope = rope
        self._max_positions = max_positions

    def scaling(self, theta: float, rotary_dim: int) -> RopeScaling | None:
        type_key = "rope_type" if self._rope.has("rope_type") else "type"
        match self._rope.string(type_key, default="default"):
            case "default":
                return None
            case "linear":
                return LinearScaling(self._factor())
            case "dynamic":
                # transformers stretches `max_position_embeddings` here and ignores an original one.
                return DynamicScaling(self._factor(), self._max_positions)
            case "yarn":
                if theta == 1.0:
                    self._rope.fail("rope_theta", theta, "more than 1 for yarn")
                return self._yarn()
            case "longrope":
                return self._longrope(rotary_dim // 2)
            case "llama3":
                return self._llama3()
            case other:
                allowed = "'default', 'linear', 'dynamic', 'yarn', 'longrope' or 'llama3'"
                self._rope.fail(type_key, other, allowed)

    def _factor(self) -> float:
        return self._rope.number("factor", low=1.0, high=_MAX_FACTOR)

    def _original(self) -> int:
        name = "original_max_position_embeddings"
        holder = self._file if self._file.has(name) else self._rope
        return holder.integer(name, low=2, high=MAX_CONTEXT, default=self._max_positions)

    def _factor_or_ratio(self, original: int) -> float:
        """`factor`; if it is missing, `max_position_embeddings` divided by the original length."""
        return self._factor() if self._rope.has("factor") else self._max_positions / original

    def _yarn(self) -> YarnScaling:
        original = self._original()
        # null means the ratio; transformers fails without the key.
        is_said = "factor" in self._rope.values
        factor = self._factor_or_ratio(original) if is_said else self._factor()
        if self._rope.has("attention_factor"):
            attention_factor = self._rope.number("attention_factor", low=0.0, high=_MAX_FACTOR)
        else:
            attention_factor = self._yarn_attention_factor(factor)
        return YarnScaling(
            factor=factor,
            original_max_seq_len=original,
            attention_factor=attention_factor,
            beta_fast=self._rope.number("beta_fast", low=0.0, high=_MAX_FACTOR, default=0.0) or 32,
            beta_slow=self._rope.number("beta_slow", low=0.0, high=_MAX_FACTOR, default=0.0) or 1,
            truncate=self._rope.boolean("truncate", default=True),
        )

    def _yarn_attention_factor(self, factor: float) -> float:
        one = self._rope.number("mscale", low=0.0, high=_MAX_FACTOR, default=0.0)
        other = self._rope.number("mscale_all_dim", low=0.0, high=_MAX_FACTOR, default=0.0)
        log = math.log(max(factor, 1.0))
        if one and other:
            return (0.1 * one * log + 1.0) / (0.1 * other * log + 1.0)
        return 0.1 * log + 1.0

    def _longrope(self, count: int) -> LongScaling:
        original = self._original()
        factor = self._factor_or_ratio(original)
        if self._rope.has("attention_factor"):
            attention_factor = self._rope.number("attention_factor", low=0.0, high=_MAX_FACTOR)
        else:
            attention_factor = math.sqrt(1 + math.log(max(factor, 1.0)) / math.log(original))
        return LongScaling(
            self._rope.numbers("short_factor", count=count, low=1e-6, high=_MAX_FACTOR),
            self._rope.numbers("long_factor", count=count, low=1e-6, high=_MAX_FACTOR),
            original,
            attention_factor,
        )

    def _llama3(self) -> Llama3Scaling:
        low = self._rope.number("low_freq_factor", low=1e-6, high=_MAX_FACTOR)
        high = self._rope.number("high_freq_factor", low=1e-6, high=_MAX_FACTOR)
        if high <= low:
            self._rope.fail("high_freq_factor", high, f"more than low_freq_factor {low:g}")
        return Llama3Scaling(
            factor=self._factor(),
            low_freq_factor=low,
            high_freq_factor=high,
            original_max_seq_len=self._original(),
        )
