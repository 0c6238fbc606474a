"""Qwen's mixtures of experts: Qwen 3 without, Qwen 2 with a part that all tokens go through, behind
a gate.
"""

from ...files import JsonObject
from ..config import ExpertsConfig, LayerConfig, QkNorm
from .expert_keys import experts_of, is_sparse, shared_width
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .windows import max_window_layers, qwen_window, typed_windows

_READS = frozenset({"num_experts", "num_local_experts", "num_experts_per_tok"})


def _experts(
    file: JsonObject, *, n_experts: int, n_used: int, hidden_dim: int, shared: bool
) -> ExpertsConfig:
    return experts_of(
        file,
        keys=("num_experts", "num_local_experts"),
        n_experts=n_experts,
        n_used=n_used,
        hidden_dim=hidden_dim,
        renormalized=file.boolean("norm_topk_prob", default=False),
        shared_gate=shared,
    )


def _layers_3(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    experts = _experts(file, n_experts=128, n_used=8, hidden_dim=768, shared=False)
    return tuple(
        sizes.layer(
            window=window,
            qkv_bias=bias,
            o_bias=bias,
            qk_norm=QkNorm(),
            experts=experts if sparse else None,
        )
        for window, sparse in zip(
            _windows_3(file, sizes.n_layers), is_sparse(file, sizes.n_layers), strict=True
        )
    )


def _windows_3(file: JsonObject, n_layers: int) -> list[int]:
    """All layers slide or none."""
    window = qwen_window(file)
    if window and file.has("layer_types"):
        file.fail("layer_types", file.values["layer_types"], "left out: here all layers slide")
    return [window] * n_layers


def _windows_2(file: JsonObject, n_layers: int) -> list[int]:
    """Unless `layer_types` says more: every other layer slides, up to `max_window_layers`."""
    window = qwen_window(file)
    if window and file.has("layer_types"):
        return typed_windows(file, n_layers, window)
    last = max_window_layers(file) if window else 0
    return [window if index < last and index % 2 == 0 else 0 for index in range(n_layers)]


def _layers_2(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("qkv_bias", default=True)
    experts = _experts(file, n_experts=60, n_used=4, hidden_dim=1408, shared=True)
    shared = shared_width(file, "shared_expert_intermediate_size", default=5632)
    return tuple(
        sizes.layer(
            window=window,
            qkv_bias=bias,
            experts=experts if sparse else None,
            shared_dim=shared,
        )
        for window, sparse in zip(
            _windows_2(file, sizes.n_layers), is_sparse(file, sizes.n_layers), strict=True
        )
    )


QWEN3_MOE = Family(
    architecture="Qwen3MoeForCausalLM",
    layers=_layers_3,
    sources=LLAMA_NAMES.sources,
    max_positions=32_768,
    n_kv_heads=4,
    sizes={"intermediate_size": 6144},
    reads=_READS,
)
QWEN2_MOE = Family(
    architecture="Qwen2MoeForCausalLM",
    layers=_layers_2,
    sources=LLAMA_NAMES.sources,
    max_positions=32_768,
    n_kv_heads=16,
    sizes={"intermediate_size": 5632},
    reads=_READS,
)
