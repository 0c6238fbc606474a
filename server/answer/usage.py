"""What an answer cost: `usage` in OpenAI's names, `timings` in llama-server's. Knows no route."""

from typing import Any

from ..stream.jobs import Clocks, TokenCounts


def usage(counts: TokenCounts) -> dict[str, Any]:
    """The counts so far; final once the stream has ended."""
    return {
        "prompt_tokens": counts.n_prompt,
        "completion_tokens": counts.n_completion,
        "total_tokens": counts.n_prompt + counts.n_completion,
        "prompt_tokens_details": {"cached_tokens": counts.n_cached},
        "completion_tokens_details": {
            "reasoning_tokens": counts.n_reasoning,
            "accepted_prediction_tokens": counts.n_predicted_accepted,
            "rejected_prediction_tokens": counts.n_predicted_rejected,
        },
    }


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
    """To the microsecond: more digits are noise, and bytes on the wire."""
    return round(1000.0 * seconds, 3)


def _ratio(value: float, by: float) -> float | None:
    return round(value / by, 3) if by else None
