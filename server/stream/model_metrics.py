"""What each model has done, whether it is in memory, and what loading it took, for GET /metrics.

Owns the names. What is of the shelf and the queue is read when it is asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from ..lease.lease import EngineLease
from ..lease.shelf import Shelf
from .stream import CompletionStream

_LABELS = ["model"]


@dataclass(slots=True)
class _Done:
    """Sums over the requests that a model has answered."""

    n_requests: int = 0
    n_prompt: int = 0
    n_cached: int = 0
    n_completion: int = 0
    seconds: float = 0.0


class ModelMetrics(Collector):
    """One value per model of the server; their number is fixed. Streams are counted on the engine
    thread, and read on the event loop.
    """

    def __init__(self, lease: EngineLease, shelf: Shelf) -> None:
        self._lease = lease
        self._models = shelf.models
        self._done = {model.name: _Done() for model in shelf.models}

    def ended(self, stream: CompletionStream) -> None:
        done, counts, clocks = self._done[stream.model.name], stream.counts, stream.clocks
        done.n_requests += 1
        done.n_prompt += counts.n_prompt
        done.n_cached += counts.n_cached
        done.n_completion += counts.n_completion
        done.seconds += clocks.prefill_s + clocks.decode_s

    @override
    def collect(self) -> Iterator[Metric]:
        loaded = _gauge("loaded", "1 while the weights are in memory.")
        seconds = _gauge("load_seconds", "Of the last time that they were loaded.")
        loads = _counter("loads", "Times that they were loaded.")
        failed = _counter("loads_failed", "Times that this failed.")
        waiting = _gauge("requests_waiting", "Requests that wait for this model.")
        requests = _counter("requests", "Requests that were in the engine.")
        prompt = _counter("prompt_tokens", "Tokens of their prompts.")
        cached = _counter("cached_prompt_tokens", "Those that were not computed again.")
        generated = _counter("completion_tokens", "Tokens generated.")
        busy = _counter("engine_seconds", "Time in the engine.")
        for model in self._models:
            label, done = [model.name], self._done[model.name]
            loaded.add_metric(label, model.is_loaded)
            seconds.add_metric(label, model.loads.seconds)
            loads.add_metric(label, model.loads.n)
            failed.add_metric(label, model.loads.n_failed)
            waiting.add_metric(label, self._lease.n_waiting_for(model))
            requests.add_metric(label, done.n_requests)
            prompt.add_metric(label, done.n_prompt)
            cached.add_metric(label, done.n_cached)
            generated.add_metric(label, done.n_completion)
            busy.add_metric(label, done.seconds)
        yield from (loaded, seconds, loads, failed, waiting, requests)
        yield from (prompt, cached, generated, busy)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"soliton_model_{name}", text, labels=_LABELS)


def _counter(name: str, text: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"soliton_model_{name}", text, labels=_LABELS)
