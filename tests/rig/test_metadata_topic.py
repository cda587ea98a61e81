"""The metadata-topic locator on real brokers knows the segments of the tier, or reports why it cannot know them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from remote_fetch.errors import UnknownTopic
from remote_fetch.failures.broker_errors import is_refusal
from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.formats.metadata_records import SegmentMetadataRecord
from remote_fetch.locate import metadata_topic
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.metadata_replay import METADATA_TOPIC, MetadataTopic
from remote_fetch.locate.metadata_topic import MetadataTopicLocator
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IsolationLevel, TopicIdPartition, Uuid
from remote_fetch.session.session import Session
from remote_fetch.testing.metadata_records import encode_metadata_record
from tests.cases import of_a_change
from tests.eventually import eventually
from tests.rig.acls import allow, deny, revoke_all
from tests.rig.brokers import FASTER_RESTARTS
from tests.rig.faults import failing_uploads, tier_folder, topic_id
from tests.rig.rig import VERSIONS, Rig, single
from tests.rig.topics import (
    QUIET,
    admin,
    create_topic,
    delete_records,
    delete_topic,
    make_tiered,
    offsets,
    produce,
    wait_tiered,
)

NewTopic = Callable[[str], str]
DATA = "guarded"
"""The topic of the tests about rights."""


class Reader:
    """A locator as a session makes it, and its notices."""

    def __init__(
        self, properties: dict[str, str], metadata: dict[str, str] | None = None, timeout_ms: int = 10_000
    ) -> None:
        self.said: list[str] = []
        self.cluster = Cluster({**properties, **QUIET}, timeout_ms=timeout_ms)
        self.metadata = self.cluster if metadata is None else Cluster({**metadata, **QUIET}, timeout_ms=timeout_ms)
        topic = MetadataTopic(self.metadata, timeout_ms=timeout_ms)
        self.locator = MetadataTopicLocator(self.cluster, topic, say=self.said.append)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.cluster.close()
        self.metadata.close()


@pytest.fixture
def reader(rig: Rig) -> Iterator[Reader]:
    with Reader({"bootstrap.servers": rig.bootstrap}) as found:
        yield found


Segments = set[tuple[int, str, int]]


def in_timeline(timeline: Timeline) -> Segments:
    """Start offset, segment id and size of each segment."""
    return {(one.start_offset, str(one.segment_id.id), one.segment_size_in_bytes) for one in timeline.segments}


def in_tier(rig: Rig, topic: str, partition: int) -> Segments:
    """Start offset, segment id and size of each `.log` file in the partition's directory of the tier."""
    found: Segments = set()
    for log in tier_folder(rig, topic, partition).glob("*.log"):
        with suppress(FileNotFoundError):  # the broker may delete it at this moment
            found.add((int(log.stem[:20]), log.stem[21:], log.stat().st_size))
    return found


def assert_gapless(timeline: Timeline, stop: int) -> None:
    """Check that every offset from 0 to `stop` (exclusive) is in exactly one segment."""
    expected = 0
    for segment in timeline.segments:
        assert segment.start_offset == expected
        expected = segment.end_offset + 1
    assert expected == stop


def test_timelines_are_what_lies_in_the_tier(rig: Rig, reader: Reader, new_topic: NewTopic) -> None:
    topic = new_topic("located")
    create_topic(rig, topic, 4)
    counts = {0: 200, 1: 90, 2: 30, 3: 0}
    for number, count in counts.items():
        produce(rig, topic, count, partition=number)
    wait_tiered(rig, topic, counts)

    partitions = reader.locator.partitions(topic)
    assert partitions == tuple(TopicIdPartition(Uuid.parse(topic_id(rig, topic)), topic, number) for number in counts)
    for partition in partitions:
        timeline = reader.locator.timeline(partition)
        assert timeline.partition == partition
        assert in_timeline(timeline) == in_tier(rig, topic, partition.partition)
        assert_gapless(timeline, counts[partition.partition])
        assert not any(reader.locator.end_is_inferred(segment) for segment in timeline.segments)
        assert all(segment.segment_leader_epochs for segment in timeline.segments)
        # Brokers say since Kafka 4.0 whether a segment has a transaction index.
        writes_txn_index_empty = any(segment.txn_index_empty for segment in timeline.segments)
        assert writes_txn_index_empty == (rig.version >= "4" and counts[partition.partition] > 0)
    assert reader.said == []
    by_name = reader.locator.partitions(f"{topic}:{topic_id(rig, topic)}")
    assert by_name == partitions


