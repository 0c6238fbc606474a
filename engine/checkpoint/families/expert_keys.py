"""The keys of config.json that mixtures of experts have in common.

Owns their reading and what is refused of them. Knows no tensor.
"""

from typing import Any

from ...errors import ModelLoadError
from ...files import JsonObject
from ..config import ExpertsConfig
from ..limits import MAX_EXPERTS, MAX_LAYERS, MAX_WIDTH

_HIGHEST = 1e6


def experts_of(
    file: JsonObject,
    *,
    keys: tuple[str, ...],
    n_experts: int | None = None,
    n_used: int | None = None,
    hidden_dim: int | None = None,
    used_key: str = "num_experts_per_tok",
    hidden_key: str = "moe_intermediate_size",
    **options: Any,
) -> ExpertsConfig:
    """`keys`: the names of the number of experts, the first that is there counts; n_experts, n_used
    and hidden_dim are defaults, None: there is none; `options`: see ExpertsConfig. Raises
    ModelLoadError.
    """
    key = next((each for each in keys if file.has(each)), keys[0])
    n = file.integer(key, low=1, high=MAX_EXPERTS, default=n_experts)
    used = file.integer(used_key, low=1, high=MAX_EXPERTS, default=n_used)
    if used > n:
        file.fail(used_key, used, f"at most the {n} experts")
    width = file.integer(hidden_key, low=1, high=MAX_WIDTH, default=hidden_dim)
    try:
        return ExpertsConfig(n_experts=n, n_used=used, hidden_dim=width, **options)
    except ValueError as error:
        raise ModelLoadError(f"{file.where}: experts: {error}") from error


def sigmoid_experts_of(file: JsonObject, **options: Any) -> ExpertsConfig:
    """Experts in groups, whose scores are sigmoids, with a bias for the choice; `options`: those of
    `experts_of`. Raises ModelLoadError.
    """
    n_groups = file.integer("n_group", low=1, high=MAX_EXPERTS, default=1)
    return experts_of(
        file,
        scoring="sigmoid",
        selection_bias=True,
        n_groups=n_groups,
        n_groups_used=file.integer("topk_group", low=1, high=n_groups, default=1),
        group_best=2,
        renormalized=file.boolean("norm_topk_prob", default=True),
        scale=file.number("routed_scaling_factor", low=0.0, high=_HIGHEST, default=1.0),
        **options,
    )


def is_sparse(file: JsonObject, n_layers: int) -> list[bool]:
    """Which layers have experts: every n-th one, but those of a list."""
    step = file.integer("decoder_sparse_step", low=1, high=MAX_LAYERS, default=1)
    plain = file.values.get("mlp_only_layers") or []
    if not isinstance(plain, list) or not all(isinstance(each, int) for each in plain):
        file.fail("mlp_only_layers", plain, "a list of numbers of layers")
    return [index not in plain and (index + 1) % step == 0 for index in range(n_layers)]


def shared_width(file: JsonObject, key: str, *, default: int) -> int:
    """Of the part that all tokens go through."""
    return file.integer(key, low=1, high=MAX_WIDTH, default=default)
