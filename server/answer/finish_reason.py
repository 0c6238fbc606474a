"""Why a choice ended, in OpenAI's words and in vLLM's."""

from collections.abc import Sequence

from engine import StreamResult

# eos_reason -> finish_reason. An aborted stream has no answer.
FINISH_REASONS = {
    "stop_token": "stop",
    "stop_string": "stop",
    "stop_when": "stop",
    "constraint": "stop",
    "length": "length",
    "banned": "content_filter",
}


def stop_reason(result: StreamResult, eos_token_ids: Sequence[int]) -> str | int | None:
    """The stop string or token of the request that ended the choice; None for the model's own."""
    if result.stop_string is not None:
        return result.stop_string
    return None if result.stop_token_id in eos_token_ids else result.stop_token_id
