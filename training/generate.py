"""Samples text from a model in training's own module, to look at what it learned.

Owns the plainest possible sampling loop: no KV cache, one sequence. The server does this properly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.model import Llama


@dataclass(frozen=True, slots=True)
class Sampling:
    """The defaults of generation_config.json."""

    temperature: float = 0.7
    top_p: float = 0.9
    repetition_penalty: float = 1.05
    max_tokens: int = 200


@torch.no_grad()
def generate(
    model: Llama,
    prompt: Sequence[int],
    stop_token_ids: frozenset[int],
    *,
    seed: int,
    sampling: Sampling | None = None,
) -> list[int]:
    """Returns the completion's token ids, without the stop token."""
    sampling = sampling or Sampling()
    generator = torch.Generator().manual_seed(seed)
    token_ids = list(prompt)
    room = model.config.max_seq_len - len(prompt)
    for _ in range(min(sampling.max_tokens, room)):
        logits = model(torch.tensor([token_ids]))[0, -1]  # (V,)
        seen = torch.tensor(sorted(set(token_ids)))
        token_id = _sample(logits, seen, sampling, generator)
        if token_id in stop_token_ids:
            break
        token_ids.append(token_id)
    return token_ids[len(prompt) :]


def _sample(logits: Tensor, seen: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    penalty = sampling.repetition_penalty
    values = logits[seen]
    logits[seen] = torch.where(values > 0, values / penalty, values * penalty)
    probs, order = torch.softmax(logits / sampling.temperature, -1).sort(descending=True)
    before = probs.cumsum(-1) - probs
    probs = probs.masked_fill(before > sampling.top_p, 0.0)
    return int(order[torch.multinomial(probs, 1, generator=generator)])
