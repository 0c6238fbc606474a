"""What clients really send, and what it means to the engine."""

import dataclasses
import math
from typing import Any

import pytest
from pydantic import ValidationError

from engine import InvalidInputError, SamplingSettings, StreamOptions
from server.errors import RequestError
from server.request.no_effect import no_effect_warnings
from server.request.options import (
    Options,
    adds_special_tokens,
    generation_options,
    requested_logprobs,
    truncated,
)
from server.request.sampling import sampling_settings
from server.request.unknown_fields import check_unknown_fields
from server.schema.chat import ChatCompletionRequest
from server.schema.completions import CompletionRequest

VOCAB_SIZE = 32000
EOS = (2, 7)
OWN: dict[str, Any] = {
    "max_tokens": None, "fills_context": False, "include_stop": False, "negative_prompt": None,
    "truncate_prompt_tokens": None, "max_seconds": None,
}  # fmt: skip


def expected_options(fields: dict[str, Any]) -> Options:
    """The defaults, changed by `fields`: those of Options, and the others of its StreamOptions."""
    own = {name: fields.get(name, default) for name, default in OWN.items()}
    stream = {name: value for name, value in fields.items() if name not in OWN}
    return Options(**own, stream=StreamOptions(**{"stop_token_ids": (), **stream}))


def request(**fields: Any) -> CompletionRequest:
    return CompletionRequest.model_validate({"model": "m", "prompt": "x", **fields})


def settings_of(
    fields: dict[str, Any], defaults: SamplingSettings | None = None
) -> SamplingSettings:
    return sampling_settings(
        request(**fields),
        SamplingSettings() if defaults is None else defaults,
        vocab_size=VOCAB_SIZE,
        eos_token_ids=EOS,
    )


def options_of(fields: dict[str, Any]) -> Options:
    return generation_options(request(**fields), vocab_size=VOCAB_SIZE)


def warned(fields: dict[str, Any]) -> list[str]:
    """The fields of all warnings."""
    body = request(**fields)
    warnings = check_unknown_fields(body, body.parts(), strict=False)
    warnings += no_effect_warnings(body, settings_of(fields), strict=False)
    return [warning["param"] for warning in warnings]


# SillyTavern's default request, with TabbyAPI as its backend.
SILLYTAVERN: dict[str, Any] = {
    "prompt": "Once", "model": "m", "max_new_tokens": 350, "max_tokens": 350, "logprobs": 10,
    "temperature": 1, "top_p": 1, "typical_p": 1, "typical": 1, "min_p": 0.1,
    "repetition_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0, "top_k": 0, "skew": 0,
    "min_tokens": 0, "add_bos_token": True, "smoothing_factor": 0, "smoothing_curve": 1,
    "dry_allowed_length": 2, "dry_multiplier": 0.8, "dry_base": 1.75,
    "dry_sequence_breakers": '["\\n",":","\\"","*"]', "dry_penalty_last_n": 0,
    "max_tokens_second": 0, "stopping_strings": ["\nYou:"], "stop": ["\nYou:"],
    "ban_eos_token": False, "skip_special_tokens": True, "include_reasoning": True,
    "top_a": 0, "tfs": 1, "mirostat_mode": 0, "mirostat_tau": 5, "mirostat_eta": 0.1,
    "custom_token_bans": "", "banned_strings": ["shivers"], "api_type": "tabby",
    "api_server": "http://127.0.0.1:5000/", "xtc_threshold": 0.1, "xtc_probability": 0.5,
    "nsigma": 0, "top_n_sigma": 0, "min_keep": 0, "adaptive_target": -0.01, "adaptive_decay": 0.9,
    "n": 1, "rep_pen": 1, "rep_pen_range": 0, "repetition_decay": 0, "repetition_penalty_range": 0,
    "temperature_last": True, "guidance_scale": 1, "negative_prompt": "", "repeat_penalty": 1,
    "repeat_last_n": 0, "n_predict": 350, "num_predict": 350, "mirostat": 0, "ignore_eos": False,
    "n_probs": 10, "rep_pen_slope": 1, "stream": True,
}  # fmt: skip
SILLYTAVERN_SETTINGS: dict[str, Any] = {
    "min_p": 0.1, "dry_multiplier": 0.8, "dry_sequence_breakers": ("\n", ":", '"', "*"),
    "xtc_probability": 0.5, "temperature_last": True, "mirostat_tau": 5.0, "repetition_range": 0,
}  # fmt: skip
DYNAMIC = {"dynamic_temperature": True, "dynatemp_low": 0.5, "dynatemp_high": 1.5}

