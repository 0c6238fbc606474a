"""Why a choice ended, in OpenAI's words."""

# eos_reason -> finish_reason. An aborted stream has no answer.
FINISH_REASONS = {
    "stop_token": "stop",
    "stop_string": "stop",
    "constraint": "stop",
    "length": "length",
    "banned": "content_filter",
}
