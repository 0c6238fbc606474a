"""Fields of /v1/responses that are known, and that this server cannot honour.

Owns which of them are refused, and which are answered with a warning: those that change nothing in
the text, or that clients send unasked.
"""

from collections.abc import Iterator
from typing import Any

from ...answer.metadata import REQUEST_NAMES, TOKEN_NAMES
from ...errors import RequestError
from ...request.unknown_fields import Warnings, warning
from ...schema.responses import PromptOfResponse, ResponsesRequest

LOGPROBS = "message.output_text.logprobs"
_ENCRYPTED = "reasoning.encrypted_content"
# Of tools and inputs that this server does not have.
_EMPTY = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
)
PUBLISHED = (LOGPROBS, _ENCRYPTED, *_EMPTY)
"""OpenAI's own names for `include`."""

_REFUSED = {
    "conversation": "this server keeps no conversations: send previous_response_id, or all of it "
    "as input",
    "prompt": "this server keeps no prompt templates: send instructions and input",
    "moderation": "this server moderates nothing: leave it out",
}
_IGNORED = {
    "context_management": "nothing is compacted: a conversation that does not fit is refused, or "
    "loses its beginning with truncation: auto",
    "background_options": "there is one queue",
    "access_programs": "there are none",
    "image": "images are not supported",
}
_SUMMARY = "the model writes no summaries: the reasoning itself stands in its place"


def check_prompt_fields(body: PromptOfResponse) -> None:
    """Raise RequestError for a field that is refused."""
    for name, instead in _REFUSED.items():
        if getattr(body, name, None) is not None:
            raise RequestError(f"{name} is not supported: {instead}", param=name)


def field_warnings(body: ResponsesRequest) -> Warnings:
    """A warning for each field without effect; with `strict` an error."""
    return [warning(param, why, strict=bool(body.strict)) for param, why in _without_effect(body)]


def own_includes(body: ResponsesRequest) -> list[str]:
    """What the body includes beyond OpenAI's names. Raises RequestError for an unknown one, and for
    reasoning in encrypted form, if the response is stored.
    """
    allowed = (*PUBLISHED, *TOKEN_NAMES, *REQUEST_NAMES)
    for i, name in enumerate(body.include or ()):
        short = name.removeprefix("logprobs.")
        if name not in allowed and short not in TOKEN_NAMES:
            raise RequestError(f"include[{i}] must be one of {', '.join(allowed)}", param="include")
        if name == _ENCRYPTED and body.store:
            raise RequestError(
                f"include[{i}]: nothing is encrypted here; reasoning is stored with the response, "
                "and previous_response_id goes on with it",
                param="include",
            )
    return [name for name in body.includes if name not in PUBLISHED]


def _without_effect(body: ResponsesRequest) -> Iterator[tuple[str, str]]:
    for name, why in _IGNORED.items():
        value: Any = getattr(body, name)
        if value is not None:
            yield name, f"{why}; it had no effect"
    if _ENCRYPTED in (body.include or ()):
        yield (
            f"include.{_ENCRYPTED}",
            "nothing is encrypted here: reasoning items hold their text, and are read again when "
            "they are sent back",
        )
    for name in _EMPTY:
        if name in (body.include or ()):
            yield f"include.{name}", "no answer of this server has that"
    if body.reasoning is not None and (body.reasoning.summary or body.reasoning.generate_summary):
        yield "reasoning.summary", _SUMMARY
