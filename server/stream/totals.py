"""Counts and times over the jobs of a request: what one more job adds."""

from collections.abc import Mapping
from dataclasses import replace

from engine import DraftCount, Prefill

from .jobs import Clocks, TokenCounts


def with_job(
    counts: TokenCounts,
    prefill: Prefill | None,
    drafts: Mapping[str, DraftCount],
    *,
    n_completion: int,
    n_drafted: int,
    n_accepted: int,
) -> TokenCounts:
    """`prefill`: None for a prompt that has been counted."""
    predicted = drafts.get("prediction", DraftCount())
    return replace(
        counts,
        n_prompt=counts.n_prompt + (prefill.n_prompt if prefill else 0),
        n_cached=counts.n_cached + (prefill.n_cached if prefill else 0),
        n_completion=counts.n_completion + n_completion,
        n_drafted=counts.n_drafted + n_drafted,
        n_accepted=counts.n_accepted + n_accepted,
        n_predicted_accepted=counts.n_predicted_accepted + predicted.accepted,
        n_predicted_rejected=counts.n_predicted_rejected + predicted.drafted - predicted.accepted,
    )


def with_times(
    clocks: Clocks, start: float, begun: float, first_token: float, end: float
) -> Clocks:
    """All in seconds since the request was queued."""
    is_first = clocks.first_token_s is None
    return replace(
        clocks,
        prefill_s=clocks.prefill_s + begun - start,
        decode_s=clocks.decode_s + end - begun,
        first_token_s=first_token if is_first else clocks.first_token_s,
    )
