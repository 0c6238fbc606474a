"""Spans of OpenTelemetry: where the time of each request went, sent to a collector.

Owns the names of spans and attributes, and the exporter. The spans of a request are made when it
has ended, from the times that its stream kept; nothing runs per token. Shows nothing of a body, a
query, or a header other than the trace context that the client sent along.
"""

import threading
import time

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Receive, Scope, Send

from ..http.auth import HEALTH_PATHS
from ..version import own_version
from .metrics import route_of
from .stream import CompletionStream

_PROPAGATOR = TraceContextTextMapPropagator()
# Probes come every second.
_UNTRACED = HEALTH_PATHS | {"/metrics"}
# What a shutdown waits for a collector that does not answer.
_CLOSING_S = 2.0
_NS = 1_000_000_000


class Spans:
    """The exporter of one app. Thread-safe."""

    def __init__(self, endpoint: str) -> None:
        """`endpoint`: URL of a collector that takes OTLP over HTTP. The names of the SDK
        (OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, …) hold beside it.
        """
        named = Resource({"service.name": "soliton", "service.version": own_version()})
        resource = named.merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("soliton")

    def traced(self, app: ASGIApp) -> "Traced":
        """The middleware around `app`."""
        return Traced(app, self)

    def close(self) -> None:
        """Send what is left. Blocks; what the collector does not take soon is dropped."""
        # The SDK has no limit of its own for this that holds.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSING_S)
        if closing.is_alive():
            # Ends the wait before the next attempt, so that no thread outlives the app.
            self._exporter.shutdown()  # type: ignore[no-untyped-call]
            closing.join(_CLOSING_S)

    def ended(self, scope: Scope, began_ns: int, stream: CompletionStream | None) -> None:
        """A request has ended. `began_ns`: since the epoch."""
        state, method, route = scope["state"], scope["method"], route_of(scope)
        status = int(state.get("refused") or state.get("status") or 0)
        span = self._tracer.start_span(
            f"{method} {route}",
            context=_context_of(scope),
            kind=SpanKind.SERVER,
            start_time=began_ns,
            attributes={
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
                "soliton.request_id": str(state.get("request_id", "")),
            },
        )
        if stream is not None:
            self._stream_ended(span, stream)
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _stream_ended(self, span: Span, stream: CompletionStream) -> None:
        counts = stream.counts
        span.set_attributes(
            {
                "gen_ai.provider.name": "soliton",
                "gen_ai.request.model": stream.model.name,
                "gen_ai.usage.input_tokens": counts.n_prompt,
                "gen_ai.usage.cache_read.input_tokens": counts.n_cached,
                "gen_ai.usage.output_tokens": counts.n_completion,
                "gen_ai.response.finish_reasons": [end.eos_reason for end in stream.ends],
                "soliton.choices": len(stream.jobs),
            }
        )
        if stream.was_abandoned:
            span.set_attribute("error.type", "client_disconnected")
        elif stream.error is not None:
            span.set_attribute("error.type", type(stream.error).__name__)
            span.set_status(Status(StatusCode.ERROR))
        self._parts(span, stream)

    def _parts(self, span: Span, stream: CompletionStream) -> None:
        """Its children, one after the other; several choices count together in each."""
        ticket, clocks = stream.ticket, stream.clocks
        left_queue = ticket.admitted_at or ticket.freed_at or ticket.queued_at
        # The times of a stream are of the monotonic clock.
        queued_ns = time.time_ns() - int((time.monotonic() - ticket.queued_at) * _NS)
        admitted_ns = queued_ns + int((left_queue - ticket.queued_at) * _NS)
        prefilled_ns = admitted_ns + int(clocks.prefill_s * _NS)
        decoded_ns = prefilled_ns + int(clocks.decode_s * _NS)
        parts = [("queue", queued_ns, admitted_ns)]
        if ticket.admitted_at is not None:
            parts += [("prefill", admitted_ns, prefilled_ns), ("decode", prefilled_ns, decoded_ns)]
        for name, began_ns, ended_ns in parts:
            part = self._tracer.start_span(
                name, context=set_span_in_context(span), start_time=began_ns
            )
            if name == "prefill":
                for end in stream.ends:
                    found = {"source": end.reuse.source, "tokens": end.reuse.n_reused}
                    part.add_event("cache", found, timestamp=began_ns)
            part.end(ended_ns)


def _context_of(scope: Scope) -> Context:
    """The trace that the client is in."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return _PROPAGATOR.extract(headers)


class Traced:
    """ASGI middleware inside the access log: see AccessLog for where it finds the stream."""

    def __init__(self, app: ASGIApp, spans: Spans) -> None:
        self._app = app
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _UNTRACED:
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        began_ns = time.time_ns()
        try:
            await self._app(scope, receive, send)
        finally:
            stream: CompletionStream | None = state.get("stream")
            try:
                if stream is not None:
                    await stream.left()
            finally:
                self._spans.ended(scope, began_ns, stream)
