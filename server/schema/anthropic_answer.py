"""The wire of what POST /v1/messages answers: a message, and the events of a streamed one."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from .chat import TokenLogprob
from .common import RequestWarning, ResponseModel
from .metadata import AnswerMetadata, ChoiceMetadata

AnthropicStopReason = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "refusal",
    "model_context_window_exceeded",
]


class AnswerBlock(ResponseModel):
    """A part of the answer."""

    type: Literal["text", "thinking", "tool_use"]
    text: str | None = Field(default=None, description="Of type text.")
    thinking: str | None = Field(default=None, description="Of type thinking.")
    signature: str | None = Field(
        default=None, description="Of type thinking: always `unsigned`; nothing checks it."
    )
    id: str | None = Field(default=None, description="Of type tool_use.")
    name: str | None = Field(default=None, description="Of type tool_use.")
    input: dict[str, Any] | None = Field(
        default=None, description="Of type tool_use; empty if the reply was cut off inside of it."
    )
    partial_json: str | None = Field(
        default=None, description="Extension. The input as far as it came, if it was cut off."
    )
    logprobs: list[TokenLogprob] | None = Field(
        default=None, description="Extension. With n_probs, or names of tokens in include."
    )


class AnthropicUsage(ResponseModel):
    """Tokens. The prompt has `input_tokens` and `cache_read_input_tokens`, together."""

    input_tokens: int = Field(description="Tokens of the prompt that had to be computed.")
    cache_creation_input_tokens: Literal[0]
    cache_read_input_tokens: int = Field(description="Tokens of the prompt that were cached.")
    output_tokens: int


class AnthropicAnswer(ChoiceMetadata, AnswerMetadata):
    """The whole answer."""

    model_config = ConfigDict(extra="forbid")

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnswerBlock]
    stop_reason: AnthropicStopReason
    stop_sequence: str | None
    usage: AnthropicUsage
    warnings: list[RequestWarning] | None = Field(
        default=None, description="Extension. Fields of the request that had no effect."
    )


class TokenCount(ResponseModel):
    """How long a prompt is."""

    input_tokens: int
    warnings: list[RequestWarning] | None = None


class AnthropicErrorDetail(ResponseModel):
    """What went wrong. `param` and `code` are as on the other routes."""

    type: str
    message: str
    param: str | None
    code: str | None
    details: dict[str, Any] | None = Field(
        default=None, description="By which a client knows that it must not send `thread`."
    )


class AnthropicError(ResponseModel):
    """Every error of these routes, before the first byte and as an event `error` after it."""

    type: Literal["error"]
    error: AnthropicErrorDetail
    request_id: str | None = None


class MessageBegun(ChoiceMetadata):
    """A message before its first block."""

    model_config = ConfigDict(extra="forbid")

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnswerBlock] = Field(max_length=0)
    stop_reason: None
    stop_sequence: None
    usage: AnthropicUsage
    warnings: list[RequestWarning] | None = None


class MessageStart(ResponseModel):
    """The first event."""

    type: Literal["message_start"]
    message: MessageBegun


class BlockStart(ResponseModel):
    """A block begins, without its text."""

    type: Literal["content_block_start"]
    index: int
    content_block: AnswerBlock


class BlockDelta(ResponseModel):
    """What the text of a block goes on with."""

    type: Literal["text_delta", "thinking_delta", "input_json_delta", "signature_delta"]
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None


class BlockDeltaEvent(ChoiceMetadata):
    """The next piece of a block. What else is known of it stands beside `delta`."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["content_block_delta"]
    index: int
    delta: BlockDelta
    logprobs: list[TokenLogprob] | None = None


class BlockStop(ResponseModel):
    """A block has ended."""

    type: Literal["content_block_stop"]
    index: int


class MessageEnding(ResponseModel):
    """Why a message ended."""

    stop_reason: AnthropicStopReason
    stop_sequence: str | None


class MessageDelta(ChoiceMetadata, AnswerMetadata):
    """The message has ended."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["message_delta"]
    delta: MessageEnding
    usage: AnthropicUsage
    logprobs: list[TokenLogprob] | None = Field(
        default=None, description="Of the tokens behind the last text, such as marks."
    )


class MessageStop(ResponseModel):
    """The last event."""

    type: Literal["message_stop"]


class MessagePing(ChoiceMetadata, AnswerMetadata):
    """Something to know that is no text: the progress of the prompt, or what was done with a stream
    that is kept.
    """

    model_config = ConfigDict(extra="forbid")

    type: Literal["ping"]


MESSAGE_EVENTS = (
    MessageStart,
    BlockStart,
    BlockDeltaEvent,
    BlockStop,
    MessageDelta,
    MessageStop,
    MessagePing,
    AnthropicError,
)
