"""The wire of POST /v1/completions."""

from typing import Annotated, Literal

from pydantic import Field

from .common import (
    FinishReason,
    GenerationRequest,
    GenerationResponse,
    ResponseModel,
    Usage,
    one_message,
)

Prompt = Annotated[
    str | list[int] | list[str] | list[list[int]],
    one_message("must be a string, a list of token ids, or a list that holds one of these"),
]


class CompletionRequest(GenerationRequest):
    """Continue a text."""

    prompt: Prompt = Field(description="Text, or token ids. A list of several prompts is refused.")
    max_tokens: int | None = Field(
        default=None, ge=0, description="null: 16, or fewer where the context ends."
    )
    logprobs: int | None = Field(
        default=None,
        ge=0,
        le=20,
        description="null: none. 0: of the chosen tokens. k: of the k most likely tokens too.",
    )


class CompletionLogprobs(ResponseModel):
    """Four lists of equal length, one entry per token of `text`.

    A token that ended the text (a stop token, or one inside a stop string) has no entry. Values are
    natural logarithms of the model's own probabilities, before temperature and filters.
    """

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] = Field(
        description="The most likely tokens, and always the chosen one."
    )
    text_offset: list[int] = Field(
        description="Characters from the beginning of the prompt to the beginning of the token."
    )


class CompletionChoice(ResponseModel):
    """One completion, or the next piece of it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None = Field(
        description="null in every chunk but the last that has a choice."
    )


class Completion(GenerationResponse):
    """The answer; also, with a piece of the text, every event of the streamed answer."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage | None = Field(
        default=None,
        description="In a stream only with include_usage: null, and set in the last chunk, "
        "whose `choices` is empty.",
    )
