"""Which experts rows of a router's numbers choose, in plain torch.

Owns what the scorings of ExpertsConfig mean. Knows no matrix.
"""

import torch
from torch import Tensor

from ..checkpoint.config import ExpertsConfig


def choose(
    numbers: Tensor, config: ExpertsConfig, selection_bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The experts (rows, n_used) that a router's numbers (rows, n_experts) choose, and their
    weights.
    """
    scores = numbers
    if config.scoring == "sparse_mixer":
        return _choose_in_turn(numbers, config)
    if config.scoring != "chosen_softmax":
        scores = numbers.softmax(-1) if config.scoring == "softmax" else numbers.sigmoid()
    values = scores if selection_bias is None else scores + selection_bias.float()
    if config.n_groups_used < config.n_groups:
        groups = values.view(len(values), config.n_groups, -1)
        best = groups.topk(config.group_best, dim=-1).values.sum(-1)
        kept = best.topk(config.n_groups_used, dim=-1).indices
        dropped = torch.ones_like(best, dtype=torch.bool).scatter_(-1, kept, value=False)
        values = groups.masked_fill(dropped.unsqueeze(-1), float("-inf")).flatten(-2)
    chosen = values.topk(config.n_used, dim=-1).indices
    weights = scores.gather(-1, chosen)
    if config.scoring == "chosen_softmax":
        weights = weights.softmax(-1)
    elif config.renormalized:
        weights = weights / weights.sum(-1, keepdim=True)
    return chosen, weights * config.scale


def _choose_in_turn(numbers: Tensor, config: ExpertsConfig) -> tuple[Tensor, Tensor]:
    """The same with sparse_mixer."""
    left, chosen, weights = numbers, [], []
    for _ in range(config.n_used):
        best, index = left.max(-1, keepdim=True)
        is_far = (best - numbers) / numbers.abs().maximum(best) > config.spread
        close = left.masked_fill(is_far, float("-inf"))
        chosen.append(index)
        weights.append(close.softmax(-1).gather(-1, index))
        left = left.scatter(-1, index, float("-inf"))
    return torch.cat(chosen, -1), torch.cat(weights, -1) * config.scale
