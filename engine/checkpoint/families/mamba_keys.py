"""The keys of config.json that families with Mamba 2 have in common.

Owns their reading and what is refused of them. Knows no tensor.
"""

import math
from typing import Any

from ...errors import ModelLoadError
from ...files import JsonObject
from ..limits import MAX_HEADS, MAX_WIDTH
from ..recurrent import Mamba2Config

LANES = 16  # of the kernels
MAX_KERNEL = 8
_HIGHEST = 1e6


def mamba2_of(file: JsonObject, *, inner: int, **options: Any) -> Mamba2Config:
    """From keys that begin with mamba_; `inner`: the width of all heads; `options`: see
    Mamba2Config. Raises ModelLoadError.
    """
    n_heads = file.integer("mamba_n_heads", low=1, high=MAX_HEADS, default=128)
    head_dim = _head_dim(file, inner, n_heads)
    if n_heads * head_dim != inner:
        file.fail("mamba_n_heads", n_heads, f"a number of heads of {head_dim} in {inner} columns")
    return checked(
        file,
        head_key="mamba_d_head",
        state_key="mamba_d_state",
        n_heads=n_heads,
        n_groups=file.integer("mamba_n_groups", low=1, high=n_heads, default=1),
        head_dim=head_dim,
        state_dim=file.integer("mamba_d_state", low=1, high=MAX_WIDTH, default=256),
        kernel=file.integer("mamba_d_conv", low=2, high=MAX_KERNEL, default=4),
        conv_bias=file.boolean("mamba_conv_bias", default=True),
        dt_limits=dt_limits(file),
        **options,
    )


def checked(
    file: JsonObject,
    *,
    head_key: str,
    state_key: str,
    head_dim: int,
    state_dim: int,
    **options: Any,
) -> Mamba2Config:
    """The layer, if there are kernels for it. Raises ModelLoadError that names the key."""
    if head_dim % LANES:
        file.fail(head_key, head_dim, f"a multiple of {LANES}")
    if state_dim % 2:
        file.fail(state_key, state_dim, "an even number")
    try:
        return Mamba2Config(head_dim=head_dim, state_dim=state_dim, **options)
    except ValueError as error:
        raise ModelLoadError(f"{file.where}: Mamba 2: {error}") from error


def _head_dim(file: JsonObject, inner: int, n_heads: int) -> int:
    if file.values.get("mamba_d_head", "auto") == "auto":
        return inner // n_heads
    return file.integer("mamba_d_head", low=1, high=MAX_WIDTH)


def dt_limits(file: JsonObject) -> tuple[float, float]:
    """Of the time of a step. Infinity may be written in the way of transformers."""
    key = "time_step_limit"
    found = file.values.get(key)
    if found is None:
        return 0.0, math.inf
    limits = [_number(each) for each in found] if isinstance(found, list) else []
    if len(limits) != 2 or not 0.0 <= limits[0] <= limits[1]:
        file.fail(key, found, "two numbers, the lower one first")
    return limits[0], limits[1]


def _number(value: Any) -> float:
    if value == {"__float__": "Infinity"}:
        return math.inf
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else math.nan
