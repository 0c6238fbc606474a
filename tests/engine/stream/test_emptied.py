"""Settings that leave nothing to draw are the request's own error: never the engine's, never the
end of the server, and the kept prefix stays.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

from engine import Engine, InvalidInputError, SamplingSettings
from tests.support.live_server import LiveServer, live_server
from tests.support.scripted_model import END, ScriptedModel, run
from tests.support.setting_combinations import (
    EVERY,
    REFERENCE,
    bodies,
    says_as_before,
    send,
    status_of,
)

NOTHING = {str(token_id): False for token_id in EVERY}
PATH = "/v1/completions"


@pytest.fixture(scope="module")
def served(bundled_engine: Engine) -> Iterator[tuple[LiveServer, Any]]:
    with live_server(bundled_engine) as server:
        yield server, server.post(PATH, REFERENCE).json["choices"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": NOTHING}, "logit_bias"),
        ({"logit_bias": NOTHING, "temperature": 1}, "logit_bias"),
        ({"logit_bias": NOTHING, "logprobs": 2, "negative_prompt": "x", "cfg_scale": 2},
         "logit_bias"),
        ({"banned_tokens": list(EVERY)}, "banned_tokens"),
        ({"logit_bias": {**NOTHING, "7": 0}, "banned_tokens": [7]}, "banned_tokens"),
        ({"allowed_tokens": [7], "logit_bias": {"7": False}}, "allowed_tokens"),
    ],
)  # fmt: skip
def test_many_requests_that_leave_nothing_end_themselves_alone(
    served: tuple[LiveServer, Any], fields: dict[str, Any], param: str
) -> None:
    server, choices = served
    assert says_as_before(server, choices)
    for is_stream in (False, True, False, True):
        answer = server.post(PATH, {**REFERENCE, **fields, "stream": is_stream})
        assert status_of(answer) == 400
        assert answer.error["type"] == "invalid_request_error"
        assert answer.error["param"] == param
    again = server.post(PATH, REFERENCE)
    assert again.json["choices"] == choices
    assert again.json["usage"]["prompt_tokens_details"]["cached_tokens"], "the prefix is kept"
    assert server.get("/health/ready").status == 200


def test_a_stream_that_runs_out_of_tokens_ends_with_the_error_event(
    served: tuple[LiveServer, Any], bundled_engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    server, choices = served
    ids = [token_id for token_id in EVERY
           if b"b" in bundled_engine.tokenizer.token_bytes(token_id)]  # fmt: skip
    body = {**REFERENCE, "guided_regex": "a{3}b", "stream": True,
            "logit_bias": {str(token_id): False for token_id in ids}}  # fmt: skip
    for _ in range(4):
        answer = server.post(PATH, body)
        assert answer.status == 200
        *_, error = [line[6:] for line in answer.body.decode().splitlines()
                     if line.startswith('data: {"error"')]  # fmt: skip
        assert json.loads(error)["error"]["type"] == "invalid_request_error"
    assert not caplog.records, "a client's own error does not belong in the log"
    assert says_as_before(server, choices)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=bodies())
@example(body={**REFERENCE, "logit_bias": NOTHING, "stream": True})
@example(body={**REFERENCE, "temperature": 100, "skew": 10, "smoothing_factor": 100})
@example(body={**REFERENCE, "negative_prompt": "x", "cfg_scale": -100, "temperature": 1})
@example(body={**REFERENCE, "allowed_tokens": [2], "banned_tokens": [2], "min_tokens": 2})
def test_no_combination_of_settings_counts_as_a_broken_engine(
    served: tuple[LiveServer, Any], body: dict[str, Any]
) -> None:
    server, _ = served
    status, answer = send(server, body)
    assert status in (200, 400), answer.body[:500]


def test_the_server_answers_as_before(served: tuple[LiveServer, Any]) -> None:
    assert says_as_before(*served)


def test_guidance_that_leaves_no_numbers_is_the_requests_own_error() -> None:
    model = ScriptedModel([*b"abc", END])
    model.fault = lambda position: -math.inf if position == 2 else 0.0
    generator = model.generator()
    for _ in range(2):
        begun = generator.begin_stream_ex(
            [1, 2], SamplingSettings(temperature=0), negative_ids=[1, 3], cfg_scale=2.0
        )
        with (
            np.errstate(all="ignore"),
            pytest.raises(InvalidInputError, match="into NaN or infinity") as error,
        ):
            run(generator)
        assert error.value.param == "cfg_scale"
    assert begun.n_cached == 1, "what is known of the prompt is kept"
