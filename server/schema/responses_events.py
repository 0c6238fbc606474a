"""The wire of a streamed response: its events, each with a number."""

from typing import Any, Literal

from pydantic import ConfigDict

from .chat import TokenLogprob
from .common import ResponseModel
from .metadata import AnswerMetadata, ChoiceMetadata
from .responses_answer import OutputItem, OutputText, ReasoningText, ResponseObject, SummaryText


class _Event(ResponseModel):
    sequence_number: int


class ResponseStateEvent(ChoiceMetadata, AnswerMetadata):
    """The state of the response. `in_progress` may come again, beside something to know that is no
    text: the progress of the prompt, or what was done with the stream.
    """

    model_config = ConfigDict(extra="forbid")

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    sequence_number: int
    response: ResponseObject


class OutputItemEvent(_Event):
    """An item begins, without its text, or is complete."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: OutputItem


class ContentPartEvent(_Event):
    """The text of an item begins, or is complete."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    item_id: str
    output_index: int
    content_index: int
    part: OutputText | ReasoningText


class SummaryPartEvent(_Event):
    """The same of reasoning that stands in the summary."""

    type: Literal["response.reasoning_summary_part.added", "response.reasoning_summary_part.done"]
    item_id: str
    output_index: int
    summary_index: int
    part: SummaryText


class ResponseDeltaEvent(ChoiceMetadata):
    """What the text of an item goes on with. What else is known of it stands beside `delta`."""

    model_config = ConfigDict(extra="forbid")

    type: Literal[
        "response.output_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
    ]
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int | None = None
    summary_index: int | None = None
    delta: str
    logprobs: list[TokenLogprob] | None = None


class TextDoneEvent(_Event):
    """A text is complete."""

    type: Literal[
        "response.output_text.done",
        "response.reasoning_text.done",
        "response.reasoning_summary_text.done",
    ]
    item_id: str
    output_index: int
    content_index: int | None = None
    summary_index: int | None = None
    text: str
    logprobs: list[TokenLogprob] | None = None


class CallDoneEvent(_Event):
    """What a tool is called with is complete."""

    type: Literal["response.function_call_arguments.done", "response.custom_tool_call_input.done"]
    item_id: str
    output_index: int
    name: str | None = None
    arguments: str | None = None
    input: str | None = None


class ResponseErrorEvent(_Event):
    """The server breaks off; a response that is stored may go on later."""

    type: Literal["error"]
    code: str | None
    message: str
    param: str | None


RESPONSE_EVENTS: tuple[Any, ...] = (
    ResponseStateEvent,
    OutputItemEvent,
    ContentPartEvent,
    SummaryPartEvent,
    ResponseDeltaEvent,
    TextDoneEvent,
    CallDoneEvent,
    ResponseErrorEvent,
)
