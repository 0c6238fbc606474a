"""The wire of what a request asks for by `include`: each field is absent unless it was asked for.

One class per place: a token's entry, the lists of the older logprobs, a choice, the whole answer.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DraftOrigin(_Part):
    """Who named the token first. The model's distribution has chosen it in any case."""

    origin: Literal[
        "model", "ngram", "pool", "mtp", "eagle", "draft_model", "prediction", "constraint", "hook"
    ]
    rejected_token_id: int | None = Field(
        description="The token that a draft had proposed here, when the model chose another one."
    )


class SamplerStep(_Part):
    """What one adjustment or stage of the sampler removed."""

    stage: str
    n_removed: int
    removed_argmax: bool = Field(description="Whether the model's own first choice was removed.")


class AlternativeMetadata(BaseModel):
    """More about an alternative, and about a token."""

    token_id: int | None = Field(default=None, description="With include `token_ids`.")
    p_raw: float | None = Field(
        default=None, description="With `probs`: the softmax of the model's untouched logits."
    )
    p_sampled: float | None = Field(
        default=None,
        description="With `probs`: in the distribution drawn from; 0 for what the sampler removed.",
    )


class TokenMetadata(AlternativeMetadata):
    """More about a token of the text."""

    rank: int | None = Field(
        default=None, description="With `rank`: how many tokens the model held for likelier."
    )
    entropy: float | None = Field(
        default=None, description="With `entropy`: of the raw distribution, in nats."
    )
    margin: float | None = Field(
        default=None,
        description="With `margin`: raw probability of the first choice less that of the second.",
    )
    kept_mass: float | None = Field(
        default=None, description="With `kept_mass`: the share that the sampler's filters left."
    )
    draft: DraftOrigin | None = Field(default=None, description="With `draft`.")
    trace: list[SamplerStep] | None = Field(default=None, description="With `trace`.")
    special: bool | None = Field(
        default=None, description="With `special`: whether the tokenizer calls the token special."
    )
    watch: dict[str, float] | None = Field(
        default=None,
        description="With `watch` in the request: the raw probability of each of its names here.",
    )
    time_ms: float | None = Field(
        default=None,
        description="With `time`: from the request's arrival to the token, on the server.",
    )


