"""The metrics of a consumer's remote half, under KIP-1254's names. They are counted as in Kafka's own clients.

Rules of the file:

- Events come in, and numbers go out.
- Totals count since the start. Rates, averages and maxima are over the last half minute.
- A partition without an event for a day is dropped. Its next event begins its totals at 0. The consumer's totals stay.
- Counting raises no error, and waits only for a lock. Several threads may count.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeGuard

from remote_fetch.consumer.feed import Ending
from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import Event, Fallback, MetadataUnusable, RangeFetched, RangeReread, RangeRetried

__all__ = ["Metrics", "add_to_statistics", "with_statistics"]

_Counted: TypeAlias = RangeFetched | RangeRetried | RangeReread | Fallback
_WINDOW_S = 30
_QUIET_S = 86_400.0
"""How long a partition without an event is kept. It may be of a deleted topic, and each snapshot has all partitions."""
_ALL = ""


@dataclass(slots=True)
class _Second:
    """The counts of one second."""

    requests: int = 0
    size_bytes: int = 0
    latency_s: float = 0.0
    latency_max_s: float = 0.0
    errors: int = 0
    fallbacks: int = 0


@dataclass(slots=True)
class _Scope:
    """The counts of one partition, or of all partitions."""

    totals: _Second = field(default_factory=_Second)
    seconds: dict[int, _Second] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    orphans: int = 0
    malformed: int = 0
    last_s: float = 0.0

    def counters(self, now_s: float) -> tuple[_Second, _Second]:
        """The counters to which an event at this time is added."""
        second = int(now_s)
        if second not in self.seconds:
            self.forget(second)
            self.seconds[second] = _Second()
        return self.totals, self.seconds[second]

    def forget(self, second: int) -> None:
        """Drop the seconds before the window."""
        for old in [counted for counted in self.seconds if counted <= second - _WINDOW_S]:
            del self.seconds[old]


class Metrics:
    """An observer that keeps KIP-1254's metrics of the consumer with these names. `clock` gives seconds."""

    def __init__(self, client_id: str = "", group: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._names = {"client-id": client_id, "group": group}
        self._clock = clock
        self._began_s = clock()
        self._lock = threading.Lock()
        self._scopes: dict[str, _Scope] = {_ALL: _Scope()}
        self._looked_s = self._began_s
        self._broker_records = 0
        self._broker_bytes = 0

    def without_counts(self) -> Metrics:
        """New, empty metrics of the same consumer. In a forked child the lock of the old ones may be held for ever."""
        return Metrics(self._names["client-id"], self._names["group"], clock=self._clock)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        if isinstance(event, MetadataUnusable):
            with self._lock:
                for scope in self._scopes_of(event.partition):
                    scope.orphans += event.orphan_updates
                    scope.malformed += event.malformed_records
            return
        if not isinstance(event, (RangeFetched, RangeRetried, RangeReread, Fallback)):
            return
        with self._lock:
            for scope in self._scopes_of(event.partition):
                for counter in scope.counters(self._clock()):
                    _add(counter, event)
                if isinstance(event, Fallback):
                    scope.fallbacks[event.reason] += 1
                if _is_error(event):
                    scope.errors[event.reason] += 1

    def _scopes_of(self, partition: TopicIdPartition) -> tuple[_Scope, _Scope]:
        scope = self._scopes.setdefault(partition.topic_partition, _Scope())
        scope.last_s = self._clock()
        self._forget_quiet()
        return self._scopes[_ALL], scope

    def _forget_quiet(self) -> None:
        """Drop the partitions without an event for a day. Once in an hour they are looked at."""
        now_s = self._clock()
        if now_s - self._looked_s < _QUIET_S / 24:
            return
        self._looked_s = now_s
        kept = {name: scope for name, scope in self._scopes.items() if now_s - scope.last_s <= _QUIET_S}
        self._scopes = {_ALL: self._scopes[_ALL], **kept}

    def count_broker_records(self, records: int, size_bytes: int) -> None:
        """Count records that librdkafka has given: their number, and the bytes of their values."""
        self._broker_records += records
        self._broker_bytes += size_bytes

    def snapshot(self) -> dict[str, Any]:
        """The current metrics: see `RemoteConsumer.remote_metrics`."""
        with self._lock:
            self._forget_quiet()
            now_s = self._clock()
            span_s = min(max(now_s - self._began_s, 1.0), float(_WINDOW_S))
            scopes = {name: _numbers(scope, int(now_s), span_s) for name, scope in self._scopes.items()}
        return {
            **self._names,
            **scopes.pop(_ALL),
            "broker-records-total": self._broker_records,
            "broker-bytes-total": self._broker_bytes,
            "partitions": scopes,
        }


def _add(counter: _Second, event: _Counted) -> None:
    if isinstance(event, RangeFetched):
        counter.requests += 1
        counter.size_bytes += event.size_bytes
        counter.latency_s += event.duration_s
        counter.latency_max_s = max(counter.latency_max_s, event.duration_s)
        return
    counter.errors += _is_error(event)
    counter.fallbacks += isinstance(event, Fallback)


def _is_error(event: _Counted) -> TypeGuard[RangeRetried | RangeReread | Fallback]:
    """Whether the event is a failure of the store. A wait for brokers or for a free worker is not a failure."""
    return not isinstance(event, RangeFetched) and event.reason != Ending.UNANSWERED


def _numbers(scope: _Scope, now: int, span_s: float) -> dict[str, Any]:
    scope.forget(now)
    recent, totals = list(scope.seconds.values()), scope.totals
    requests = sum(second.requests for second in recent)
    numbers: dict[str, Any] = {}
    for name, total, lately in (
        ("requests", totals.requests, requests),
        ("bytes", totals.size_bytes, sum(second.size_bytes for second in recent)),
        ("errors", totals.errors, sum(second.errors for second in recent)),
        ("fallbacks", totals.fallbacks, sum(second.fallbacks for second in recent)),
    ):
        numbers[f"remote-fetch-{name}-total"] = total
        numbers[f"remote-fetch-{name}-rate"] = lately / span_s
    latency_s = sum(second.latency_s for second in recent)
    numbers["remote-fetch-latency-avg"] = 1000 * latency_s / requests if requests else 0.0
    numbers["remote-fetch-latency-max"] = 1000 * max((second.latency_max_s for second in recent), default=0.0)
    numbers["remote-fetch-errors-by-reason"] = {str(reason): count for reason, count in scope.errors.items()}
    numbers["remote-fetch-fallbacks-by-reason"] = {str(reason): count for reason, count in scope.fallbacks.items()}
    numbers["remote-metadata-orphan-updates-total"] = scope.orphans
    numbers["remote-metadata-malformed-records-total"] = scope.malformed
    return numbers


def add_to_statistics(statistics: str, remote: Mapping[str, Any]) -> str:
    """librdkafka's statistics, with those of the remote half under `remote`, as JSON.

    librdkafka does not escape `client.id`. Statistics that are no JSON for that reason stay as they are.
    """
    try:
        return json.dumps({**json.loads(statistics), "remote": remote})
    except ValueError:
        return statistics


def with_statistics(properties: Mapping[str, Any], metrics: Metrics) -> dict[str, Any]:
    """The properties, with a `stats_cb` that also gets the metrics of the remote half."""
    report = properties.get("stats_cb")
    if not callable(report):
        return dict(properties)
    return {**properties, "stats_cb": lambda statistics: report(add_to_statistics(statistics, metrics.snapshot()))}
