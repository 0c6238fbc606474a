"""The wire of POST /completion, llama-server's own form of a completion."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from .common import CountOrAll, GenerationRequest, PromptFields, RequestWarning
from .completions import Prompt
from .metadata import (
    AlternativeMetadata,
    AnswerMetadata,
    CacheExplanation,
    HealedToken,
    StopDetail,
    SuppressedText,
    TokenMetadata,
)
from .sampling import other_name, setting


class LlamaCompletionRequest(PromptFields, GenerationRequest):
    """Continue a text, and answer as llama-server does."""

    prompt: Prompt | None = setting(
        "Text, token ids, or a list of either: then the answer is a list, in the order of the "
        "prompts. No token is put before ids. null: the beginning of a new text."
    )
    max_tokens: CountOrAll | None = setting("null and -1: up to the end of the context.")
    n_cmpl: int | None = other_name("n", "llama-server")
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = other_name("n_probs", "SillyTavern")


class LlamaAlternative(AlternativeMetadata):
    """A token that could have come. `logprob`, or with `post_sampling_probs` `prob`."""

    model_config = ConfigDict(extra="forbid")

    id: int
    token: str
    bytes: list[int]
    logprob: float | None = Field(
        default=None, description="Of the model's own probability, before temperature and filters."
    )
    prob: float | None = Field(
        default=None, description="In the distribution drawn from: 0 if the sampler removed it."
    )


class LlamaToken(LlamaAlternative, TokenMetadata):
    """A token of the text, with its alternatives."""

    top_logprobs: list[LlamaAlternative] | None = Field(
        default=None, description="The most likely ones of the model, the most likely first."
    )
    top_probs: list[LlamaAlternative] | None = Field(
        default=None, description="In their place with `post_sampling_probs`, in its order."
    )


class LlamaCompletion(AnswerMetadata):
    """The whole answer; also, with a piece of the text, every event of the streamed answer. What
    only a whole answer has, and the last event of a choice, is absent before.
    """

    model_config = ConfigDict(extra="forbid")

    id: str
    index: int
    content: str = Field(description='The text, or its next piece; "" in the last event.')
    tokens: list[int] = Field(
        description="Ids of the piece; of a whole answer only with `return_tokens`."
    )
    stop: bool = Field(description="Whether the text has ended.")
    id_slot: Literal[0]
    tokens_predicted: int = Field(description="So far, including a sampled stop token.")
    tokens_evaluated: int = Field(description="Of the prompt, including cached ones.")
    completion_probabilities: list[LlamaToken] | None = Field(
        default=None, description="With `n_probs`: one entry per token of `content`."
    )
    model: str | None = None
    system_fingerprint: str | None = None
    generation_settings: dict[str, Any] | None = Field(
        default=None, description="The sampling settings, by the engine's names, and limits."
    )
    prompt: str | None = Field(default=None, description="As the model saw it.")
    has_new_line: bool | None = None
    truncated: Literal[False] | None = Field(
        default=None, description="false: a prompt that does not fit is an error."
    )
    stop_type: Literal["eos", "word", "limit"] | None = Field(
        default=None,
        description="eos: the model's own end, or that of a grammar. word: a stop string or token "
        "of the request. limit: any other.",
    )
    stopping_word: str | None = None
    tokens_cached: int | None = Field(
        default=None, description="Tokens of the prompt that did not have to be computed."
    )
    seed: int | None = Field(default=None, description="With include `seed`; in the first event.")
    cache: CacheExplanation | None = Field(default=None, description="With `cache`; likewise.")
    suppressed: list[SuppressedText] | None = Field(default=None, description="With `suppressed`.")
    healed: HealedToken | None = Field(default=None, description="With `healed`.")
    stop_detail: StopDetail | None = Field(
        default=None, description="With `stop`, and with `stop_when` in the request."
    )
    warnings: list[RequestWarning] | None = Field(
        default=None, description="Fields without effect; in the first event."
    )
