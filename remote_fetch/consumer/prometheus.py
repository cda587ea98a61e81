"""The metrics of a consumer for prometheus-client.

Rules of the file: prometheus-client is an extra and is imported when a collector is made; nothing is registered here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from remote_fetch.errors import MissingExtra

__all__ = ["PrometheusCollector"]

_COUNTS = ("requests", "bytes", "errors", "fallbacks")


class PrometheusCollector:
    """A collector over `RemoteConsumer.remote_metrics`, to be registered by the application.

        prometheus_client.REGISTRY.register(PrometheusCollector(consumer.remote_metrics))

    Metrics are `kafka_remote_fetch_{requests,bytes}_total{topic,partition}`, `..._{errors,fallbacks}_total` with a
    label `reason` besides, `kafka_remote_fetch_latency_seconds_{avg,max}`,
    `kafka_remote_metadata_{orphan_updates,malformed_records}_total` and `kafka_remote_fetch_broker_bytes_total`.
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

    def collect(self) -> Iterator[Any]:
        """The metrics now."""
        snapshot = self._snapshot()
        partitions = [(name.rpartition("-"), numbers) for name, numbers in snapshot.get("partitions", {}).items()]
        for count in _COUNTS:
            by_reason = count in ("errors", "fallbacks")
            family = self._core.CounterMetricFamily(
                f"kafka_remote_fetch_{count}",
                f"KIP-1254 remote-fetch-{count}-total",
                labels=["topic", "partition", *(["reason"] if by_reason else [])],
            )
            for (topic, _, number), numbers in partitions:
                if by_reason:
                    for reason, total in numbers[f"remote-fetch-{count}-by-reason"].items():
                        family.add_metric([topic, number, reason], total)
                else:
                    family.add_metric([topic, number], numbers[f"remote-fetch-{count}-total"])
            yield family
        for kind in ("avg", "max"):
            gauge = self._core.GaugeMetricFamily(
                f"kafka_remote_fetch_latency_seconds_{kind}",
                f"KIP-1254 remote-fetch-latency-{kind}, over half a minute",
                labels=["topic", "partition"],
            )
            for (topic, _, number), numbers in partitions:
                gauge.add_metric([topic, number], numbers[f"remote-fetch-latency-{kind}"] / 1000)
            yield gauge
        for kind in ("orphan-updates", "malformed-records"):
            family = self._core.CounterMetricFamily(
                f"kafka_remote_metadata_{kind.replace('-', '_')}",
                "Metadata that locates nothing",
                labels=["topic", "partition"],
            )
            for (topic, _, number), numbers in partitions:
                family.add_metric([topic, number], numbers[f"remote-metadata-{kind}-total"])
            yield family
        yield self._core.CounterMetricFamily(
            "kafka_remote_fetch_broker_bytes",
            "Bytes of values that came through the broker instead",
            value=snapshot.get("broker-bytes-total", 0),
        )
