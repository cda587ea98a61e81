"""KIP-1254's metrics, made of events."""

from __future__ import annotations

import json

from remote_fetch.consumer.feed import Ending
from remote_fetch.consumer.metrics import Metrics, add_to_statistics
from remote_fetch.errors import ErrorKind
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.observe import Fallback, MetadataUnusable, Notice, RangeFetched, RangeRetried
from tests.clock import Clock

ORDERS = TopicIdPartition(Uuid(bytes(16)), "orders", 0)
OTHER = TopicIdPartition(Uuid(bytes(16)), "orders", 1)


def test_totals_rates_and_latencies() -> None:
    clock = Clock()
    metrics = Metrics(clock=clock)
    metrics(RangeFetched(ORDERS, 1_000, 0.010))
    metrics(RangeFetched(OTHER, 500, 0.030))
    clock.now_s += 10
    metrics(RangeRetried(ORDERS, "throttled"))
    metrics(Fallback(ORDERS, 5, 9, ErrorKind.CORRUPT))
    metrics(Notice("not counted"))
    found = metrics.snapshot()
    assert found["remote-fetch-requests-total"] == 2
    assert found["remote-fetch-requests-rate"] == 2 / 10
    assert found["remote-fetch-bytes-total"] == 1_500
    assert found["remote-fetch-bytes-rate"] == 150
    assert round(found["remote-fetch-latency-avg"], 6) == 20
    assert round(found["remote-fetch-latency-max"], 6) == 30
    assert found["remote-fetch-errors-total"] == 2
    assert found["remote-fetch-errors-by-reason"] == {"throttled": 1, "corrupt": 1}
    assert found["remote-fetch-fallbacks-total"] == 1
    assert repr(found["remote-fetch-fallbacks-by-reason"]) == "{'corrupt': 1}"  # and no member of an enumeration
    assert found["partitions"]["orders-1"]["remote-fetch-bytes-total"] == 500
    assert found["partitions"]["orders-1"]["remote-fetch-fallbacks-by-reason"] == {}


def test_a_broker_without_an_answer_is_a_fallback_and_no_error() -> None:
    """It says nothing against the store."""
    metrics = Metrics()
    metrics(Fallback(ORDERS, 5, 9, Ending.UNANSWERED))
    found = metrics.snapshot()
    assert found["remote-fetch-fallbacks-by-reason"] == {Ending.UNANSWERED: 1}
    assert (found["remote-fetch-errors-total"], found["remote-fetch-errors-by-reason"]) == (0, {})


def test_a_partition_without_an_event_for_a_day_is_dropped() -> None:
    """A consumer of topics that come and go would have more partitions in each snapshot, for weeks."""
    clock = Clock()
    metrics = Metrics(clock=clock)
    metrics(RangeFetched(OTHER, 500, 0.030))
    for _ in range(26):
        metrics(RangeFetched(ORDERS, 1_000, 0.010))
        clock.now_s += 3_600
    assert list(metrics._scopes) == ["", "orders-0"]  # also without a snapshot
    found = metrics.snapshot()
    assert list(found["partitions"]) == ["orders-0"]
    assert found["remote-fetch-bytes-total"] == 26_500
    clock.now_s += 90_000
    found = metrics.snapshot()
    assert (found["partitions"], found["remote-fetch-bytes-total"]) == ({}, 26_500)
    metrics(RangeFetched(OTHER, 500, 0.030))
    assert metrics.snapshot()["partitions"]["orders-1"]["remote-fetch-bytes-total"] == 500


def test_after_half_a_minute_an_event_counts_in_totals_only() -> None:
    clock = Clock()
    metrics = Metrics(clock=clock)
    metrics(RangeFetched(ORDERS, 3_000, 0.010))
    clock.now_s += 31
    found = metrics.snapshot()
    assert (found["remote-fetch-bytes-total"], found["remote-fetch-bytes-rate"]) == (3_000, 0)
    assert (found["remote-fetch-latency-avg"], found["remote-fetch-latency-max"]) == (0, 0)
    metrics(RangeFetched(ORDERS, 3_000, 0.010))
    assert metrics.snapshot()["remote-fetch-bytes-rate"] == 100


def test_records_of_librdkafka_are_counted_apart() -> None:
    metrics = Metrics()
    metrics.count_broker_records(3, 300)
    metrics.count_broker_records(1, 10)
    found = metrics.snapshot()
    assert (found["broker-records-total"], found["broker-bytes-total"]) == (4, 310)


def test_statistics_keep_the_keys_of_librdkafka() -> None:
    merged = json.loads(add_to_statistics('{"name": "rdkafka", "ts": 5}', Metrics().snapshot()))
    assert (merged["name"], merged["ts"]) == ("rdkafka", 5)
    assert merged["remote"]["remote-fetch-requests-total"] == 0
    unescaped = '{"client_id": "DOMAIN\\svc"}'  # as librdkafka writes them
    assert add_to_statistics(unescaped, Metrics().snapshot()) == unescaped


def test_unusable_metadata_is_counted_and_is_not_an_error() -> None:
    metrics = Metrics()
    metrics(MetadataUnusable(ORDERS, 3, 1))
    metrics(MetadataUnusable(OTHER, 1, 0))
    found = metrics.snapshot()
    assert found["remote-metadata-orphan-updates-total"] == 4
    assert found["remote-metadata-malformed-records-total"] == 1
    assert found["partitions"]["orders-1"]["remote-metadata-orphan-updates-total"] == 1
    assert found["remote-fetch-errors-total"] == 0
