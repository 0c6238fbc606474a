"""How much memory this machine has left, and the longest context that fits into it.

Owns the default context length and the arithmetic of its memory. Knows no tensor and no device.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..checkpoint.config import ModelConfig
from ..errors import ModelLoadError

# The default is at most this: a model for 128k tokens would otherwise take gigabytes for a context
# that was not asked for.
DEFAULT_MAX_SEQ_LEN = 8192
# Share of the free memory that the KV cache may take; the rest is for activations and the system.
_CACHE_SHARE = 0.9


@contextmanager
def memory_errors_as_load_errors() -> Iterator[None]:
    """Turns a MemoryError while loading into a ModelLoadError."""
    try:
        yield
    except MemoryError as error:
        raise ModelLoadError(f"not enough memory: {error}") from error


def context_length(
    config: ModelConfig,
    wanted: int | None,
    *,
    bytes_of: Callable[[int], int],
    available: int | None,
    working: int = 0,
) -> int:
    """The context length to allocate: `wanted`, or else the model's usual length, at most
    DEFAULT_MAX_SEQ_LEN and what fits.

    `available` bytes (None: unknown) must hold a KV cache, `bytes_of` so many tokens, and `working`
    bytes.
    Raises ModelLoadError with the figures when `wanted` is less than 2, exceeds the model's length
    or does not fit.
    """
    if available is not None:
        available = max(0, available - working)
    fits = (
        config.max_seq_len
        if available is None
        else bisect_right(
            range(1, config.max_seq_len + 1), int(available * _CACHE_SHARE), key=bytes_of
        )
    )
    if wanted is None:
        length = min(config.usual_seq_len, DEFAULT_MAX_SEQ_LEN, fits)
        if length < min(config.usual_seq_len, 2):
            raise ModelLoadError(f"max_seq_len: no memory is left for a KV cache ({available} B)")
        return length
    if not 2 <= wanted <= config.max_seq_len:
        raise ModelLoadError(
            f"max_seq_len: must be between 2 and the model's {config.max_seq_len}, not {wanted}"
        )
    if wanted > fits:
        raise ModelLoadError(
            f"max_seq_len: {wanted} tokens need {bytes_of(wanted) / 1e9:.2f} GB of "
            f"KV cache; "
            f"{(available or 0) / 1e9:.2f} GB are free, which holds {fits} tokens"
        )
    return wanted


def check_weights_fit(needed: int, available: int | None, *, working: int = 0) -> None:
    """Raises ModelLoadError with the figures when the weights (`needed`) and the other memory that
    the model works in exceed the free memory.
    """
    if available is not None and needed + working > available:
        more = f" and {working / 1e9:.2f} GB to work in" if working else ""
        raise ModelLoadError(
            f"not enough memory: the weights need {needed / 1e9:.2f} GB{more}, "
            f"{available / 1e9:.2f} GB are free"
        )


def host_bytes() -> int | None:
    """Bytes that can be allocated now; None if the system does not say."""
    known = [bytes_ for bytes_ in (_machine_bytes(), _container_bytes()) if bytes_ is not None]
    return min(known, default=None)


def _machine_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _container_bytes() -> int | None:
    """Bytes that the memory limit of the control group (a container) leaves; None: no limit."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text("ascii").strip()
        used = int((group / "memory.current").read_text("ascii"))
        lines = (group / "memory.stat").read_text("ascii").splitlines()
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    cached = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    return max(0, int(limit) - used + cached)
