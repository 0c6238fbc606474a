"""The wire of POST /v1/score."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from typing_extensions import override

from .chat import TokenLogprob
from .common import (
    GenerationResponse,
    PromptFields,
    RequestModel,
    ResponseModel,
    StreamOptions,
    one_message,
)
from .completions import TokenIds
from .messages import Messages, message_parts
from .metadata import PromptProgress, Timings
from .sampling import setting
from .tokens import TemplateFields
from .tools import tool_parts
from .usage import Usage

MAX_CONTINUATIONS = 1024

Continuations = Annotated[
    Annotated[list[str], Field(min_length=1, max_length=MAX_CONTINUATIONS, fail_fast=True)]
    | Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_CONTINUATIONS, fail_fast=True)],
    one_message(
        f"must be a list of 1 to {MAX_CONTINUATIONS} texts, or of as many lists of token ids",
        max_items=MAX_CONTINUATIONS,
    ),
]


class ScoreRequest(PromptFields, TemplateFields):
    """Say how likely each of some continuations of one prompt is."""

    prompt: (
        Annotated[str | TokenIds, one_message("must be a string or a list of token ids")] | None
    ) = setting("Text, or token ids. null, without `messages`: the beginning of a new text.")
    messages: Messages | None = setting(
        "A conversation in place of `prompt`; a continuation is then the beginning of the reply."
    )
    continuations: Continuations = Field(
        description="Texts, or lists of token ids: one kind in one request, and none of them empty."
    )
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = setting(
        "So many of the most likely tokens in the place of each token."
    )
    include: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=64)] | None = (
        setting(
            "What else the answer holds. Of each token: token_ids, bytes, probs, rank, entropy, "
            "margin, special. Of the request: timings, progress."
        )
    )
    cache_salt: Annotated[str, Field(max_length=256)] | None = setting(
        "The computed prompt is shared between requests of equal salts only."
    )
    return_tokens_as_token_ids: bool | None = setting(
        "Call tokens `token_id:123` instead of by their text."
    )
    stream: bool | None = setting("true: each score as an event, as soon as it is known.")
    stream_options: StreamOptions | None = setting("Only with `stream: true`.")
    user: str | None = setting("Accepted and not used.")

    @override
    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        if self.stream_options is not None:
            yield "stream_options", self.stream_options
        if self.messages is not None:
            yield from tool_parts(self.tools or ())
            yield from message_parts(self.messages)


class Score(ResponseModel):
    """How likely one continuation is. Values are natural logarithms of the model's own
    probabilities, before temperature and filters.
    """

    model_config = ConfigDict(extra="forbid")

    index: int = Field(description="Of the continuation in the request.")
    text: str = Field(description="The continuation; decoded, if it was token ids.")
    logprob: float = Field(description="The sum over its tokens.")
    mean_logprob: float = Field(description="The sum divided by the number of tokens.")
    is_greedy: bool = Field(
        description="Whether each token is the model's first choice in its place."
    )
    tokens: list[TokenLogprob] = Field(description="As in a chat's `logprobs.content`.")


class Scores(GenerationResponse):
    """The answer; also, with one score, every event of the streamed answer."""

    object: Literal["score", "score.chunk"]
    scores: list[Score]
    usage: Usage | None = Field(
        default=None,
        description="The prompt counts once. In a stream only with include_usage: null, and set in "
        "the last chunk, whose `scores` is empty.",
    )
    timings: Timings | None = Field(default=None, description="With include `timings`.")
    prompt_progress: PromptProgress | None = Field(
        default=None,
        description="With include `progress`, in chunks without scores before the first one.",
    )
