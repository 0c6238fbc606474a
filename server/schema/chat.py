"""The wire of POST /v1/chat/completions."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from typing_extensions import override

from .common import (
    GenerationRequest,
    GenerationResponse,
    JsonObject,
    RequestModel,
    ResponseModel,
    one_message,
)
from .messages import MAX_PARTS, ContentPart, Documents, Messages, message_parts
from .metadata import AlternativeMetadata, AnswerMetadata, ChoiceMetadata, TokenMetadata
from .sampling import other_name
from .tools import (
    FunctionCallAnswer,
    FunctionCallDelta,
    FunctionChoice,
    FunctionName,
    Functions,
    ToolCallAnswer,
    ToolCallDelta,
    ToolChoice,
    Tools,
    choice_parts,
    tool_parts,
)
from .usage import Usage

ChatFinishReason = Literal["stop", "length", "tool_calls", "function_call", "content_filter"]
PredictedContent = Annotated[
    str | Annotated[list[ContentPart], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True)],
    one_message("must be a string or a list of text parts"),
]


class Prediction(RequestModel):
    """Text that the reply will probably repeat; where it does, it comes faster."""

    type: Literal["content"]
    content: PredictedContent


class ChatCompletionRequest(GenerationRequest):
    """Answer a conversation."""

    messages: Messages = Field(description="The conversation so far.")
    logprobs: bool | None = Field(default=None, description="Say how likely each token was.")
    top_logprobs: int | None = Field(
        default=None, ge=0, le=20, description="Only with `logprobs: true`."
    )
    tools: Tools | None = Field(default=None, description="What the model may call.")
    tool_choice: ToolChoice | None = Field(
        default=None,
        description="null: auto. none: the model does not see the tools. required, or a name: "
        "the reply is a call, and its arguments follow the schema.",
    )
    parallel_tool_calls: bool | None = Field(
        default=None,
        description="false: at most one call. null: true, but one call where `tool_choice` names "
        "the tool.",
    )
    functions: Functions | None = Field(default=None, description="The older form of `tools`.")
    function_call: FunctionChoice | None = Field(
        default=None, description="The older form of `tool_choice`."
    )
    prediction: Prediction | None = Field(
        default=None, description="Text that the reply will probably repeat."
    )
    reasoning_effort: str | None = Field(
        default=None,
        max_length=32,
        description="Given to the model's chat template; none turns thinking off.",
    )
    verbosity: str | None = Field(
        default=None, max_length=32, description="Given to the model's chat template."
    )
    enable_thinking: bool | None = Field(
        default=None, description="Extension. Given to the model's chat template."
    )
    chat_template_kwargs: JsonObject | None = Field(
        default=None, description="Extension. Variables for the model's chat template."
    )
    template_vars: JsonObject | None = other_name("chat_template_kwargs", "TabbyAPI")
    documents: Documents | None = Field(
        default=None,
        description="Extension. Given to the model's chat template.",
    )
    add_generation_prompt: bool | None = Field(
        default=None,
        description="Extension. Whether the prompt ends where the assistant's turn begins. null: "
        "true, unless `continue_final_message` is set.",
    )
    continue_final_message: bool | None = Field(
        default=None,
        description="Extension. Go on with the last message, which is the assistant's.",
    )

    reasoning_control: bool | None = Field(
        default=None,
        description="llama-server. true: the stream is kept, as with `store`, so that `POST "
        "/v1/chat/completions/control` finds it.",
    )

    @property
    @override
    def wants_kept(self) -> bool | None:
        return True if self.store is None and self.reasoning_control else self.store

    @property
    def has_functions(self) -> bool:
        """Whether tools are asked for in the older form, in which a call is answered then, too."""
        return bool(self.functions) or self.function_call is not None

    @override
    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        yield from super().parts()
        if self.prediction is not None:
            yield "prediction", self.prediction
            if not isinstance(self.prediction.content, str):
                for i, part in enumerate(self.prediction.content):
                    yield f"prediction.content[{i}]", part
        yield from tool_parts(self.tools or ())
        yield from choice_parts(self.tool_choice)
        for i, function in enumerate(self.functions or ()):
            yield f"functions[{i}]", function
        if isinstance(self.function_call, FunctionName):
            yield "function_call", self.function_call
        yield from message_parts(self.messages)


class TopLogprob(AlternativeMetadata):
    """A likely token. `bytes` is exact where `token` cannot be: a piece of a character."""

    model_config = ConfigDict(extra="forbid")

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TokenMetadata):
    """A token of the text: its `bytes`, joined over all entries, are the bytes of the text."""

    model_config = ConfigDict(extra="forbid")

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(ResponseModel):
    """One entry per token; a token that ended the text has none.

    `content` has the tokens of the content. Those of reasoning and of tool calls, with the marks
    around them, stand in lists of their own.
    """

    content: list[TokenLogprob]
    refusal: None
    reasoning_content: list[TokenLogprob] | None = Field(
        default=None, description="Extension. Absent when there are none."
    )
    tool_calls: list[TokenLogprob] | None = Field(
        default=None, description="Extension. Absent when there are none."
    )


class AssistantMessage(ResponseModel):
    """The reply."""

    role: Literal["assistant"]
    content: str | None = Field(description="null when the reply is tool calls and nothing else.")
    refusal: None
    reasoning_content: str | None = Field(
        default=None, description="Extension. What the model thought first; absent if it did not."
    )
    reasoning: str | None = Field(
        default=None, description="Extension. The same under its other name."
    )
    tool_calls: list[ToolCallAnswer] | None = Field(
        default=None, description="Absent when there are none."
    )
    function_call: FunctionCallAnswer | None = Field(
        default=None, description="Instead of `tool_calls` when the request had `functions`."
    )


class ReplyMetadata(ChoiceMetadata):
    """More about a reply: what it stopped at, and its tokens by their ids."""

    model_config = ConfigDict(extra="forbid")

    stop_reason: str | int | None = Field(
        default=None,
        description="Extension. Beside `finish_reason`: the string or token id of the request that "
        "the text ended at; null for the model's own end.",
    )
    token_ids: list[int] | None = Field(
        default=None,
        description="With return_token_ids: every generated token, also those that ended the text.",
    )


class ChatChoice(ReplyMetadata):
    """One reply."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason


class ChatResponse(GenerationResponse, AnswerMetadata):
    """What the whole answer and its chunks have at the top."""

    prompt_token_ids: list[int] | None = Field(
        default=None, description="With return_token_ids; in a stream in the first chunk."
    )


class ChatCompletion(ChatResponse):
    """The whole answer."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class Delta(ResponseModel):
    """What a chunk adds: the role first and once, then text or calls, in the last chunk nothing."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallDelta] | None = None
    function_call: FunctionCallDelta | None = None


class ChatChunkChoice(ReplyMetadata):
    """The next piece of the reply."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None


class ChatCompletionChunk(ChatResponse):
    """One event of the streamed answer."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: Usage | None = Field(
        default=None,
        description="Only with include_usage: null, and set in the last chunk, whose `choices` "
        "is empty.",
    )
