"""How likely transformers finds the end of a text: the oracle for lm-evaluation-harness."""

from collections.abc import Sequence
from typing import Any

import torch


def loglikelihood(oracle: Any, token_ids: Sequence[int], n_context: int) -> tuple[float, bool]:
    """For the tokens after the context: the sum of their logprobs; whether all are likeliest."""
    with torch.no_grad():
        logits = oracle(torch.tensor([token_ids])).logits[0, n_context - 1 : -1]
    ending = torch.tensor(token_ids[n_context:])
    logprobs = logits.log_softmax(-1).gather(1, ending[:, None])
    return logprobs.sum().item(), bool((logits.argmax(-1) == ending).all())
