"""From the fields of a request to the engine's options: everything but sampling."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from engine import StreamOptions

from ..errors import RequestError
from ..schema.common import GenerationRequest, PromptFields
from ..schema.common import StreamOptions as StreamFields
from ..schema.sampling import SamplingFields
from .aliases import Given, Read, given, settings_by_name
from .sampling import check_token_ids
from .stop_when import stop_conditions, time_limit

MAX_BANNED_CHARACTERS = 65_536
# A limit for text of which only the end is used: all of it is encoded to find that end.
MAX_CUT_CHARACTERS = 1024 * 1024
_CUT_CHARACTERS_PER_TOKEN = 8

T = TypeVar("T")

_NAMES = {
    name: setting
    for name, setting in settings_by_name(GenerationRequest).items()
    if name not in SamplingFields.model_fields
}
_PROMPT_NAMES = settings_by_name(PromptFields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a request asks of the text, in the engine's terms."""

    max_tokens: int | None
    """None: the route's own default."""
    fills_context: bool
    """Whether the text may go on up to the end of the context."""
    stream: StreamOptions
    """For the engine; `stop_token_ids` are without the model's own."""
    include_stop: bool
    negative_prompt: str | None
    truncate_prompt_tokens: int | None
    """Only this many tokens at the end of the prompt are used; -1: as many as fit."""
    max_seconds: float | None


def generation_options(body: GenerationRequest, *, vocab_size: int) -> Options:
    """Raises RequestError and InvalidInputError whose `param` is the field that was sent."""
    said = given(body, _NAMES, _READ)
    stops = said.get("stop", Given((), "stop"))
    ids_among_stops = [stop for stop in stops.value if isinstance(stop, int)]
    check_token_ids(ids_among_stops, vocab_size, param=stops.param)
    check_token_ids(body.stop_token_ids or (), vocab_size, param="stop_token_ids")
    max_tokens = said["max_tokens"].value if "max_tokens" in said else None
    return Options(
        max_tokens=None if max_tokens == -1 else max_tokens,
        fills_context=max_tokens == -1,
        stream=StreamOptions(
            min_new_tokens=said["min_tokens"].value if "min_tokens" in said else 0,
            stop=_unique([stop for stop in stops.value if isinstance(stop, str)]),
            stop_token_ids=_unique([*ids_among_stops, *(body.stop_token_ids or ())]),
            ignore_eos=bool(body.ignore_eos),
            stop_when=stop_conditions(body.stop_when),
            banned_strings=_banned_strings(body),
            token_healing=bool(body.token_healing),
            cfg_scale=said["cfg_scale"].value if "cfg_scale" in said else 1.0,
            speculate=_speculate(body),
            reuse_prefix=body.cache_prompt is not False,
            isolation_key=body.cache_salt or "",
            decode_special_tokens=body.skip_special_tokens is False,
        ),
        include_stop=bool(body.include_stop_str_in_output),
        negative_prompt=body.negative_prompt or None,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        max_seconds=time_limit(body.stop_when, body.t_max_predict_ms),
    )


def adds_special_tokens(body: PromptFields) -> bool:
    """Whether the tokenizer puts its own tokens around a prompt that is text."""
    said = given(body, _PROMPT_NAMES, {})
    return "add_special_tokens" not in said or bool(said["add_special_tokens"].value)


class _Streamable(Protocol):
    @property
    def stream(self) -> bool | None: ...
    @property
    def stream_options(self) -> StreamFields | None: ...


def check_stream_options(body: _Streamable) -> None:
    """Raise RequestError for options of a stream without a stream."""
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options needs stream: true", param="stream_options")


def prompt_room(options: Options, *, max_seq_len: int, default_max_tokens: int) -> int:
    """How many tokens of a prompt fit before those to be generated; at least 1."""
    n = default_max_tokens if options.max_tokens is None else options.max_tokens
    return max(1, max_seq_len - max(1, n))


def truncated(input_ids: Sequence[int], options: Options, *, room: int) -> Sequence[int]:
    """The end of the prompt that is used. `room`: how many tokens fit at most."""
    limit = options.truncate_prompt_tokens
    if limit is None:
        return input_ids
    n_kept = room if limit == -1 else limit
    return input_ids[max(0, len(input_ids) - n_kept) :]


def check_cut_length(options: Options, n_characters: int, *, max_seq_len: int, param: str) -> None:
    """Raise RequestError if only the end of the prompt is used and it is far longer than fits."""
    most = max(MAX_CUT_CHARACTERS, _CUT_CHARACTERS_PER_TOKEN * max_seq_len)
    if options.truncate_prompt_tokens is not None and n_characters > most:
        raise RequestError(
            f"{param} has about {n_characters:,} characters; with truncate_prompt_tokens the "
            f"limit is {most:,}: leave out the beginning",
            param=param,
        )


def requested_logprobs(
    body: GenerationRequest, n_alternatives: int | None, *, param: str
) -> int | None:
    """How many alternatives of each token the answer lists; None: it has no logprobs.

    `n_alternatives`: what the route's own fields say, in the same way; `param`: one of them.
    """
    asked = body.n_probs or None
    if asked is None or n_alternatives is None:
        return n_alternatives if asked is None else asked
    if asked != n_alternatives:
        raise RequestError(
            f"{param} and n_probs are two names of one setting, and their values differ: send one "
            "of them",
            param=param,
        )
    return asked


def _banned_strings(body: GenerationRequest) -> tuple[str, ...]:
    strings = _unique([*_strings(body.banned_strings), *_strings(body.bad_words)])
    if sum(map(len, strings)) > MAX_BANNED_CHARACTERS:
        param = "bad_words" if body.banned_strings is None else "banned_strings"
        raise RequestError(
            f"{param} must hold at most {MAX_BANNED_CHARACTERS} characters in all", param=param
        )
    return strings


def _speculate(body: GenerationRequest) -> bool:
    said = {
        "speculate": body.speculate,
        "speculative.n_max": None if body.speculative_n_max != 0 else False,
        "num_draft_tokens": None if body.num_draft_tokens != 0 else False,
    }
    values = {param: value for param, value in said.items() if value is not None}
    if len(set(values.values())) > 1:
        off = next(param for param, value in values.items() if not value)
        raise RequestError(
            f"speculate and {off} are two names of one setting, and their values differ: send one "
            "of them",
            param="speculate",
        )
    return all(values.values())


def _strings(wire: Sequence[str] | str | None) -> Sequence[str]:
    """One string is a list of one; an empty one says nothing."""
    if isinstance(wire, str):
        return [wire] if wire else []
    return wire or []


def _stops(wire: Sequence[str | int] | str, _: str) -> tuple[str | int, ...] | None:
    return (wire,) if isinstance(wire, str) else tuple(wire) or None


def _unique(values: Sequence[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))


_READ: Mapping[str, Read] = {"stop": _stops}
