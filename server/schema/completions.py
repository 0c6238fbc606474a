"""The wire of POST /v1/completions."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from .common import (
    CountOrAll,
    FinishReason,
    GenerationRequest,
    GenerationResponse,
    PromptFields,
    ResponseModel,
    one_message,
)
from .metadata import AnswerMetadata, ChoiceMetadata, TokenLists
from .sampling import setting
from .usage import Usage

# More than a request may have choices, which is said by its own sentence.
MAX_PROMPTS = 1024

TokenIds = Annotated[list[int], Field(fail_fast=True)]
Prompt = Annotated[
    str
    | TokenIds
    | Annotated[list[str], Field(max_length=MAX_PROMPTS, fail_fast=True)]
    | Annotated[list[TokenIds], Field(max_length=MAX_PROMPTS, fail_fast=True)],
    one_message(
        f"must be a string, a list of token ids, or a list of at most {MAX_PROMPTS} strings or "
        "such lists"
    ),
]


class CompletionRequest(PromptFields, GenerationRequest):
    """Continue a text."""

    prompt: Prompt | None = setting(
        "Text, token ids, or a list of either: then each has its own choices, in the order of the "
        "prompts. No token is put before ids. null: the beginning of a new text."
    )
    max_tokens: CountOrAll | None = setting(
        "null: 16, or fewer where the context ends. -1: up to the end of the context. 0, with "
        "echo: only say how likely the prompt is."
    )
    best_of: Annotated[int, Field(ge=1, le=20)] | None = setting(
        "Generate so many per prompt, and answer with the `n` of the highest mean logprob, the "
        "best first. Cannot be streamed when it is more than `n`."
    )
    echo: bool | None = setting(
        "Put the prompt before the completion, in a stream in the first chunk; with logprobs those "
        "of its tokens too."
    )
    suffix: str | None = setting(
        "The text behind the completion, for models whose tokenizer has tokens to fill in the "
        "middle with; for others an error."
    )
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = setting(
        "null: none. 0: of the chosen tokens. k: of the k most likely tokens too."
    )
    prompt_logprobs: Annotated[int, Field(ge=0, le=20)] | None = setting(
        "vLLM. How likely the tokens of the prompt were, each with so many alternatives, by id."
    )


class CompletionLogprobs(TokenLists):
    """Lists of equal length: one entry per token of the prompt, with echo, and per generated token.

    The tokens that ended the text come last; their offsets are not inside of `text`. Values are
    natural logarithms of the model's own probabilities, before temperature and filters.
    """

    model_config = ConfigDict(extra="forbid")

    tokens: list[str]
    token_logprobs: list[float | None] = Field(
        description="null for the first token of a prompt, which nothing is before."
    )
    top_logprobs: list[dict[str, float] | None] = Field(
        description="The most likely tokens, and always the chosen one."
    )
    text_offset: list[int] = Field(
        description="Characters from the beginning of the prompt to the beginning of the token."
    )


class PromptLogprob(ResponseModel):
    """A token at its place in the prompt."""

    logprob: float
    rank: int = Field(description="1: the model's first choice.")
    decoded_token: str


class CompletionChoice(ChoiceMetadata):
    """One completion, or the next piece of it."""

    model_config = ConfigDict(extra="forbid")

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None = Field(
        description="null in every chunk of a choice but its last."
    )
    stop_reason: str | int | None = Field(
        default=None,
        description="Beside `finish_reason`: the string or token id of the request that the text "
        "ended at; null for the model's own end.",
    )
    token_ids: list[int] | None = Field(
        default=None,
        description="With return_token_ids: every generated token, also those that ended the text.",
    )
    prompt_token_ids: list[int] | None = Field(
        default=None, description="With return_token_ids, in the first chunk."
    )
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | None = Field(
        default=None,
        description="With prompt_logprobs, in the first chunk: per token of the prompt, by id.",
    )


class Completion(GenerationResponse, AnswerMetadata):
    """The answer; also, with a piece of the text, every event of the streamed answer."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage | None = Field(
        default=None,
        description="In a stream only with include_usage: null, and set in the last chunk, "
        "whose `choices` is empty.",
    )
