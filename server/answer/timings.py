"""How long an answer took, in llama-server's names, which proxies and dashboards read."""

from typing import Any

from ..stream.jobs import Clocks, TokenCounts


def timings(counts: TokenCounts, clocks: Clocks) -> dict[str, Any]:
    """The `timings` of a stream that has ended; a rate of nothing is null."""
    n_computed = counts.n_prompt - counts.n_cached
    prompt_ms, predicted_ms = milliseconds(clocks.prefill_s), milliseconds(clocks.decode_s)
    return {
        "queued_ms": milliseconds(clocks.queued_s),
        "cache_n": counts.n_cached,
        "prompt_n": n_computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": _ratio(prompt_ms, n_computed),
        "prompt_per_second": _ratio(1000.0 * n_computed, prompt_ms),
        "predicted_n": counts.n_completion,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": _ratio(predicted_ms, counts.n_completion),
        "predicted_per_second": _ratio(1000.0 * counts.n_completion, predicted_ms),
        "draft_n": counts.n_drafted,
        "draft_n_accepted": counts.n_accepted,
    }


def milliseconds(seconds: float) -> float:
    """To the microsecond: what is behind that is noise, and bytes on the wire."""
    return round(1000.0 * seconds, 3)


def _ratio(value: float, by: float) -> float | None:
    return round(value / by, 3) if by else None
