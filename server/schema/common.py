"""What both generation routes share: their request fields, the head of their answers, warnings.

Ranges of the sampling settings are the engine's to check, so that HTTP and Python callers read the
same sentence.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from .constraint import ConstraintFields
from .parts import JsonObject as JsonObject
from .parts import RequestModel as RequestModel
from .parts import ResponseModel as ResponseModel
from .parts import one_message as one_message
from .sampling import MAX_TOKEN_IDS, SamplingFields, other_name, setting
from .stop_when import StopWhen
from .watch import Watches

MAX_STOPS = 64
MAX_STOP_LENGTH = 1024
MAX_BANNED_STRINGS = 1024
MAX_BANNED_LENGTH = 256
MAX_NEGATIVE_LENGTH = 1_000_000
MAX_MILLISECONDS = 24 * 3600 * 1000

StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
Stop = Annotated[
    StopString | Annotated[list[StopString | int], Field(max_length=MAX_STOPS)],
    one_message(
        f"must be a string or a list of at most {MAX_STOPS} strings, "
        f"each of 1 to {MAX_STOP_LENGTH} characters; a list may hold token ids too"
    ),
]
BannedString = Annotated[str, Field(min_length=1, max_length=MAX_BANNED_LENGTH)]
BannedStrings = Annotated[
    Annotated[list[BannedString], Field(max_length=MAX_BANNED_STRINGS, fail_fast=True)]
    | Annotated[str, Field(max_length=MAX_BANNED_LENGTH)],
    one_message(
        f"must be a string or a list of at most {MAX_BANNED_STRINGS} strings, "
        f"each of 1 to {MAX_BANNED_LENGTH} characters"
    ),
]
Count = Annotated[int, Field(ge=0)]
CountOrAll = Annotated[int, Field(ge=-1)]


class StreamOptions(RequestModel):
    """Options of a streamed answer."""

    include_usage: bool | None = Field(
        default=None, description="Send one more chunk, with empty `choices`, that holds `usage`."
    )
    continuous_usage_stats: bool | None = setting("vLLM. Every chunk holds `usage` so far.")


class GenerationRequest(SamplingFields, ConstraintFields):
    """The fields that /v1/completions and /v1/chat/completions have in common."""

    model: str | None = setting(
        "A name that GET /v1/models lists. null, or an empty one: the model that is served."
    )
    n: int | None = setting("How many choices.")
    max_tokens: CountOrAll | None = setting(
        "The most tokens that may come; -1, as in llama-server: up to the end of the context."
    )
    max_completion_tokens: Count | None = other_name("max_tokens", "OpenAI's chat")
    max_new_tokens: Count | None = other_name("max_tokens", "text-generation-webui, SillyTavern")
    max_length: Count | None = other_name("max_tokens", "TabbyAPI")
    n_predict: CountOrAll | None = other_name(
        "max_tokens", "llama-server", "-1: up to the end of the context."
    )
    num_predict: CountOrAll | None = other_name(
        "max_tokens", "SillyTavern", "-1: up to the end of the context."
    )
    min_tokens: Count | None = setting("vLLM. Before so many tokens no stop token is drawn.")
    min_length: Count | None = other_name("min_tokens", "TabbyAPI")
    stop: Stop | None = setting(
        "The text ends before the first of these strings. TabbyAPI: token ids among them count as "
        "`stop_token_ids`."
    )
    stopping_strings: Stop | None = other_name("stop", "text-generation-webui, SillyTavern")
    stop_sequence: Stop | None = other_name("stop", "TabbyAPI")
    stop_token_ids: Annotated[list[int], Field(max_length=MAX_TOKEN_IDS, fail_fast=True)] | None = (
        setting("vLLM. Token ids that end the text, besides the model's own.")
    )
    include_stop_str_in_output: bool | None = setting("vLLM. The text ends with its stop string.")
    ignore_eos: bool | None = setting(
        "vLLM, llama-server. Go on past the model's own end-of-text tokens."
    )
    banned_strings: BannedStrings | None = setting(
        "TabbyAPI. Strings that never show, in any case of letters: the text is taken back."
    )
    bad_words: BannedStrings | None = setting("vLLM. More of `banned_strings`.")
    token_healing: bool | None = setting(
        "TabbyAPI. The last token of the prompt may become a longer one."
    )
    negative_prompt: Annotated[str, Field(max_length=MAX_NEGATIVE_LENGTH)] | None = setting(
        "TabbyAPI. The prompt that `cfg_scale` leads away from."
    )
    cfg_scale: float | None = setting("-100 to 100: how far away. 1 is not at all.")
    guidance_scale: float | None = other_name("cfg_scale", "TabbyAPI, text-generation-webui")
    speculate: bool | None = setting(
        "false: no drafts. They change how fast a text comes, never the text."
    )
    speculative_n_max: Count | None = Field(
        default=None,
        alias="speculative.n_max",
        description="llama-server. 0 is `speculate: false`; lengths of drafts adapt by themselves.",
    )
    num_draft_tokens: Count | None = setting(
        "mlx-lm. 0 is `speculate: false`; lengths of drafts adapt by themselves."
    )
    cache_prompt: bool | None = setting(
        "llama-server. false: the prompt is computed anew. That changes no text."
    )
    cache_salt: Annotated[str, Field(max_length=256)] | None = setting(
        "vLLM. Computed prompts are shared between requests of equal salts only."
    )
    truncate_prompt_tokens: CountOrAll | None = setting(
        "vLLM. Only the last so many tokens of the prompt are used; -1: as many as fit."
    )
    skip_special_tokens: bool | None = setting("vLLM, TabbyAPI. false: special tokens show.")
    stop_when: StopWhen | None = setting(
        "Conditions that end the text: the model is unsure, repeats itself, or would rather stop. "
        '`stop_detail` then says which; `include: ["stop"]` is not needed.'
    )
    t_max_predict_ms: Annotated[int, Field(ge=-1, le=MAX_MILLISECONDS)] | None = setting(
        "llama-server. Milliseconds after which the text ends; 0 and -1: no limit."
    )
    store: bool | None = Field(
        default=None,
        description="true: keep the stream for `/v1/streams`, and a chat as a stored chat "
        "completion. What is kept without it, `--keep-streams` says.",
    )
    background: bool | None = setting(
        "true: a stream that is kept goes on when its client hangs up."
    )
    metadata: JsonObject | None = Field(
        default=None,
        description="With `store`: up to 16 strings to find the answer by.",
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = setting("Only with `stream: true`.")
    include: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=64)] | None = (
        setting(
            "What else the answer holds. Of each token: token_ids, bytes, probs, rank, entropy, "
            "margin, kept_mass, draft, trace, special, time. Of each choice: seed, cache, prompt, "
            "stop, suppressed, healed. Of the request: timings, speculation, progress."
        )
    )
    watch: Watches | None = setting(
        "Names of tokens: the probability of each in the place of every token, in its logprobs "
        "under `watch`, however unlikely it is."
    )
    n_probs: Annotated[int, Field(ge=0, le=20)] | None = setting(
        "llama-server. So many alternatives of each token; 0: none."
    )
    return_token_ids: bool | None = setting(
        "vLLM. Add `token_ids` to the choices, and `prompt_token_ids`: of a completion to each "
        "choice, of a chat to the answer."
    )
    return_tokens_as_token_ids: bool | None = setting(
        "vLLM. Call tokens `token_id:123` instead of by their text."
    )
    return_tokens: bool | None = setting("llama-server. The same as `token_ids` in `include`.")
    post_sampling_probs: bool | None = setting("llama-server. The same as `probs` in `include`.")
    timings_per_token: bool | None = setting("llama-server. The same as `timings` in `include`.")
    return_progress: bool | None = setting("llama-server. The same as `progress` in `include`.")
    strict: bool | None = setting(
        "true: a field that would have no effect is an error, not one of `warnings`."
    )
    user: str | None = setting("Accepted and not used.")

    @property
    def wants_kept(self) -> bool | None:
        """Whether the answer is to be kept; None: the body does not say."""
        return self.store

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)

    @property
    def watch_names(self) -> list[str]:
        """The names of `watch`."""
        return [watch.name for watch in self.watch or ()]

    @property
    def includes(self) -> list[str]:
        """`include`, with what other fields are switches for."""
        switches = {
            "token_ids": self.return_tokens,
            "probs": self.post_sampling_probs,
            "timings": self.timings_per_token,
            "progress": self.return_progress,
            "stop": self.stop_when is not None,
        }
        return [*(self.include or ()), *(name for name, is_on in switches.items() if is_on)]

    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        """The objects inside of the body, each with its path."""
        if self.stream_options is not None:
            yield "stream_options", self.stream_options
        if self.stop_when is not None:
            yield "stop_when", self.stop_when
            if self.stop_when.repeat is not None:
                yield "stop_when.repeat", self.stop_when.repeat
        for i, watch in enumerate(self.watch or ()):
            yield f"watch[{i}]", watch
        yield from self.constraint_parts()


class PromptFields(RequestModel):
    """Fields of a prompt that is text."""

    add_special_tokens: bool | None = setting(
        "vLLM. false: nothing is put around the text, such as a token that begins it."
    )
    add_bos_token: bool | None = other_name("add_special_tokens", "TabbyAPI, SillyTavern")


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
        description="Fields of the request that had no effect. In the first chunk only; absent "
        "when there are none.",
    )


FinishReason = Literal["stop", "length", "content_filter"]
