"""Tests remote.locator=broker on real brokers: directly (they are old), and by a double that has KIP-1254's Fetch.

Rules of the file:

- The broker is the oracle: a read by the locator gives the records that a consumer gets from the broker.
- Each row of KIP-1254's tables on compatibility and fallback is a test with that row's words in its name. The row
  "Downgrade" is in test_groups.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from remote_fetch.config import Config
from remote_fetch.decode.columns import COLUMNS
from remote_fetch.errors import ErrorKind, StorageDenied, StorageTimeout
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.observe import Report
from remote_fetch.prepare.arguments import parse_isolation
from remote_fetch.prepare.job import plan_job
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from tests.rig import topics
from tests.rig.answers import assert_is_the_brokers
from tests.rig.consumer_faults import Delivered
from tests.rig.location_broker import LAST_VERSION, LocationBroker, located
from tests.rig.rig import Rig
from tests.rig.test_fallbacks import IMPATIENT, PATIENT, Meddle, Meddling, late_error, stalls
from tests.rig.test_fallbacks import late as of_late_segments
from tests.rig.test_read import (
    ISOLATION_OF_A_CHANGE,
    ISOLATIONS,
    as_oracle,
    config_of,
    from_store,
    mixed_topic,
    transaction,
)
from tests.rig.topics import OracleRecord

OFF = "remote.locator=broker is off, and the brokers give all records: "
TOPIC = "located"
QUICK_BROKER = {"fetch.message.max.bytes": 1 << 20, "queued.min.messages": 1000, "fetch.queue.backoff.ms": 10}

FromBroker = Callable[[Rig, str], list[OracleRecord]]


@pytest.fixture(scope="module")
def expected() -> FromBroker:
    """The records of this module's topic: every codec, committed and aborted transactions, all of them tiered."""
    known: dict[tuple[str, str], list[OracleRecord]] = {}

    def records_of(rig: Rig, isolation: str) -> list[OracleRecord]:
        if not any(version == rig.version for version, _ in known):
            mixed_topic(rig, TOPIC)
        if (rig.version, isolation) not in known:
            known[rig.version, isolation] = topics.broker_records(rig, TOPIC, 0, isolation)
        return known[rig.version, isolation]

    return records_of


@pytest.fixture
def double(rig_43: Rig) -> Iterator[LocationBroker]:
    with located(rig_43) as running:
        yield running


def through(double: LocationBroker, **more: Any) -> dict[str, Any]:
    """The configuration of a reader that knows only the double."""
    return config_of(double.rig, remote_locator="broker", **more) | {"bootstrap.servers": double.bootstrap}


def read(double: LocationBroker, isolation: str, meddle: Meddle, **more: Any) -> tuple[list[OracleRecord], Report]:
    """Read by the double, from a store whose answers are changed."""
    config = Config.parse(through(double, **more))
    with Session(config, Meddling(load_fetcher(config), meddle)) as session:
        level = parse_isolation(isolation)
        plans = plan_job(session, TOPIC, start="earliest", end="latest", partitions=None, isolation=level)
        rows = [row for batch in Scan(session, plans, COLUMNS).batches() for row in batch.to_pylist()]
        return as_oracle(rows), session.counters.report()


