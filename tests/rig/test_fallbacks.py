"""Tests every failure of a read from the store: the counted reason is right, and the records equal the broker's.

Rules of the file:

- A row is one cause. For every row the stream has to equal that of the broker.
- Every reason has a row, or is listed as impossible here with the place of its proof.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

import remote_fetch
from remote_fetch import export_topic
from remote_fetch.cli import main
from remote_fetch.config import Config
from remote_fetch.decode.columns import COLUMNS
from remote_fetch.errors import (
    ConfigError,
    ErrorKind,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageThrottled,
    StorageTimeout,
    StorageUnavailable,
    Unlocatable,
    UnsupportedFormat,
)
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.model import Buffer, IndexType
from remote_fetch.observe import Event, Fallback, Report
from remote_fetch.plan.ranges import BrokerRange, Reason
from remote_fetch.prepare.arguments import parse_isolation
from remote_fetch.prepare.job import plan_job
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.testing.faults import CountingFetcher, FetchCall
from tests.cases import of_a_change
from tests.rig import topics
from tests.rig.acls import allow, revoke_all
from tests.rig.answers import assert_is_the_brokers
from tests.rig.faults import tier_folder
from tests.rig.rig import Rig
from tests.rig.test_read import ISOLATION_OF_A_CHANGE, ISOLATIONS, as_oracle, config_of, from_store, mixed_topic
from tests.rig.topics import OracleRecord

Meddle = Callable[[FetchCall, Buffer | None], Buffer | None]
"""Changes the answer of a store, or raises."""

TIMEOUT_MS = 700
IMPATIENT = {"fetch_remote_read_timeout_ms": TIMEOUT_MS, "fetch_remote_retry_backoff_ms": 20}
PATIENT = {"fetch_remote_read_timeout_ms": 60_000}
"""For errors that come at once. With it no GET is late, also on a slow machine."""
PASSING = (ErrorKind.THROTTLED, ErrorKind.UNAVAILABLE)
"""Errors that are retried until the deadline. A range that waits for a thread in that time becomes late too."""
LATE = 60
"""The segments from this offset on cannot be read. The segments before it can."""
EPOCH_POSITION, MAGIC_POSITION = 12, 16
GUARDED = "guarded-reads"


class Meddling(CountingFetcher):
    """A fetcher whose answers are changed."""

    def __init__(self, inner: RemoteStorageFetcher, meddle: Meddle) -> None:
        super().__init__(inner)
        self._meddle = meddle

    def _altered(self, call: FetchCall, ask: Callable[[], Buffer | None]) -> Buffer | None:
        return self._meddle(call, ask())


def late(meddle: Callable[[bytes], bytes]) -> Meddle:
    """Change the first bytes of segments that begin at LATE or after it."""

    def only(call: FetchCall, data: Buffer | None) -> Buffer | None:
        is_meant = call.index_type is None and call.start_position == 0 and call.metadata.start_offset >= LATE
        return meddle(bytes(data)) if is_meant and data is not None else data

    return only


def late_error(error: type[RemoteFetchError], kind: ErrorKind | None = None) -> Meddle:
    def fail(data: bytes) -> bytes:
        raised = error("injected")
        if kind is not None:
            vars(raised)["kind"] = kind
        raise raised

    return late(fail)


def stalls(data: bytes) -> bytes:
    time.sleep(3 * TIMEOUT_MS / 1000)
    return data


def with_byte(position: int) -> Callable[[bytes], bytes]:
    """Change the byte at `position`."""
    return lambda data: data[:position] + bytes((data[position] ^ 0x55,)) + data[position + 1 :]


def index_becomes(index_type: IndexType, content: bytes | None) -> Meddle:
    return lambda call, data: content if call.index_type is index_type else data


@dataclass(frozen=True, slots=True)
class Row:
    """One cause, the reason under which its fallback is counted (None: no fallback, but `scans`), and its bounds."""

    name: str
    reason: ErrorKind | None
    meddle: Meddle
    config: Mapping[str, Any] = field(default_factory=dict)
    start: int = 0
    isolations: tuple[str, ...] = ISOLATIONS
    scans: frozenset[str] = frozenset()


ROWS = (
    Row("read timeout", ErrorKind.READ_TIMEOUT, late(stalls), config=IMPATIENT),
    Row("connect timeout", ErrorKind.CONNECT_TIMEOUT, late_error(StorageTimeout, ErrorKind.CONNECT_TIMEOUT)),
    Row("401, 403 or an expired URL", ErrorKind.AUTH, late_error(StorageDenied)),
    Row("object gone", ErrorKind.NOT_FOUND, late_error(SegmentNotFound)),
    Row("format of the store", ErrorKind.FORMAT, late_error(UnsupportedFormat)),
    Row("format of a batch", ErrorKind.FORMAT, late(with_byte(MAGIC_POSITION))),
    Row("corrupt bytes", ErrorKind.CORRUPT, late(with_byte(70))),
    Row("cut object", ErrorKind.CORRUPT, late(lambda data: data[: len(data) // 2])),
    Row("corrupt transaction index", ErrorKind.CORRUPT, index_becomes(IndexType.TRANSACTION, bytes(33)),
        isolations=("read_committed",)),
    Row("corrupt producer snapshot", ErrorKind.CORRUPT,
        index_becomes(IndexType.PRODUCER_SNAPSHOT, b"\x00\x01" + b"\xff" * 32), isolations=("read_committed",)),
    Row("missing producer snapshot", ErrorKind.UNLOCATABLE, index_becomes(IndexType.PRODUCER_SNAPSHOT, None),
        isolations=("read_committed",)),
    Row("missing offset index", None, index_becomes(IndexType.OFFSET, None), start=1, scans=frozenset({"missing"})),
    Row("corrupt offset index", None, index_becomes(IndexType.OFFSET, b"\xff" * 16), start=1,
        scans=frozenset({"corrupt"})),
    Row("a batch too large", ErrorKind.DECOMPRESSION_LIMIT, late(lambda data: data),
        config={"fetch_remote_max_decompressed_bytes": 1024}),
    Row("epoch mismatch", ErrorKind.TRUNCATED, late(with_byte(EPOCH_POSITION))),
    Row("throttled", ErrorKind.THROTTLED, late_error(StorageThrottled), config=IMPATIENT),
    Row("unavailable", ErrorKind.UNAVAILABLE, late_error(StorageUnavailable), config=IMPATIENT),
)  # fmt: skip

ELSEWHERE = {
    ErrorKind.NOT_CONFIGURED: "test_no_storage_is_configured",
    ErrorKind.RECREATED: "an error: test_adversity",
    ErrorKind.OFFSET_OUT_OF_RANGE: "an error: test_adversity",
    ErrorKind.LOG_TRUNCATED: "an error: test_leaders",
    ErrorKind.UNKNOWN_TOPIC: "an error before the read: test_read",
    ErrorKind.CONFIG: "an error before the read: test_a_layout_that_nobody_knows",
    ErrorKind.MISSING_EXTRA: "an error before the read",
    ErrorKind.CANCELLED: "the reader's own wish",
    ErrorKind.BROKER_UNAVAILABLE: "no broker answers at all: fatal, for there is nothing to fall back on",
    ErrorKind.TABLE: "an error of a table's commit: tests/tables",
    ErrorKind.UNDECODABLE: "an error behind the read, whose bytes are right: tests/typed",
    ErrorKind.UNKNOWN_SCHEMA: "as above",
    ErrorKind.REGISTRY_AUTH: "as above",
    ErrorKind.REGISTRY_UNAVAILABLE: "as above",
}
"""Reasons without a row, and where they are tested."""


def test_every_reason_is_in_a_row_or_named_as_none() -> None:
    in_rows = {row.reason for row in ROWS if row.reason is not None}
    assert in_rows | set(ELSEWHERE) == set(ErrorKind)
    assert not in_rows & set(ELSEWHERE)


@pytest.fixture(scope="module")
def tiered() -> Callable[[Rig], str]:
    """Makes this module's topic on a rig: every codec, committed and aborted transactions, all of them in the tier."""
    made: dict[str, str] = {}

    def topic_of(rig: Rig) -> str:
        if rig.version not in made:
            mixed_topic(rig, "fallbacks")
            made[rig.version] = "fallbacks"
        return made[rig.version]

    return topic_of


