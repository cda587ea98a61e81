"""A consumer's metrics in prometheus-client: names, labels, units, and the text that it serves."""

from __future__ import annotations

import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict_families

from remote_fetch import RemoteConsumer, errors
from remote_fetch.consumer.metrics import Metrics
from remote_fetch.consumer.prometheus import PrometheusCollector
from remote_fetch.errors import MissingExtra
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.observe import Fallback, RangeFetched, RangeRetried

NAMES = {"client_id": "billing-1", "group": "billing"}
FIRST = TopicIdPartition(Uuid(bytes(16)), "or-ders", 0)
SECOND = TopicIdPartition(Uuid(bytes(16)), "or-ders", 12)


@pytest.fixture
def metrics() -> Metrics:
    metrics = Metrics("billing-1", "billing")
    metrics(RangeFetched(FIRST, 1_000, 0.25))
    metrics(RangeFetched(SECOND, 500, 0.5))
    metrics(RangeFetched(SECOND, 500, 1.5))
    metrics(RangeRetried(SECOND, "throttled"))
    metrics(Fallback(SECOND, 5, 9, "auth"))
    metrics.count_broker_records(2, 70)
    return metrics


@pytest.fixture
def registry(metrics: Metrics) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(metrics.snapshot))
    return registry


@pytest.mark.parametrize(
    ("name", "partition", "reason", "value"),
    [
        ("requests_total", "0", None, 1),
        ("requests_total", "12", None, 2),
        ("bytes_total", "12", None, 1_000),
        ("errors_total", "12", "throttled", 1),
        ("errors_total", "12", "auth", 1),
        ("fallbacks_total", "12", "auth", 1),
        ("fallbacks_total", "12", "throttled", None),
        ("fallbacks_total", "0", "auth", None),
        ("latency_seconds_avg", "0", None, 0.25),
        ("latency_seconds_avg", "12", None, 1.0),
        ("latency_seconds_max", "12", None, 1.5),
    ],
)
def test_a_metric_of_a_partition(
    registry: CollectorRegistry, name: str, partition: str, reason: str | None, value: float | None
) -> None:
    labels = {**NAMES, "topic": "or-ders", "partition": partition} | ({} if reason is None else {"reason": reason})
    assert registry.get_sample_value(f"kafka_remote_fetch_{name}", labels) == value


def test_records_through_the_broker(registry: CollectorRegistry) -> None:
    assert registry.get_sample_value("kafka_remote_fetch_broker_records_total", NAMES) == 2
    assert registry.get_sample_value("kafka_remote_fetch_broker_bytes_total", NAMES) == 70


def test_the_totals_of_the_consumer(registry: CollectorRegistry) -> None:
    assert registry.get_sample_value("kafka_remote_fetch_consumer_requests_total", NAMES) == 3
    assert registry.get_sample_value("kafka_remote_fetch_consumer_errors_total", {**NAMES, "reason": "auth"}) == 1


def test_each_collection_has_the_present_numbers(registry: CollectorRegistry, metrics: Metrics) -> None:
    labels = {**NAMES, "topic": "or-ders", "partition": "0"}
    metrics(RangeFetched(FIRST, 24, 0.25))
    assert registry.get_sample_value("kafka_remote_fetch_bytes_total", labels) == 1_024


@pytest.mark.parametrize("snapshot", [{}, Metrics().snapshot()], ids=["an empty snapshot", "no event yet"])
def test_counters_of_a_new_consumer_are_0(snapshot: dict[str, object]) -> None:
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(lambda: snapshot))
    served = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    assert len(served) > 20
    assert all(line.endswith(" 0.0") for line in served)
    assert 'kafka_remote_fetch_consumer_fallbacks_total{client_id="",group="",reason="read-timeout"} 0.0' in served


def page(registry: CollectorRegistry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The values of all series, read by a parser that checks the format strictly."""
    series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    for family in strict_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            name = sample.name, frozenset(sample.labels.items())
            assert name not in series
            series[name] = sample.value
    return series


def values(registry: CollectorRegistry, metric: str) -> dict[str, float]:
    """The values of a metric of the consumer, by `client_id`."""
    return {dict(labels)["client_id"]: value for (name, labels), value in page(registry).items() if name == metric}


def test_two_consumers_share_a_registry() -> None:
    first, second = Metrics("billing-1", "billing"), Metrics("billing-2", "billing")
    collector = PrometheusCollector(first.snapshot)
    registry = CollectorRegistry()
    registry.register(collector)
    collector.add(second.snapshot)
    first(RangeFetched(FIRST, 1_000, 0.25))
    second(RangeFetched(FIRST, 5, 0.25))
    for metric in ("kafka_remote_fetch_bytes_total", "kafka_remote_fetch_consumer_bytes_total"):
        assert values(registry, metric) == {"billing-1": 1_000, "billing-2": 5}
    collector.remove(first.snapshot)
    assert values(registry, "kafka_remote_fetch_consumer_bytes_total") == {"billing-2": 5}


def test_consumers_of_one_configuration_are_numbered() -> None:
    collector = PrometheusCollector()
    registry = CollectorRegistry()
    registry.register(collector)
    assert page(registry) == {}
    consumers = [RemoteConsumer({"group.id": "billing"}) for _ in range(4)]
    for records, consumer in enumerate(consumers[:3]):
        consumer._metrics.count_broker_records(records, 0)
        collector.add(consumer.remote_metrics)
        collector.add(consumer.remote_metrics)
    metric = "kafka_remote_fetch_broker_records_total"
    assert values(registry, metric) == {"rdkafka": 0, "rdkafka#2": 1, "rdkafka#3": 2}
    collector.remove(consumers[1].remote_metrics)
    collector.add(consumers[3].remote_metrics)
    assert values(registry, metric) == {"rdkafka": 0, "rdkafka#2": 0, "rdkafka#3": 2}
    for consumer in consumers:
        consumer.close()


@pytest.mark.parametrize("describes", [True, False])
def test_a_registry_refuses_a_second_collector(describes: bool) -> None:
    """Each metric would be served twice, which Prometheus refuses."""
    registry = CollectorRegistry(auto_describe=describes)
    registry.register(PrometheusCollector(Metrics("a").snapshot))
    with pytest.raises(ValueError, match="kafka_remote_fetch_requests"):
        registry.register(PrometheusCollector(Metrics("b").snapshot))


def test_each_error_that_ends_or_repeats_a_read_is_a_reason_at_0() -> None:
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(Metrics().snapshot))
    kinds = {
        error.kind
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.RemoteFetchError) and "kind" in vars(error)
        if error.falls_back or error.retriable
    }
    served = generate_latest(registry).decode()
    assert [kind for kind in kinds if f'reason="{kind}"' not in served] == []


def test_without_prometheus_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtra) as raised:
        PrometheusCollector(dict)
    assert raised.value.extra == "metrics"
    assert 'pip install "remote-fetch[metrics]"' in str(raised.value)
