"""Which layers of a GGUF file are recurrent, and what they are.

Owns their keys. Knows nothing else of a layer.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import ModelLoadError
from ..stored_tensor import StoredTensor
from .architecture_keys import ArchitectureKeys
from .families.architecture import Architecture
from .limits import MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from .recurrent import DeltaNetConfig, Mamba2Config, Recurrent, ShortConvConfig

_LANES = 16  # of the kernels
_MAX_KERNEL = 8


def recurrent_of(
    keys: ArchitectureKeys,
    architecture: Architecture,
    dim: int,
    is_free: Sequence[bool],
    tensors: Mapping[str, StoredTensor],
) -> list[Recurrent | None]:
    """Of each layer; `is_free`: whether it has nothing else, where no key says which layers are
    recurrent. Raises ModelLoadError.
    """
    match architecture.recurrent:
        case "delta_net":
            delta_net = _delta_net(keys, architecture)
            return [delta_net if each else None for each in _are_recurrent(keys)]
        case "short_conv":
            kernel = keys.integer("shortconv.l_cache", low=2, high=_MAX_KERNEL)
            conv = ShortConvConfig(dim=dim, kernel=kernel)
            return [conv if free else None for free in is_free]
        case "mamba2":
            mamba = mamba2_of(keys, architecture, tensors)
            return [mamba if free else None for free in is_free]
        case _:
            return [None] * keys.n_layers


def _are_recurrent(keys: ArchitectureKeys) -> list[bool]:
    name = "attention.recurrent_layers"
    listed = keys.get(name, None)
    if listed is None:
        every = keys.integer("full_attention_interval", low=1, high=MAX_LAYERS, default=4)
        return [(index + 1) % every != 0 for index in range(keys.n_layers)]
    if not isinstance(listed, np.ndarray) or listed.dtype != np.bool_:
        keys.fail(name, listed, "an array of bools")
    if len(listed) < keys.n_layers:
        keys.fail(name, listed, f"a bool for each of {keys.n_layers} layers")
    found: list[bool] = listed[: keys.n_layers].tolist()
    return found


def mamba2_of(
    keys: ArchitectureKeys, architecture: Architecture, tensors: Mapping[str, StoredTensor]
) -> Mamba2Config:
    """That of all layers which have it. Raises ModelLoadError."""
    needs_norm = architecture.parts != "both mixers"

    def has(name: str) -> bool:
        return any(each.endswith(f".{name}") for each in tensors)

    n_heads = keys.integer("ssm.time_step_rank", low=1, high=MAX_HEADS)
    inner = keys.integer("ssm.inner_size", low=1, high=MAX_WIDTH)
    state_dim = keys.integer("ssm.state_size", low=1, high=MAX_WIDTH)
    if inner % (n_heads * _LANES):
        keys.fail("ssm.inner_size", inner, f"{n_heads} heads of a multiple of {_LANES}")
    if state_dim % 2:
        keys.fail("ssm.state_size", state_dim, "an even number")
    try:
        return Mamba2Config(
            n_heads=n_heads,
            n_groups=keys.integer("ssm.group_count", low=1, high=MAX_HEADS),
            head_dim=inner // n_heads,
            state_dim=state_dim,
            kernel=keys.integer("ssm.conv_kernel", low=2, high=_MAX_KERNEL),
            conv_bias=has("ssm_conv1d.bias"),
            in_bias=has("ssm_in.bias"),
            out_bias=has("ssm_out.bias"),
            norm="gate_first" if needs_norm or has("ssm_norm.weight") else "",
            has_rates=True,
        )
    except ValueError as error:
        raise ModelLoadError(f"Mamba 2: {error}") from error


def _delta_net(keys: ArchitectureKeys, architecture: Architecture) -> DeltaNetConfig:
    k_dim = keys.integer("ssm.state_size", low=1, high=MAX_WIDTH)
    n_v_heads = keys.integer("ssm.time_step_rank", low=1, high=MAX_HEADS)
    inner = keys.integer("ssm.inner_size", low=1, high=MAX_WIDTH)
    if k_dim % _LANES:
        keys.fail("ssm.state_size", k_dim, f"a multiple of {_LANES}")
    if inner % (n_v_heads * _LANES):
        keys.fail("ssm.inner_size", inner, f"{n_v_heads} heads of a multiple of {_LANES}")
    try:
        return DeltaNetConfig(
            n_k_heads=keys.integer("ssm.group_count", low=1, high=MAX_HEADS),
            n_v_heads=n_v_heads,
            k_dim=k_dim,
            v_dim=inner // n_v_heads,
            kernel=keys.integer("ssm.conv_kernel", low=2, high=_MAX_KERNEL),
            takes_turns=architecture.takes_turns,
            has_rates=True,
        )
    except ValueError as error:
        raise ModelLoadError(f"{architecture.name}: {error}") from error
