"""The knobs of the CUDA kernels, which change their speed and never their results.

Owns the settings that are compared. The kernels own what the knobs mean, and their defaults.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from engine.native import cuda as cuda_native

_KIB = 1024
_TRIALS: dict[str, tuple[int, ...]] = {
    "overlap": (False,),
    "attention_prefetch_bytes": (0, 48 * _KIB, 96 * _KIB, 160 * _KIB),
    "q4_blocks": (1, 2),
    "q8_blocks": (1, 2),
}


def current() -> Mapping[str, Any]:
    """The values in force, by name."""
    return cuda_native.kernels.knobs()


@contextmanager
def turned(**values: int) -> Iterator[None]:
    """Sets some knobs for the time of a context, from the next pass on."""
    before, kernels = current(), cuda_native.kernels
    if values:
        kernels.set_knobs(**{**before, **values})
    try:
        yield
    finally:
        if values:
            kernels.set_knobs(**before)


def trials() -> Iterator[tuple[str, dict[str, int]]]:
    """Each setting and its name: the values in force, then one knob at a time."""
    defaults = current()
    yield "default", {}
    for name in defaults:
        for value in _TRIALS.get(name, ()):
            if value != defaults[name]:
                yield f"{name}={value}", {name: value}