# ------------------------------------------------------------------------------------------------------------ the flow


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("tags", [(5, 6, 7), ()], ids=["all fields", "the fields of the KIP alone"])
def test_records_come_from_the_store_by_the_leaders_answers(
    double: LocationBroker, expected: FromBroker, isolation: str, tags: tuple[int, ...]
) -> None:
    double.tags = tags
    records = expected(double.rig, isolation)
    middle = records[len(records) // 2].offset
    for start in (0, middle, middle + 1):
        found, report = from_store(through(double), TOPIC, isolation, start=start)
        assert_is_the_brokers(double.rig, TOPIC, isolation, found, [each for each in records if each.offset >= start])
        assert (report.broker_records, report.fallbacks) == (0, {})
        assert report.records == len(found)
    assert double.locations > 0
    assert all(is_requested and formats == ("ApacheKafkaV1",) for _, is_requested, formats in double.requests)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_consumer_reads_from_the_store_by_the_leaders_answers(
    double: LocationBroker, expected: FromBroker, isolation: str
) -> None:
    records = expected(double.rig, isolation)
    with Delivered.by(through(double) | {"isolation.level": isolation}, TOPIC, 0) as delivered:
        delivered.until(lambda: len(delivered.records) >= len(records))
        assert delivered.records == records
        assert not any(delivered.through_broker)
        assert delivered.reasons == set()
        metrics = delivered.consumer.remote_metrics()
    assert double.locations > 0
    for name in ("requests", "bytes"):  # the table "New Metrics", of a consumer at work
        assert metrics[f"remote-fetch-{name}-total"] > 0
        assert metrics[f"remote-fetch-{name}-rate"] > 0
    assert metrics["remote-fetch-latency-max"] >= metrics["remote-fetch-latency-avg"] > 0
    assert metrics["remote-fetch-errors-total"] == metrics["remote-fetch-fallbacks-total"] == 0


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_transactions_that_end_behind_the_tier(
    double: LocationBroker, new_topic: Callable[[str], str], isolation: str
) -> None:
    """The leader knows the markers on its own disk. The tier's transaction indexes do not have them."""
    rig, topic = double.rig, new_topic("located-open")
    topics.create_topic(rig, topic)
    with transaction(rig, topic, 40, "aborted", seed=1) as aborted, transaction(rig, topic, 40, "ok", seed=2) as ok:
        aborted.abort_transaction(30)
        ok.commit_transaction(30)
    topics.wait_tiered(rig, topic)
    topics.set_config(rig, topic, local_retention_ms=-2)
    topics.produce(rig, topic, 30, seed=3, sizes=(300, 700))
    records = topics.broker_records(rig, topic, 0, isolation)
    found, report = from_store(through(double), topic, isolation)
    assert found == records
    assert report.fallbacks == {}
    assert 0 < report.broker_records < len(records)


def test_a_leader_that_has_changed_is_looked_up_again(double: LocationBroker, expected: FromBroker) -> None:
    """The broker answers NOT_LEADER_OR_FOLLOWER, then UNKNOWN_TOPIC_ID: it does not know the topic yet."""
    records = expected(double.rig, "read_committed")
    double.errors = [6, 100]
    found, report = from_store(through(double), TOPIC, "read_committed")
    assert (found, report.broker_records, report.fallbacks) == (records, 0, {})
    assert double.errors == []


def test_an_error_of_the_leader_is_a_fallback(double: LocationBroker, expected: FromBroker) -> None:
    """After KAFKA_STORAGE_ERROR the broker gives the records. The next read asks for a location again."""
    records = expected(double.rig, "read_committed")
    double.errors = [56]
    found, report = from_store(through(double), TOPIC, "read_committed")
    assert (found, report.fallbacks) == (records, {"unlocatable": 1})
    found, report = from_store(through(double), TOPIC, "read_committed")
    assert (found, report.broker_records) == (records, 0)


def test_a_schema_file_replaces_the_numbers(double: LocationBroker, expected: FromBroker, tmp_path: Path) -> None:
    """The double knows the segment id under tag 3. A client that looks under tag 9 finds no location."""
    text = Path("remote_fetch/locate/location_schema.json").read_text()
    schema = json.loads(text)
    (field,) = (each for each in schema["response"] if each["role"] == "segment_id")
    field["tag"] = 9
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema))
    records = expected(double.rig, "read_committed")
    config = through(double, remote_locator_schema_file=str(file))
    found, report = from_store(config, TOPIC, "read_committed")
    assert (found, report.remote_gets) == (records, 0)
    file.write_text(text)
    found, report = from_store(config, TOPIC, "read_committed")
    assert (found, report.broker_records) == (records, 0)