PAYLOADS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({}, {}, {}),
    (
        SILLYTAVERN,
        SILLYTAVERN_SETTINGS,
        {"max_tokens": 350, "stop": ("\nYou:",), "banned_strings": ("shivers",)},
    ),
    (  # the same with a dynamic temperature
        {**SILLYTAVERN, **DYNAMIC, "dynatemp_range": 0.5, "dynatemp_exponent": 2},
        {**SILLYTAVERN_SETTINGS, "min_temperature": 0.5, "max_temperature": 1.5,
         "temperature_exponent": 2.0},
        {"max_tokens": 350, "stop": ("\nYou:",), "banned_strings": ("shivers",)},
    ),
    (  # openai-python
        {"temperature": 0.7, "top_p": 0.9, "seed": 7, "stop": "\n", "max_tokens": 64,
         "frequency_penalty": -0.5, "presence_penalty": 1, "logit_bias": {"50": -100, "7": 0},
         "n": 1, "user": "u"},
        {"temperature": 0.7, "top_p": 0.9, "seed": 7, "frequency_penalty": -0.5,
         "presence_penalty": 1.0, "logit_bias": {50: -100.0, 7: 0.0}},
        {"stop": ("\n",), "max_tokens": 64},
    ),
    (  # vLLM
        {"top_k": -1, "min_p": 0.05, "repetition_penalty": 1.1, "min_tokens": 3,
         "stop_token_ids": [5, 6, 5], "include_stop_str_in_output": True, "ignore_eos": True,
         "bad_words": ["foo", "bar"], "allowed_token_ids": [1, 2, 3], "cache_salt": "me",
         "skip_special_tokens": False, "spaces_between_special_tokens": True,
         "truncate_prompt_tokens": 12, "priority": 0, "use_beam_search": False,
         "length_penalty": 1.0},
        {"min_p": 0.05, "repetition_penalty": 1.1, "allowed_tokens": (1, 2, 3)},
        {"min_new_tokens": 3, "stop_token_ids": (5, 6), "include_stop": True, "ignore_eos": True,
         "banned_strings": ("foo", "bar"), "isolation_key": "me", "decode_special_tokens": True,
         "truncate_prompt_tokens": 12},
    ),
    (  # llama-server's own interface
        {"n_predict": -1, "temperature": 0.8, "dynatemp_range": 0.0, "dynatemp_exponent": 1.0,
         "top_k": 40, "top_p": 0.95, "min_p": 0.05, "top_n_sigma": -1.0, "xtc_probability": 0.0,
         "xtc_threshold": 0.1, "typical_p": 1.0, "repeat_last_n": 64, "repeat_penalty": 1.1,
         "dry_multiplier": 0.0, "dry_base": 1.75, "dry_allowed_length": 2,
         "dry_penalty_last_n": -1, "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1,
         "seed": -1, "cache_prompt": True, "id_slot": -1, "n_keep": 0, "t_max_predict_ms": 1500,
         "logit_bias": [[15043, -1.5], [2, False]], "speculative.n_max": 0,
         "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc",
                      "temperature"]},
        {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repetition_range": 64,
         "repetition_penalty": 1.1, "mirostat_tau": 5.0, "logit_bias": {15043: -1.5, 2: -math.inf},
         "sampler_order": ("top_n_sigma", "top_k", "typical", "top_p", "min_p", "xtc",
                           "temperature")},
        {"fills_context": True, "max_seconds": 1.5, "speculate": False},
    ),
    (  # TabbyAPI, with every name that only it has
        {"max_length": 9, "min_length": 2, "stop_sequence": ["a", 5], "banned_tokens": "128, 330",
         "allowed_tokens": "1,2", "token_healing": True, "temperature_last": True,
         "smoothing_factor": 0.3, "top_a": 0.2, "tfs": 0.9, "typical": 0.8, "skew": 0.1,
         "rep_pen": 1.2, "penalty_range": -1, "repetition_decay": 16, "dry_multiplier": 1,
         "dry_range": 64, "dry_sequence_breakers": ["\n"], "mirostat_mode": 2, "mirostat_tau": 3,
         "mirostat_eta": 0.2, "ban_eos_token": True, "negative_prompt": "bad", "cfg_scale": 1.5,
         "min_temp": 0.5, "max_temp": 1.5, "temp_exponent": 2, "speculative_ngram": True},
        {"banned_tokens": (128, 330, 2, 7), "allowed_tokens": (1, 2), "temperature_last": True,
         "smoothing_factor": 0.3, "top_a": 0.2, "tfs": 0.9, "typical_p": 0.8, "skew": 0.1,
         "repetition_penalty": 1.2, "repetition_decay": 16, "dry_multiplier": 1.0, "dry_range": 64,
         "dry_sequence_breakers": ("\n",), "mirostat": True, "mirostat_tau": 3.0,
         "mirostat_eta": 0.2, "min_temperature": 0.5, "max_temperature": 1.5,
         "temperature_exponent": 2.0},
        {"max_tokens": 9, "min_new_tokens": 2, "stop": ("a",), "stop_token_ids": (5,),
         "token_healing": True, "negative_prompt": "bad", "cfg_scale": 1.5},
    ),
    (  # text-generation-webui
        {"max_new_tokens": 8, "temperature": 0.7, "temperature_last": False,
         "dynamic_temperature": False, "dynatemp_low": 1, "dynatemp_high": 1,
         "dynatemp_exponent": 1, "smoothing_factor": 0, "smoothing_curve": 1, "top_p": 0.9,
         "min_p": 0, "top_k": 20, "repetition_penalty": 1.15, "presence_penalty": 0,
         "frequency_penalty": 0, "repetition_penalty_range": 1024, "typical_p": 1, "tfs": 1,
         "top_a": 0, "epsilon_cutoff": 0, "eta_cutoff": 0, "guidance_scale": 1, "penalty_alpha": 0,
         "mirostat_mode": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "do_sample": True, "seed": -1,
         "encoder_repetition_penalty": 1, "no_repeat_ngram_size": 0, "min_length": 0,
         "num_beams": 1, "length_penalty": 1, "early_stopping": False,
         "sampler_priority": "temperature\ndynamic_temperature\nquadratic_sampling\ntop_k\ntop_p\n"
         "typical_p\nepsilon_cutoff\neta_cutoff\ntfs\ntop_a\nmin_p\nmirostat"},
        {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.15,
         "repetition_range": 1024, "mirostat_tau": 5.0,
         "sampler_order": ("temperature", "dynamic_temperature", "smoothing", "top_k", "top_p",
                           "typical", "tfs", "top_a", "min_p", "mirostat")},
        {"max_tokens": 8},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "settings", "options"), PAYLOADS)
