"""Any JSON value in any field gives an object or an error that names a field; nothing else."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from engine import InvalidInputError, SamplingSettings
from server.errors import RequestError
from server.request.constraint import constraint_of
from server.request.no_effect import no_effect_warnings
from server.request.options import adds_special_tokens, generation_options, requested_logprobs
from server.request.sampling import sampling_settings
from server.request.unknown_fields import check_unknown_fields
from server.schema.completions import CompletionRequest

VOCAB_SIZE = 100
UNKNOWN = ["smoothing_curve", "web_search_options", "x", "adaptive_target", "stream_options.x"]
FIELDS = sorted(
    {field.alias or name for name, field in CompletionRequest.model_fields.items()}
    - {"model", "prompt"}
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-2, 5)
WORDS = st.sampled_from(
    ["", "top_k", "temperature", "dkypmxt", "1,2", '["a"]', "[", "{}", "text", "json_object",
     "\ud800", "::=", "type", "json_schema", "regex", "5"]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=8) | WORDS
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)
DEFAULTS = st.sampled_from(
    [SamplingSettings(), SamplingSettings(temperature=0), SamplingSettings(top_p=0.5, min_p=0.1)]
)


def taken(fields: dict[str, Any], defaults: SamplingSettings) -> str | None:
    """What the server makes of a body, or the field of its error; None for no field."""
    try:
        body = CompletionRequest.model_validate({"model": "m", "prompt": "x", **fields})
        strict = bool(body.strict)
        warnings = check_unknown_fields(body, body.parts(), strict=strict)
        made = sampling_settings(body, defaults, vocab_size=VOCAB_SIZE, eos_token_ids=(2,))
        generation_options(body, vocab_size=VOCAB_SIZE)
        warnings += no_effect_warnings(body, made, strict=strict)
        requested_logprobs(body, body.logprobs, param="logprobs")
        adds_special_tokens(body)
        constraint_of(body)
        assert isinstance(body.includes, list)
    except ValidationError as error:
        return str(error.errors()[0]["loc"][0])
    except (RequestError, InvalidInputError) as error:
        return error.param or f"no field: {error}"
    made.stages()
    assert json.loads(json.dumps(warnings)) == warnings
    assert all(set(warning) == {"param", "action", "message"} for warning in warnings)
    return None


@pytest.mark.parametrize("name", FIELDS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(value=VALUES, defaults=DEFAULTS)
def test_any_value_of_one_field(name: str, value: Any, defaults: SamplingSettings) -> None:
    refused = taken({name: value}, defaults)
    assert refused is None or refused.startswith(name), "the error names the field that was sent"


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    fields=st.dictionaries(st.sampled_from(FIELDS + UNKNOWN), VALUES, max_size=6),
    defaults=DEFAULTS,
)
@example(
    fields={"samplers": ["temperature"], "temperature_last": True}, defaults=SamplingSettings()
)
@example(fields={"dynatemp_range": 1e308, "temperature": 1e308}, defaults=SamplingSettings())
def test_any_values_of_several_fields(fields: dict[str, Any], defaults: SamplingSettings) -> None:
    refused = taken(fields, defaults)
    assert refused is None or any(refused.startswith(name) for name in fields)


SMALL = {
    "number": st.sampled_from([0, 0.5, 1, 2]),
    "integer": st.sampled_from([-1, 0, 1, 2]),
    "boolean": st.booleans(),
}


def _fitting() -> st.SearchStrategy[dict[str, Any]]:
    """Bodies whose fields are mostly valid, so that the rules between fields apply."""
    strategies: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in CompletionRequest.model_json_schema()["properties"].items():
        for branch in field.get("anyOf", [field]):
            if branch.get("type") in SMALL:
                strategies[name] = SMALL[branch["type"]]
    orders = st.lists(st.sampled_from(["top_k", "temperature", "xtc", "min_p", "dry"]), unique=True)
    strategies |= dict.fromkeys(("sampler_order", "samplers", "sampler_priority"), orders)
    return st.fixed_dictionaries({}, optional={**strategies}).map(
        lambda body: dict(list(body.items())[:12])
    )


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fields=_fitting(), defaults=DEFAULTS)
def test_small_values_of_many_fields(fields: dict[str, Any], defaults: SamplingSettings) -> None:
    refused = taken(fields, defaults)
    assert refused is None or any(refused.startswith(name) for name in fields)
