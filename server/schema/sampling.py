"""The wire of sampling: the settings of the engine, by its names and by those of other servers.

Owns names, types and limits of size. Ranges are the engine's to check, so that HTTP and Python
callers read the same sentence; server/request/sampling.py says what other servers' values mean.
A field that `other_name` makes is the same setting again: both may be sent, if they agree.
"""

from typing import Annotated, Any

from pydantic import Field, Strict

from .parts import RequestModel, one_message

MAX_TOKEN_IDS = 32_768
MAX_BIASES = 4096
MAX_LIST_LENGTH = 32_768  # in characters, of a list that is written as a string
MAX_ORDER_LENGTH = 64
MAX_BREAKERS = 4096
MAX_BREAKERS_LENGTH = 8192

TokenIds = Annotated[
    Annotated[list[int], Field(max_length=MAX_TOKEN_IDS, fail_fast=True)]
    | Annotated[str, Field(max_length=MAX_LIST_LENGTH, pattern=r"^[0-9, ]*$")],
    one_message(
        f"must be a list of at most {MAX_TOKEN_IDS} token ids, or a string of ids and commas",
        max_items=MAX_TOKEN_IDS,
    ),
]
Bias = float | bool
BiasPair = Annotated[tuple[int | Annotated[str, Field(max_length=256)], Bias], Strict(False)]
LogitBias = Annotated[
    Annotated[dict[str, Bias], Field(max_length=MAX_BIASES)]
    | Annotated[list[BiasPair], Field(max_length=MAX_BIASES, fail_fast=True)],
    one_message(
        f"must have at most {MAX_BIASES} token ids, each with a number or false: an object, or "
        "a list of pairs",
        max_items=MAX_BIASES,
    ),
]
Breakers = Annotated[
    Annotated[list[str], Field(max_length=MAX_BREAKERS, fail_fast=True)]
    | Annotated[str, Field(max_length=MAX_BREAKERS_LENGTH)],
    one_message(
        f"must be a list of at most {MAX_BREAKERS} strings, or one string that holds such a list "
        "as JSON"
    ),
]
StageName = Annotated[str, Field(max_length=64)]
Order = Annotated[
    Annotated[list[StageName | int], Field(max_length=MAX_ORDER_LENGTH)]
    | Annotated[str, Field(max_length=MAX_ORDER_LENGTH * 64)],
    one_message(f"must be a list of at most {MAX_ORDER_LENGTH} names of samplers, or a string"),
]


def setting(description: str) -> Any:
    return Field(default=None, description=description)


def other_name(name: str, client: str, note: str = "") -> Any:
    """The same setting as the field `name`, as `client` calls it."""
    description = f"Another name of `{name}` ({client}).{' ' if note else ''}{note}"
    return Field(
        default=None, description=description, json_schema_extra={"x-another-name-of": name}
    )


