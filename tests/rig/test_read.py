"""The broker is the oracle: records from the store, and those after the tier, equal a consumer's in every field.

With a change the oldest broker is asked where a topic has all: every codec, transactions, a local tail, a moved log
start.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer

import remote_fetch
from remote_fetch.config import Config
from remote_fetch.decode.columns import COLUMNS
from remote_fetch.errors import OffsetOutOfRange
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.model import IsolationLevel
from remote_fetch.observe import Report
from remote_fetch.prepare.arguments import parse_isolation
from remote_fetch.prepare.job import plan_job
from remote_fetch.prepare.planner import Planner
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.testing.faults import Fault, FaultKind, FaultyFetcher, FetchCall, Schedule, seeded
from tests.cases import of_a_change
from tests.rig import topics
from tests.rig.answers import assert_is_the_brokers
from tests.rig.metrics import topic_metrics
from tests.rig.rig import Rig
from tests.rig.topics import OracleRecord
from tests.rig.workload_oracle import listed_offset

ISOLATIONS = ("read_committed", "read_uncommitted")
ISOLATION_OF_A_CHANGE = of_a_change(ISOLATIONS)
"""For tests that restart or delete things. Both levels take the same steps there, and the second one runs at night."""


def config_of(rig: Rig, **more: Any) -> dict[str, Any]:
    keys = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": rig.bootstrap, "remote.storage.url": str(rig.remote), "log_level": 0, **keys}


def as_oracle(rows: list[dict[str, Any]]) -> list[OracleRecord]:
    return [
        OracleRecord(
            row["topic"],
            row["partition"],
            row["offset"],
            row["timestampType"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            topics.shortened(row["value"]),
            tuple((header["key"], header["value"]) for header in row["headers"]),
            row["leaderEpoch"],
        )
        for row in rows
    ]


def from_store(
    config: Mapping[str, Any], topic: str, isolation: str, partition: int = 0, **bounds: Any
) -> tuple[list[OracleRecord], Report]:
    counters = remote_fetch.Counters()
    reader = remote_fetch.read_arrow(
        topic,
        partitions=[partition],
        isolation=isolation,
        columns=COLUMNS,
        config=config,
        observer=counters,
        **bounds,
    )
    return as_oracle(reader.read_all().to_pylist()), counters.report()


@contextmanager
def transaction(rig: Rig, topic: str, count: int, name: str, *, seed: int = 0) -> Iterator[Producer]:
    """A producer with `count` records in an open transaction."""
    producer = Producer(
        {
            "bootstrap.servers": rig.bootstrap,
            "transactional.id": f"{topic}-{name}",
            "batch.num.messages": 5,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    dice = random.Random(seed)
    for number in range(count):
        topics.produce_one(producer, topic, 0, number, dice, (0, 100, 600))
    producer.flush(30)
    yield producer


def assert_equal_to_broker(rig: Rig, topic: str, partition: int = 0, **config: Any) -> dict[str, Report]:
    """Check both isolation levels. Returns the reports."""
    reports = {}
    for isolation in ISOLATIONS:
        expected = topics.broker_records(rig, topic, partition, isolation)
        found, reports[isolation] = from_store(config_of(rig, **config), topic, isolation, partition)
        assert_is_the_brokers(rig, topic, isolation, found, expected)
        assert expected
    return reports


def mixed_topic(rig: Rig, topic: str) -> None:
    """A topic in the tier with many segments, every codec, and committed and aborted transactions."""
    topics.create_topic(rig, topic)
    for seed, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        topics.produce(rig, topic, 30, seed=seed, compression_type=codec)
    with transaction(rig, topic, 40, "a", seed=6) as first, transaction(rig, topic, 40, "b", seed=7) as second:
        topics.produce(rig, topic, 30, seed=8)
        first.abort_transaction(30)
        second.commit_transaction(30)
    topics.wait_tiered(rig, topic)


def test_all_of_it_tiered_costs_the_broker_nothing(rig: Rig, new_topic: Callable[[str], str]) -> None:
    """By its own counters, the broker sends no record bytes, and fetches no bytes from the tier for the reader."""
    topic = new_topic("read")
    mixed_topic(rig, topic)
    found = {isolation: from_store(config_of(rig), topic, isolation) for isolation in ISOLATIONS}
    used = topic_metrics(rig, topic)
    assert (used.bytes_out, used.remote_fetch_bytes, used.remote_fetch_requests) == (0, 0, 0)
    for isolation, (records, report) in found.items():
        assert_is_the_brokers(rig, topic, isolation, records, topics.broker_records(rig, topic, 0, isolation))
        assert records
        assert (report.broker_records, report.records, report.fallbacks) == (0, len(records), {})
    through_the_broker = topic_metrics(rig, topic)
    assert through_the_broker.bytes_out > 0
    assert through_the_broker.remote_fetch_requests > 0


@pytest.mark.each_version
def test_the_tail_comes_through_the_broker(rig: Rig, new_topic: Callable[[str], str]) -> None:
    """A transaction is open at the end of the tier. Its abort marker is local at first, and later in a tiered segment.

    Each time the records equal the broker's.
    """
    topic = new_topic("read")
    mixed_topic(rig, topic)
    with transaction(rig, topic, 60, "open") as producer:
        topics.produce(rig, topic, 60, seed=3)
        reports = assert_equal_to_broker(rig, topic)
        assert reports["read_uncommitted"].broker_records > 0
        assert all(report.remote_gets > 0 for report in reports.values())
        producer.abort_transaction(30)
    topics.produce(rig, topic, 5, seed=4)
    assert_equal_to_broker(rig, topic)
    topics.wait_tiered(rig, topic)
    assert assert_equal_to_broker(rig, topic)["read_committed"].broker_records == 0


def test_bounds_across_the_end_of_the_tier(rig: Rig, new_topic: Callable[[str], str]) -> None:
    topic = new_topic("read")
    topics.make_tiered(rig, topic, 100)
    topics.set_config(rig, topic, local_retention_ms=-2)
    topics.produce(rig, topic, 20, seed=1)
    everything = topics.broker_records(rig, topic, 0, "read_uncommitted")
    for start, end in ((0, 120), (95, 105), (99, 101), (100, 120), (110, 115), (0, 100), (120, 120)):
        found, _ = from_store(config_of(rig), topic, "read_uncommitted", start=start, end=end)
        assert found == [one for one in everything if start <= one.offset < end], (start, end)
    assert from_store(config_of(rig), topic, "read_uncommitted", start="latest")[0] == []
    with pytest.raises(OffsetOutOfRange):
        from_store(config_of(rig), topic, "read_uncommitted", start=121)


@pytest.mark.each_version
def test_the_log_start_inside_a_segment(rig: Rig, new_topic: Callable[[str], str]) -> None:
    topic = new_topic("read")
    mixed_topic(rig, topic)
    topics.delete_records(rig, topic, 0, 37)
    assert_equal_to_broker(rig, topic)
    with pytest.raises(OffsetOutOfRange):
        from_store(config_of(rig), topic, "read_uncommitted", start=36)


def test_a_filter_on_time_where_the_log_start_lies_behind_late_records_of_a_segment(
    rig_43: Rig, new_topic: Callable[[str], str]
) -> None:
    """Kafka looks only into that segment, which is on its disk too, and finds no offset for the time."""
    rig, topic, late_ms = rig_43, new_topic("read"), 1_700_010_000_000
    topics.create_topic(rig, topic, local_retention_ms=-2)
    producer = Producer(
        {"bootstrap.servers": rig.bootstrap, "batch.num.messages": 1, "enable.idempotence": True, **topics.QUIET}
    )
    for number in range(60):
        timestamp_ms = late_ms if number == 3 or number >= 40 else 1_700_000_000_000
        producer.produce(topic, bytes(700), partition=0, timestamp=timestamp_ms)
    assert producer.flush(60) == 0
    rig.until("segments in the tier", lambda: topics.offsets(rig, topic, 0).latest_tiered > 20)
    topics.delete_records(rig, topic, 0, 6)
    assert listed_offset(rig, (topic, 0), late_ms, "read_committed") is None
    late = pc.field("timestamp") >= pa.scalar(late_ms * 1000, pa.timestamp("us", "UTC"))
    for when in ("not-local", "always"):
        scan = remote_fetch.scan_topic(topic, config=config_of(rig, fetch_remote_when=when))
        rows = [offset for batch in scan.batches(filter=late) for offset in batch.column("offset").to_pylist()]
        assert rows == list(range(40, 60))


def test_a_filter_on_time_if_the_tier_is_not_looked_up(rig: Rig, new_topic: Callable[[str], str]) -> None:
    """Kafka finds nothing in the tiered segment in which the log begins, and looks at nothing else in the tier."""
    topic, late_ms = new_topic("read"), 1_700_010_000_000
    topics.create_topic(rig, topic, local_retention_ms=-2)  # else Kafka may end the first segment before it is full

    def write(*timestamps_ms: int) -> None:
        alone = {"batch.num.messages": 1, "enable.idempotence": True}
        producer = Producer({"bootstrap.servers": rig.bootstrap, **alone, **topics.QUIET})
        for timestamp_ms in timestamps_ms:
            producer.produce(topic, bytes(700), partition=0, timestamp=timestamp_ms)
        assert producer.flush(60) == 0

    write(*(late_ms if number in (1, 25, 26) else 1_700_000_000_000 for number in range(60)))
    topics.set_config(rig, topic, local_retention_ms=1)
    topics.wait_tiered(rig, topic)
    topics.set_config(rig, topic, segment_bytes=1 << 20, local_retention_ms=-2)
    write(late_ms, late_ms)
    topics.delete_records(rig, topic, 0, 3)
    assert listed_offset(rig, (topic, 0), late_ms, "read_committed") == 60
    late = pc.field("timestamp") >= pa.scalar(late_ms * 1000, pa.timestamp("us", "UTC"))
    unlocated: list[dict[str, Any]] = [{"remote_locator": "broker"}, {"remote_locator_topic": "no-such-topic"}]
    for more in (*unlocated, unlocated[-1] | {"fetch_remote_when": "always"}):
        scan = remote_fetch.scan_topic(topic, config=config_of(rig, **more))
        rows = [offset for batch in scan.batches(filter=late) for offset in batch.column("offset").to_pylist()]
        assert rows == [25, 26, 60, 61]


@pytest.mark.parametrize("is_tiered", ["true", "false"])
def test_a_filter_on_time_if_a_segment_has_no_timestamps(
    rig: Rig, new_topic: Callable[[str], str], is_tiered: str
) -> None:
    """Kafka takes the time of the segment's file for its largest timestamp, looks only into it, and finds nothing."""
    topic, start_ms = new_topic("read"), 1_700_000_000_000
    topics.create_topic(rig, topic, remote_storage_enable=is_tiered, local_retention_ms=-2)
    alone = {"batch.num.messages": 1, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": rig.bootstrap, **alone, **topics.QUIET})
    for number in range(40):
        producer.produce(topic, bytes(700), partition=0, timestamp=-1 if number < 30 else start_ms)
    assert producer.flush(60) == 0
    assert listed_offset(rig, (topic, 0), start_ms, "read_committed") is None
    since = pc.field("timestamp") >= pa.scalar(start_ms * 1000, pa.timestamp("us", "UTC"))
    scan = remote_fetch.scan_topic(topic, config=config_of(rig))
    rows = [offset for batch in scan.batches(filter=since) for offset in batch.column("offset").to_pylist()]
    assert rows == list(range(30, 40))


def test_a_filter_on_time_if_the_store_has_lost_a_segment_without_timestamps(
    rig_43: Rig, new_topic: Callable[[str], str], tmp_path: Path
) -> None:
    """Kafka looks into that segment, then at nothing else in the tier, and names an offset on its own disk."""
    rig, topic, late_ms = rig_43, new_topic("read"), 1_700_010_000_000
    topics.create_topic(rig, topic)
    alone = {"batch.num.messages": 1, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": rig.bootstrap, **alone, **topics.QUIET})
    for number in range(60):
        timestamp_ms = -1 if number < 20 else late_ms if number in (25, 26) else 1_700_000_000_000
        producer.produce(topic, bytes(700), partition=0, timestamp=timestamp_ms)
    assert producer.flush(60) == 0
    topics.wait_tiered(rig, topic)
    topics.set_config(rig, topic, segment_bytes=1 << 20, local_retention_ms=-2)
    producer.produce(topic, bytes(700), partition=0, timestamp=late_ms)
    assert producer.flush(60) == 0
    assert listed_offset(rig, (topic, 0), late_ms, "read_committed") == 60
    (folder,) = rig.remote.rglob(f"{topic}-0-*")
    shutil.copytree(folder, tmp_path / folder.relative_to(rig.remote), ignore=shutil.ignore_patterns("*.log"))
    late = pc.field("timestamp") >= pa.scalar(late_ms * 1000, pa.timestamp("us", "UTC"))
    for when in ("not-local", "always"):
        config = config_of(rig, remote_storage_url=str(tmp_path), fetch_remote_when=when)
        scan = remote_fetch.scan_topic(topic, config=config)
        rows = [offset for batch in scan.batches(filter=late) for offset in batch.column("offset").to_pylist()]
        assert rows == [25, 26, 60]


def test_a_start_by_time_if_the_log_begins_behind_late_records_of_an_untiered_segment(
    rig: Rig, new_topic: Callable[[str], str]
) -> None:
    """Kafka looks only into that segment and finds none. A read that believed this would leave out all records."""
    topic, start_ms = new_topic("read"), 1_700_000_000_000
    topics.create_topic(rig, topic, remote_storage_enable="false", local_retention_ms=-2)
    producer = Producer({"bootstrap.servers": rig.bootstrap, "batch.num.messages": 1, "linger.ms": 0, **topics.QUIET})
    for number in range(60):
        late_ms = 1000 if number in (2, 3, 30, 58) else 0
        producer.produce(topic, bytes(700), partition=0, timestamp=start_ms + late_ms)
        assert producer.flush(60) == 0
    topics.delete_records(rig, topic, 0, 6)
    assert listed_offset(rig, (topic, 0), start_ms + 1000, "read_committed") is None
    start = datetime.fromtimestamp(start_ms / 1000 + 1, UTC)
    found, _ = from_store(config_of(rig), topic, "read_committed", start=start)
    assert found == topics.broker_records(rig, topic, 0, "read_committed", start=30)
    later, _ = from_store(config_of(rig), topic, "read_committed", start=start + timedelta(seconds=1))
    assert later == []


def test_a_filter_on_a_time_after_all_records_leaves_out_an_untiered_log(
    rig: Rig, new_topic: Callable[[str], str]
) -> None:
    """Retention has moved the log start, and the broker's "none" is right: nothing on its disk is late enough."""
    topic, start_ms = new_topic("read"), 1_700_000_000_000
    topics.create_topic(rig, topic, remote_storage_enable="false", local_retention_ms=-2)
    batches = {"batch.num.messages": 5, "enable.idempotence": "true"}  # a batch fits into a segment
    producer = Producer({"bootstrap.servers": rig.bootstrap, **batches, **topics.QUIET})
    for number in range(60):
        producer.produce(topic, bytes(700), partition=0, timestamp=start_ms + number)
    assert producer.flush(60) == 0
    topics.delete_records(rig, topic, 0, 6)
    with Session.open(Config.parse(config_of(rig))) as session:
        planner = Planner(session, IsolationLevel.READ_COMMITTED)
        times, least_at = (start_ms + 3, start_ms + 40, start_ms + 60), planner.times.least_offset_at
        partitions = session.locator.partitions(topic)
        (least,) = planner.open(partitions, lambda opened: [least_at(opened, each) for each in times])
    assert least == [6, 40, 60]


@pytest.mark.parametrize("skips", [False, True])
def test_the_log_start_moves_under_the_reader(rig_43: Rig, new_topic: Callable[[str], str], skips: bool) -> None:
    rig, topic = rig_43, new_topic("read")
    topics.make_tiered(rig, topic, 200, sizes=(600, 700))
    expected = topics.broker_records(rig, topic, 0, "read_uncommitted")
    reset = {"auto.offset.reset": "earliest"} if skips else {}
    reader = remote_fetch.read_arrow(
        topic, isolation="read_uncommitted", columns=COLUMNS, config=config_of(rig) | reset
    )
    topics.delete_records(rig, topic, 0, 150)
    if not skips:
        with pytest.raises(OffsetOutOfRange, match="the log starts at 150 now"):
            reader.read_all()
        return
    assert as_oracle(reader.read_all().to_pylist()) == expected[150:]


def read_with_faults(
    rig: Rig, topic: str, isolation: str, schedule: Schedule, **more: Any
) -> tuple[list[OracleRecord], Report]:
    config = Config.parse(config_of(rig, **more))
    faulty = FaultyFetcher(load_fetcher(config), schedule)
    with Session(config, faulty) as session:
        plans = plan_job(
            session,
            topic,
            start="earliest",
            end="latest",
            partitions=None,
            isolation=parse_isolation(isolation),
        )
        rows = [row for batch in Scan(session, plans, COLUMNS).batches() for row in batch.to_pylist()]
        return as_oracle(rows), session.counters.report()


SOME_OF_EACH = ("not-found", "denied", "timeout", "throttled", "unavailable", "truncate", "short-body", "flip-byte")


@pytest.fixture(scope="module")
def faulty_topic(rig_43: Rig) -> str:
    mixed_topic(rig_43, "faults")
    return "faults"


@pytest.mark.parametrize("kind", SOME_OF_EACH)
@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_a_store_that_fails_for_good_leaves_it_to_the_broker(
    rig_43: Rig, faulty_topic: str, isolation: str, kind: str
) -> None:
    """If every read from the third segment on fails, the store gives the records before it, and the broker the rest."""

    def schedule(call: FetchCall) -> Fault | None:
        is_late = call.index_type is None and call.metadata.start_offset >= 60
        return Fault(FaultKind(kind), position=100) if is_late else None

    expected = topics.broker_records(rig_43, faulty_topic, 0, isolation)
    found, report = read_with_faults(
        rig_43, faulty_topic, isolation, schedule, fetch_remote_read_timeout_ms=1000, fetch_remote_retry_backoff_ms=10
    )
    assert_is_the_brokers(rig_43, faulty_topic, isolation, found, expected)
    assert report.fallbacks
    assert report.remote_gets > 0
    assert report.broker_records > 0


@pytest.mark.parametrize("seed", of_a_change(range(10), *range(4)))
def test_random_faults_change_nothing(rig_43: Rig, faulty_topic: str, seed: int) -> None:
    kinds = [FaultKind(kind) for kind in SOME_OF_EACH]
    faults = seeded(seed, 0.3, kinds)
    isolation = ISOLATIONS[seed % 2]
    found, report = read_with_faults(
        rig_43,
        faulty_topic,
        isolation,
        # No reader can notice a changed byte in an index without a checksum.
        lambda call: faults(call) if call.index_type is None else None,
        fetch_remote_read_timeout_ms=1000,
        fetch_remote_retry_backoff_ms=10,
    )
    expected = topics.broker_records(rig_43, faulty_topic, 0, isolation)
    assert_is_the_brokers(rig_43, faulty_topic, isolation, found, expected)
    assert report.records == len(found)


def test_indexes_that_cannot_be_read(rig_43: Rig, faulty_topic: str) -> None:
    def schedule(call: FetchCall) -> Fault | None:
        return None if call.index_type is None else Fault(FaultKind.DENIED)

    found, report = read_with_faults(rig_43, faulty_topic, "read_committed", schedule)
    expected = topics.broker_records(rig_43, faulty_topic, 0, "read_committed")
    assert_is_the_brokers(rig_43, faulty_topic, "read_committed", found, expected)
    assert report.fallbacks == {"auth": 1}


def test_no_storage_configured_is_the_plain_consumer(rig_43: Rig, faulty_topic: str) -> None:
    config = {"bootstrap.servers": rig_43.bootstrap, "log_level": 0}
    found, report = from_store(config, faulty_topic, "read_committed")
    expected = topics.broker_records(rig_43, faulty_topic, 0, "read_committed")
    assert_is_the_brokers(rig_43, faulty_topic, "read_committed", found, expected)
    assert report.remote_gets == 0
    assert any("no remote storage is configured" in notice for notice in report.notices)


def test_an_unknown_topic(rig_43: Rig) -> None:
    with pytest.raises(remote_fetch.UnknownTopic, match="the cluster has no topic 'nowhere'"):
        from_store(config_of(rig_43), "nowhere", "read_committed")


def test_a_topic_that_is_not_tiered(rig_43: Rig, new_topic: Callable[[str], str]) -> None:
    topic = new_topic("read")
    topics.create_topic(rig_43, topic, remote_storage_enable="false", local_retention_ms="-2")
    topics.produce(rig_43, topic, 50)
    configs: tuple[dict[str, Any], ...] = ({}, {"remote_locator": "listing"})
    for config in configs:  # a listing shows no partition of the topic
        reports = assert_equal_to_broker(rig_43, topic, **config)
        assert {report.broker_records for report in reports.values()} == {50}
