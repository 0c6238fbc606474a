"""Fields that are known and sent, and still have no effect on this request.

A setting that does nothing because the same request turns its sampler off, or is greedy, does not
count: that is what was asked for.
"""

from collections.abc import Iterator
from typing import Protocol

from engine import SamplingSettings

from ..schema.common import GenerationRequest
from ..stream.jobs import CompletionJob
from .aliases import Given
from .constraint import ignored_constraint_fields
from .options import check_stream_options
from .sampler_order import NEUTRAL
from .sampling import sampling_given
from .unknown_fields import Warnings, warning

# Setting -> the settings one of which must be on for it to matter.
_SWITCHES = {
    "min_temperature": ("max_temperature", "dynatemp_range", "dynamic_temperature"),
    "temperature_exponent": ("max_temperature", "dynatemp_range", "dynamic_temperature"),
    "dynamic_temperature": ("max_temperature",),
    "mirostat_tau": ("mirostat",),
    "mirostat_eta": ("mirostat",),
    "xtc_threshold": ("xtc_probability",),
    "dry_base": ("dry_multiplier",),
    "dry_allowed_length": ("dry_multiplier",),
    "dry_range": ("dry_multiplier",),
    "dry_max_ngram": ("dry_multiplier",),
    "dry_sequence_breakers": ("dry_multiplier",),
    "repetition_range": ("repetition_penalty", "frequency_penalty", "presence_penalty"),
    "repetition_decay": ("repetition_penalty", "frequency_penalty", "presence_penalty"),
}
# These always have an effect, and are long: no need to read them twice.
_LISTS = frozenset({"logit_bias", "allowed_tokens", "banned_tokens"})
# Longer than any minimum that is asked for: too long to be encoded for a warning.
_LONG_CHOICE = 4096
_OFF = SamplingSettings()
_COUNTED_ANYWAY = "every answer of this route ends with its counts"
_NOTHING = Given(None, "")


class _Tokenizer(Protocol):
    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]: ...


def effect_warnings(body: GenerationRequest, job: CompletionJob, tokenizer: _Tokenizer) -> Warnings:
    """A warning for each such field of the body that `job` was made of; with `strict` an error."""
    return [
        *no_effect_warnings(body, job.settings, strict=bool(body.strict)),
        *short_choice_warnings(body, job, tokenizer),
    ]


def stream_option_warnings(body: GenerationRequest) -> Warnings:
    """For routes whose answers have their counts anyway. Raises like `check_stream_options`."""
    check_stream_options(body)
    if body.stream_options is None:
        return []
    sent = body.stream_options.model_fields_set
    return [
        warning(f"stream_options.{name}", _COUNTED_ANYWAY, strict=bool(body.strict))
        for name in ("include_usage", "continuous_usage_stats")
        if name in sent and getattr(body.stream_options, name)
    ]


def no_effect_warnings(
    body: GenerationRequest, settings: SamplingSettings, *, strict: bool
) -> Warnings:
    """A warning for each such field; with `strict` a RequestError for the first.

    `settings`: what was made of the body.
    """
    said = sampling_given(body, without=_LISTS)
    found = [
        *_without_switch(said, settings),
        *_range_of_nothing(said, settings),
        *_not_in_order(said, settings),
        *_of_options(body),
        *ignored_constraint_fields(body),
    ]
    return [warning(param, message, strict=strict) for param, message in found]


def short_choice_warnings(
    body: GenerationRequest, job: CompletionJob, tokenizer: _Tokenizer
) -> Warnings:
    """A warning where the text may be complete, as one of its choices, before `min_tokens`."""
    spec = job.options.constraint
    # After reasoning, the choice is not the whole text.
    if not job.options.min_new_tokens or spec is None or spec.kind != "choices" or spec.before:
        return []
    assert isinstance(spec.value, tuple), "choices are texts"
    shortest = min(spec.value, key=len)
    if len(shortest) >= _LONG_CHOICE:
        return []
    n_tokens = len(tokenizer.encode(shortest, add_special_tokens=False, parse_special=False))
    if n_tokens >= job.options.min_new_tokens:
        return []
    param = "min_length" if body.min_tokens is None else "min_tokens"
    message = (
        "the text ends once a choice is complete; the shortest one has fewer tokens than "
        f"{job.options.min_new_tokens}: {n_tokens}"
    )
    return [warning(param, message, strict=bool(body.strict))]


def _without_switch(
    said: dict[str, Given], settings: SamplingSettings
) -> Iterator[tuple[str, str]]:
    for setting, switches in _SWITCHES.items():
        if setting not in said or any(switch in said for switch in switches):
            continue
        if setting == "dynamic_temperature" and not said[setting].value:
            continue
        on = [
            name for name in switches if getattr(settings, name, None) != getattr(_OFF, name, None)
        ]
        if not on:
            yield said[setting].param, f"it has no effect without {' or '.join(switches)}"


def _range_of_nothing(
    said: dict[str, Given], settings: SamplingSettings
) -> Iterator[tuple[str, str]]:
    """Servers disagree on what 0 means, so it is worth a warning."""
    names = ("repetition_penalty", "frequency_penalty", "presence_penalty")
    is_on = any(getattr(settings, name) != getattr(_OFF, name) for name in names)
    sees_nothing = settings.repetition_range == 0 and settings.repetition_decay == 0
    if "repetition_range" in said and is_on and sees_nothing:
        yield (
            said["repetition_range"].param,
            "0 means that the penalties see no token; -1 means all",
        )


def _not_in_order(said: dict[str, Given], settings: SamplingSettings) -> Iterator[tuple[str, str]]:
    if "sampler_order" not in said or settings.is_greedy:
        return
    order, param = said["sampler_order"]
    if order.late_adjuster is not None:
        yield param, f"{order.late_adjuster} always runs before all samplers"
    for stage, off in NEUTRAL.items():
        if stage in (settings.sampler_order or ()):
            continue
        if stage == "dynamic_temperature" and said.get("dynatemp_range", _NOTHING).value:
            yield "dynatemp_range", f"it has no effect: {param} does not name temperature"
        for setting, neutral in off.items():
            if setting in said and said[setting].value != neutral:
                yield said[setting].param, f"it has no effect: {param} does not name {stage}"


def _of_options(body: GenerationRequest) -> Iterator[tuple[str, str]]:
    scale = body.guidance_scale if body.cfg_scale is None else body.cfg_scale
    if body.negative_prompt and scale in (None, 1):
        yield "negative_prompt", "it has no effect without cfg_scale"
    adapts = "lengths of drafts adapt by themselves"
    if body.speculative_n_max:
        yield "speculative.n_max", adapts
    if body.num_draft_tokens:
        yield "num_draft_tokens", adapts