class SamplingFields(RequestModel):
    """How a token is chosen. null, everywhere: as if the field was not there."""

    temperature: float | None = setting("0 to 100; 0 is greedy. null: the model's default.")
    temperature_last: bool | None = setting("true: the temperature acts behind the filters.")
    min_temperature: float | None = setting("0 to 100; 0. The lower end of a dynamic temperature.")
    min_temp: float | None = other_name("min_temperature", "TabbyAPI")
    dynatemp_low: float | None = other_name("min_temperature", "text-generation-webui, SillyTavern")
    dynatemp_min: float | None = other_name("min_temperature", "Aphrodite")
    max_temperature: float | None = setting(
        "0 to 100; 0. The upper end: above the lower one it turns the dynamic temperature on, "
        "behind the filters and on top of `temperature`."
    )
    max_temp: float | None = other_name("max_temperature", "TabbyAPI")
    dynatemp_high: float | None = other_name(
        "max_temperature", "text-generation-webui, SillyTavern"
    )
    dynatemp_max: float | None = other_name("max_temperature", "Aphrodite")
    temperature_exponent: float | None = setting(
        "0 to 100; 1. How the dynamic temperature follows the entropy."
    )
    temp_exponent: float | None = other_name("temperature_exponent", "TabbyAPI")
    dynatemp_exponent: float | None = other_name("temperature_exponent", "llama-server")
    dynamic_temperature: bool | None = setting(
        "text-generation-webui. true: the dynamic temperature stands in the place of "
        "`temperature`; false: there is none."
    )
    dynatemp_range: float | None = setting(
        "llama-server. r: a dynamic temperature between `temperature` - r and `temperature` + r, "
        "in its place. 0 is off."
    )
    smoothing_factor: float | None = setting("0 to 100; 0 is off. Quadratic sampling.")
    top_k: int | None = setting("0 or -1 is off. null: the model's default.")
    top_p: float | None = setting(
        "0 to 1; 1 is off, 0 keeps the most likely token alone. null: the model's default."
    )
    min_p: float | None = setting("0 to 1; 0 is off. null: the model's default.")
    top_a: float | None = setting("0 to 1; 0 is off.")
    top_n_sigma: float | None = setting("Up to 100; 0 and below is off.")
    nsigma: float | None = other_name("top_n_sigma", "SillyTavern")
    tfs: float | None = setting("0 to 1; 0 and 1 are off. Tail-free sampling.")
    tfs_z: float | None = other_name("tfs", "llama-server")
    typical_p: float | None = setting("0 to 1; 0 and 1 are off.")
    typical: float | None = other_name("typical_p", "TabbyAPI")
    typ_p: float | None = other_name("typical_p", "the page of llama-server")
    skew: float | None = setting("-10 to 10; 0 is off. Above 0 it leads to unlikely tokens.")
    mirostat: bool | int | None = setting(
        "true or 2: mirostat version 2, beside the other samplers. Version 1 is refused."
    )
    mirostat_mode: bool | int | None = other_name("mirostat", "TabbyAPI, text-generation-webui")
    mirostat_tau: float | None = setting(
        "0 to 100; 1.5. The surprise that mirostat aims at, in bits."
    )
    mirostat_eta: float | None = setting("0 to 1; 0.1. How fast mirostat learns.")
    xtc_probability: float | None = setting("0 to 1; 0 is off.")
    xtc_threshold: float | None = setting("0 to 1; 0.1.")
    dry_multiplier: float | None = setting("0 to 100; 0 is off. DRY, against repeats.")
    dry_base: float | None = setting("1 to 100; 1.75, which 0 means too.")
    dry_allowed_length: int | None = setting("0 to 100; 2. Repeats below it are free.")
    dry_range: int | None = setting("Only the newest so many tokens are searched; 0 and -1: all.")
    dry_penalty_last_n: int | None = other_name(
        "dry_range",
        "TabbyAPI, llama-server",
        "0 is all, as in TabbyAPI; in llama-server it is off.",
    )
    dry_max_ngram: int | None = setting("1 to 100; 20. A repeat is counted up to this length.")
    dry_sequence_breakers: Breakers | None = setting(
        'Strings that no repeat reaches across. SillyTavern sends a string: `["\\n", ":"]`.'
    )
    repetition_penalty: float | None = setting("0.01 to 100; 1 is off. null: the model's default.")
    repeat_penalty: float | None = other_name("repetition_penalty", "llama-server")
    rep_pen: float | None = other_name("repetition_penalty", "TabbyAPI, SillyTavern")
    repetition_range: int | None = setting(
        "All three penalties see the newest so many tokens; -1: all, 0: none."
    )
    penalty_range: int | None = other_name("repetition_range", "TabbyAPI")
    repetition_penalty_range: int | None = other_name(
        "repetition_range",
        "TabbyAPI, text-generation-webui",
        "0 is none, as in TabbyAPI; in text-generation-webui it is all.",
    )
    rep_pen_range: int | None = other_name("repetition_range", "TabbyAPI, SillyTavern")
    repeat_last_n: int | None = other_name("repetition_range", "llama-server")
    repetition_decay: int | None = setting(
        "0 or more; 0. Over so many tokens before these the penalties fade to nothing."
    )
    frequency_penalty: float | None = setting("-2 to 2; 0 is off.")
    presence_penalty: float | None = setting("-2 to 2; 0 is off.")
    logit_bias: LogitBias | None = setting(
        "Token id -> value added to its logit; false forbids the token. llama-server's form is a "
        "list of pairs: `[[15043, -1.5], [2, false]]`. Only on /completion and /infill a text may "
        "stand for its tokens, as there."
    )
    allowed_tokens: TokenIds | None = setting("Only these token ids are drawn.")
    allowed_token_ids: TokenIds | None = other_name("allowed_tokens", "vLLM")
    banned_tokens: TokenIds | None = setting("These token ids are not drawn.")
    custom_token_bans: TokenIds | None = other_name("banned_tokens", "TabbyAPI, SillyTavern")
    ban_eos_token: bool | None = setting(
        "TabbyAPI. true: the model's end tokens are not drawn at all."
    )
    sampler_order: Order | None = setting(
        "The samplers in the order in which they run: smoothing, temperature, top_n_sigma, top_k, "
        "top_p, top_a, min_p, tfs, typical, mirostat, dynamic_temperature, xtc. One that is not "
        "among them does not run. KoboldCpp's numbers are taken too."
    )
    samplers: Order | None = other_name(
        "sampler_order", "llama-server", "Its names, or its letters: `dkypmxt`."
    )
    sampler_priority: Order | None = other_name(
        "sampler_order", "text-generation-webui", "Its names; one per line, if a string."
    )
    seed: int | None = setting(
        "Same seed, same request, same system_fingerprint: same text. -1 draws one."
    )
    sampler_seed: int | None = other_name("seed", "SillyTavern")