def read(rig: Rig, topic: str, isolation: str, row: Row) -> tuple[list[OracleRecord], Report, list[Event]]:
    config = Config.parse(config_of(rig, **{**PATIENT, **row.config}))
    events: list[Event] = []
    with Session(config, Meddling(load_fetcher(config), row.meddle), events.append) as session:
        plans = plan_job(
            session, topic, start=row.start, end="latest", partitions=None, isolation=parse_isolation(isolation)
        )
        rows = [one for batch in Scan(session, plans, COLUMNS).batches() for one in batch.to_pylist()]
        return as_oracle(rows), session.counters.report(), events


def assert_said_once(events: list[Event]) -> None:
    """Check that no offset falls back twice."""
    stretches = [(one.first_offset, one.last_offset) for one in events if isinstance(one, Fallback)]
    assert all(first <= last for first, last in stretches)
    assert all(before[1] < after[0] for before, after in pairwise(stretches)), stretches


@pytest.mark.parametrize(
    ("row", "isolation"),
    of_a_change(
        [(row, level) for row in ROWS for level in row.isolations], *((row, row.isolations[0]) for row in ROWS)
    ),
    ids=lambda value: value.name if isinstance(value, Row) else value,
)
def test_the_stream_is_the_brokers_and_the_reason_is_counted(
    rig: Rig, tiered: Callable[[Rig], str], row: Row, isolation: str
) -> None:
    topic = tiered(rig)
    found, report, events = read(rig, topic, isolation, row)
    expected = topics.broker_records(rig, topic, 0, isolation, start=row.start)
    assert_is_the_brokers(rig, topic, isolation, found, expected)
    assert report.records == len(expected)
    reasons = set(report.fallbacks) - ({ErrorKind.READ_TIMEOUT} if row.reason in PASSING else set())
    assert reasons == (set() if row.reason is None else {row.reason})
    assert set(report.scans) == row.scans
    given_up = [event for event in events if isinstance(event, Fallback)]
    assert bool(given_up) == (row.reason is not None)
    assert all(one.detail for one in given_up[:1])  # later ones may only follow from the first
    # The lost end of a cut object may hold only a marker.
    is_seen = any(one.first_offset <= record.offset <= one.last_offset for one in given_up for record in expected)
    assert bool(report.broker_records) == is_seen
    assert_said_once(events)
    if row.reason in PASSING:
        assert set(report.retries) == {row.reason}


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_no_storage_is_configured(rig: Rig, tiered: Callable[[Rig], str], isolation: str) -> None:
    topic = tiered(rig)
    found, report = from_store({"bootstrap.servers": rig.bootstrap, "log_level": 0}, topic, isolation)
    assert found == topics.broker_records(rig, topic, 0, isolation)
    assert report.fallbacks == {"not-configured": 1}
    assert report.remote_gets == 0
    assert len([one for one in report.notices if "no remote storage is configured" in one]) == 1