def test_refresh_sees_what_was_uploaded_and_deleted_since(rig: Rig, reader: Reader, new_topic: NewTopic) -> None:
    topic = new_topic("refreshed")
    make_tiered(rig, topic, 90)
    (partition,) = reader.locator.partitions(topic)
    before = reader.locator.timeline(partition)

    with failing_uploads(rig, topic, 0) as wait_failure:
        produce(rig, topic, 90, seed=1)
        wait_failure()
        assert reader.locator.refresh(partition).segments == before.segments
    wait_tiered(rig, topic)
    assert reader.locator.timeline(partition).segments == before.segments
    after = reader.locator.recheck(partition, 100)
    assert in_timeline(after) == in_tier(rig, topic, 0)
    assert_gapless(after, 180)

    (*_, last) = after.segments
    delete_records(rig, topic, 0, last.start_offset + 1)
    rig.until("the deleted segments gone", lambda: len(in_tier(rig, topic, 0)) == 1)
    rig.until("that to be known", lambda: in_timeline(reader.locator.refresh(partition)) == in_tier(rig, topic, 0))
    assert reader.locator.timeline(partition).segments == (last,)


def test_a_topic_of_the_same_name_is_another_topic(rig: Rig, reader: Reader, new_topic: NewTopic) -> None:
    topic = new_topic("again")
    make_tiered(rig, topic, 60)
    (old,) = reader.locator.partitions(topic)
    assert reader.locator.timeline(old).segments

    delete_topic(rig, topic)
    with pytest.raises(UnknownTopic, match="the cluster has no topic"):
        reader.locator.partitions(topic)
    make_tiered(rig, topic, 30, seed=1)

    (new,) = reader.locator.partitions(topic)
    assert new.topic_id != old.topic_id
    assert in_timeline(reader.locator.timeline(new)) == in_tier(rig, topic, 0)
    assert_gapless(reader.locator.timeline(new), 30)
    rig.until("the old segments' end", lambda: reader.locator.refresh(old).segments == ())
    with pytest.raises(UnknownTopic, match=f"has the id {new.topic_id} now, not {old.topic_id}"):
        reader.locator.partitions(f"{topic}:{old.topic_id}")


@pytest.mark.parametrize("counts", of_a_change([[3, 11, 2], [50]]), ids=str)
def test_a_metadata_topic_that_is_created_again(
    rig: Rig, reader: Reader, new_topic: NewTopic, counts: list[int]
) -> None:
    """Each time with another number of partitions (50 by default), and with the records where they belong then."""
    topic, name = new_topic("moved"), new_topic("metadata")
    create_topic(rig, topic, 4)
    for number in range(4):
        produce(rig, topic, 60, partition=number)
    wait_tiered(rig, topic, range(4))
    timelines = [reader.locator.timeline(partition) for partition in reader.locator.partitions(topic)]

    moved = MetadataTopic(reader.cluster, timeout_ms=10_000, name=name)
    for count in counts:
        create_topic(rig, name, count, remote_storage_enable="false")
        producer = Producer({"bootstrap.servers": rig.bootstrap, **QUIET})
        for timeline in timelines:
            number = metadata_partition(timeline.partition.topic_id, timeline.partition.partition, count)
            for segment in timeline.segments:
                producer.produce(name, encode_metadata_record(SegmentMetadataRecord(segment)), partition=number)
        producer.flush()
        moved.read_for(timeline.partition for timeline in timelines)
        for timeline in timelines:
            assert in_timeline(moved.timeline(timeline.partition)) == in_timeline(timeline)
        delete_topic(rig, name)


def test_all_topics_at_once(rig: Rig, reader: Reader, new_topic: NewTopic) -> None:
    topics = [new_topic("all"), new_topic("all")]
    for topic in topics:
        create_topic(rig, topic, 2)
        for number in (0, 1):
            produce(rig, topic, 30, partition=number)
    for topic in topics:
        wait_tiered(rig, topic, (0, 1))
    found = [one for one in reader.locator.partitions(None) if one.topic in topics]
    assert [(one.topic, one.partition) for one in found] == [
        (topic, number) for topic in sorted(topics) for number in (0, 1)
    ]
    for one in found:
        assert in_timeline(reader.locator.timeline(one)) == in_tier(rig, one.topic, one.partition)


