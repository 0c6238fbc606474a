"""What a draft of several tokens attends to while it is trained, and what it loses.

Owns what drafters of one layer have in common. Knows neither their weights nor their files.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

IGNORED = -1e30


def attended(q: Tensor, keys: list[Tensor], values: list[Tensor], step: int) -> Tensor:
    """Attention (B, H, T, D) of the token with number `step` of a draft from every position.

    Position i sees the first keys up to i - step, and then one of each later step: that of step s
    at i - step + s. `keys`, `values`: (B, H, T, D) of each step so far.
    """
    T, scale = q.shape[2], q.shape[3] ** -0.5
    scores = scale * q @ keys[0].transpose(2, 3)  # (B, H, T, T)
    seen = torch.ones(T, T, dtype=torch.bool).tril(-step)
    # The first rows have no draft, but softmax wants a number.
    seen[:, 0] = True
    scores = scores.masked_fill(~seen, IGNORED)
    own = [later(k, step - s) for s, k in enumerate(keys) if s]
    scores = torch.cat([scores, *(scale * (q * k).sum(-1, keepdim=True) for k in own)], dim=-1)
    shares = scores.softmax(-1)
    out = shares[..., :T] @ values[0]
    for s, v in enumerate(values[1:], start=1):
        out = out + shares[..., T + s - 1 : T + s] * later(v, step - s)
    return out


def later(x: Tensor, n: int) -> Tensor:
    """(..., T, D): what stood n positions earlier."""
    return x if n == 0 else F.pad(x[..., :-n, :], (0, 0, n, 0))


def loss_of_drafts(
    drafts: Sequence[Tensor], logits: Tensor, chosen: Tensor
) -> tuple[Tensor, list[float]]:
    """Cross entropy with the model's distribution, and the share of positions where the most likely
    token of a draft is that of the model, by place in the draft.

    `drafts`: (B, T, n_drafted) of each step, for drafts that began as many positions earlier;
    `logits`: (B, T, vocab_size), of the model for the same tokens; `chosen`: the ids of the
    drafter's vocabulary. Tokens outside it have no part in the loss, but in the share.
    """
    probs = logits.softmax(-1)[..., chosen]
    best = logits.argmax(-1)
    losses, shares = [], []
    for step, drafted in enumerate(drafts):
        mine = drafted[:, step:]
        losses.append(-(probs[:, step:] * mine.log_softmax(-1)).sum(-1).mean())
        same = chosen[mine.argmax(-1)] == best[:, step:]
        shares.append(float(same.float().mean()))
    return torch.stack(losses).mean(), shares