def without_a_store(rig: Rig) -> dict[str, Any]:
    """The configuration for a store that has to be listed, and at whose address no server answers."""
    options = {"key": "key", "secret": "secret", "endpoint_url": "http://127.0.0.1:1"}
    return {
        **config_of(rig, remote_locator="listing", **IMPATIENT),
        "remote.storage.url": "s3://tier",
        **{f"remote.storage.options.{name}": value for name, value in options.items()},
    }


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_a_store_that_cannot_be_listed(rig: Rig, tiered: Callable[[Rig], str], isolation: str) -> None:
    topic = tiered(rig)
    found, report = from_store(without_a_store(rig), topic, isolation)
    assert found == topics.broker_records(rig, topic, 0, isolation)
    assert report.fallbacks in ({"unavailable": 1}, {"read-timeout": 1})  # on a busy machine a refusal may be late
    assert report.remote_gets == 0


def test_a_store_that_cannot_be_listed_ends_what_asks_for_the_tier(
    rig_43: Rig, tiered: Callable[[Rig], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, config = tiered(rig_43), without_a_store(rig_43)
    with pytest.raises((StorageUnavailable, StorageTimeout)):
        export_topic(topic, to=str(tmp_path / "tier"), config=config)
    done = export_topic(topic, to=str(tmp_path / "latest"), end="latest", config=config)
    assert done.rows == len(topics.broker_records(rig_43, topic, 0, "read_committed"))
    options = [text for name, value in config.items() for text in ("-X", f"{name}={value}")]
    for command in ("ls", "bounds"):
        assert main([command, "-t", topic, *options]) == 1
        assert re.search("the store (could not be reached|did not answer in time)", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        ({"remote.locator.topic": "no-such-topic"}, Unlocatable, "there is no topic no-such-topic"),
        ({"remote.storage.url": None}, ConfigError, "no remote storage is configured"),
    ],
    ids=["no metadata", "no store"],
)
def test_an_export_to_the_end_of_a_tier_that_nothing_tells(
    rig_43: Rig, tiered: Callable[[Rig], str], tmp_path: Path, more: dict[str, Any], error: type[Exception], says: str
) -> None:
    """The tier is not empty, and an export that wrote nothing would say so."""
    topic, config = tiered(rig_43), {**config_of(rig_43), **more}
    config = {name: value for name, value in config.items() if value is not None}
    with pytest.raises(error, match=says):
        export_topic(topic, to=str(tmp_path / "tier"), config=config)
    assert list(tmp_path.iterdir()) == []
    done = export_topic(topic, to=str(tmp_path / "latest"), end="latest", config=config)
    assert done.rows == len(topics.broker_records(rig_43, topic, 0, "read_committed"))


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_a_topic_that_is_not_tiered_is_no_fallback(rig: Rig, new_topic: Callable[[str], str], isolation: str) -> None:
    topic = new_topic("plain")
    topics.create_topic(rig, topic, remote_storage_enable="false", local_retention_ms="-2")
    topics.produce(rig, topic, 20)
    found, report = from_store(config_of(rig), topic, isolation)
    assert found == topics.broker_records(rig, topic, 0, isolation)
    assert (report.broker_records, report.fallbacks) == (20, {})


def test_a_layout_that_nobody_knows(rig_43: Rig) -> None:
    with pytest.raises(ConfigError, match="layout"):
        from_store(config_of(rig_43, remote_storage_layout="nobody"), "fallbacks", "read_committed")


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_what_is_local_is_told_from_what_is_not_tiered(
    rig: Rig, new_topic: Callable[[str], str], isolation: str
) -> None:
    """The broker gives local records and records that are not tiered, for different reasons."""
    topic = new_topic("local")
    topics.create_topic(rig, topic, local_retention_ms="-2")
    topics.produce(rig, topic, 120, sizes=(300, 700))
    rig.until("segments in the tier", lambda: topics.offsets(rig, topic, 0).latest_tiered > 60)
    tier_end = topics.offsets(rig, topic, 0).latest_tiered
    with Session.open(config_of(rig)) as session:
        level = parse_isolation(isolation)
        (plan,) = plan_job(session, topic, start=0, end="latest", partitions=None, isolation=level)
    local, *rest = plan.steps
    assert isinstance(local, BrokerRange)
    assert (local.first_offset, local.reason) == (0, Reason.LOCAL)
    assert local.last_offset >= tier_end
    assert [(one.reason, one.last_offset) for one in rest if isinstance(one, BrokerRange)] == [(Reason.NOT_TIERED, 119)]


@pytest.fixture(scope="module")
def guarded(rig_43: Rig) -> Rig:
    """A broker with access control and a topic in its tier."""
    topics.make_tiered(rig_43, GUARDED, 60)
    return rig_43


@pytest.fixture
def reader(guarded: Rig) -> Iterator[dict[str, Any]]:
    """The configuration of a principal that may do nothing yet."""
    yield config_of(guarded) | guarded.sasl_client("reader")
    revoke_all(guarded, "reader")


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
@pytest.mark.parametrize("operation", [None, "DESCRIBE"])
def test_who_may_not_read_the_topic_gets_the_brokers_error(
    guarded: Rig, reader: dict[str, Any], isolation: str, operation: str | None
) -> None:
    """A reader without READ on the topic gets the broker's error and no records, although the store holds them."""
    allow(guarded, "reader", "READ", "__remote_log_metadata")
    if operation is not None:
        allow(guarded, "reader", operation, GUARDED)
    counters = remote_fetch.Counters()
    with pytest.raises(KafkaException) as raised:
        remote_fetch.read_arrow(GUARDED, isolation=isolation, config=reader, observer=counters)
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    report = counters.report()
    assert (report.remote_gets, report.index_gets, report.broker_records) == (0, 0, 0)


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_metadata_that_cannot_be_read(guarded: Rig, reader: dict[str, Any], isolation: str) -> None:
    allow(guarded, "reader", "READ", GUARDED)
    found, report = from_store(reader, GUARDED, isolation)
    assert found == topics.broker_records(guarded, GUARDED, 0, isolation)
    assert report.fallbacks == {"unlocatable": 1}
    assert report.remote_gets == 0
    assert len([one for one in report.notices if "may not read __remote_log_metadata" in one]) == 1


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_damage_that_the_broker_gives_too_ends_the_read(rig: Rig, new_topic: Callable[[str], str], codec: str) -> None:
    """The only copy is damaged. The broker gives it as it is, and a plain consumer checks no checksum by default."""
    topic = new_topic(f"damaged-{codec}")
    topics.make_tiered(rig, topic, 80, compression_type=codec, sizes=(200, 400))
    written = topics.broker_records(rig, topic, 0, "read_uncommitted")
    log = sorted(tier_folder(rig, topic, 0).glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[-20] ^= 0xFF
    log.write_bytes(data)
    found: list[OracleRecord] = []

    def read() -> None:
        with remote_fetch.read_arrow(topic, config=config_of(rig), columns=COLUMNS) as reader:
            for batch in reader:
                found.extend(as_oracle(batch.to_pylist()))

    with pytest.raises(KafkaException, match=rf"\[{topic}-0, offset \d+, as the broker gives it\]") as raised:
        read()
    assert raised.value.args[0].code() == KafkaError._BAD_MSG
    assert 0 < len(found) < len(written)
    assert found == written[: len(found)]
