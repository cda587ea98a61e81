"""The metrics of a consumer for prometheus-client.

Rules of the file:

- prometheus-client is an extra. It is imported if a collector is made. No collector is registered here.
- A registry has one collector, to which consumers are added, because each metric may be served once (design note 0016).
- Every series names its consumer by the labels `client_id` and `group`. No two consumers have the same labels.
- A consumer's counters begin at 0 before the first event, because `increase()` misses the first event of a new series.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from remote_fetch.consumer.feed import Ending
from remote_fetch.errors import ErrorKind, MissingExtra

__all__ = ["PrometheusCollector"]

_CONSUMER = ("client_id", "group")
_PARTITION = (*_CONSUMER, "topic", "partition")
_REASONS = (
    ErrorKind.READ_TIMEOUT, ErrorKind.CONNECT_TIMEOUT, ErrorKind.AUTH, ErrorKind.THROTTLED, ErrorKind.UNAVAILABLE,
    ErrorKind.NOT_FOUND, ErrorKind.CORRUPT, ErrorKind.FORMAT, ErrorKind.DECOMPRESSION_LIMIT, ErrorKind.TRUNCATED,
    ErrorKind.UNLOCATABLE, ErrorKind.NOT_CONFIGURED, ErrorKind.UNKNOWN_TOPIC, ErrorKind.RECREATED, Ending.UNANSWERED,
    Ending.UNAUTHORIZED, Ending.UNEXPECTED,
)  # fmt: skip
"""The reasons whose totals of a consumer are served from the beginning."""


_Snapshot: TypeAlias = Callable[[], dict[str, Any]]
_Scope: TypeAlias = tuple[list[str], dict[str, Any]]
"""The values of the labels, and the numbers."""


class PrometheusCollector:
    """A collector over the `remote_metrics` of any number of consumers, which the application registers once.

        collector = PrometheusCollector()
        prometheus_client.REGISTRY.register(collector)
        collector.add(consumer.remote_metrics)  # for each consumer; `remove` it when it is closed

    All metrics begin with `kafka_remote_` and have the labels `client_id` and `group`:

    - of a partition, with `topic` and `partition`: `fetch_{requests,bytes}_total`, with `reason` too
      `fetch_{errors,fallbacks}_total`, `fetch_latency_seconds_{avg,max}`,
      `metadata_{orphan_updates,malformed_records}_total`;
    - of the consumer: `fetch_consumer_{requests,bytes}_total`, with `reason` too
      `fetch_consumer_{errors,fallbacks}_total`, and `fetch_broker_{records,bytes}_total`.

    Raises MissingExtra without prometheus-client. Thread-safe.
    """

    def __init__(self, *snapshots: _Snapshot) -> None:
        try:
            from prometheus_client import core  # noqa: PLC0415 - optional
        except ImportError as error:
            raise MissingExtra("metrics for Prometheus need prometheus-client", extra="metrics") from error
        self._core = core
        self._lock = threading.Lock()
        self._names: dict[_Snapshot, tuple[str, str]] = {}
        for snapshot in snapshots:
            self.add(snapshot)

    def add(self, snapshot: _Snapshot) -> None:
        """Serve the metrics of one more consumer. Has no effect if they are served already.

        The second consumer with the same `client.id` and `group.id` has the label `CLIENT_ID#2`, and so on. The lowest
        free number is used.
        """
        labels = snapshot()
        client_id, group = labels.get("client-id", ""), labels.get("group", "")
        with self._lock:
            taken = set(self._names.values())
            numbered = (client_id if number == 1 else f"{client_id}#{number}" for number in itertools.count(1))
            self._names.setdefault(snapshot, next((name, group) for name in numbered if (name, group) not in taken))

    def remove(self, snapshot: _Snapshot) -> None:
        """Stop serving a consumer's metrics. Has no effect if they are not served."""
        with self._lock:
            self._names.pop(snapshot, None)

    def describe(self) -> list[Any]:
        """The metrics without samples. A registry compares their names, and refuses a second collector."""
        return list(self._families([], []))

    def collect(self) -> Iterator[Any]:
        """The current metrics."""
        with self._lock:
            names = dict(self._names)
        consumers: list[_Scope] = [(list(labels), snapshot()) for snapshot, labels in names.items()]
        partitions: list[_Scope] = [
            ([*labels, *_topic_and_number(name)], numbers)
            for labels, snapshot in consumers
            for name, numbers in sorted(snapshot.get("partitions", {}).items())
        ]
        return self._families(consumers, partitions)

    def _families(self, consumers: list[_Scope], partitions: list[_Scope]) -> Iterator[Any]:
        yield from self._counters("", _PARTITION, partitions, ())
        yield from self._counters("consumer_", _CONSUMER, consumers, _REASONS)
        for kind in ("avg", "max"):
            name = f"kafka_remote_fetch_latency_seconds_{kind}"
            gauge = self._core.GaugeMetricFamily(
                name, f"KIP-1254 remote-fetch-latency-{kind}, over half a minute", labels=_PARTITION
            )
            for labels, numbers in partitions:
                gauge.add_metric(labels, numbers[f"remote-fetch-latency-{kind}"] / 1000)
            yield gauge
        for kind in ("orphan-updates", "malformed-records"):
            name = f"kafka_remote_metadata_{kind.replace('-', '_')}"
            family = self._core.CounterMetricFamily(name, "Metadata that locates nothing", labels=_PARTITION)
            for labels, numbers in partitions:
                family.add_metric(labels, numbers[f"remote-metadata-{kind}-total"])
            yield family
        for count, text in (("records", "Records"), ("bytes", "Bytes of values")):
            name = f"kafka_remote_fetch_broker_{count}"
            family = self._core.CounterMetricFamily(name, f"{text} that came through the broker", labels=_CONSUMER)
            for labels, numbers in consumers:
                family.add_metric(labels, numbers.get(f"broker-{count}-total", 0))
            yield family

    def _counters(
        self, prefix: str, names: tuple[str, ...], scopes: list[_Scope], reasons: tuple[str, ...]
    ) -> Iterator[Any]:
        """The four counters of KIP-1254 for some scopes. Each of `reasons` is served even if it is 0."""
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


def _topic_and_number(partition: str) -> tuple[str, str]:
    """Topic and number of `TOPIC-NUMBER`."""
    topic, _, number = partition.rpartition("-")
    return topic, number
