"""The wire of /v1/streams: kept streams, and what may be asked of them."""

from typing import Any, Literal

from pydantic import Field

from .parts import ResponseModel

StreamState = Literal["queued", "prefilling", "running", "paused", "ended"]


class StreamOrigin(ResponseModel):
    """Where a branch left its parent."""

    id: str
    at: int = Field(description="So many tokens of the parent's completion are the branch's too.")


class StreamSummary(ResponseModel):
    """A kept stream."""

    id: str
    object: Literal["stream"]
    created: int = Field(description="Unix time in seconds.")
    model: str
    wire: str = Field(
        description="Of which route its events are: completion, chat, responses, messages or "
        "llama_completion."
    )
    answer_id: str = Field(description="Of the answer that it is a choice of.")
    index: int = Field(description="Of that choice.")
    state: StreamState
    finish: str | None = Field(
        description="Why it ended: stop_token, stop_string, length, time, constraint, banned, "
        "control or error; null before."
    )
    reason: str | None = Field(
        description="In words: the error that ended it, or who paused it if no client did."
    )
    parent: StreamOrigin | None = Field(description="null unless it is a branch.")
    children: list[str] = Field(description="The branches that left it, by id.")
    background: bool = Field(description="Whether it goes on when its client hangs up.")
    events: int = Field(description="Events of the answer so far.")
    prompt_tokens: int
    completion_tokens: int
    metadata: dict[str, str]


class KeptStreamDetail(StreamSummary):
    """A kept stream with its text."""

    text: str = Field(description="The completion, so far as it has shown.")
    prompt_token_ids: list[int]
    token_ids: list[int] = Field(
        description="Every generated token, also those that ended the text."
    )
    tokens: list[dict[str, Any]] = Field(
        description="Of each of them all that `include` knows, as in the logprobs of a chat."
    )


class StreamList(ResponseModel):
    """A page of streams."""

    object: Literal["list"]
    data: list[StreamSummary]
    first_id: str | None
    last_id: str | None
    has_more: bool


class StreamDeleted(ResponseModel):
    """The stream, and all of its answer, has ended and is forgotten."""

    id: str
    object: Literal["stream.deleted"]
    deleted: Literal[True]
