"""The `usage` of an answer: OpenAI's names for the counts of a stream. Knows no route."""

from typing import Any

from ..stream.jobs import TokenCounts


def usage(counts: TokenCounts) -> dict[str, Any]:
    """The counts so far; those of the answer once its stream has ended."""
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