def test_what_a_client_sends_is_what_it_means(
    fields: dict[str, Any], settings: dict[str, Any], options: dict[str, Any]
) -> None:
    assert settings_of(fields) == SamplingSettings(**settings)
    assert options_of(fields) == expected_options(options)
    assert warned(fields) == []


def test_without_fields_the_models_defaults_hold() -> None:
    defaults = SamplingSettings(temperature=0.6, top_p=0.9, repetition_penalty=1.2)
    assert settings_of({}, defaults) == defaults
    assert settings_of({"top_p": None, "rep_pen": None}, defaults) == defaults
    assert settings_of({"top_p": 1}, defaults).top_p == 1


OFF: list[tuple[str, Any, str, Any]] = [
    ("typical_p", 0, "typical_p", 1.0),
    ("typical", 0, "typical_p", 1.0),
    ("tfs", 0, "tfs", 1.0),
    ("tfs_z", 0, "tfs", 1.0),
    ("top_k", -1, "top_k", 0),
    ("top_n_sigma", -1, "top_n_sigma", 0.0),
    ("nsigma", -0.5, "top_n_sigma", 0.0),
    ("mirostat", 0, "mirostat", False),
    ("mirostat", False, "mirostat", False),
    ("dry_base", 0, "dry_base", 1.75),
    ("dry_range", -1, "dry_range", 0),
    ("dry_penalty_last_n", -1, "dry_range", 0),
    ("repeat_last_n", -1, "repetition_range", -1),
    ("seed", -1, "seed", None),
    ("custom_token_bans", "", "banned_tokens", ()),
    ("allowed_tokens", "", "allowed_tokens", None),
    ("dry_sequence_breakers", "", "dry_range", 0),
    ("logit_bias", [], "logit_bias", {}),
    ("samplers", "", "sampler_order", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "setting", "off"), OFF)
