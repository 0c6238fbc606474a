"""The feed-forward parts of a GGUF file, which may be mixtures of experts.

Owns their keys. Knows nothing else of a layer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..errors import ModelLoadError
from ..stored_tensor import StoredTensor
from .activation import Xielu
from .architecture_keys import ArchitectureKeys
from .config import NO_MLP, ExpertsConfig, MlpConfig, Scoring
from .families.architecture import Architecture, Mixture
from .limits import MAX_EXPERTS, MAX_LAYERS, MAX_WIDTH

_HIGHEST = 1e6
_XIELU = ("alpha_p", "alpha_n", "beta", "eps")
_SCORINGS: Mapping[int, Scoring] = {1: "softmax", 2: "sigmoid", 3: "chosen_softmax"}
Tensors = Mapping[str, StoredTensor]


def mlps_of(
    keys: ArchitectureKeys, architecture: Architecture, tensors: Tensors
) -> list[MlpConfig]:
    """Of each layer. Raises ModelLoadError."""
    n_experts = keys.integer("expert_count", low=0, high=MAX_EXPERTS, default=0)
    hidden_dims = _hidden_dims(keys, low=0 if architecture.parts == "one" else 1)
    experts, shared = None, 0
    if n_experts and architecture.experts is not None:
        experts = _experts(keys, architecture.experts, n_experts, hidden_dims[-1])
        shared = _shared_width(keys, architecture.experts, experts, hidden_dims[-1])
    stands_beside = experts is not None and experts.own_norms
    n_dense = keys.integer("leading_dense_block_count", low=0, high=MAX_LAYERS, default=0)
    curves = _xielus(keys) if architecture.activation == "xielu" else None

    def mlp(index: int) -> MlpConfig:
        if not hidden_dims[index]:
            return NO_MLP
        prefix, has_experts = f"blk.{index}.", experts is not None and index >= n_dense
        own = None
        if has_experts and experts is not None:
            own = replace(
                experts,
                selection_bias=f"{prefix}exp_probs_b.bias" in tensors,
                router_bias=f"{prefix}ffn_gate_inp.bias" in tensors,
                bias=f"{prefix}ffn_down_exps.bias" in tensors,
            )
        return MlpConfig(
            shared if has_experts and not stands_beside else hidden_dims[index],
            bias=f"{prefix}ffn_down.bias" in tensors,
            activation=architecture.activation,
            gated=architecture.gated,
            experts=own,
            xielu=None if curves is None else curves[index],
        )

    return [mlp(index) for index in range(keys.n_layers)]


def _hidden_dims(keys: ArchitectureKeys, low: int) -> Sequence[int]:
    """Of each layer; a model of experts alone may say only their width."""
    key = "feed_forward_length"
    is_said = keys.has(key) or not keys.has(f"expert_{key}")
    return keys.of_layers(key if is_said else f"expert_{key}", high=MAX_WIDTH, low=low)


def _experts(
    keys: ArchitectureKeys, mixture: Mixture, n_experts: int, hidden: int
) -> ExpertsConfig:
    kind = keys.integer("expert_gating_func", low=0, high=4, default=0)
    if kind and kind not in _SCORINGS:
        keys.fail("expert_gating_func", kind, f"one of {', '.join(map(str, _SCORINGS))}")
    n_used = keys.integer("expert_used_count", low=1, high=n_experts)
    n_groups = keys.integer("expert_group_count", low=1, high=n_experts, default=1)
    scale = keys.number("expert_weights_scale", low=0.0, high=_HIGHEST, default=1.0)
    try:
        return ExpertsConfig(
            n_experts=n_experts,
            n_used=n_used,
            hidden_dim=keys.integer(
                "expert_feed_forward_length", low=1, high=MAX_WIDTH, default=hidden
            ),
            scoring=_SCORINGS.get(kind, mixture.scoring),
            n_groups=n_groups,
            n_groups_used=keys.integer(
                "expert_group_used_count", low=1, high=n_groups, default=n_groups
            ),
            group_best=mixture.group_best,
            renormalized=bool(keys.get("expert_weights_norm", mixture.renormalized)),
            scale=scale or 1.0,  # 0 says nothing
            spread=mixture.spread,
            shared_gate=mixture.shared_gate,
            own_norms=mixture.has_own_norms,
            router_scale=_router_scale(keys) if mixture.has_own_norms else 1.0,
            expert_scales=mixture.has_own_norms,
            latent_dim=keys.integer("moe_latent_size", low=0, high=MAX_WIDTH, default=0),
        )
    except ValueError as error:
        raise ModelLoadError(f"experts of {n_experts}: {error}") from error


def _router_scale(keys: ArchitectureKeys) -> float:
    dim = keys.integer("embedding_length", low=1, high=MAX_WIDTH)
    return 1.0 / math.sqrt(dim)


def _shared_width(
    keys: ArchitectureKeys, mixture: Mixture, experts: ExpertsConfig, hidden: int
) -> int:
    """Of what all tokens go through; 0: there is nothing."""
    if not mixture.has_shared:
        return 0
    n_shared = keys.integer("expert_shared_count", low=0, high=MAX_EXPERTS, default=0)
    default = n_shared * experts.hidden_dim or hidden
    return keys.integer("expert_shared_feed_forward_length", low=1, high=MAX_WIDTH, default=default)


def _xielus(keys: ArchitectureKeys) -> list[Xielu]:
    """The numbers of the activation of each layer, as checkpoints have them."""
    columns = [keys.plain_numbers(f"xielu.{each}") for each in _XIELU]
    return [Xielu(*numbers) for numbers in zip(*columns, strict=True)]