# ------------------------------------------------------- "Version Compatibility" and "Client-Broker Compatibility"


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_new_brokers_old_consumers(double: LocationBroker, expected: FromBroker, isolation: str) -> None:
    """A plain consumer and one with another locator never set RemoteLogSegmentLocationRequested=true."""
    records = expected(double.rig, isolation)
    config = {"bootstrap.servers": double.bootstrap, "group.id": "old", "isolation.level": isolation, **topics.QUIET}
    plain = Consumer({**config, "auto.offset.reset": "error"})
    plain.assign([TopicPartition(TOPIC, 0, 0)])
    found = [message for message in plain.consume(len(records), timeout=60) if message.error() is None]
    plain.close()
    assert [topics.oracle_record(message) for message in found] == records
    other, report = from_store(through(double) | {"remote.locator": "metadata-topic"}, TOPIC, isolation)
    assert (other, report.broker_records) == (records, 0)
    assert (double.requests, double.locations) == ([], 0)
    assert max(double.fetches) <= LAST_VERSION


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_old_brokers_new_consumers(
    rig: Rig, expected: FromBroker, isolation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Broker behaves as before: it does not announce the version, and is not asked. One line of the log tells so."""
    records = expected(rig, isolation)
    config = config_of(rig, remote_locator="broker")
    with caplog.at_level(logging.WARNING, "remote_fetch"):
        found, report = from_store(config, TOPIC, isolation)
    assert_is_the_brokers(rig, TOPIC, isolation, found, records)
    assert (report.remote_gets, report.broker_records, report.fallbacks) == (0, len(records), {})
    (line,) = [record.message for record in caplog.records if record.name == "remote_fetch"]
    assert line.startswith(OFF + "broker 1 speaks Fetch ")


def test_old_brokers_new_consumers_of_a_group(
    rig_43: Rig, expected: FromBroker, caplog: pytest.LogCaptureFixture
) -> None:
    records = expected(rig_43, "read_committed")
    config = config_of(rig_43, remote_locator="broker") | QUICK_BROKER
    with caplog.at_level(logging.WARNING, "remote_fetch"), Delivered.by(config, TOPIC, 0) as delivered:
        delivered.until(lambda: len(delivered.records) >= len(records))
        assert delivered.records == records
        assert (all(delivered.through_broker), delivered.reasons) == (True, set())
    assert [line.startswith(OFF) for line in caplog.messages] == [True]


@pytest.mark.parametrize("old", ["is_old", "refuses", "ignores"])
def test_old_brokers_new_consumers_in_each_way(double: LocationBroker, expected: FromBroker, old: str) -> None:
    """An old broker has no such version, answers UNSUPPORTED_VERSION, or "ignore the field, behaves as before"."""
    setattr(double, old, True)
    records = expected(double.rig, "read_committed")
    found, report = from_store(through(double), TOPIC, "read_committed")
    assert found == records
    assert (report.remote_gets, report.fallbacks) == (0, {})
    assert [line.startswith(OFF) for line in report.notices] == [True]
    assert len(double.requests) <= 2


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_format_mismatch(double: LocationBroker, expected: FromBroker, isolation: str) -> None:
    """Broker checks SupportedStorageFormatVersions, falls back if incompatible."""
    double.formats = frozenset({"ApacheKafkaV2"})
    records = expected(double.rig, isolation)
    found, report = from_store(through(double), TOPIC, isolation)
    assert found == records
    assert (report.remote_gets, double.locations) == (0, 0)
    assert "SupportedStorageFormatVersions" in "".join(report.notices)


# ----------------------------------------------------------------------------------------------------------- "Fallback"


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
@pytest.mark.parametrize(
    ("reason", "meddle", "more"),
    [
        pytest.param(ErrorKind.READ_TIMEOUT, of_late_segments(stalls), IMPATIENT, id="remote fetch timeout exceeded"),
        pytest.param(
            ErrorKind.CONNECT_TIMEOUT,
            late_error(StorageTimeout, ErrorKind.CONNECT_TIMEOUT),
            PATIENT,
            id="connection timeout",
        ),
        pytest.param(ErrorKind.AUTH, late_error(StorageDenied), PATIENT, id="authentication failure"),
    ],
)
def test_fallback_reissues_the_fetch_request_without_the_flag(
    double: LocationBroker,
    expected: FromBroker,
    isolation: str,
    reason: ErrorKind,
    meddle: Meddle,
    more: dict[str, Any],
) -> None:
    """The reader fetches again without RemoteLogSegmentLocationRequested: librdkafka's Fetch has no such field."""
    records = expected(double.rig, isolation)
    found, report = read(double, isolation, meddle, **more)
    assert found == records
    assert reason in report.fallbacks
    assert report.remote_gets > 0
    assert report.broker_records > 0
    assert sum(count for version, count in double.fetches.items() if version <= LAST_VERSION) > 0


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_remote_storage_fetcher_not_configured(double: LocationBroker, expected: FromBroker, isolation: str) -> None:
    """The reader never sets RemoteLogSegmentLocationRequested=true."""
    records = expected(double.rig, isolation)
    config = {"bootstrap.servers": double.bootstrap, "remote.locator": "broker", "log_level": 0}
    found, report = from_store(config, TOPIC, isolation)
    assert found == records
    assert report.fallbacks == {"not-configured": 1}
    assert double.requests == []
