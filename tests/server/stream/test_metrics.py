"""GET /metrics: what has happened, counted once, in a format that Prometheus reads."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import Response

from tests.engine.draft.test_speculation import load_drafting
from tests.support.asgi_client import paths_of
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, wait_until

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BODY = {"model": "fake", "prompt": "hello", "max_tokens": 4}

Sample = tuple[str, frozenset[tuple[str, str]]]


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine) as server:
        yield server


def scraped(server: LiveServer) -> dict[Sample, float]:
    answer = server.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def value(samples: dict[Sample, float], name: str, **labels: str) -> float:
    return samples.get((f"soliton_{name}", frozenset(labels.items())), 0.0)


def test_requests_count_by_route_and_status_and_tokens_once(server: LiveServer) -> None:
    for stream in (False, True, True):
        assert server.post(COMPLETIONS, {**BODY, "stream": stream}).status == 200
    assert server.post(COMPLETIONS, {**BODY, "temperature": -1}).status == 400
    assert server.get("/no/such/route").status == 404
    samples = scraped(server)
    assert value(samples, "requests_total", route=COMPLETIONS, status="200") == 3
    assert value(samples, "requests_total", route=COMPLETIONS, status="400") == 1
    assert value(samples, "requests_total", route="none", status="404") == 1
    assert value(samples, "request_seconds_count", route=COMPLETIONS) == 4
    assert value(samples, "completions_total", reason="length") == 3
    assert value(samples, "prompt_tokens_total") == 3 * len("hello")
    assert value(samples, "completion_tokens_total") == 3 * 4
    for name in ("queue", "time_to_first_token", "time_per_token"):
        assert value(samples, f"{name}_seconds_count") == 3
    assert value(scraped(server), "requests_total", route="/metrics", status="200") == 1


def test_every_route_counts_under_its_own_path(server: LiveServer) -> None:
    server.app.add_route("/later", lambda _: Response("x"))
    paths = [path for path, _ in paths_of(server.app.routes)]
    assert {"/openapi.json", "/later", "/health/live", "/version"} <= set(paths)
    of_one = r"/(streams|chat/completions|responses)/|/ui/\{|/models/(un)?load"
    for path in paths:
        is_of_one = re.search(of_one, path)
        assert server.get(path).status in ((404, 405) if is_of_one else (200, 307, 405))
    labels = {dict(labels).get("route") for name, labels in scraped(server)}
    assert {path.replace("/fake", "/{model_id:path}") for path in paths} <= labels | {
        "/v1/chat/completions/control",
        "/v1/chat/completions/input_tokens",
        "/v1/models/load",
        "/v1/models/unload",
        "/v1/responses/compact",
        "/v1/responses/input_tokens",
    }
    assert "none" not in labels


def test_what_a_prompt_reused_is_counted_with_its_source(server: LiveServer) -> None:
    for prompt in ("hello", "hello", "help", "world"):
        server.post(COMPLETIONS, {**BODY, "prompt": prompt})
    samples = scraped(server)
    assert value(samples, "prefix_cache_lookups_total", source="none") == 2
    assert value(samples, "prefix_cache_lookups_total", source="active") == 2
    # All of "hello" but its last letter, which is always computed, and "hel" of "help".
    assert value(samples, "cached_prompt_tokens_total") == 4 + 3


def test_errors_and_hang_ups_count_as_such(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.faults[1] = RuntimeError("planted")
    server.post(COMPLETIONS, {**BODY, "stream": True})
    samples = scraped(server)
    assert value(samples, "completions_total", reason="error") == 1
    fake.model.decode_gate.clear()
    fake.model.in_decode.clear()
    with server.send(COMPLETIONS, {**BODY, "stream": True}):
        wait_until(fake.model.in_decode.is_set)
        assert value(scraped(server), "engine_busy") == 1
        with server.send(COMPLETIONS, BODY):
            wait_until(lambda: value(scraped(server), "queue_length") == 1)
    wait_until(lambda: value(scraped(server), "queue_length") == 0)
    fake.model.decode_gate.set()
    wait_until(lambda: value(scraped(server), "completions_total", reason="aborted") == 1)
    assert value(scraped(server), "engine_busy") == 0


def test_two_apps_count_for_themselves(fake: FakeEngine) -> None:
    with live_server(fake.as_engine) as one, live_server(FakeEngine().as_engine) as other:
        one.post(COMPLETIONS, BODY)
        assert value(scraped(one), "completions_total", reason="length") == 1
        assert value(scraped(other), "completions_total", reason="length") == 0


def test_drafts_count_by_their_origin(tiny_model: Path) -> None:
    engine = load_drafting(tiny_model, speculate="ngram")  # no clock decides how long a draft is
    with live_server(engine) as server:
        body = {
            "model": engine.model_id, "prompt": "abcabcabcabcabc", "max_tokens": 60,
            "temperature": 0, "ignore_eos": True,
        }  # fmt: skip
        for _ in range(3):
            assert server.post(COMPLETIONS, body).status == 200
        samples = scraped(server)
    drafted = value(samples, "draft_tokens_total", origin="ngram")
    accepted = value(samples, "draft_tokens_accepted_total", origin="ngram")
    assert drafted >= accepted > 0


def test_with_keys_the_metrics_need_one(fake: FakeEngine) -> None:
    with live_server(fake.as_engine, api_keys=("key",)) as server:
        assert server.get("/metrics").status == 401
        assert server.get("/metrics", authorization="Bearer key").status == 200


def test_labels_stay_few_whatever_is_asked_for(server: LiveServer) -> None:
    before = len(scraped(server))
    server.get("/v1/models/a")
    after_one = len(scraped(server))
    for index in range(20):
        server.get(f"/v1/models/{index}")
        server.get(f"/nothing/{index}")
        server.request(f"METHOD{index}", "/v1/models")
    assert len(scraped(server)) - after_one <= 3 * (after_one - before) + 40
