"""The metrics of several replicas on one page."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from server.cluster.merged_metrics import merged


def page(value: int) -> str:
    registry = CollectorRegistry()
    Gauge("queue", "Wait.", registry=registry).set(value)
    counter = Counter("requests", "All.", ["route"], registry=registry)
    counter.labels('/a"b\\').inc(value)
    counter.labels("/c").inc(1)
    Histogram("seconds", "Time.", buckets=(1.0,), registry=registry).observe(value)
    return generate_latest(registry).decode()


def test_each_sample_has_its_replica_and_each_family_is_whole() -> None:
    text = merged([("aaaa", page(2)), ("bbbb", page(3))])
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "a family must not be split"
    samples = {
        (sample.name, sample.labels["replica"], sample.labels.get("route")): sample.value
        for family in families
        for sample in family.samples
        if "le" not in sample.labels
    }
    assert samples["queue", "aaaa", None] == 2
    assert samples["queue", "bbbb", None] == 3
    assert samples["requests_total", "bbbb", '/a"b\\'] == 3
    assert samples["seconds_sum", "aaaa", None] == 2
    assert [family.type for family in families if family.name == "seconds"] == ["histogram"]


def test_a_replica_without_metrics_adds_nothing() -> None:
    assert merged([]) == ""
    assert merged([("aaaa", "")]) == ""
