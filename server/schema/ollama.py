"""Ollama's wire: /api/chat, /api/generate and what a client asks of a model.

Owns names and types. `options` are the fields of the other routes, most of them by names that these
know too.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from typing_extensions import override

from .chat import TokenLogprob
from .common import JsonObject, RequestModel, RequestWarning, ResponseModel, one_message
from .messages import MAX_CALLS, MAX_MESSAGES
from .metadata import AnswerMetadata, ChoiceMetadata
from .sampling import setting
from .tools import Tools

Format = Annotated[
    Literal["", "json"] | JsonObject, one_message('must be "json" or a JSON schema: an object')
]
Think = Annotated[
    bool | Literal["low", "medium", "high"],
    one_message('must be true, false, "low", "medium" or "high"'),
]
_KEPT = "Accepted and not used: the model stays in memory."


class OllamaFunction(RequestModel):
    """What was called."""

    name: str
    arguments: JsonObject


class OllamaCall(RequestModel):
    """A call of an earlier reply."""

    function: OllamaFunction


class OllamaMessage(RequestModel):
    """One turn."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str | None = setting("What the assistant thought before this turn.")
    images: list[Any] | None = setting("Not supported.")
    tool_calls: Annotated[list[OllamaCall], Field(max_length=MAX_CALLS)] | None = setting(
        "What the assistant called in this turn."
    )
    tool_name: str | None = setting("In a message of role tool: the call that it answers.")
    name: str | None = setting("An older name of `tool_name`.")


class OllamaRequest(RequestModel):
    """What both generation routes of this wire share."""

    model: str
    stream: bool | None = Field(default=None, description="null: true, unlike on other routes.")
    format: Format | None = setting("json, or a schema that the text follows.")
    options: JsonObject | None = setting(
        "Fields of the other routes, `num_predict`, `repeat_penalty`, `repeat_last_n` among them."
    )
    think: Think | None = setting("Given to the model's chat template.")
    keep_alive: str | float | None = setting(_KEPT)
    logprobs: bool | None = setting("Say how likely each token was.")
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = setting("With `logprobs`.")

    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        """The objects inside of the body, each with its path; not those of `tools`, which the body
        that is made of it has too.
        """
        yield from ()


class OllamaChat(OllamaRequest):
    """Answer a conversation. Without messages nothing is generated."""

    messages: Annotated[list[OllamaMessage], Field(max_length=MAX_MESSAGES)] = Field(default=[])
    tools: Tools | None = setting("What the model may call.")

    @override
    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        for i, message in enumerate(self.messages):
            yield f"messages[{i}]", message
            for k, call in enumerate(message.tool_calls or ()):
                yield f"messages[{i}].tool_calls[{k}]", call
                yield f"messages[{i}].tool_calls[{k}].function", call.function


class OllamaGenerate(OllamaRequest):
    """Answer a prompt. Without one nothing is generated."""

    prompt: str = ""
    suffix: str | None = setting("The text goes between `prompt` and this.")
    system: str | None = setting("What the model is told before.")
    raw: bool | None = setting("true: the prompt goes to the model as it is, without a template.")
    images: list[Any] | None = setting("Not supported.")


class OllamaCalled(ResponseModel):
    """What the reply calls."""

    index: int
    name: str
    arguments: dict[str, Any]


class OllamaToolCall(ResponseModel):
    """A tool that the reply calls."""

    function: OllamaCalled


class OllamaReply(ResponseModel):
    """The reply, or the next piece of it."""

    role: Literal["assistant"]
    content: str
    thinking: str | None = None
    tool_calls: list[OllamaToolCall] | None = None


class OllamaAnswer(AnswerMetadata, ChoiceMetadata):
    """The whole answer, or a line of a streamed one: the last has `done: true` and the counts."""

    model_config = ConfigDict(extra="forbid")

    model: str
    created_at: str
    message: OllamaReply | None = Field(default=None, description="Of /api/chat.")
    response: str | None = Field(default=None, description="Of /api/generate.")
    thinking: str | None = Field(default=None, description="Of /api/generate.")
    logprobs: list[TokenLogprob] | None = None
    done: bool
    done_reason: Literal["stop", "length", "load"] | None = None
    total_duration: int | None = Field(default=None, description="Nanoseconds, as all of them.")
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None
    warnings: list[RequestWarning] | None = Field(
        default=None, description="Extension. Fields of the request that had no effect."
    )


class OllamaError(ResponseModel):
    """Every error, also as the last line of a stream that fails."""

    error: str


class OllamaDetails(ResponseModel):
    """What a model is."""

    parent_model: str
    format: Literal["gguf", "safetensors"]
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaModel(ResponseModel):
    """The one model."""

    name: str
    model: str
    modified_at: str
    size: int = Field(description="Bytes of its weights in memory.")
    digest: str
    details: OllamaDetails


class OllamaModels(ResponseModel):
    """The models that can be asked."""

    models: list[OllamaModel]


class OllamaRunning(OllamaModel):
    """The one model, as what is in memory."""

    expires_at: str
    size_vram: int
    context_length: int


class OllamaRunningModels(ResponseModel):
    """The models in memory."""

    models: list[OllamaRunning]


class OllamaShow(RequestModel):
    """A question about a model."""

    model: str | None = None
    name: str | None = setting("An older name of `model`.")
    verbose: bool | None = setting("Accepted and not used.")


class OllamaShown(ResponseModel):
    """What is known of a model."""

    modelfile: str
    parameters: str
    template: str
    details: OllamaDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str
    warnings: list[RequestWarning] | None = Field(
        default=None, description="Extension. Fields of the request that had no effect."
    )


class OllamaVersion(ResponseModel):
    """Of this server, not of Ollama."""

    version: str
