"""What speculative decoding would do with greedy text that is already written.

Owns the counting of proposed and accepted tokens, for a draft model and for n-grams. Measures no
time. Nothing has to be decoded again: a target that decodes greedily accepts a proposed token
exactly when its own text has it at that place, and up to the first token that differs a draft
model's context is that very text. So one forward pass of the draft over the text is enough.
"""

from collections.abc import Callable, Sequence

import torch

from training.measures import Speculation
from training.model import Llama
from training.writer import Written

DRAFT_LENGTHS = (1, 2, 4)
LONGEST_NGRAM = 3

Propose = Callable[[int, int], tuple[int, int]]
"""(position in the text, most tokens to propose) -> (tokens proposed, tokens accepted)."""


def draft_speculation(
    draft: Llama, texts: Sequence[Written], *, name: str, draft_length: int, budget: int
) -> Speculation:
    """`budget`: the most tokens that a text could have."""
    proposers = [_draft_proposer(agreements(draft, text)) for text in texts]
    return _count("draft model", name, texts, proposers, draft_length, budget)


def ngram_speculation(
    texts: Sequence[Written], *, name: str, draft_length: int, budget: int
) -> Speculation:
    proposers = [_ngram_proposer(text) for text in texts]
    return _count("n-grams", name, texts, proposers, draft_length, budget)


@torch.no_grad()
def agreements(draft: Llama, text: Written) -> list[bool]:
    """For every token of the text, whether the draft finds it most likely after all before it."""
    token_ids = torch.tensor([[*text.prompt_ids, *text.token_ids]])
    guesses = draft(token_ids[:, :-1])[0, len(text.prompt_ids) - 1 :].argmax(-1)
    same: list[bool] = (guesses == token_ids[0, len(text.prompt_ids) :]).tolist()
    return same


def ngram_proposal(token_ids: Sequence[int], most: int) -> list[int]:
    """What followed the last earlier place that ends like these tokens; a longer ending is better.

    `token_ids` are prompt and text so far; endings of three, two and one tokens are tried.
    """
    n_tokens = len(token_ids)
    for n in range(min(LONGEST_NGRAM, n_tokens - 1), 0, -1):
        ending = token_ids[n_tokens - n :]
        for start in range(n_tokens - n - 1, -1, -1):
            if token_ids[start : start + n] == ending:
                return list(token_ids[start + n : start + n + most])
    return []


def _draft_proposer(agrees: Sequence[bool]) -> Propose:
    def propose(place: int, most: int) -> tuple[int, int]:
        accepted = 0
        while accepted < most and place + accepted < len(agrees) and agrees[place + accepted]:
            accepted += 1
        return most, accepted

    return propose


def _ngram_proposer(text: Written) -> Propose:
    def propose(place: int, most: int) -> tuple[int, int]:
        proposal = ngram_proposal([*text.prompt_ids, *text.token_ids[:place]], most)
        accepted = 0
        for proposed, written in zip(proposal, text.token_ids[place:], strict=False):
            if proposed != written:
                break
            accepted += 1
        return len(proposal), accepted

    return propose


def _count(
    drafter: str,
    name: str,
    texts: Sequence[Written],
    proposers: Sequence[Propose],
    draft_length: int,
    budget: int,
) -> Speculation:
    n_passes = n_proposed = n_accepted = 0
    for text, propose in zip(texts, proposers, strict=True):
        place = 0
        while place < len(text.token_ids):
            # The pass also yields one token of the target, for which the budget must have room.
            proposed, accepted = propose(place, min(draft_length, budget - place - 1))
            n_passes += 1
            n_proposed += proposed
            n_accepted += accepted
            place += accepted + 1
    return Speculation(
        drafter=drafter,
        text=name,
        draft_length=draft_length,
        n_tokens=sum(len(text.token_ids) for text in texts),
        n_passes=n_passes,
        n_proposed=n_proposed,
        n_accepted=n_accepted,
    )
