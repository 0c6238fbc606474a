"""The wire of what is done with a kept stream: control, branch, peek, replay."""

from typing import Annotated, Any, Literal

from pydantic import Field

from .common import MAX_BANNED_STRINGS, BannedString
from .parts import JsonObject, RequestModel, ResponseModel
from .sampling import MAX_TOKEN_IDS

MAX_TEXT = 65_536
MAX_PEEK_TOKENS = 256
MAX_ALTERNATIVES = 64

Action = Literal[
    "pause", "resume", "stop", "rewind", "inject", "force", "set", "ban", "extend",
    "end_reasoning", "reasoning_end",
]  # fmt: skip


class ControlRequest(RequestModel):
    """Do something with a stream before its next token."""

    action: Action = Field(
        description="`rewind` needs `tokens`, `inject` `text`, `force` `token_id`, `set` "
        "`settings`, `ban` `strings` or `token_ids`, `extend` `max_tokens`. `reasoning_end` is "
        "llama-server's name of `end_reasoning`."
    )
    id: str | None = Field(
        default=None, max_length=128, description="The stream, where the path does not name it."
    )
    tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="How many tokens are taken back."
    )
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)] | None = Field(
        default=None, description="What comes next, as if the model had written it."
    )
    token_id: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="The next token."
    )
    settings: JsonObject | None = Field(
        default=None, description="Sampling settings by their names in a request."
    )
    strings: Annotated[list[BannedString], Field(max_length=MAX_BANNED_STRINGS)] | None = Field(
        default=None, description="What is not to show any more, in any case of letters."
    )
    token_ids: Annotated[list[int], Field(max_length=MAX_TOKEN_IDS, fail_fast=True)] | None = Field(
        default=None, description="What is not to be drawn any more."
    )
    max_tokens: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="The most tokens of the completion, from its beginning."
    )


class Controlled(ResponseModel):
    """It has been done."""

    id: str
    object: Literal["stream.control"]
    action: str
    completion_tokens: int = Field(description="Tokens of the completion when it was done.")
    event: int = Field(description="The number of the event that says so.")
    state: Literal["running", "paused", "ended"]


class ChatControlled(ResponseModel):
    """It has been done; or, of llama-server's own action, why not."""

    success: bool
    message: str | None = Field(default=None, description="Why not.")
    id: str | None = None
    object: Literal["stream.control"] | None = None
    action: str | None = None
    completion_tokens: int | None = None
    event: int | None = None
    state: Literal["running", "paused", "ended"] | None = None


class BranchRequest(RequestModel):
    """Go on differently from a place of a stream. Any other field of the stream's route overrides
    that of its request.
    """

    at: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="So many tokens of the completion stay; null: all so far.",
    )
    token_id: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="The token that follows them."
    )
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)] | None = Field(
        default=None, description="The text that follows them, instead of `token_id`."
    )
    n: Annotated[int, Field(ge=1, le=128)] | None = Field(
        default=None, description="So many branches, each with its own random numbers."
    )
    stream: bool | None = None


class PeekRequest(RequestModel):
    """Where would each of several next tokens lead?"""

    at: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="After so many tokens of the completion; null: all so far."
    )
    top: Annotated[int, Field(ge=1, le=MAX_ALTERNATIVES)] | None = Field(
        default=None, description="The likeliest so many are tried; null: 5."
    )
    token_ids: (
        Annotated[list[int], Field(min_length=1, max_length=MAX_ALTERNATIVES, fail_fast=True)]
        | None
    ) = Field(default=None, description="These are tried instead.")
    tokens: Annotated[int, Field(ge=1, le=MAX_PEEK_TOKENS)] | None = Field(
        default=None, description="So many tokens of each, the alternative included; null: 12."
    )


class Alternative(ResponseModel):
    """One of them, and what the model finds likeliest after it."""

    token_id: int
    text: str
    stop: str | None = Field(description="Why it would end within these tokens; null: it goes on.")
    tokens: list[dict[str, Any]] = Field(
        description="As in the logprobs of a chat, with `include`."
    )


class Peek(ResponseModel):
    """The alternatives at one place."""

    id: str
    object: Literal["stream.peek"]
    at: int
    alternatives: list[Alternative]


class Difference(ResponseModel):
    """Where a replay first differs."""

    at: int = Field(description="Tokens before it.")
    what: str = Field(description="token_id, logprob and the like; or length.")
    recorded: Any
    replayed: Any


class Proof(ResponseModel):
    """What the text depends on."""

    fingerprint: str = Field(
        description="`system_fingerprint`: of weights, tokenizer, template, build, number formats."
    )
    version: str
    device: str = Field(description="With its instruction set.")
    weights: str = Field(description="Their number format, here and for the cache.")
    kv_cache: str
    threads: int
    seed: int
    settings: dict[str, Any]
    prompt_sha256: str = Field(description="Of the token ids of the prompt, as JSON.")
    completion_sha256: str = Field(description="Of those of the completion.")


class Replay(ResponseModel):
    """Whether the stream comes out again as it was."""

    id: str
    object: Literal["stream.replay"]
    identical: bool
    tokens: int = Field(description="Tokens that were compared.")
    first_difference: Difference | None
    proof: Proof
