"""What both generation routes share: the request fields of sampling, usage, warnings.

Requests are strict: no bool for an integer, no "5" for 5, no NaN. Ranges of the sampling settings
are the engine's to check, so that HTTP and Python callers read the same sentence.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 1024


class RequestModel(BaseModel):
    """A part of a request body. Fields that it does not know are kept, to be answered for."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class ResponseModel(BaseModel):
    """A part of an answer: exactly these fields."""

    model_config = ConfigDict(extra="forbid")


def one_message(message: str) -> WrapValidator:
    """Answer a value that fits no branch of a union with one sentence instead of one per branch."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            raise PydanticCustomError("union", message) from error

    return WrapValidator(validate)


StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
Stop = Annotated[
    StopString | Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)],
    one_message(
        f"must be a string or a list of at most {MAX_STOP_STRINGS} strings, "
        f"each of 1 to {MAX_STOP_LENGTH} characters"
    ),
]


class StreamOptions(RequestModel):
    """Options of a streamed answer."""

    include_usage: bool | None = Field(
        default=None, description="Send one more chunk, with empty `choices`, that holds `usage`."
    )


class GenerationRequest(RequestModel):
    """The fields that /v1/completions and /v1/chat/completions have in common."""

    model: str = Field(description="The name that GET /v1/models lists.")
    temperature: float | None = Field(
        default=None, description="0 is greedy. null: the model's default."
    )
    top_p: float | None = Field(default=None, description="null: the model's default.")
    n: int | None = Field(default=None, description="Only 1: one sequence at a time.")
    stop: Stop | None = Field(
        default=None, description="The text ends before the first of these strings."
    )
    seed: int | None = Field(
        default=None, description="Same seed, same request, same system_fingerprint: same text."
    )
    logit_bias: dict[str, float] | None = Field(
        default=None, description="Token id -> value added to its logit."
    )
    frequency_penalty: float | None = Field(default=None, description="-2 to 2.")
    presence_penalty: float | None = Field(default=None, description="-2 to 2.")
    stream: bool | None = None
    stream_options: StreamOptions | None = Field(
        default=None, description="Only with `stream: true`."
    )
    user: str | None = Field(default=None, description="Accepted and not used.")
    top_k: int | None = Field(
        default=None, description="Extension. 0 or -1 is off. null: the model's default."
    )
    min_p: float | None = Field(
        default=None, description="Extension. 0 is off. null: the model's default."
    )
    repetition_penalty: float | None = Field(
        default=None, description="Extension. 1 is off. null: the model's default."
    )
    stop_token_ids: list[int] | None = Field(
        default=None, description="Extension. Token ids that end the text, besides the model's own."
    )
    ignore_eos: bool | None = Field(
        default=None, description="Extension. Go on past the model's own end-of-text tokens."
    )

    @property
    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class PromptTokensDetails(ResponseModel):
    """Of the prompt tokens, those whose keys and values were still in the cache."""

    cached_tokens: int


class Usage(ResponseModel):
    """Token counts; a sampled stop token counts as a completion token."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class RequestWarning(ResponseModel):
    """A field of the request that had no effect."""

    param: str
    action: Literal["ignored"]
    message: str


class GenerationResponse(ResponseModel):
    """The head of every answer and of every chunk; the same in all chunks of one stream."""

    id: str
    created: int = Field(description="Unix time in seconds.")
    model: str
    system_fingerprint: str
    warnings: list[RequestWarning] | None = Field(
        default=None,
        description="Fields of the request that were not understood. In the first chunk only; "
        "absent when there are none.",
    )


FinishReason = Literal["stop", "length"]