@pytest.fixture(scope="module")
def elsewhere(rig_43: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A cluster whose segments' metadata is on another cluster. It creates every topic that a client asks for."""
    properties = {
        "rlmm.config.remote.log.metadata.common.client.bootstrap.servers": rig_43.bootstrap,
        "auto.create.topics.enable": "true",
        **FASTER_RESTARTS,
    }
    with single(tmp_path_factory.mktemp("elsewhere"), properties=properties) as running:
        yield running


@pytest.mark.scheduled
def test_metadata_on_another_cluster(elsewhere: Rig, rig_43: Rig, new_topic: NewTopic) -> None:
    topic = new_topic("elsewhere")
    create_topic(elsewhere, topic, 2)
    for number in (0, 1):
        produce(elsewhere, topic, 60, partition=number)
    wait_tiered(elsewhere, topic, (0, 1))
    topics_before = set(admin(elsewhere).list_topics(timeout=10).topics)
    assert METADATA_TOPIC not in topics_before

    with Reader({"bootstrap.servers": elsewhere.bootstrap}, {"bootstrap.servers": rig_43.bootstrap}) as reader:
        for partition in reader.locator.partitions(topic):
            timeline = reader.locator.timeline(partition)
            assert in_timeline(timeline) == in_tier(elsewhere, topic, partition.partition)
            assert_gapless(timeline, 60)
        assert reader.said == []

    with Reader({"bootstrap.servers": elsewhere.bootstrap}) as reader:
        for partition in reader.locator.partitions(topic):
            assert reader.locator.timeline(partition).segments == ()
            assert reader.locator.refresh(partition).segments == ()
        (said,) = reader.said
        assert f"there is no topic {METADATA_TOPIC}" in said
        assert "remote.locator.bootstrap.servers" in said
        with pytest.raises(UnknownTopic):
            reader.locator.partitions(new_topic("absent"))

    absent = TopicIdPartition(Uuid(bytes(16)), new_topic("absent"), 0)
    with closing(Cluster({"bootstrap.servers": elsewhere.bootstrap}, timeout_ms=2_000)) as cluster:
        cluster.names()  # the ends of a log come from the client that is connected
        for ask in (
            lambda: cluster.log_bounds(absent, IsolationLevel.READ_UNCOMMITTED),
            lambda: cluster.ends(absent.topic, [0]),
            lambda: cluster.still_holds(absent, 0, 1),
        ):
            with pytest.raises(KafkaException):
                ask()

    # The broker would have created any topic that the reader asked for in the wrong way. It creates __consumer_offsets
    # as soon as a consumer of librdkafka asks for its coordinator, which each does that has a group id.
    topics_after = set(admin(elsewhere).list_topics(timeout=10).topics)
    assert topics_after - {"__consumer_offsets"} == topics_before - {"__consumer_offsets"}
    client = admin(elsewhere)  # an answer needs its client alive
    assert eventually(lambda: not client.list_consumer_groups().result(10).errors), "the groups' coordinator loads"
    assert client.list_consumer_groups().result(10).valid == []


@pytest.mark.scheduled  # tests/locate/test_metadata_topic.py shows the report with every change
@pytest.mark.skipif(len(VERSIONS) == 1, reason="needs two clusters: RIG_KAFKA names one version")
def test_the_metadata_topic_of_other_brokers(rig_43: Rig, rig_39: Rig, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic("others")
    create_topic(rig_43, topic)
    config = {
        "bootstrap.servers": rig_43.bootstrap,
        "remote.storage.url": str(tmp_path),
        "remote.locator": "metadata-topic",
        "remote.locator.bootstrap.servers": rig_39.bootstrap,
    }
    said: list[str] = []
    with Session.open({**config, **QUIET}, lambda event: said.append(str(event))) as session:
        (partition,) = session.locator.partitions(topic)
        session.configured_locator.check()
    (warning,) = [text for text in said if "names the wrong brokers" in text]
    assert f"{topic} with the id {partition.topic_id}" in warning


def test_a_metadata_cluster_that_does_not_answer(rig_43: Rig, new_topic: NewTopic) -> None:
    topic = new_topic("silent")
    create_topic(rig_43, topic)
    with Reader({"bootstrap.servers": rig_43.bootstrap}, {"bootstrap.servers": "127.0.0.1:1"}, 2_000) as reader:
        (partition,) = reader.locator.partitions(topic)
        assert reader.locator.refresh(partition).segments == ()
        (said,) = reader.said
        assert f"{METADATA_TOPIC} cannot be read" in said


@pytest.fixture(scope="module")
def guarded(rig_43: Rig) -> Rig:
    """A broker with access control, and DATA in its tier."""
    create_topic(rig_43, DATA, 2)
    for number in (0, 1):
        produce(rig_43, DATA, 60, partition=number)
    wait_tiered(rig_43, DATA, (0, 1))
    return rig_43


@pytest.fixture
def user(guarded: Rig) -> Iterator[dict[str, str]]:
    """The client configuration of a principal that may do nothing yet."""
    yield guarded.sasl_client("reader")
    revoke_all(guarded, "reader")


def test_who_may_read_both_topics_locates(guarded: Rig, user: dict[str, str]) -> None:
    """The locator needs no permission on a group."""
    allow(guarded, "reader", "READ", DATA)
    allow(guarded, "reader", "READ", METADATA_TOPIC)
    with Reader(user) as reader:
        assert reader.cluster.describe(DATA).may_read
        for partition in reader.locator.partitions(DATA):
            assert in_timeline(reader.locator.timeline(partition)) == in_tier(guarded, DATA, partition.partition)
            assert_gapless(reader.locator.timeline(partition), offsets(guarded, DATA, partition.partition).latest)
        assert reader.said == []


def test_a_right_that_is_granted_later_is_used(
    guarded: Rig, user: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_topic, "_REST_S", 0.0)
    allow(guarded, "reader", "READ", DATA)
    with Reader(user) as reader:
        partition = reader.locator.partitions(DATA)[0]
        assert reader.locator.timeline(partition).segments == ()
        allow(guarded, "reader", "READ", METADATA_TOPIC)
        expected = in_tier(guarded, DATA, partition.partition)
        guarded.until("the right in force", lambda: in_timeline(reader.locator.refresh(partition)) == expected)
        assert len(reader.said) == 1


def test_who_may_not_even_describe_the_topic_gets_the_brokers_error(guarded: Rig, user: dict[str, str]) -> None:
    allow(guarded, "reader", "READ", METADATA_TOPIC)
    with Reader(user) as reader:
        with pytest.raises(KafkaException) as caught:
            reader.locator.partitions(DATA)
        assert is_refusal(caught.value)


def test_who_may_describe_but_not_read_is_told_apart(guarded: Rig, user: dict[str, str]) -> None:
    allow(guarded, "reader", "DESCRIBE", DATA)
    with Reader(user) as reader:
        assert not reader.cluster.describe(DATA).may_read


@pytest.mark.parametrize("operation", of_a_change([None, "DESCRIBE"]))
def test_a_denied_metadata_topic_is_said_once(guarded: Rig, user: dict[str, str], operation: str | None) -> None:
    allow(guarded, "reader", "READ", DATA)
    if operation is not None:
        allow(guarded, "reader", operation, METADATA_TOPIC)
    with Reader(user) as reader:
        for partition in reader.locator.partitions(DATA):
            assert reader.locator.timeline(partition).segments == ()
            assert reader.locator.refresh(partition).segments == ()
        (said,) = reader.said
        assert f"this principal may not read {METADATA_TOPIC}. Grant READ on the topic" in said


@pytest.mark.parametrize("operation", of_a_change(["READ", "ALL"]))
def test_a_right_that_is_taken_away_is_said_too(guarded: Rig, user: dict[str, str], operation: str) -> None:
    """Located segments stay. New segments come through the broker."""
    allow(guarded, "reader", "READ", DATA)
    allow(guarded, "reader", "READ", METADATA_TOPIC)
    with Reader(user, timeout_ms=3_000) as reader:
        partition = reader.locator.partitions(DATA)[0]
        before = reader.locator.timeline(partition)
        deny(guarded, "reader", operation, METADATA_TOPIC)
        produce(guarded, DATA, 30, partition=partition.partition)
        wait_tiered(guarded, DATA)
        assert reader.locator.refresh(partition).segments == before.segments
        assert reader.locator.refresh(partition).segments == before.segments
        (said,) = reader.said
        assert f"this principal may not read {METADATA_TOPIC}" in said