class Alternative(AlternativeMetadata):
    """An alternative beside its name, which two tokens may share."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(description="Its name in `top_logprobs`.")
    bytes: list[int] | None = Field(default=None, description="With `bytes`.")


class TokenLists(BaseModel):
    """More lists parallel to `tokens`; null for what a token of the prompt cannot say."""

    token_id: list[int] | None = Field(default=None, description="With include `token_ids`.")
    bytes: list[list[int]] | None = Field(default=None, description="With `bytes`.")
    p_raw: list[float | None] | None = Field(default=None, description="With `probs`.")
    p_sampled: list[float | None] | None = Field(default=None, description="With `probs`.")
    rank: list[int | None] | None = Field(default=None, description="With `rank`.")
    entropy: list[float | None] | None = Field(default=None, description="With `entropy`.")
    margin: list[float | None] | None = Field(default=None, description="With `margin`.")
    kept_mass: list[float | None] | None = Field(default=None, description="With `kept_mass`.")
    draft: list[DraftOrigin | None] | None = Field(default=None, description="With `draft`.")
    trace: list[list[SamplerStep] | None] | None = Field(default=None, description="With `trace`.")
    special: list[bool] | None = Field(default=None, description="With `special`.")
    watch: list[dict[str, float] | None] | None = Field(
        default=None, description="With `watch` in the request."
    )
    time_ms: list[float | None] | None = Field(default=None, description="With `time`.")
    alternatives: list[list[Alternative]] | None = Field(
        default=None,
        description="With `token_ids`, `bytes` or `probs`: those of each alternative, most likely "
        "first.",
    )


class CacheExplanation(_Part):
    """What of the prompt did not have to be computed, and why not more."""

    reused: int
    wanted: int = Field(description="Tokens of the prompt but for the last, always computed.")
    source: Literal["active", "memory", "disk", "none"]
    reason: str
    mismatch_at: int | None = Field(
        description="The first token that is another one than in what is known. With recurrent "
        "layers, less than what is before it may be reused."
    )
    got: str | None = Field(description="The text of the prompt from there on.")
    known: str | None = Field(
        description="The text that is known instead. Only for a request with a `cache_salt`: "
        "without one the cache is everybody's, and the text may be another user's."
    )


class PromptSent(_Part):
    """What the model saw."""

    text: str
    token_ids: list[int]


class StopDetail(_Part):
    """Why the text ended, and what was generated and not shown."""

    kind: Literal[
        "stop_token", "stop_string", "length", "time", "constraint", "banned", "control",
        "entropy_gt", "mean_logprob_lt", "p_eos_gt", "repeat",
    ]  # fmt: skip
    value: float | None = Field(
        description="Of a condition of `stop_when`: what was above or below its limit; of `repeat` "
        "how many tokens were repeated."
    )
    string: str | None
    token_id: int | None
    dropped_text: str = Field(description="The stop string, and what had come behind it.")
    dropped_token_ids: list[int]


class SuppressedText(_Part):
    """Text that was generated and taken back, because it held a banned string."""

    text: str
    n_tokens: int
    n_kept: int = Field(description="Tokens of the completion before it, which were kept.")


class NamedToken(_Part):
    """A token with its text."""

    token_id: int
    text: str


class HealedToken(_Part):
    """The last token of the prompt, and the first of the completion, which replaces it."""

    before: NamedToken
    after: NamedToken = Field(description="Its text begins with that of `before`.")


class ChoiceMetadata(BaseModel):
    """More about a choice. In a stream: how it began with its first chunk, what happened with the
    chunk behind which it happened, why it ended with that of its `finish_reason`.
    """

    seed: int | None = Field(default=None, description="With include `seed`: the one drawn with.")
    cache: CacheExplanation | None = Field(default=None, description="With `cache`.")
    prompt: PromptSent | None = Field(default=None, description="With `prompt`.")
    suppressed: list[SuppressedText] | None = Field(
        default=None,
        description="With `suppressed`, if there was any; in a stream what is new.",
    )
    healed: HealedToken | None = Field(
        default=None,
        description="With `healed`, if a token was healed; in a stream with the first.",
    )
    stop_detail: StopDetail | None = Field(
        default=None, description="With `stop`, and with `stop_when` in the request."
    )


class Timings(_Part):
    """Where the time went, in llama-server's names; a rate of nothing is null."""

    queued_ms: float
    cache_n: int
    prompt_n: int = Field(description="Prompt tokens that were computed.")
    prompt_ms: float
    prompt_per_token_ms: float | None
    prompt_per_second: float | None
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float | None
    predicted_per_second: float | None
    draft_n: int
    draft_n_accepted: int


class DraftTotals(_Part):
    """Of the drafts of one origin."""

    rounds: int
    judged: int = Field(description="Tokens that the model came to, up to the first wrong one.")
    accepted: int


class Speculation(_Part):
    """What drafts have brought. They never change a text."""

    drafted: int
    accepted: int
    acceptance: float | None
    by_origin: dict[str, DraftTotals]


class PromptProgress(_Part):
    """How far the prompt has been computed, in llama-server's names."""

    index: int = Field(description="Of the choice.")
    total: int
    cache: int
    processed: int = Field(
        description="Of `total`, those of the cache included; all of it with the first token of "
        "the text."
    )
    time_ms: float
    eta_ms: float | None = Field(description="What is left, at the pace so far.")


class BranchedFrom(_Part):
    """Where a branch left its parent."""

    id: str
    at: int = Field(description="So many tokens are the parent's.")


class ControlDone(_Part):
    """What was done with the stream between two tokens."""

    model_config = ConfigDict(extra="allow")

    index: int = Field(description="Of the choice.")
    action: str
    completion_tokens: int = Field(description="Of the completion, after it.")
    text_characters: int | None = Field(
        default=None,
        description="After a rewind: so many characters of the text are left.",
    )


class AnswerMetadata(BaseModel):
    """More about the whole request: in a stream in chunks without choices, the timings and the
    speculation in the last one.
    """

    prompt_progress: PromptProgress | None = Field(
        default=None, description="With include `progress`, in a stream."
    )
    timings: Timings | None = Field(default=None, description="With `timings`.")
    speculation: Speculation | None = Field(default=None, description="With `speculation`.")
    branch: BranchedFrom | None = Field(
        default=None, description="Of a branch; in a stream in the first chunk."
    )
    control: ControlDone | None = Field(
        default=None, description="In a stream in a chunk without choices, when it was done."
    )
