"""Where the benchmark computes: on a GPU; in a rehearsal on the CPU, where the emulator's library
stands in place of engine/native/_cuda.

Owns what a rehearsal makes smaller. Its figures mean nothing: it shows that every step runs.
"""

from dataclasses import dataclass, replace

from engine.checkpoint.config import AttentionConfig, LayerConfig, MlpConfig, ModelConfig
from engine.checkpoint.ropes import RopeConfig
from engine.device.cuda.ops import CudaOps
from engine.device.open import open_ops
from engine.native import cuda as cuda_native

from .shapes import CONFIGS

IS_REHEARSAL = not cuda_native.MISSING and cuda_native.kernels.properties(0)["name"] == "emulated"
DEVICE = "cpu" if IS_REHEARSAL else "cuda"


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured."""

    tokens: int = 160  # of a stream
    prompts: tuple[int, ...] = (512, 2048)
    depth: int = 32_768
    rounds: int = 5
    calls: int = 24  # passes timed together
    replays: int = 500  # that must all be equal


AMOUNT = Amount(4, (20,), 40, 1, 1, 2) if IS_REHEARSAL else Amount()


def config_of(size: str, *, n_layers: int | None = None) -> ModelConfig:
    """A size of shapes.py with `n_layers` of its layers, by default all; in a rehearsal tiny."""
    config = CONFIGS[size]
    if IS_REHEARSAL:
        return tiny(config)
    return config if n_layers is None else replace(config, layers=config.layers[:1] * n_layers)


def tiny(config: ModelConfig) -> ModelConfig:
    attention = AttentionConfig(n_heads=2, n_kv_heads=1, head_dim=16)
    return replace(
        config,
        dim=32,
        vocab_size=100,
        ropes=(RopeConfig(theta=1e4, rotary_dim=16),),
        layers=(LayerConfig(attention, MlpConfig(48)),) * 2,
    )


def open_device(format_: str, *, kv_cache: str = "auto") -> CudaOps:
    """Raises ModelLoadError where the native ops cannot run: torch must not stand in for them."""
    if IS_REHEARSAL:
        return CudaOps(DEVICE, cuda_native.kernels, format_, kv_cache=kv_cache)
    quantize = "none" if format_ == "bfloat16" else format_
    ops = open_ops(device=DEVICE, quantize=quantize, kv_cache=kv_cache, require_native=True)
    assert isinstance(ops, CudaOps), "require_native"
    return ops