def test_the_values_that_mean_off_elsewhere_mean_off(
    name: str, value: Any, setting: str, off: Any
) -> None:
    assert getattr(settings_of({name: value}), setting) == off
    assert settings_of({name: value}) == SamplingSettings()


def test_top_p_0_is_the_most_likely_token_as_in_openais_api() -> None:
    assert settings_of({"top_p": 0}).top_p == 0


def test_a_bias_of_0_bans_nothing_and_false_does() -> None:
    assert settings_of({"logit_bias": {"5": 0}}).logit_bias == {5: 0.0}
    assert settings_of({"logit_bias": {"5": False}}).logit_bias == {5: -math.inf}
    assert settings_of({"logit_bias": [[5, 0], [6, False]]}).logit_bias == {5: 0.0, 6: -math.inf}


BREAKERS: list[tuple[Any, tuple[str, ...]]] = [
    ([], ()),
    (["\n", ":"], ("\n", ":")),
    ('["\\n", ":"]', ("\n", ":")),
    ('"\\n", ":"', ("\n", ":")),
    ("a,b", ("a", "b")),
    ("a", ("a",)),
]


@pytest.mark.parametrize(("wire", "breakers"), BREAKERS)
def test_breakers_come_as_a_list_or_as_a_string(wire: Any, breakers: tuple[str, ...]) -> None:
    settings = settings_of({"dry_multiplier": 1, "dry_sequence_breakers": wire})
    assert tuple(settings.dry_sequence_breakers) == breakers


ORDERS: list[tuple[str, Any, tuple[str, ...]]] = [
    ("sampler_order", ["min_p", "temperature"], ("min_p", "temperature")),
    ("samplers", ["dry", "temperature", "top_k", "adaptive_p"], ("temperature", "top_k")),
    ("samplers", "edskypmxt", ("top_n_sigma", "top_k", "typical", "top_p", "min_p", "xtc",
                               "temperature")),
    ("samplers", "top_k;temperature", ("top_k", "temperature")),
    ("samplers", ["typ_p", "top_k", "typical_p", "temp"], ("typical", "top_k", "temperature")),
    ("samplers", "top_k", ("top_k",)),
    ("samplers", [], ()),
    ("sampler_priority", ["top_p_top_k", "quadratic"], ("top_k", "top_p", "smoothing")),
    ("sampler_priority", "top_a\nxtc\n", ("top_a", "xtc")),
    ("sampler_order", [6, 0, 1, 3, 4, 2, 5], (
        "top_k", "top_a", "tfs", "typical", "top_p", "min_p", "smoothing", "temperature",
        "dynamic_temperature", "top_n_sigma", "mirostat", "xtc")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "wire", "order"), ORDERS)
def test_orders_of_other_servers_become_the_engines(
    name: str, wire: Any, order: tuple[str, ...]
) -> None:
    assert settings_of({name: wire}).sampler_order == order


def test_a_stage_missing_from_the_order_does_not_run_and_is_reported() -> None:
    fields = {"samplers": ["top_k"], "top_k": 5, "top_p": 0.5, "min_p": 0.0, "temperature": 0.7}
    settings = settings_of(fields, SamplingSettings(typical_p=0.9))
    assert [stage.name.lower() for stage, _ in settings.stages()] == ["top_k"]
    assert warned(fields) == ["temperature", "top_p"]


def test_a_dynamic_temperature_goes_where_the_temperature_goes() -> None:
    fields = {"samplers": ["temperature", "top_k"], "dynatemp_range": 0.5}
    settings = settings_of(fields)
    assert settings.sampler_order == ("temperature", "dynamic_temperature", "top_k")
    assert warned(fields) == []
    assert warned({"samplers": ["top_k"], "dynatemp_range": 0.5}) == ["dynatemp_range"]


def test_mirostat_is_not_listed_by_other_servers_and_still_runs() -> None:
    fields = {"samplers": ["top_k"], "mirostat": 2}
    assert settings_of(fields).sampler_order == ("top_k", "mirostat")


