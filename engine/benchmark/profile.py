"""Where a decode step spends its time, by kind of op. Owns the grouping."""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from ..cache.kv import KVCache
from ..model.model import Model
from .speed import prompt_ids

_WARM_UP = 5


@dataclass(frozen=True, slots=True)
class OpShare:
    """All ops of a step with the same name and shape, together."""

    name: str
    count: int
    us: float
    n_bytes: int
    """Weights that they read, and states that they read and write."""


def profile_step(model: Model, *, steps: int = 50) -> list[OpShare]:
    """The ops of a decode step after a short prompt, in their order, with the median times of
    `steps` steps. Empty if the ops record no times.
    """
    cache = KVCache(model.config, model.ops, max_seq_len=_WARM_UP + steps)
    token_ids = prompt_ids(model.config.vocab_size, _WARM_UP + steps)
    model.prefill(token_ids[:_WARM_UP], cache)
    profiles = [model.profile([token_id], cache) for token_id in token_ids[_WARM_UP:]]
    groups = defaultdict(list)
    for op in zip(*profiles, strict=True):
        groups[op[0].name].append((median(each.ns for each in op) / 1e3, op[0].n_bytes))
    return [
        OpShare(name, len(group), sum(us for us, _ in group), sum(n_bytes for _, n_bytes in group))
        for name, group in groups.items()
    ]
