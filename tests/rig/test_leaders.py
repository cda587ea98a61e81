"""Reads of segments from several leaders, some of them from a lost log. The broker is the oracle.

Rules of the file:

- Each test first proves, from the brokers' files and metadata, that its situation has really happened. Then it compares
  streams.
- A test leaves all brokers running.
- The topics share only their cluster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

import remote_fetch
from remote_fetch import RemoteConsumer
from remote_fetch.config import Config
from remote_fetch.deadline import Deadline, retry
from remote_fetch.errors import LogTruncated
from remote_fetch.failures.broker_errors import is_passing
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IsolationLevel, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from remote_fetch.observe import Report
from remote_fetch.session.session import Session
from tests.rig import topics
from tests.rig.elections import kept_by, move_leader, paused, replicas, tiered_with, wait_followed, wait_led
from tests.rig.faults import tier_folder
from tests.rig.rig import Rig, cluster
from tests.rig.test_read import assert_equal_to_broker, config_of
from tests.rig.transactions import interleaved_transactions, open_transaction

T = TypeVar("T")

pytestmark = pytest.mark.scheduled  # three brokers take 25 s of processor time until they are up

ONE_SEGMENT = 1 << 20
SMALL_SEGMENTS = 8192
SMALL = {"fetch.remote.range.bytes": 1024, "fetch.remote.max.bytes": 8192, "queued.max.messages.kbytes": 64}
"""Settings of a reader that reads little ahead."""
EVER = 10**13
"""A value for `segment.ms`. With a shorter one, a marker (with the broker's time) would close a segment of old
records."""
LOST, BAIT = b"this record was lost", b"this one may go either way"
SESSION = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "300"}
"""How long a controller waits for a broker: longer than a pause here, and short, so that it notices a killed broker."""


@pytest.fixture(scope="module")
def cluster_of_three(needs_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with cluster(tmp_path_factory.mktemp("three"), properties=SESSION) as running:
        running.wait_tier_ready()
        yield running


@pytest.fixture
def three(cluster_of_three: Rig) -> Rig:
    """The cluster with all its brokers, also if a former test failed while a broker was down."""
    for node in cluster_of_three.nodes.values():
        if not node.is_running:
            node.start()
            node.wait_started()
    return cluster_of_three


def timeline_of(rig: Rig, topic: str) -> Timeline:
    """The timeline from the metadata topic. Waits for its leader, because without one a reader goes on without it."""
    config = Config.parse(config_of(rig))
    found: list[Timeline] = []

    def is_told() -> bool:
        with Session(config, load_fetcher(config)) as session:
            (partition,) = session.locator.partitions(topic)
            found.append(session.locator.timeline(partition))
            return session.configured_locator.unlocated is None

    rig.until("the metadata topic to be readable", is_told)
    return found[-1]


def overlaps(timeline: Timeline) -> list[tuple[RemoteLogSegmentMetadata, RemoteLogSegmentMetadata]]:
    """The pairs of finished segments that share offsets and come from different brokers."""
    known = timeline.segments
    return [
        (one, other)
        for at, one in enumerate(known)
        for other in known[at + 1 :]
        if other.start_offset <= one.end_offset and one.broker_id != other.broker_id
    ]


def wait_decided(rig: Rig, topic: str) -> None:
    """Wait for the markers of ended transactions, because none may arrive between two compared reads."""
    partition = TopicIdPartition(Uuid(bytes(16)), topic, 0)
    cluster = Cluster({"bootstrap.servers": rig.bootstrap, **topics.QUIET}, timeout_ms=60_000)
    try:
        levels = tuple(IsolationLevel)
        rig.until(
            "the markers", lambda: len({cluster.log_bounds(partition, level).end_offset for level in levels}) == 1
        )
    finally:
        cluster.close()


def assert_streams_equal(rig: Rig, topic: str) -> dict[str, Report]:
    """Check that the records equal the broker's, with local records read from the tier and through the broker.

    Returns the reports of the reads from the tier.
    """
    wait_decided(rig, topic)
    assert_equal_to_broker(rig, topic)
    return assert_equal_to_broker(rig, topic, fetch_remote_when="always")


def write_marked(rig: Rig, topic: str, mark: bytes, count: int) -> None:
    """Write records that only the leader has to confirm. Their key can be found in its files."""
    producer = Producer({"bootstrap.servers": rig.bootstrap, "acks": 1, "batch.num.messages": 5, **topics.QUIET})
    for number in range(count):
        producer.produce(topic, partition=0, key=mark, value=bytes(200), timestamp=1_700_001_000_000 + number)
    assert producer.flush(60) == 0


def feeds() -> list[str]:
    """The threads that work for consumers."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("remote-fetch-feed")]


def assert_parted(rig: Rig, topic: str, start: int) -> None:
    """The brokers tell that the log of epoch 0 ends at `start`, however often and in which order they are asked."""
    partition = TopicIdPartition(Uuid(bytes(16)), topic, 0)
    cluster = Cluster({"bootstrap.servers": rig.bootstrap, **topics.QUIET}, timeout_ms=60_000)
    try:
        for _ in range(3):
            found = [cluster.still_holds(partition, 0, offset) for offset in (start, start + 1, 480)]
            assert found == [True, False, False]
    finally:
        cluster.close()


def write_what_will_be_lost(rig: Rig, tiered: str, local: str) -> None:
    """Write 200 records to each of two topics, which both brokers have, and 320 that only the leader has.

    Broker 2 is down then. All but the last 20 are tiered of the one topic, nothing of the other.
    """
    kept: dict[str, dict[str, Any]] = {
        tiered: {"segment_bytes": SMALL_SEGMENTS},
        local: {"segment_bytes": ONE_SEGMENT, "local_retention_ms": -2},
    }
    for topic, settings in kept.items():
        settings |= {"segment_ms": EVER, "unclean_leader_election_enable": "true"}
        topics.create_topic(rig, topic, brokers=[1, 2], **settings)
        write_marked(rig, topic, b"kept", 200)
        wait_followed(rig, topic, [1, 2])
    rig.nodes[2].stop(kill=True)
    for topic in (tiered, local):
        wait_followed(rig, topic, [1])
        write_marked(rig, topic, LOST, 300)
    rig.until("what will be lost tiered", lambda: topics.offsets(rig, tiered, 0).earliest_local > 450)
    topics.set_config(rig, tiered, segment_bytes=ONE_SEGMENT, local_retention_ms=-2)
    for topic in (tiered, local):
        write_marked(rig, topic, LOST, 20)


def elect_uncleanly(rig: Rig, tiered: str, local: str) -> dict[str, int]:
    """Let broker 2 lead, which lacks the last records. Returns the ends of its logs: 200, or less.

    A follower that was killed forgets which records are safe.
    """
    rig.nodes[1].stop(kill=True)
    rig.nodes[2].start()
    rig.nodes[2].wait_started()
    for topic in (tiered, local):
        wait_led(rig, topic, 2)
    return {topic: topics.offsets(rig, topic, 0).latest for topic in (tiered, local)}


def test_uploads_of_several_leaders_overlap(three: Rig) -> None:
    """The leaders closed their segments at different offsets, so uploads of the new leader overlap earlier ones."""
    rig, topic = three, "overlaps"
    topics.create_topic(rig, topic, brokers=[1], local_retention_ms=-2)
    interleaved_transactions(rig, topic, (True, False, True), rounds=3)
    topics.produce(rig, topic, 80)
    rig.until("the first uploads", lambda: topics.offsets(rig, topic, 0).latest_tiered > 80)

    topics.set_config(rig, topic, segment_bytes=ONE_SEGMENT)
    with open_transaction(rig, topic, 20) as transaction:
        move_leader(rig, topic, [2, 1])
        transaction.write(10)
        transaction.end(commit=False)
    topics.set_config(rig, topic, segment_bytes=SMALL_SEGMENTS)
    interleaved_transactions(rig, topic, (False, True, False), rounds=3, seed=1)
    topics.produce(rig, topic, 40, seed=1)
    rig.until("an upload of the second leader", lambda: bool(overlaps(timeline_of(rig, topic))))
    assert all(report.remote_gets for report in assert_streams_equal(rig, topic).values())

    topics.set_config(rig, topic, segment_bytes=ONE_SEGMENT)
    topics.produce(rig, topic, 60, seed=2)
    move_leader(rig, topic, [1, 2])
    move_leader(rig, topic, [3, 1])
    topics.set_config(rig, topic, segment_bytes=SMALL_SEGMENTS, local_retention_ms=1)
    interleaved_transactions(rig, topic, (True, False), producers=2, rounds=3, seed=2)
    topics.wait_tiered(rig, topic)

    assert {two.broker_id for pair in overlaps(timeline_of(rig, topic)) for two in pair} == {1, 2, 3}
    for report in assert_streams_equal(rig, topic).values():
        assert report.broker_records == 0
        assert report.fallbacks == {}


def patiently(ask: Callable[[], T]) -> T:
    """Ask as the callers of these questions do: while a leader is elected, a partition may have none."""
    return retry(ask, KafkaException, until=Deadline.after(30), pause_s=0.1, may_pass=is_passing)


def test_questions_about_the_ends_survive_the_death_of_the_leader(three: Rig) -> None:
    """They begin while the dead broker is still the leader. Its election ends long before their deadline."""
    rig, topic = three, "died"
    topics.create_topic(rig, topic, brokers=[2, 1, 3])
    topics.produce(rig, topic, 40)
    wait_followed(rig, topic, [1, 2, 3])
    end = topics.offsets(rig, topic, 0).latest
    partition, level = TopicIdPartition(Uuid(bytes(16)), topic, 0), IsolationLevel.READ_UNCOMMITTED
    clusters = [Cluster({"bootstrap.servers": rig.bootstrap, **topics.QUIET}, timeout_ms=30_000) for _ in range(4)]
    rig.nodes[2].stop(kill=True)
    assert replicas(rig, topic).leader == 2
    try:
        with ThreadPoolExecutor() as pool:
            bounds = [pool.submit(patiently, partial(one.log_bounds, partition, level)) for one in clusters[:2]]
            ends = [pool.submit(patiently, partial(one.ends, topic, {0})) for one in clusters[2:]]
            assert [call.result().end_offset for call in bounds] == [end, end]
            assert [call.result()[0][1] for call in ends] == [end, end]
    finally:
        for one in clusters:
            one.close()
    assert replicas(rig, topic).leader != 2
    rig.nodes[2].start()
    rig.nodes[2].wait_started()
    wait_followed(rig, topic, [1, 2, 3])


def test_an_unclean_leader_writes_the_log_anew(three: Rig) -> None:
    """The tier has uploads of the old leader from a log that was cut off, also past the new leader's end."""
    rig, topic = three, "unclean"
    topics.create_topic(
        rig, topic, brokers=[1, 2], local_retention_ms=-2, segment_ms=EVER, unclean_leader_election_enable="true"
    )
    interleaved_transactions(rig, topic, (True, False, True), rounds=3)
    topics.produce(rig, topic, 40)
    wait_followed(rig, topic, [1, 2])
    parting = topics.offsets(rig, topic, 0).latest

    rig.nodes[2].stop(kill=True)
    wait_followed(rig, topic, [1])
    interleaved_transactions(rig, topic, (False, True, False), rounds=5, seed=1)
    write_marked(rig, topic, LOST, 300)
    rig.until("what will be lost tiered", lambda: topics.offsets(rig, topic, 0).latest_tiered > parting + 300)
    old_end = topics.offsets(rig, topic, 0).latest
    topics.set_config(rig, topic, segment_bytes=ONE_SEGMENT)
    rig.nodes[1].stop(kill=True)
    rig.nodes[2].start()
    rig.nodes[2].wait_started()
    wait_led(rig, topic, 2)
    old = timeline_of(rig, topic)  # not before: the old leader may have uploaded until its end
    assert topics.offsets(rig, topic, 0).latest == parting

    # The same producers commit at these offsets the transactions that they aborted in the lost log, and vice versa.
    interleaved_transactions(rig, topic, (True, False, True), rounds=7, seed=2)
    end = topics.offsets(rig, topic, 0).latest
    assert parting + 60 < end < old_end
    assert timeline_of(rig, topic).segments == old.segments
    lost = tiered_with(tier_folder(rig, topic, 0), LOST)
    assert lost & {str(one.segment_id.id) for one in old.segments}
    assert_streams_equal(rig, topic)

    rig.nodes[1].start()
    rig.nodes[1].wait_started()
    wait_followed(rig, topic, [1, 2])
    assert kept_by(rig, 1, topic, LOST) == 0
    topics.set_config(rig, topic, segment_bytes=SMALL_SEGMENTS)
    topics.produce(rig, topic, 10, seed=3)
    topics.set_config(rig, topic, segment_bytes=ONE_SEGMENT)
    topics.produce(rig, topic, 30, seed=4)
    rig.until("an upload of the new leader", lambda: len(timeline_of(rig, topic).segments) > len(old.segments))
    now = topics.offsets(rig, topic, 0)
    assert now.latest_tiered + 1 < now.latest < old.segments[-1].end_offset
    assert_streams_equal(rig, topic)

    topics.set_config(rig, topic, segment_bytes=SMALL_SEGMENTS, local_retention_ms=1)
    topics.produce(rig, topic, 10, seed=5)
    topics.wait_tiered(rig, topic)
    assert lost <= tiered_with(tier_folder(rig, topic, 0), LOST)
    for report in assert_streams_equal(rig, topic).values():
        assert report.broker_records == 0


def test_a_consumer_goes_on_where_an_unclean_leader_has_parted(three: Rig) -> None:
    """It has read lost records, from the store and from the old leader. It gets all records of the new leader."""
    rig, tiered, local = three, "parted-in-the-store", "parted-at-the-broker"
    write_what_will_be_lost(rig, tiered, local)
    settings = {**config_of(rig), **SMALL, **topics.QUIET, "group.id": "parted", "auto.offset.reset": "latest"}
    consumer = RemoteConsumer(settings | {"fetch.remote.enabled": True, "topic.metadata.refresh.interval.ms": 2000})
    found: dict[str, list[tuple[int, bytes | None]]] = {tiered: [], local: []}

    def read_up_to(topic: str, offset: int) -> None:
        until_s = time.monotonic() + 150
        while not found[topic] or found[topic][-1][0] < offset:
            assert time.monotonic() < until_s, (topic, offset, found[topic][-1:])
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found[message.topic() or ""].append((message.offset() or 0, message.key()))

    consumer.assign([TopicPartition(topic, 0, 0) for topic in (tiered, local)])
    try:
        read_up_to(local, 499)
        read_up_to(tiered, 210)
        starts = elect_uncleanly(rig, tiered, local)
        for topic in starts:
            write_marked(rig, topic, b"new", 700)
        for topic, start in starts.items():
            read_up_to(topic, start + 699)
            assert_parted(rig, topic, start)
    finally:
        consumer.close()
        rig.nodes[1].start()
        rig.nodes[1].wait_started()
        rig.until("the end of questions to the broker that was away", lambda: not feeds())
    for topic, start in starts.items():
        records = found[topic]
        assert [offset for offset, key in records if key == b"kept"] == list(range(200))
        lost = [offset for offset, key in records if key == LOST]
        assert lost == list(range(200, 200 + len(lost)))
        assert lost, "the situation has not happened"
        assert records[200 + len(lost) :] == [(offset, b"new") for offset in range(start, start + 700)]


def test_a_bounded_read_ends_where_an_unclean_leader_has_parted(three: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives no mixture of both logs: not in one piece, not in tasks, and not inside a range of the broker."""
    monkeypatch.setattr("remote_fetch.session.broker._BATCH_MESSAGES", 10)
    rig, tiered, local = three, "ended-in-the-store", "ended-at-the-broker"
    write_what_will_be_lost(rig, tiered, local)
    config = {**config_of(rig, fetch_remote_broker_timeout_ms=20_000), **SMALL, **topics.QUIET}
    config["topic.metadata.refresh.interval.ms"] = 2000
    slow = {"queued.min.messages": 1, "fetch.message.max.bytes": 1024}
    job = remote_fetch.scan_topic(tiered, config=config)
    *of_store, of_broker = job.tasks(task_bytes=1 << 14)
    assert {key for task in of_store for _, key in rows_until(job.read(task))[0]} == {b"kept", LOST}
    with (
        remote_fetch.read_arrow(tiered, config=config) as shorter,
        remote_fetch.read_arrow(tiered, config=config) as longer,
        remote_fetch.read_arrow(local, start=190, config=config | slow) as inside,
    ):
        given = [rows_until(reader, 210)[0] for reader in (shorter, longer, inside)]
        starts = elect_uncleanly(rig, tiered, local)
        assert topics.offsets(rig, tiered, 0).latest < 450
        ends = [rows_until(shorter)]
        for topic in starts:
            write_marked(rig, topic, b"new", 700)
        ends += [rows_until(longer), rows_until(inside)]

    for before, (after, error), topic in zip(given, ends, (tiered, tiered, local), strict=True):
        assert error is not None, f"{topic} gave up to {before[-1]}, then {after[:1]} to {after[-1:]}"
        assert (error.topic, error.partition, error.offset) == (topic, 0, starts[topic])
        rows = before + after
        assert 210 <= before[-1][0] < 510, "the situation has not happened"
        assert [offset for offset, _ in rows] == list(range(rows[0][0], rows[-1][0] + 1))
        assert {key for _, key in rows} == {b"kept", LOST}

    rows, error = rows_until(job.read(of_broker))
    assert rows == []
    assert error is not None
    assert error.offset == starts[tiered]

    rows, error = rows_until(remote_fetch.read_arrow(tiered, config=config))
    assert error is None
    assert rows == [(at, b"kept" if at < starts[tiered] else b"new") for at in range(starts[tiered] + 700)]
    rig.nodes[1].start()
    rig.nodes[1].wait_started()


def rows_until(batches: Iterable[pa.RecordBatch], offset: int = 10**9) -> tuple[list[tuple[int, bytes]], Any]:
    """Offsets and keys up to `offset`, or all of them, with the error that ended the read because of the log."""
    rows: list[tuple[int, bytes]] = []
    try:
        for batch in batches:
            rows += [(row["offset"], row["key"]) for row in batch.to_pylist()]
            if rows and rows[-1][0] >= offset:
                break
    except LogTruncated as error:
        return rows, error
    return rows, None


def test_a_follower_takes_back_what_nobody_had_to_see(three: Rig) -> None:
    """A follower had records above the high watermark, and another broker became leader.

    Both led and uploaded later.
    """
    rig, topic = three, "truncated"
    topics.create_topic(rig, topic, brokers=[1, 3, 2], local_retention_ms=-2)
    interleaved_transactions(rig, topic, (True, False, True), rounds=3)
    with open_transaction(rig, topic, 20) as transaction:
        wait_followed(rig, topic, [1, 2, 3])
        with paused(rig, 3):
            # An answer to the fetch that is already under way lies ready for the broker that stands still.
            write_marked(rig, topic, BAIT, 5)
            rig.until("the fetch", lambda: kept_by(rig, 2, topic, BAIT) == 5)
            write_marked(rig, topic, LOST, 20)
            rig.until("the records at the follower", lambda: kept_by(rig, 2, topic, LOST) == 20)
            rig.nodes[1].stop(kill=True)
        wait_led(rig, topic, 3)
        assert kept_by(rig, 3, topic, LOST) == 0
        wait_followed(rig, topic, [2, 3])
        rig.until("the truncation", lambda: kept_by(rig, 2, topic, LOST) == 0)
        topics.produce(rig, topic, 40, seed=1)
        transaction.write(20)
        transaction.end(commit=True)
    assert_streams_equal(rig, topic)
    rig.nodes[1].start()
    rig.nodes[1].wait_started()
    wait_followed(rig, topic, [1, 2, 3])

    move_leader(rig, topic, [2, 3, 1])
    interleaved_transactions(rig, topic, (False, True), producers=2, rounds=3, seed=2)
    topics.set_config(rig, topic, local_retention_ms=1)
    topics.wait_tiered(rig, topic)
    assert replicas(rig, topic).leader == 2
    assert {one.broker_id for one in timeline_of(rig, topic).segments} >= {2}
    assert not tiered_with(tier_folder(rig, topic, 0), LOST)
    for report in assert_streams_equal(rig, topic).values():
        assert report.broker_records == 0
        assert report.fallbacks == {}
