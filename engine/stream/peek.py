"""Where each of several next tokens would lead: short greedy continuations of one place.

Owns how they are asked for and collected. Each is the text of a branch of its own, to the last bit;
they share the passes of the model.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..errors import InvalidInputError
from ..model.model import MAX_DECODE_ROWS
from ..sampling.request import SampleResult
from .branching import Branching
from .completion import Completion
from .options import Live
from .result import StreamResult, TokenRecord
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
# The caches hold again what a completion needs that goes on.
Regain = Callable[[Completion, Live], None]
# Branches of a place, each of at most so many tokens more. The caches are theirs from then on.
Fork = Callable[[Snapshot, Live, int], Branching]


def likeliest(snapshot: Snapshot, branching: Branching, live: Live, n: int) -> list[int]:
    """The `n` tokens with the highest raw probability among those that may come next; fewer under a
    constraint that forbids nearly all.
    """
    found: list[SampleResult] = []

    def look(sampled: SampleResult) -> None:
        found.append(sampled)

    all_may_come = snapshot.options.constraint is None and not snapshot.options.token_healing
    options = replace(
        snapshot.options,
        return_top_tokens=n if all_may_come else max(n, _N_TRIED),
        max_new_tokens=None,
        max_tokens_per_call=1,
    )
    wide = snapshot.changed(options=options)
    branching.begin([wide], live._replace(on_token=look))
    branching.step()
    if not found:  # aborted, or no token is left
        return []
    if all_may_come:
        return list(found[0].top_ids[:n])
    [untouched] = branching.begin([wide], live)
    allowed = (token_id for token_id in found[0].top_ids if _is_allowed(untouched, token_id))
    return [token_id for token_id, _ in zip(allowed, range(n), strict=False)]


def glimpses(
    snapshot: Snapshot,
    branching: Branching,
    live: Live,
    token_ids: Sequence[int],
    n_tokens: int,
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
        options=replace(options, max_new_tokens=n, min_new_tokens=least, max_tokens_per_call=1),
    )
    found: list[Glimpse] = []
    for start in range(0, len(token_ids), MAX_DECODE_ROWS):
        some = token_ids[start : start + MAX_DECODE_ROWS]
        completions = branching.begin([greedy] * len(some), live)
        found += _glimpses(branching, completions, snapshot.n_tokens, some)
    return found


def _glimpses(
    branching: Branching, completions: Sequence[Completion], n_past: int, token_ids: Sequence[int]
) -> list[Glimpse]:
    """`n_past`: tokens of the completion before the alternatives."""
    shown = [(each.n_tokens_shown, each.n_characters_shown) for each in completions]
    for completion, token_id in zip(completions, token_ids, strict=True):
        completion.check_given([token_id], param="token_ids")
        completion.give([token_id], "forced")
    results: list[list[StreamResult]] = [[] for _ in token_ids]
    while step := branching.step():
        for branch, result in step.items():
            results[branch].append(result)
    return [
        _glimpse(token_id, own, n_past - n_tokens, n_characters)
        for token_id, own, (n_tokens, n_characters) in zip(token_ids, results, shown, strict=True)
    ]


def _glimpse(
    token_id: int, results: Sequence[StreamResult], n_before: int, n_characters: int
) -> Glimpse:
    """`n_before`: tokens that were drawn but not shown, `n_characters`: those that were shown."""
    text = "".join(result.chunk for result in results)
    tokens = tuple(token for result in results for token in result.tokens)[n_before:]
    start = tokens[0].text_start - n_characters if tokens else len(text)
    reason = results[-1].eos_reason if results else None
    reason = None if reason == "length" else reason
    return Glimpse(token_id, tokens, text[max(start, 0) :], reason)


def _is_allowed(completion: Completion, token_id: int) -> bool:
    try:
        completion.check_given([token_id], param="token_ids")
    except InvalidInputError:
        return False
    return True
