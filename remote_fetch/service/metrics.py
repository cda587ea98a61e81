"""The counters of the service, for Prometheus. See docs/howto/vend-access.md for the meaning.

Rules of the file:

- No label has a topic, a principal or an address: their number is not bounded, and readers of metrics need no ACL.
- A registry of its own: several services may run in one process, as in the tests.
- Counters of known outcomes begin at 0, because `increase()` misses the first event of a new series.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PREFIX = "remote_fetch_service"
_OUTCOMES = ("allowed", "forbidden", "unknown-topic", "wrong-credentials", "unanswered", "other")
_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0)


class Metrics:
    """The metrics of one service."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            f"{_PREFIX}_requests", "Answered requests", ("route", "status"), registry=registry
        )  # fmt: skip
        self._seconds = Histogram(
            f"{_PREFIX}_request_seconds", "Time to an answer", ("route",), registry=registry, buckets=_SECONDS
        )
        self._asks = Counter(f"{_PREFIX}_asks", "Questions to brokers as a client", ("outcome",), registry=registry)
        self._refreshes = Histogram(
            f"{_PREFIX}_metadata_read_seconds", "Readings of the metadata", registry=registry, buckets=_SECONDS
        )
        self._age = Gauge(f"{_PREFIX}_metadata_age_seconds", "Time since the metadata was read", registry=registry)
        self._under_way = Gauge(f"{_PREFIX}_requests_under_way", "Requests under way", registry=registry)
        self._signed = Counter(f"{_PREFIX}_urls_signed", "Signed URLs", registry=registry)
        self._unsigned = Counter(
            f"{_PREFIX}_segments_unsigned", "Answers about segments without all URLs asked for", registry=registry
        )
        self._cut_off = Counter(
            f"{_PREFIX}_connections_cut_off", "Connections that were too slow", ("at",), registry=registry
        )
        for at in ("reading", "writing"):
            self._cut_off.labels(at)
        for outcome in _OUTCOMES:
            self._asks.labels(outcome)

    def watch(self, under_way: Callable[[], float], age_s: Callable[[], float | None]) -> None:
        """Take these numbers whenever they are asked for."""
        self._under_way.set_function(under_way)
        self._age.set_function(lambda: age if (age := age_s()) is not None else float("nan"))

    def answered(self, route: str, status: int, duration_s: float) -> None:
        """Count an answer. `route` is one of few names."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(duration_s)

    def asked(self, outcome: str) -> None:
        """Count a question to the brokers."""
        self._asks.labels(outcome).inc()

    def read(self, duration_s: float) -> None:
        """Count a reading of the metadata."""
        self._refreshes.observe(duration_s)

    def signed(self, urls: int) -> None:
        """Count signed URLs."""
        self._signed.inc(urls)

    def unsigned(self) -> None:
        """Count a segment for which not all was signed that was asked for."""
        self._unsigned.inc()

    def cut_off(self, at: str) -> None:
        """Count a connection that was too slow at `reading` its request or `writing` its answer."""
        self._cut_off.labels(at).inc()

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)
