"""GET /metrics: what this server has done, in the format of Prometheus.

Owns the names, labels and buckets of all metrics, in one registry per app. A request is counted
when it has been answered, and a completion when it has ended; nothing runs per token. Every label
has few values: routes, statuses and words of this program.
"""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from starlette.types import Scope

from ..errors import UnavailableError
from ..lease.lease import EngineLease, Ticket
from ..lease.shelf import Shelf
from .llama_metrics import LlamaMetrics
from .model_metrics import ModelMetrics
from .stream import CompletionStream

# Seconds. A token takes from a tenth of a millisecond to seconds, a long prompt minutes.
_WAITS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_STEPS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
# For requests that no route handled: a wrong path, a missing key.
_NO_ROUTE = "none"


class Metrics:
    """The metrics of one app. Thread-safe: requests end on the event loop, completions on the
    engine thread.
    """

    def __init__(self, lease: EngineLease, shelf: Shelf) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"soliton_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"soliton_{name}", text, labels, buckets=buckets, registry=registry)

        self._requests = counter("requests", "HTTP requests answered.", "route", "status")
        self._request_seconds = histogram(
            "request_seconds", "From a request's arrival to its last byte.", _WAITS, "route"
        )
        self._completions = counter(
            "completions", "Choices, by the engine's word for their end, or error.", "reason"
        )
        self._prompt = counter("prompt_tokens", "Tokens of prompts.")
        self._cached = counter("cached_prompt_tokens", "Those that were not computed again.")
        self._generated = counter("completion_tokens", "Tokens generated.")
        self._reuses = counter(
            "prefix_cache_lookups", "Prompts, by where their beginning was found.", "source"
        )
        self._drafted = counter("draft_tokens", "Drafted tokens that were judged.", "origin")
        self._accepted = counter("draft_tokens_accepted", "Those that came true.", "origin")
        self._queued = histogram("queue_seconds", "Wait for the engine.", _WAITS)
        self._first = histogram(
            "time_to_first_token_seconds", "From a request's arrival to its first token.", _WAITS
        )
        self._each = histogram(
            "time_per_token_seconds", "From token to token, the mean of a request.", _STEPS
        )

        def gauge(name: str, text: str, value: Callable[[], float]) -> None:
            Gauge(f"soliton_{name}", text, registry=registry).set_function(value)

        gauge("queue_length", "Requests that wait.", lambda: lease.n_waiting)
        gauge("engine_busy", "1 while one is in the engine.", lambda: lease.busy)
        # What endpoint pickers read. One sequence fills its context only while it is in the engine:
        # what is kept after it gives way to the next one.
        gauge("requests_waiting", "Requests that wait.", lambda: lease.n_waiting)
        gauge("requests_running", "Requests in the engine.", lambda: lease.busy)
        gauge(
            "kv_usage_ratio",
            "Share of the context that the running request fills.",
            lambda: _kv_usage(lease.running),
        )
        self._models = ModelMetrics(lease, shelf)
        registry.register(self._models)
        self._llama = LlamaMetrics(lease)
        registry.register(self._llama)

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """A request has been answered completely, or given up."""
        route = route_of(scope)
        self._requests.labels(route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def ended(self, stream: CompletionStream) -> None:
        """A stream that was in the engine has ended, with or without an error."""
        self._llama.ended(stream)
        self._models.ended(stream)
        counts, clocks = stream.counts, stream.clocks
        self._prompt.inc(counts.n_prompt)
        self._cached.inc(counts.n_cached)
        self._generated.inc(counts.n_completion)
        for end in stream.ends:
            self._completions.labels(end.eos_reason).inc()
            self._reuses.labels(end.reuse.source).inc()
            for origin, count in end.drafts.items():
                self._drafted.labels(origin).inc(count.drafted)
                self._accepted.labels(origin).inc(count.accepted)
        if stream.error is not None and not isinstance(stream.error, UnavailableError):
            self._completions.labels("error").inc()
        self._queued.observe(clocks.queued_s)
        if clocks.first_token_s is not None:
            self._first.observe(clocks.first_token_s)
        if counts.n_completion:
            self._each.observe(clocks.decode_s / counts.n_completion)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


def _kv_usage(running: Ticket | None) -> float:
    """The share of its model's context that the sequence in the engine fills."""
    if running is None or running.model is None:
        return 0.0
    engine = running.model.engine
    return engine.generator.n_held / engine.max_seq_len


def route_of(scope: Scope) -> str:
    """The path of the route that handled the request, as declared."""
    route = scope.get("route")
    if route is None and "endpoint" in scope:  # Starlette's own routes set only the endpoint
        endpoint = scope["endpoint"]
        routes = scope["app"].routes
        route = next((each for each in routes if getattr(each, "endpoint", 0) is endpoint), None)
    return getattr(route, "path", _NO_ROUTE)
