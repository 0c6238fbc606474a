"""The wire of POST /v1/chat/completions."""

from typing import Annotated, Literal

from pydantic import Field

from .common import (
    FinishReason,
    GenerationRequest,
    GenerationResponse,
    RequestModel,
    ResponseModel,
    Usage,
    one_message,
)


class TextPart(RequestModel):
    """A part of a message; the texts of all parts are joined with newlines."""

    type: Literal["text"]
    text: str


Content = Annotated[
    str | Annotated[list[TextPart], Field(min_length=1)],
    one_message(
        "must be a string or a list of text parts; images, audio and files are not supported"
    ),
]


class Message(RequestModel):
    """One turn. developer is another name for system."""

    role: Literal["developer", "system", "user", "assistant"]
    content: Content

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content)


class ChatCompletionRequest(GenerationRequest):
    """Answer a conversation."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(
        default=None, ge=0, description="null: up to the end of the context."
    )
    max_tokens: int | None = Field(
        default=None, ge=0, description="The older name of max_completion_tokens."
    )
    logprobs: bool | None = None
    top_logprobs: int | None = Field(
        default=None, ge=0, le=20, description="Only with `logprobs: true`."
    )


class TopLogprob(ResponseModel):
    """A likely token. `bytes` is exact where `token` cannot be: a piece of a character."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """A token of the text: its `bytes`, joined over all entries, are the bytes of the text."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(ResponseModel):
    """One entry per token of the content; a token that ended the text has none."""

    content: list[TokenLogprob]
    refusal: None


class AssistantMessage(ResponseModel):
    """The reply."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(ResponseModel):
    """One reply."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(GenerationResponse):
    """The whole answer."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class Delta(ResponseModel):
    """What a chunk adds: the role first and once, then text, in the last chunk nothing."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChunkChoice(ResponseModel):
    """The next piece of the reply."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatCompletionChunk(GenerationResponse):
    """One event of the streamed answer."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: Usage | None = Field(
        default=None,
        description="Only with include_usage: null, and set in the last chunk, whose `choices` "
        "is empty.",
    )
