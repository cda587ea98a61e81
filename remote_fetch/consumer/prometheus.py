"""The metrics of a consumer for prometheus-client.

Rules of the file:

- prometheus-client is an extra. It is imported when a collector is made, and nothing is registered here.
- Every series names its consumer by the labels `client_id` and `group`, so that several consumers share a registry.
- A counter is 0 before it counts: `increase()` does not see a series that begins with its first event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from remote_fetch.consumer.feed import Ending
from remote_fetch.errors import ErrorKind, MissingExtra

__all__ = ["PrometheusCollector"]

_CONSUMER = ("client_id", "group")
_PARTITION = (*_CONSUMER, "topic", "partition")
_REASONS = (
    ErrorKind.READ_TIMEOUT, ErrorKind.CONNECT_TIMEOUT, ErrorKind.AUTH, ErrorKind.THROTTLED, ErrorKind.UNAVAILABLE,
    ErrorKind.NOT_FOUND, ErrorKind.CORRUPT, ErrorKind.FORMAT, ErrorKind.TRUNCATED, ErrorKind.UNLOCATABLE,
    ErrorKind.NOT_CONFIGURED, Ending.UNANSWERED,
)  # fmt: skip
"""The reasons that a consumer's totals have from the beginning."""


class PrometheusCollector:
    """A collector over `RemoteConsumer.remote_metrics`, which the application registers: one for each consumer.

        prometheus_client.REGISTRY.register(PrometheusCollector(consumer.remote_metrics))

    All metrics begin with `kafka_remote_` and have the labels `client_id` and `group`:

    - of a partition, with `topic` and `partition`: `fetch_{requests,bytes}_total`, with `reason` too
      `fetch_{errors,fallbacks}_total`, `fetch_latency_seconds_{avg,max}`,
      `metadata_{orphan_updates,malformed_records}_total`;
    - of the consumer: `fetch_consumer_{requests,bytes}_total`, with `reason` too
      `fetch_consumer_{errors,fallbacks}_total`, and `fetch_broker_{records,bytes}_total`.

    Raises MissingExtra without prometheus-client.
    """

    def __init__(self, snapshot: Callable[[], dict[str, Any]]) -> None:
        try:
            from prometheus_client import core  # noqa: PLC0415 - optional
        except ImportError as error:
            raise MissingExtra(
                "metrics for Prometheus need prometheus-client",
                extra="metrics",
                hint='pip install "remote-fetch[metrics]"',
            ) from error
        self._core = core
        self._snapshot = snapshot

    def describe(self) -> list[Any]:
        """Nothing: a registry refuses a second collector that describes metrics of the same names."""
        return []

    def collect(self) -> Iterator[Any]:
        """The metrics now."""
        snapshot = self._snapshot()
        consumer = [snapshot.get("client-id", ""), snapshot.get("group", "")]
        scopes = [
            ([*consumer, *_named(name)], numbers) for name, numbers in sorted(snapshot.get("partitions", {}).items())
        ]
        yield from self._counts("", _PARTITION, scopes, ())
        yield from self._counts("consumer_", _CONSUMER, [(consumer, snapshot)], _REASONS)
        for kind in ("avg", "max"):
            name = f"kafka_remote_fetch_latency_seconds_{kind}"
            gauge = self._core.GaugeMetricFamily(
                name, f"KIP-1254 remote-fetch-latency-{kind}, over half a minute", labels=_PARTITION
            )
            for labels, numbers in scopes:
                gauge.add_metric(labels, numbers[f"remote-fetch-latency-{kind}"] / 1000)
            yield gauge
        for kind in ("orphan-updates", "malformed-records"):
            name = f"kafka_remote_metadata_{kind.replace('-', '_')}"
            family = self._core.CounterMetricFamily(name, "Metadata that locates nothing", labels=_PARTITION)
            for labels, numbers in scopes:
                family.add_metric(labels, numbers[f"remote-metadata-{kind}-total"])
            yield family
        for count, text in (("records", "Records"), ("bytes", "Bytes of values")):
            name = f"kafka_remote_fetch_broker_{count}"
            family = self._core.CounterMetricFamily(name, f"{text} that came through the broker", labels=_CONSUMER)
            family.add_metric(consumer, snapshot.get(f"broker-{count}-total", 0))
            yield family

    def _counts(
        self,
        prefix: str,
        names: tuple[str, ...],
        scopes: list[tuple[list[str], dict[str, Any]]],
        reasons: tuple[str, ...],
    ) -> Iterator[Any]:
        """The four counters of KIP-1254 for some scopes; `reasons` are there also where they have not counted."""
        for count in ("requests", "bytes", "errors", "fallbacks"):
            has_reason = count in ("errors", "fallbacks")
            family = self._core.CounterMetricFamily(
                f"kafka_remote_fetch_{prefix}{count}",
                f"KIP-1254 remote-fetch-{count}-total",
                labels=[*names, "reason"] if has_reason else names,
            )
            for labels, numbers in scopes:
                if has_reason:
                    counted = dict.fromkeys(reasons, 0) | numbers.get(f"remote-fetch-{count}-by-reason", {})
                    for reason, total in counted.items():
                        family.add_metric([*labels, str(reason)], total)
                else:
                    family.add_metric(labels, numbers.get(f"remote-fetch-{count}-total", 0))
            yield family


def _named(partition: str) -> tuple[str, str]:
    """Topic and number of `TOPIC-NUMBER`."""
    topic, _, number = partition.rpartition("-")
    return topic, number
