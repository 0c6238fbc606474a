"""The wire of POST /completion and POST /infill, llama-server's own forms of a completion."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from .common import (
    CountOrAll,
    GenerationRequest,
    PromptFields,
    RequestModel,
    RequestWarning,
    one_message,
)
from .completions import TokenIds
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

# Items of a list that is one prompt, or several.
MAX_PIECES = 262_144
MAX_EXTRAS = 1024
MAX_FIELDS = 256


class PromptText(RequestModel):
    """A text, where other models may have more to look at."""

    prompt_string: str
    multimodal_data: list[str] | None = Field(
        default=None, description="Must be empty: this server reads text."
    )


Mixed = Annotated[list[int | str], Field(max_length=MAX_PIECES, fail_fast=True)]
LlamaPrompt = Annotated[
    str
    | TokenIds
    | PromptText
    | Annotated[list[int | str | PromptText | Mixed], Field(max_length=MAX_PIECES, fail_fast=True)],
    one_message(
        "must be a string, a list of token ids and strings, {prompt_string}, or a list of such "
        "prompts"
    ),
]


class LlamaFields(PromptFields, GenerationRequest):
    """What both routes take."""

    max_tokens: CountOrAll | None = setting("null and -1: up to the end of the context.")
    n_cmpl: int | None = other_name("n", "llama-server")
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = other_name("n_probs", "SillyTavern")
    response_fields: Annotated[list[str], Field(max_length=MAX_FIELDS)] | None = setting(
        "Only these keys of a whole answer, or of the last event; `a/b` is the key `b` in `a`, and "
        "stands at the top under that name. One that is not there is left out."
    )


class LlamaCompletionRequest(LlamaFields):
    """Continue a text, and answer as llama-server does."""

    prompt: LlamaPrompt | None = setting(
        "Text, token ids, a list of both, `{prompt_string}`, or a list of such prompts: then the "
        "answer is a list, in their order. A list that begins with a string begins as a text does; "
        "no token is put before ids. null: the beginning of a new text."
    )

    @override
    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        yield from super().parts()
        if isinstance(self.prompt, PromptText):
            yield "prompt", self.prompt
        elif isinstance(self.prompt, list):
            for i, piece in enumerate(self.prompt):
                if isinstance(piece, PromptText):
                    yield f"prompt[{i}]", piece


class ExtraFile(RequestModel):
    """Another file that the answer may draw on."""

    filename: str | None = None
    text: str


class InfillRequest(LlamaFields):
    """Fill in what belongs between two texts, and answer as /completion does."""

    input_prefix: str = Field(description="The text before the gap.")
    input_suffix: str = Field(description="The text after it.")
    input_extra: Annotated[list[ExtraFile], Field(max_length=MAX_EXTRAS)] | None = setting(
        "Other files, the least important first. Where not all fits, their beginning is left out "
        "first, then that of the prefix and the end of the suffix."
    )
    prompt: str | None = setting("What fills the gap so far: it stands behind the prefix.")

    @override
    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        yield from super().parts()
        for i, extra in enumerate(self.input_extra or ()):
            yield f"input_extra[{i}]", extra


class LlamaAlternative(AlternativeMetadata):
    """A token that could have come. `logprob`, or with `post_sampling_probs` `prob`."""

    model_config = ConfigDict(extra="forbid")

    id: int
    token: str
    bytes: list[int]
    logprob: float | None = Field(
        default=None, description="Of the model's own probability, before temperature and filters."
    )
    prob: float | None = Field(default=None, description="In the distribution drawn from.")


class LlamaToken(LlamaAlternative, TokenMetadata):
    """A token of the text, with its alternatives."""

    top_logprobs: list[LlamaAlternative] | None = Field(
        default=None, description="The most likely ones of the model, the most likely first."
    )
    top_probs: list[LlamaAlternative] | None = Field(
        default=None,
        description="In their place with `post_sampling_probs`, in its order, without those that "
        "the sampler removed.",
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
        default=None,
        description="The settings by llama-server's names, and by the engine's where it has more.",
    )
    prompt: str | None = Field(default=None, description="As the model saw it.")
    has_new_line: bool | None = None
    truncated: bool | None = Field(
        default=None,
        description="true: the text ended with the context. A prompt beyond it is an error.",
    )
    stop_type: Literal["eos", "word", "limit"] | None = Field(
        default=None,
        description="eos: the model's own end, or that of a grammar. word: a stop string or token "
        "of the request. limit: any other.",
    )
    stopping_word: str | None = None
    tokens_cached: int | None = Field(
        default=None,
        description="Tokens of prompt and text that the slot holds then: all but the last. How "
        "many were cached before is `timings.cache_n`.",
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


class ChosenFields(BaseModel):
    """With `response_fields`: those of LlamaCompletion, by the names that were asked for."""

    model_config = ConfigDict(extra="allow")

    warnings: list[RequestWarning] | None = None
