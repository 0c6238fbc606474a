"""The activations that the CUDA kernels know. Imports no torch."""

from typing import Any

_GATES = {
    "silu": "SILU_GATE",
    "gelu": "GELU_GATE",
    "gelu_tanh": "GELU_TANH_GATE",
    "clamped": "CLAMPED_GATE",
}
_PLAIN = {"": "NONE", "gelu": "GELU", "gelu_tanh": "GELU_TANH", "relu2": "RELU2"}


def has_activation(name: str, *, gated: bool) -> bool:
    """Whether there is a kernel for it; empty: none is asked for."""
    return name in (_GATES if gated else _PLAIN)


def activation_of(kernels: Any, name: str, *, gated: bool) -> Any:
    """The native epilogue. Raises ValueError if there is none."""
    if not has_activation(name, gated=gated):
        raise ValueError(f"activation: no CUDA kernel for {name}")
    return getattr(kernels.Epilogue, (_GATES if gated else _PLAIN)[name])
