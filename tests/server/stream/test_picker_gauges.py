"""The gauges that endpoint pickers scrape, read by the picker's own rules.

The rules are those of the Gateway API inference extension and of llm-d's router: a metric is named
by a selector as PromQL has it, `name{label=value}` with or without quotes, and the latest sample
of that family whose labels fit is the value. A family without a sample is an error, so each must be
there before the first request.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, wait_until

ROOT = Path(__file__).parents[3]
WAITING, RUNNING, KV_USAGE = (
    "soliton_requests_waiting", "soliton_requests_running", "soliton_kv_usage_ratio",
)  # fmt: skip
BODY = {"prompt": "a" * 100, "max_tokens": 156, "ignore_eos": True}

SPEC = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{([^}]*)\})?\s*")
LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"?([^",}\s]*)"?\s*')


def picked(spec: str, families: dict[str, Metric]) -> float:
    """The value that a picker reads for a metric's specification."""
    match = SPEC.fullmatch(spec)
    assert match, f"not a specification: {spec}"
    pairs = (LABEL.fullmatch(pair) for pair in (match[2] or "").split(",") if pair.strip())
    wanted = {pair[1]: pair[2] for pair in pairs if pair}
    family = families[match[1]]
    assert family.type == "gauge"
    fitting = [each for each in family.samples if wanted.items() <= each.labels.items()]
    assert fitting, f"no sample for {spec}"
    return max(fitting, key=lambda each: each.timestamp or 0).value


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine) as server:
        yield server


def gauges(server: LiveServer) -> tuple[float, float, float]:
    text = server.get("/metrics").body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return picked(WAITING, families), picked(RUNNING, families), picked(KV_USAGE, families)


def test_an_idle_server_has_all_three(server: LiveServer) -> None:
    assert gauges(server) == (0, 0, 0)


def test_they_follow_what_runs_and_what_waits(server: LiveServer, fake: FakeEngine) -> None:
    fake.model.decode_gate.clear()
    socks = [server.send("/v1/completions", BODY) for _ in range(3)]
    try:
        wait_until(lambda: gauges(server)[:2] == (2, 1))
        fake.model.in_decode.wait(10)
        usage = gauges(server)[2]
        assert 90 / fake.max_seq_len <= usage <= 110 / fake.max_seq_len
    finally:
        fake.model.decode_gate.set()
        for sock in socks:
            sock.close()
    wait_until(lambda: gauges(server) == (0, 0, 0))


def test_the_documented_configuration_names_them() -> None:
    text = (ROOT / "docs" / "how-to" / "cluster.md").read_text()
    for key, name in (
        ("queuedRequestsSpec", WAITING), ("runningRequestsSpec", RUNNING), ("kvUsageSpec", KV_USAGE)
    ):  # fmt: skip
        assert re.search(rf'{key}: "?{name}"?\s', text), f"the page does not set {key}"
