"""Spans over real sockets, as a collector gets them: OTLP over HTTP, parsed with its own schema."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from server.settings import Settings
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, wait_until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BODY = {"prompt": "canary-prompt", "max_tokens": 3}
Served = tuple[LiveServer, Callable[[], list[Any]]]


class Collector(ThreadingHTTPServer):
    """What a collector does with traces: it keeps the spans."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans = list[Any]()
        self.services = set[str]()
        self.bodies = list[bytes]()


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for name, value in attributes(resource.resource).items():
                if name == "service.name":
                    self.server.services.add(value)
            self.server.spans += [s for each in resource.scope_spans for s in each.spans]
        self.send_response(200 if self.path == "/v1/traces" else 404)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def attributes(of: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        yield collector
        collector.shutdown()
        thread.join()


@contextmanager
def traced(fake: FakeEngine, collector: Collector) -> Iterator[LiveServer]:
    """Its spans are there when it has ended."""
    url = f"http://127.0.0.1:{collector.server_port}"
    with live_server(fake.as_engine, otlp_endpoint=url) as server:
        yield server


@pytest.mark.parametrize("stream", [True, False])
def test_a_completion_is_a_span_with_its_parts(
    fake: FakeEngine, collector: Collector, stream: bool
) -> None:
    with traced(fake, collector) as server:
        parent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine-1"}
        body = {**BODY, "n": 2, "stream": stream}
        assert server.post("/v1/completions", body, **parent).status == 200
    whole, *parts = sorted(collector.spans, key=lambda span: span.parent_span_id.hex() != PARENT)
    assert whole.name == "POST /v1/completions"
    assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (TRACE, PARENT)
    told = attributes(whole)
    assert told["http.response.status_code"] == 200
    assert told["soliton.request_id"] == "mine-1"
    assert told["gen_ai.usage.input_tokens"] == len("canary-prompt")
    assert told["gen_ai.usage.output_tokens"] == 6
    assert told["soliton.choices"] == 2
    parts.sort(key=lambda span: span.start_time_unix_nano)
    assert [part.name for part in parts] == ["queue", "prefill", "decode"]
    assert all(part.parent_span_id == whole.span_id for part in parts)
    assert all(part.trace_id == whole.trace_id for part in parts)
    for before, after in pairwise(parts):
        assert before.end_time_unix_nano == after.start_time_unix_nano
    assert whole.start_time_unix_nano <= parts[0].start_time_unix_nano
    assert [event.name for event in parts[1].events] == ["cache", "cache"]
    assert attributes(parts[1].events[0])["source"] == "none"
    assert collector.services == {"soliton"}


def test_nothing_of_a_request_is_shown(fake: FakeEngine, collector: Collector) -> None:
    with traced(fake, collector) as server:
        server.post("/v1/completions?canary-query=1", {**BODY, "user": "canary-user"})
        server.post("/v1/completions", {**BODY, "temperature": "canary-value"})
    assert len(collector.bodies) > 0
    assert not any(b"canary" in body for body in collector.bodies)


def test_errors_are_marked_and_probes_have_no_span(fake: FakeEngine, collector: Collector) -> None:
    with traced(fake, collector) as server:
        server.get("/health")
        server.get("/metrics")
        assert server.post("/v1/completions", {**BODY, "temperature": -1}).status == 400
        fake.faults["token", 0] = ValueError("broken")
        server.post("/v1/completions", BODY)
    spans = {attributes(s).get("http.response.status_code"): s for s in collector.spans}
    assert {span.name for span in collector.spans} >= {"POST /v1/completions"}
    assert not any("/health" in span.name or "/metrics" in span.name for span in collector.spans)
    assert spans[400].status.code == 0, "the client's mistake"
    assert spans[500].status.code == 2


def test_a_dead_collector_costs_nothing(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "600")  # it would try on for a minute
    before = set(threading.enumerate())
    with live_server(fake.as_engine, otlp_endpoint="http://127.0.0.1:9") as server:
        assert server.post("/v1/completions", BODY).status == 200
    wait_until(lambda: set(threading.enumerate()) <= before, seconds=15)


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be a URL such as http://127\.0\.0\.1:4318"):
        Settings(otlp_endpoint="127.0.0.1:4318")
