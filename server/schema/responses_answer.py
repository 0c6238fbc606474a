"""The wire of what POST /v1/responses answers: a response, and the items of its output."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from .chat import TokenLogprob
from .common import RequestWarning, ResponseModel
from .metadata import AnswerMetadata, ChoiceMetadata, PromptSent

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal[
    "queued", "in_progress", "completed", "incomplete", "failed", "cancelled"
]  # fmt: skip

_LOGPROBS = "Extension. With logprobs, or names of tokens in include."


class OutputText(ResponseModel):
    """The text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any] = Field(max_length=0)
    logprobs: list[TokenLogprob]


class ReasoningText(ResponseModel):
    """What the model thought."""

    type: Literal["reasoning_text"]
    text: str


class SummaryText(ResponseModel):
    """The same, where a summary was asked for."""

    type: Literal["summary_text"]
    text: str


class OutputMessage(ResponseModel):
    """What the model says."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: ItemStatus
    content: list[OutputText]


class ReasoningItem(ResponseModel):
    """What the model thought first."""

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: list[SummaryText]
    content: list[ReasoningText]
    encrypted_content: None
    logprobs: list[TokenLogprob] | None = Field(default=None, description=_LOGPROBS)


class FunctionCallItem(ResponseModel):
    """A function that is to be called."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    arguments: str
    namespace: str | None = Field(default=None, description="Absent if its tool has none.")
    logprobs: list[TokenLogprob] | None = Field(default=None, description=_LOGPROBS)


class CustomToolCallItem(ResponseModel):
    """A tool that is to be called with a text."""

    id: str
    type: Literal["custom_tool_call"]
    status: ItemStatus
    call_id: str
    name: str
    input: str
    namespace: str | None = Field(default=None, description="Absent if its tool has none.")
    logprobs: list[TokenLogprob] | None = Field(default=None, description=_LOGPROBS)


class ShellAction(ResponseModel):
    """A command."""

    type: Literal["exec"]
    command: list[str]
    env: dict[str, str]
    timeout_ms: int | None
    working_directory: str | None
    user: None


class LocalShellCallItem(ResponseModel):
    """A command that is to be run."""

    id: str
    type: Literal["local_shell_call"]
    status: ItemStatus
    call_id: str
    action: ShellAction
    logprobs: list[TokenLogprob] | None = Field(default=None, description=_LOGPROBS)


OutputItem = (
    OutputMessage | ReasoningItem | FunctionCallItem | CustomToolCallItem | LocalShellCallItem
)


class CachedTokens(ResponseModel):
    """Of the tokens of the prompt."""

    cached_tokens: int
    cache_write_tokens: Literal[0]


class ReasoningTokens(ResponseModel):
    """Of the tokens of the answer."""

    reasoning_tokens: int


class ResponseUsage(ResponseModel):
    """Tokens."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class ResponseFailure(ResponseModel):
    """Why a response failed."""

    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str
    type: str | None = Field(description="The code of the same error on the other routes.")
    param: str | None


class IncompleteDetails(ResponseModel):
    """Why a response is not complete."""

    reason: Literal["max_output_tokens", "content_filter"]


class ShownReasoning(ResponseModel):
    """As it was asked for."""

    effort: str | None
    summary: Literal["auto", "concise", "detailed"] | None


class ResponseObject(ChoiceMetadata, AnswerMetadata):
    """A response, as far as it is."""

    model_config = ConfigDict(extra="forbid")

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: ResponseStatus
    background: bool
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: ShownReasoning
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None
    user: str | None
    metadata: dict[str, str]
    # OpenAI's name of a template, of which none is kept.
    prompt: None = None
    rendered_prompt: PromptSent | None = Field(
        default=None, description="Extension. With `prompt` in include."
    )
    stop_reason: str | int | None = Field(
        default=None,
        description="Extension. The string or token id of the request that ended the text; absent "
        "for the model's own end.",
    )
    logprobs: list[TokenLogprob] | None = Field(
        default=None, description="Extension. Of tokens behind the last item, such as marks."
    )
    warnings: list[RequestWarning] | None = Field(
        default=None, description="Extension. Fields of the request that had no effect."
    )


class ResponseDeleted(ResponseModel):
    """It is forgotten."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItemList(ResponseModel):
    """A page of what a response answers."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokenCount(ResponseModel):
    """How long a prompt is."""

    object: Literal["response.input_tokens"]
    input_tokens: int
    warnings: list[RequestWarning] | None = None
