"""The settings: neutral defaults, intervals, and the order of the stages."""

import ast
import inspect
import math
import textwrap
from dataclasses import fields
from itertools import pairwise

import pytest

from engine import InvalidInputError, SamplingSettings
from engine.sampling.request import Stage
from engine.sampling.settings import STAGE_NAMES

ON = SamplingSettings(
    temperature=0.7,
    min_temperature=0.5,
    max_temperature=1.5,
    smoothing_factor=0.2,
    top_k=40,
    top_p=0.9,
    min_p=0.05,
    top_a=0.1,
    top_n_sigma=1.5,
    tfs=0.95,
    typical_p=0.9,
    mirostat=True,
    xtc_probability=0.5,
)


def names(settings: SamplingSettings) -> list[str]:
    return [stage.name.lower() for stage, _ in settings.stages()]


@pytest.mark.parametrize(
    ("name", "value", "interval"),
    [
        ("temperature", -0.1, "between 0.0 and 100.0"),
        ("temperature", math.nan, "between 0.0 and 100.0, not nan"),
        ("temperature", math.inf, "not inf"),
        ("min_temperature", -1e-9, "between 0.0 and 100.0"),
        ("max_temperature", 100.5, "between 0.0 and 100.0"),
        ("temperature_exponent", -1.0, "between 0.0 and 100.0"),
        ("smoothing_factor", -0.01, "between 0.0 and 100.0"),
        ("top_k", -1, "between 0 and 2147483647"),
        ("top_k", 1.5, "whole number between 0 and 2147483647, not 1.5"),
        ("top_p", 1.01, "between 0.0 and 1.0, not 1.01"),
        ("top_p", math.nan, "between 0.0 and 1.0"),
        ("min_p", -1e-9, "between 0.0 and 1.0"),
        ("top_a", 2.0, "between 0.0 and 1.0"),
        ("top_n_sigma", -1.0, "between 0.0 and 100.0"),
        ("tfs", 1.1, "between 0.0 and 1.0"),
        ("typical_p", -0.1, "between 0.0 and 1.0"),
        ("skew", 11.0, "between -10.0 and 10.0"),
        ("mirostat_tau", -1.0, "between 0.0 and 100.0"),
        ("mirostat_eta", 1.5, "between 0.0 and 1.0"),
        ("xtc_probability", 1.5, "between 0.0 and 1.0"),
        ("xtc_threshold", -0.5, "between 0.0 and 1.0"),
        ("dry_multiplier", -1.0, "between 0.0 and 100.0"),
        ("dry_base", 0.9, "between 1.0 and 100.0"),
        ("dry_allowed_length", -1, "between 0 and 100"),
        ("dry_range", -1, "between 0 and 2147483647"),
        ("dry_max_ngram", 0, "between 1 and 100"),
        ("dry_sequence_breakers", "abc", "a sequence of strings, not one"),
        ("dry_sequence_breakers", ["a", ""], "1 to 64 characters, not 0"),
        ("dry_sequence_breakers", ["a" * 65], "1 to 64 characters, not 65"),
        ("dry_sequence_breakers", ["a"] * 65, "0 to 64 strings, not 65"),
        ("repetition_penalty", 0.0, "between 0.01 and 100.0"),
        ("repetition_range", -2, "between -1 and 2147483647"),
        ("repetition_decay", -1, "between 0 and 2147483647"),
        ("frequency_penalty", 2.1, "between -2.0 and 2.0"),
        ("presence_penalty", -2.1, "between -2.0 and 2.0"),
        ("seed", 2**64, "between -9223372036854775808 and 18446744073709551615"),
        ("logit_bias", {1: math.nan}, "token 1 must be between .*, or -inf, not nan"),
        ("logit_bias", {1: math.inf}, "not inf"),
        ("logit_bias", {7: -2e9}, "token 7"),
        ("allowed_tokens", [], "at least 1 token"),
        ("sampler_order", ["top_k", "top_z"], "not 'top_z'"),
        ("sampler_order", ["top_k", "top_p", "top_k"], "'top_k' is repeated"),
    ],
)
def test_a_setting_out_of_range_says_field_interval_and_value(
    name: str, value: object, interval: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"{name}.*{interval}") as caught:
        SamplingSettings(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name


def test_a_dynamic_temperature_must_not_fall() -> None:
    with pytest.raises(InvalidInputError, match=r"max_temperature must be between 1.0 and 100.0"):
        SamplingSettings(min_temperature=1.0, max_temperature=0.5)
    assert SamplingSettings(min_temperature=1.0, max_temperature=1.0).stages() == []


def test_every_default_is_neutral() -> None:
    assert SamplingSettings().stages() == []
    # What names no stage may have any default: it only says how a stage that is on behaves.
    inert = SamplingSettings(
        mirostat_tau=5.0, mirostat_eta=0.3, xtc_threshold=0.3, temperature_exponent=2.0
    )
    assert inert.stages() == []


def test_the_order_of_the_stages() -> None:
    assert names(ON) == list(STAGE_NAMES)
    assert dict(ON.stages())[Stage.DYNAMIC_TEMPERATURE] == (0.5, 1.5, 1.0)
    assert dict(ON.stages())[Stage.XTC] == (0.5, 0.1, 0.0)
    assert dict(ON.stages())[Stage.TOP_K][0] == 40.0


def test_the_temperature_may_come_last() -> None:
    last = SamplingSettings(temperature=0.7, temperature_last=True, top_k=5, xtc_probability=0.5)
    assert names(last) == ["top_k", "temperature", "xtc"]
    dynamic = SamplingSettings(
        temperature=0.7, temperature_last=True, min_temperature=0.1, max_temperature=2.0, top_k=5
    )
    assert names(dynamic) == ["top_k", "dynamic_temperature"]


def test_an_order_of_the_request() -> None:
    order = ("xtc", "min_p", "temperature", "top_k")
    settings = SamplingSettings(temperature=0.7, min_p=0.1, top_k=3, sampler_order=order)
    assert names(settings) == ["min_p", "temperature", "top_k"]
    assert names(SamplingSettings(sampler_order=())) == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"top_k": 5, "sampler_order": ["top_p"]}, "'top_k' is missing"),
        ({"temperature_last": True, "sampler_order": ["temperature"]}, "temperature_last"),
    ],
)
def test_an_order_that_contradicts_the_settings(values: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        SamplingSettings(**values)  # type: ignore[arg-type]
    assert caught.value.param == "sampler_order"


def test_greedy_needs_no_stage_in_the_order() -> None:
    assert SamplingSettings(temperature=0.0, top_k=5, sampler_order=()).is_greedy


def test_every_field_is_documented_below_it() -> None:
    (settings,) = ast.parse(textwrap.dedent(inspect.getsource(SamplingSettings))).body
    assert isinstance(settings, ast.ClassDef)
    documented = [
        line.target.id
        for line, text in pairwise(settings.body)
        if isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    ]
    assert documented == [field.name for field in fields(SamplingSettings)]
