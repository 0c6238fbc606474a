"""Where each of several next tokens would lead: short greedy continuations of one place.

Owns how they are asked for and collected. Each is a branch like any other, and they run one after
the other: the rows of a pass belong to one sequence, so branches cannot share a pass.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..errors import InvalidInputError
from ..sampling.request import SampleResult
from .completion import Completion
from .options import Live
from .result import TokenRecord
from .snapshot import Snapshot

# Among so many of the likeliest tokens those are sought that a constraint allows.
_N_TRIED = 256


class Glimpse(NamedTuple):
    """One alternative, and what the model finds most likely after it."""

    token_id: int
    """The alternative."""
    tokens: tuple[TokenRecord, ...]
    """The alternative, then its continuation; fewer than asked for if it would end, and none if the
    alternative ends the text.
    """
    text: str
    eos_reason: str | None
    """Why it would end within these tokens; None if it would go on."""


Rebuild = Callable[[Snapshot, Live], Completion]


def likeliest(snapshot: Snapshot, rebuild: Rebuild, live: Live, n: int) -> list[int]:
    """The `n` tokens with the highest raw probability among those that may come next; fewer under a
    constraint that forbids nearly all.
    """
    found: list[SampleResult] = []

    def look(sampled: SampleResult) -> None:
        found.append(sampled)

    options = replace(
        snapshot.options,
        return_top_tokens=max(n, _N_TRIED),
        max_new_tokens=None,
        max_tokens_per_call=1,
    )
    probe = rebuild(snapshot.changed(options=options), live._replace(on_token=look))
    probe.advance()
    probe.abandon()
    if not found:  # aborted, or no token is left
        return []
    untouched = rebuild(snapshot.changed(options=options), live)
    untouched.abandon()
    allowed = (token_id for token_id in found[0].top_ids if _is_allowed(untouched, token_id))
    return [token_id for token_id, _ in zip(allowed, range(n), strict=False)]


def glimpses(
    snapshot: Snapshot, rebuild: Rebuild, live: Live, token_ids: Sequence[int], n_tokens: int
) -> list[Glimpse]:
    """The continuations of `n_tokens` tokens that begin with each of `token_ids`.

    Each is that of a branch with temperature 0. Raises InvalidInputError for a token that may not
    come next.
    """
    n = snapshot.n_tokens + n_tokens
    options = snapshot.options
    least = min(options.min_new_tokens, n)
    greedy = snapshot.changed(
        settings=replace(snapshot.settings, temperature=0.0),
        options=replace(options, max_new_tokens=n, min_new_tokens=least, max_tokens_per_call=None),
    )
    return [_glimpse(rebuild(greedy, live), snapshot, token_id) for token_id in token_ids]


def _glimpse(completion: Completion, snapshot: Snapshot, token_id: int) -> Glimpse:
    n_inherited, n_characters = completion.n_tokens_shown, completion.n_characters_shown
    completion.check_given([token_id], param="token_ids")
    completion.give([token_id], "forced")
    text = ""
    tokens: list[TokenRecord] = []
    while not completion.ended:
        result = completion.advance()
        text += result.chunk
        tokens += result.tokens
    tokens = tokens[snapshot.n_tokens - n_inherited :]
    start = tokens[0].text_start - n_characters if tokens else len(text)
    reason = None if result.eos_reason == "length" else result.eos_reason
    return Glimpse(token_id, tuple(tokens), text[max(start, 0) :], reason)


def _is_allowed(completion: Completion, token_id: int) -> bool:
    try:
        completion.check_given([token_id], param="token_ids")
    except InvalidInputError:
        return False
    return True
