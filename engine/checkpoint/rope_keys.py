"""The rope keys of config.json -> RopeConfig.

Owns Hugging Face's spellings, old (`rope_theta`, `rope_scaling`) and new (`rope_parameters`), and
the defaults, which are those of transformers. An unknown rule is refused. Knows no tables.
"""

import math

from ..files import JsonObject
from .config import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongScaling,
    RopeConfig,
    RopeScaling,
    YarnScaling,
)
from .limits import MAX_CONTEXT

_MAX_FACTOR = 1e6
_DEFAULT_THETA = 10000.0
_LAYER_KINDS = ("full_attention", "sliding_attention")


def rope_config(file: JsonObject, head_dim: int, max_positions: int) -> RopeConfig:
    """`max_positions`: `max_position_embeddings` of the same file."""
    # If both are given, transformers reads the old one.
    key = "rope_scaling" if file.values.get("rope_scaling") else "rope_parameters"
    rope = file.nested(key) if file.has(key) else JsonObject({}, f"{file.where}: {key}")
    for kind in _LAYER_KINDS:
        if rope.has(kind):
            rope.fail(
                kind, rope.values[kind], "left out: one rope rule for all layers is supported"
            )
    holder = rope if rope.has("rope_theta") else file
    theta = holder.number("rope_theta", low=1.0, high=1e12, default=_DEFAULT_THETA)
    for owner in (file, rope):
        partial = owner.number("partial_rotary_factor", low=0.0, high=1.0, default=1.0)
        if partial != 1.0:
            owner.fail("partial_rotary_factor", partial, "1")
    keys = _Keys(file, rope, max_positions)
    return RopeConfig(theta, head_dim, keys.scaling(theta, head_dim))


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

    def scaling(self, theta: float, head_dim: int) -> RopeScaling | None:
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
                return self._longrope(head_dim // 2)
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