def test_dynamic_temperatures_of_other_servers() -> None:
    around = settings_of({"temperature": 0.8, "dynatemp_range": 0.5})
    assert around.temperature == 1.0
    assert around.min_temperature == pytest.approx(0.3)
    assert around.max_temperature == pytest.approx(1.3)
    wide = settings_of({"dynatemp_range": 2}, SamplingSettings(temperature=0.5))
    assert (wide.min_temperature, wide.max_temperature) == (0, 2.5)
    assert settings_of({"temperature": 0, "dynatemp_range": 2}).is_greedy
    on = settings_of({**DYNAMIC, "temperature": 0.7})
    assert (on.temperature, on.min_temperature, on.max_temperature) == (1.0, 0.5, 1.5)
    off = settings_of({**DYNAMIC, "temperature": 0.7, "dynamic_temperature": False})
    assert off == SamplingSettings(temperature=0.7)
    with_both = settings_of({"temperature": 0.7, "min_temp": 0.5, "max_temp": 1.5})
    assert (with_both.temperature, with_both.max_temperature) == (0.7, 1.5), "as in ExLlamaV2"


CONTRADICTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"rep_pen": 1.1, "repetition_penalty": 1.2}, "repetition_penalty", "rep_pen"),
    ({"rep_pen": 1.1, "repeat_penalty": 1.2}, "repeat_penalty", "rep_pen"),
    ({"typical": 0.5, "typical_p": 1}, "typical_p", "typical"),
    ({"tfs": 0.5, "tfs_z": 0.6}, "tfs", "tfs_z"),
    ({"min_temp": 0.5, "dynatemp_low": 0.6}, "min_temp", "dynatemp_low"),
    ({"max_temp": 0.5, "dynatemp_max": 0.6}, "max_temp", "dynatemp_max"),
    ({"temp_exponent": 1, "dynatemp_exponent": 2}, "temp_exponent", "dynatemp_exponent"),
    ({"top_n_sigma": 1, "nsigma": -1}, "top_n_sigma", "nsigma"),
    ({"mirostat": True, "mirostat_mode": 0}, "mirostat", "mirostat_mode"),
    ({"dry_range": 5, "dry_penalty_last_n": 0}, "dry_range", "dry_penalty_last_n"),
    ({"penalty_range": 5, "repeat_last_n": 0}, "penalty_range", "repeat_last_n"),
    ({"seed": 1, "sampler_seed": 2}, "seed", "sampler_seed"),
    ({"banned_tokens": [1], "custom_token_bans": "2"}, "banned_tokens", "custom_token_bans"),
    ({"allowed_tokens": [1], "allowed_token_ids": [2]}, "allowed_tokens", "allowed_token_ids"),
    ({"sampler_order": ["top_k"], "samplers": ["top_p"]}, "sampler_order", "samplers"),
    ({"temperature": 1, "dynatemp_range": 1, "max_temp": 3}, "dynatemp_range", "max_temp"),
    ({"max_tokens": 1, "max_new_tokens": 2}, "max_tokens", "max_new_tokens"),
    ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "max_completion_tokens"),
    ({"n_predict": -1, "max_length": 2}, "max_length", "n_predict"),
    ({"min_tokens": 1, "min_length": 2}, "min_tokens", "min_length"),
    ({"stop": "a", "stopping_strings": ["b"]}, "stop", "stopping_strings"),
    ({"cfg_scale": 1, "guidance_scale": 2}, "cfg_scale", "guidance_scale"),
    ({"speculate": True, "speculative.n_max": 0}, "speculate", "speculative.n_max"),
    ({"speculate": True, "num_draft_tokens": 0}, "speculate", "num_draft_tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "other"), CONTRADICTIONS)
def test_names_that_contradict_each_other_are_refused_by_both_names(
    fields: dict[str, Any], param: str, other: str
) -> None:
    with pytest.raises(RequestError, match=rf"{param}.*{other}") as caught:
        settings_of(fields), options_of(fields)
    assert caught.value.param == param


def test_names_that_agree_are_one_setting() -> None:
    assert settings_of({"rep_pen": 1.1, "repeat_penalty": 1.1}).repetition_penalty == 1.1
    assert settings_of({"mirostat": 2, "mirostat_mode": 2}).mirostat
    assert settings_of({"banned_tokens": [1, 2], "custom_token_bans": "1,2"}).banned_tokens == (
        1,
        2,
    )
    assert options_of({"stop": "a", "stopping_strings": ["a"]}).stream.stop == ("a",)
    assert not options_of({"speculate": False, "num_draft_tokens": 0}).stream.speculate


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rep_pen": 0}, "rep_pen"),
    ({"temperature": -1}, "temperature"),
    ({"top_k": -2}, "top_k"),
    ({"typical": 1.5}, "typical"),
    ({"min_temp": 2, "max_temp": 1}, "max_temp"),
    ({"dynatemp_range": -1}, "dynatemp_range"),
    ({"dynatemp_range": 1000}, "dynatemp_range"),
    ({"mirostat_mode": 1}, "mirostat_mode"),
    ({"mirostat": -1}, "mirostat"),
    ({"mirostat_tau": -1}, "mirostat_tau"),
    ({"repeat_last_n": -2}, "repeat_last_n"),
    ({"dry_base": 0.5}, "dry_base"),
    ({"dry_sequence_breakers": ["x" * 65]}, "dry_sequence_breakers"),
    ({"dry_sequence_breakers": ["x"] * 65}, "dry_sequence_breakers"),
    ({"dry_sequence_breakers": '["x"'}, "dry_sequence_breakers"),
    ({"dry_sequence_breakers": "[5]"}, "dry_sequence_breakers"),
    ({"dry_sequence_breakers": "[" * 8000}, "dry_sequence_breakers"),
    ({"dry_sequence_breakers": ["\ud800"]}, "dry_sequence_breakers"),
    ({"dry_sequence_breakers": r'["\ud800"]'}, "dry_sequence_breakers"),
    ({"seed": 2**64}, "seed"),
    ({"sampler_seed": 2**64}, "sampler_seed"),
    ({"logit_bias": {"5": 2e9}}, "logit_bias"),
    ({"logit_bias": {"5": True}}, "logit_bias"),
    ({"logit_bias": [[5, True]]}, "logit_bias"),
    ({"logit_bias": [["5", 1]]}, "logit_bias"),
    ({"logit_bias": [["Hello", 1]]}, "logit_bias"),
    ({"logit_bias": {"Hello": 1}}, "logit_bias"),
    ({"logit_bias": [[-1, 1]]}, "logit_bias"),
    ({"logit_bias": {"32000": 1}}, "logit_bias"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [32000]}, "allowed_token_ids"),
    ({"custom_token_bans": "32000"}, "custom_token_bans"),
    ({"custom_token_bans": "1 2"}, "custom_token_bans"),
    ({"custom_token_bans": "9" * 100}, "custom_token_bans"),
    ({"samplers": ["top_q"]}, "samplers"),
    ({"samplers": "top_q"}, "samplers"),
    ({"samplers": ["top_k", "top_k"]}, "samplers"),
    ({"sampler_order": [7]}, "sampler_order"),
    ({"sampler_order": [-1]}, "sampler_order"),
    ({"sampler_order": [0, 0]}, "sampler_order"),
    ({"sampler_order": ["temperature"], "temperature_last": True}, "sampler_order"),
    ({"stop": [-1]}, "stop"),
    ({"stop": [32000]}, "stop"),
    ({"stop_token_ids": [32000]}, "stop_token_ids"),
    ({"stop": [5], "stop_token_ids": [32000]}, "stop_token_ids"),
    ({"stop_token_ids": [5], "stop": [32000]}, "stop"),
    ({"stopping_strings": [32000]}, "stopping_strings"),
    ({"banned_strings": [f"{i:03}" + "x" * 253 for i in range(257)]}, "banned_strings"),
    ({"bad_words": [f"{i:03}" + "x" * 253 for i in range(257)]}, "bad_words"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_a_value_out_of_range_is_refused_by_the_name_that_was_sent(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises((RequestError, InvalidInputError)) as caught:
        settings_of(fields), options_of(fields)
    assert getattr(caught.value, "param", None) == param


def test_the_engines_sentence_reaches_http_callers() -> None:
    with pytest.raises(InvalidInputError) as ours:
        SamplingSettings(repetition_penalty=0.0)
    with pytest.raises(InvalidInputError) as theirs:
        settings_of({"rep_pen": 0})
    assert str(theirs.value) == str(ours.value)


NO_VALUES: list[tuple[str, Any]] = [
    ("temperature", "1"),
    ("temperature", True),
    ("mirostat", 2.0),
    ("mirostat", "2"),
    ("logit_bias", [[5, "1"]]),
    ("logit_bias", [[5]]),
    ("logit_bias", [[5, 1, 1]]),
    ("logit_bias", {"5": None}),
    ("logit_bias", {str(i): 0 for i in range(4097)}),
    ("logit_bias", [[i, 0] for i in range(4097)]),
    ("allowed_token_ids", list(range(32_769))),
    ("allowed_token_ids", [True]),
    ("custom_token_bans", "1;2"),
    ("custom_token_bans", "1," * 16_385),
    ("json_schema", " " * (2**20 + 1)),
    ("custom_token_bans", "\u0661"),
    ("dry_sequence_breakers", "x" * 8193),
    ("dry_sequence_breakers", [5]),
    ("samplers", ["top_k"] * 65),
    ("samplers", ["x" * 65]),
    ("samplers", [1.0]),
    ("samplers", [True]),
    ("stop", ["x"] * 65),
    ("stop", "x" * 1025),
    ("stop", "\ud800"),
    ("stop", [True]),
    ("stopping_strings", [""]),
    ("banned_strings", ["x"] * 1025),
    ("banned_strings", ["x" * 257]),
    ("banned_strings", [""]),
    ("banned_strings", ["\ud800"]),
    ("bad_words", "x" * 257),
    ("negative_prompt", "\ud800"),
    ("negative_prompt", "x" * 1_000_001),
    ("cache_salt", "x" * 257),
    ("stop_token_ids", [0] * 32_769),
    ("max_tokens", -2),
    ("n_predict", -2),
    ("min_tokens", -1),
    ("truncate_prompt_tokens", -2),
    ("t_max_predict_ms", -2),
    ("t_max_predict_ms", 24 * 3600 * 1000 + 1),
    ("n_probs", 21),
    ("speculative.n_max", -1),
    ("include", ["x"] * 65),
    ("include", ["x" * 65]),
    ("strict", "true"),
]


@pytest.mark.parametrize(("name", "value"), NO_VALUES)
def test_a_value_of_another_kind_or_without_bounds_does_not_fit_the_schema(
    name: str, value: Any
) -> None:
    with pytest.raises(ValidationError) as caught:
        request(**{name: value})
    assert str(caught.value.errors()[0]["loc"][0]) == name


NO_EFFECT: list[tuple[dict[str, Any], list[str]]] = [
    ({"mirostat_tau": 3}, ["mirostat_tau"]),
    ({"mirostat_tau": 3, "mirostat_mode": 0}, []),
    ({"mirostat_tau": 3, "mirostat_mode": 2}, []),
    ({"dry_base": 2, "dry_penalty_last_n": 3}, ["dry_base", "dry_penalty_last_n"]),
    ({"xtc_threshold": 0.2}, ["xtc_threshold"]),
    ({"min_temp": 0.5}, ["min_temp"]),
    ({"min_temp": 0.5, "max_temp": 0.4, "dynamic_temperature": False}, []),
    ({"dynatemp_exponent": 2}, ["dynatemp_exponent"]),
    ({"dynamic_temperature": True}, ["dynamic_temperature"]),
    ({"dynamic_temperature": False}, []),
    ({"rep_pen_range": 64}, ["rep_pen_range"]),
    ({"rep_pen_range": 0, "rep_pen": 1.1}, ["rep_pen_range"]),
    ({"rep_pen_range": 0, "rep_pen": 1.0}, []),
    ({"rep_pen_range": 0, "rep_pen": 1.1, "repetition_decay": 5}, []),
    ({"sampler_priority": ["top_k", "dry"]}, ["sampler_priority"]),
    ({"negative_prompt": "x"}, ["negative_prompt"]),
    ({"negative_prompt": "x", "guidance_scale": 2}, []),
    ({"num_draft_tokens": 3}, ["num_draft_tokens"]),
    ({"speculative.n_max": 16}, ["speculative.n_max"]),
    ({"temperature": 0, "top_p": 0.5, "min_p": 0.1}, []),
    ({"smoothing_curve": 2}, ["smoothing_curve"]),
    ({"smoothing_curve": True}, ["smoothing_curve"]),
    ({"do_sample": False}, ["do_sample"]),
    ({"speculative_ngram": False}, ["speculative_ngram"]),
    ({"cache_prompt": False}, []),
    ({"truncation_length": 4096}, ["truncation_length"]),
    ({"adaptive_target": 0.5}, ["adaptive_target"]),
    ({"metadata": {}, "store": False, "service_tier": "auto", "request_id": "x"}, []),
    ({"speculative_n_max": 5}, ["speculative_n_max"]),
    ({"response_format": {"type": "text", "x": 1}}, ["response_format.x"]),
    (
        {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
        ["structured_outputs.whitespace_pattern"],
    ),
    ({"guided_json": {}, "guided_whitespace_pattern": " "}, []),
    ({"grammar": "start: x", "guided_whitespace_pattern": " "}, []),
    ({"guided_whitespace_pattern": " "}, ["guided_whitespace_pattern"]),
    ({"grammar": "", "grammar_string": ""}, ["grammar_string", "grammar"]),
    ({"ebnf": None}, []),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "params"), NO_EFFECT)
def test_a_field_without_effect_is_reported_or_refused_if_strict(
    fields: dict[str, Any], params: list[str]
) -> None:
    assert warned(fields) == params
    if not params:
        return
    body = request(**fields, strict=True)
    settings = settings_of(fields)
    with pytest.raises(RequestError) as caught:  # noqa: PT012 - either of them
        check_unknown_fields(body, body.parts(), strict=True)
        no_effect_warnings(body, settings, strict=True)
    assert caught.value.param == params[0]


def test_a_parameter_of_a_stage_that_is_on_by_default_has_an_effect() -> None:
    body = request(rep_pen_range=64)
    settings = settings_of({"rep_pen_range": 64}, SamplingSettings(repetition_penalty=1.1))
    assert no_effect_warnings(body, settings, strict=True) == []


def test_what_openai_has_and_this_server_does_not_is_refused() -> None:
    body = request(web_search_options={})
    for strict in (False, True):
        with pytest.raises(RequestError) as caught:
            check_unknown_fields(body, body.parts(), strict=strict)
        assert caught.value.param == "web_search_options"


def test_a_field_is_reported_once_however_often_its_part_is_given() -> None:
    body = request(stream=True, stream_options={"flush": 1})
    parts = [*body.parts(), *body.parts()]
    warnings = check_unknown_fields(body, parts, strict=False)
    assert [warning["param"] for warning in warnings] == ["stream_options.flush"]


def test_switches_of_other_servers_are_includes() -> None:
    body = request(
        include=["rank"], return_tokens=True, post_sampling_probs=True, timings_per_token=False,
        return_progress=True,
    )  # fmt: skip
    assert body.includes == ["rank", "token_ids", "probs", "progress"]
    assert request(return_tokens=True, timings_per_token=True).includes == ["token_ids", "timings"]
    assert request().includes == []


def test_n_probs_asks_for_logprobs() -> None:
    assert requested_logprobs(request(n_probs=3), None, param="logprobs") == 3
    assert requested_logprobs(request(n_probs=3), 3, param="logprobs") == 3
    assert requested_logprobs(request(n_probs=0), None, param="logprobs") is None
    assert requested_logprobs(request(n_probs=0), 0, param="logprobs") == 0
    assert requested_logprobs(request(), 5, param="logprobs") == 5
    with pytest.raises(RequestError, match=r"logprobs and n_probs") as caught:
        requested_logprobs(request(n_probs=3), 2, param="logprobs")
    assert caught.value.param == "logprobs"


def test_special_tokens_around_the_prompt() -> None:
    assert adds_special_tokens(request())
    assert not adds_special_tokens(request(add_bos_token=False))
    assert not adds_special_tokens(request(add_special_tokens=False, add_bos_token=False))
    with pytest.raises(RequestError, match=r"add_special_tokens and add_bos_token"):
        adds_special_tokens(request(add_special_tokens=False, add_bos_token=True))


@pytest.mark.parametrize(("limit", "kept"), [(None, 9), (20, 9), (3, 3), (1, 1), (0, 0), (-1, 5)])
def test_a_prompt_is_truncated_from_its_beginning(limit: int | None, kept: int) -> None:
    options = options_of({"truncate_prompt_tokens": limit})
    assert truncated(list(range(9)), options, room=5) == list(range(9))[9 - kept :]


def test_every_other_name_is_one_of_a_field_of_the_same_schema() -> None:
    for model in (CompletionRequest, ChatCompletionRequest):
        properties = model.model_json_schema()["properties"]
        others = {
            name: field["x-another-name-of"]
            for name, field in properties.items()
            if "x-another-name-of" in field
        }
        assert len(others) > 30
        for name, setting in others.items():
            assert setting in properties
            assert setting not in others, f"{name} leads to another name"
            assert f"`{setting}`" in properties[name]["description"]


def test_every_setting_of_the_engine_is_a_field_and_every_field_is_described() -> None:
    properties = CompletionRequest.model_json_schema()["properties"]
    for field in dataclasses.fields(SamplingSettings):
        assert field.name in properties
    undescribed = [name for name, field in properties.items() if not field.get("description")]
    assert set(undescribed) <= {"stream"}
