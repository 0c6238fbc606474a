"""What this server has done, by llama-server's names, for dashboards that know only these.

Owns the names. One that counts what has no counterpart here, such as calls of a batch, is left out.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from ..lease.lease import EngineLease
from .stream import CompletionStream

_PREFIX = "llamacpp:"


class LlamaMetrics(Collector):
    """Streams are counted on the engine thread, and read on the event loop."""

    def __init__(self, lease: EngineLease) -> None:
        self._lease = lease
        self._n_computed = self._n_cached = self._n_predicted = self._n_most = 0
        self._n_drafted = self._n_accepted = self._n_rounds = 0
        self._prompt_s = self._predicted_s = 0.0

    def ended(self, stream: CompletionStream) -> None:
        counts, clocks = stream.counts, stream.clocks
        self._n_computed += counts.n_prompt - counts.n_cached
        self._n_cached += counts.n_cached
        self._n_predicted += counts.n_completion
        self._n_most = max(self._n_most, counts.n_prompt + counts.n_completion)
        self._n_drafted += counts.n_drafted
        self._n_accepted += counts.n_accepted
        self._n_rounds += sum(count.rounds for end in stream.ends for count in end.drafts.values())
        self._prompt_s += clocks.prefill_s
        self._predicted_s += clocks.decode_s

    @override
    def collect(self) -> Iterator[Metric]:
        counters: dict[str, tuple[str, float]] = {
            "prompt_tokens": ("Tokens of prompts that were computed.", self._n_computed),
            "prompt_tokens_cached": ("Those that were not.", self._n_cached),
            "prompt_seconds": ("Computing prompts.", self._prompt_s),
            "tokens_predicted": ("Tokens generated.", self._n_predicted),
            "tokens_predicted_seconds": ("Generating them.", self._predicted_s),
            "spec_decode_num_draft_tokens": ("Drafted tokens judged.", self._n_drafted),
            "spec_decode_num_accepted_tokens": ("Those that came true.", self._n_accepted),
            "spec_decode_num_drafts": ("Passes over drafts.", self._n_rounds),
        }
        gauges: dict[str, tuple[str, float]] = {
            "prompt_tokens_seconds": (
                "Tokens of prompts per second.",
                _ratio(self._n_computed, self._prompt_s),
            ),
            "predicted_tokens_seconds": (
                "Generated tokens per second.",
                _ratio(self._n_predicted, self._predicted_s),
            ),
            "requests_processing": ("Requests in the engine.", self._lease.busy),
            "requests_deferred": ("Requests that wait.", self._lease.n_waiting),
            "n_tokens_max": ("The longest prompt and text of a request.", self._n_most),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"{_PREFIX}{name}", text, value)
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"{_PREFIX}{name}", text, value)


def _ratio(value: float, by: float) -> float:
    return value / by if by else 0.0
