"""Which models are in memory, and what loading them took, for GET /metrics.

Owns the names. The figures are the shelf's, read when they are asked for.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from ..lease.shelf import Shelf

_LABELS = ["model"]


class ModelMetrics(Collector):
    """One value per model of the server; their number is fixed."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    @override
    def collect(self) -> Iterator[Metric]:
        loaded = GaugeMetricFamily(
            "soliton_model_loaded", "1 while the weights are in memory.", labels=_LABELS
        )
        seconds = GaugeMetricFamily(
            "soliton_model_load_seconds", "Of the last time that they were loaded.", labels=_LABELS
        )
        loads = CounterMetricFamily(
            "soliton_model_loads", "Times that they were loaded.", labels=_LABELS
        )
        failed = CounterMetricFamily(
            "soliton_model_loads_failed", "Times that this failed.", labels=_LABELS
        )
        for model in self._shelf.models:
            label = [model.name]
            loaded.add_metric(label, model.is_loaded)
            seconds.add_metric(label, model.loads.seconds)
            loads.add_metric(label, model.loads.n)
            failed.add_metric(label, model.loads.n_failed)
        yield from (loaded, seconds, loads, failed)
