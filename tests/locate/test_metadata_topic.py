"""The replay of the metadata topic, over a consumer that gives what a test has written down for it.

Rules of the file:

- Tests with real brokers are in tests/rig. These tests need answers that a real broker cannot be made to give.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Collection, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.errors import UnknownTopic, Unlocatable
from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.locate import metadata_replay
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.locate.metadata_replay import METADATA_TOPIC, MetadataTopic
from remote_fetch.locate.metadata_topic import MetadataTopicLocator
from remote_fetch.locate.unreadable import Denied, Unreadable
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.observe import Notice
from tests.at_once import at_once
from tests.clock import Clock
from tests.eventually import eventually
from tests.locate.metadata_double import (
    COUNT,
    DATA_ID,
    OTHER_ID,
    PARTITIONS,
    Askers,
    Message,
    Topics,
    held_up_at_ends,
    record,
    segment,
)


class Reader:
    """A locator, and what it said."""

    def __init__(self, topics: Topics, *, timeout_ms: int = 10_000, is_configured: bool = True) -> None:
        self.said: list[str] = []
        self.clock = Clock()
        cluster = cast(Cluster, topics)
        topic = MetadataTopic(cluster, timeout_ms=timeout_ms) if is_configured else None
        self.recoveries = 0
        self.locator = MetadataTopicLocator(
            cluster, topic, say=self.said.append, recovered=self._recovered, clock=self.clock
        )

    def _recovered(self) -> None:
        self.recoveries += 1

    def starts(self, partition: TopicIdPartition) -> list[int]:
        return [one.start_offset for one in self.locator.timeline(partition).segments]


def broker_down() -> Message:
    return Message(failure=KafkaError(KafkaError._ALL_BROKERS_DOWN))


def test_a_topics_partitions_are_read_at_once() -> None:
    topics = Topics()
    for partition in PARTITIONS:
        topics.write(partition, partition.partition, partition.partition + 1)
        topics.write(TopicIdPartition(OTHER_ID, "other", partition.partition), 0)
    reader = Reader(topics)
    assert reader.locator.partitions("data") == tuple(PARTITIONS)
    for partition in PARTITIONS:
        assert reader.starts(partition) == [10 * partition.partition, 10 * partition.partition + 10]
    places = {metadata_partition(DATA_ID, partition.partition, COUNT) for partition in PARTITIONS}
    assert topics.assignments == [sorted(places)]
    assert topics.asked == [sorted(places)]
    assert reader.said == []
    assert topics.assigned == []


def test_the_clients_connect_while_the_brokers_describe_the_topic() -> None:
    """Over a slow line the clients of the metadata topic need seconds, and so does the description."""
    topics = Topics()
    Reader(topics).locator.partitions("data")
    assert topics.described == ["data", METADATA_TOPIC]
    assert topics.described_first == []
    unconfigured = Topics()
    Reader(unconfigured, is_configured=False).locator.partitions("data")
    assert unconfigured.described_first is None


def test_a_new_client_looks_up_the_leaders_before_it_reads() -> None:
    """librdkafka looks for a topic that it is assigned only once a second, if it is connected by then."""
    topics = Topics()
    reader = Reader(topics)
    for number in range(3):
        topics.write(PARTITIONS[0], number)
        assert reader.locator.refresh(PARTITIONS[0]).end_offset == 10 * number + 10
    assert topics.looked_up == [0]
    assert len(topics.assignments) == 3


class Apart:
    """A data topic, and the metadata topic of another cluster that may be the wrong one."""

    def __init__(self, *, cluster: str | None = "cluster/2", settings: dict[str, str] | None = None) -> None:
        self.data = Topics(name="data", topic_id=DATA_ID, settings=settings)
        self.metadata = Topics(cluster=cluster)
        self.remarks: list[Notice] = []
        topic = MetadataTopic(cast(Cluster, self.metadata), timeout_ms=10_000)
        self.locator = MetadataTopicLocator(
            cast(Cluster, self.data), topic, say=lambda _: None, remark=self.remarks.append, is_elsewhere=True
        )


def test_a_metadata_topic_of_other_brokers_is_reported_once() -> None:
    apart = Apart(settings={"remote.storage.enable": "true"})
    apart.metadata.write(TopicIdPartition(OTHER_ID, "data", 0), 0)
    for _ in range(2):
        apart.locator.partitions("data")
    (remark,) = apart.remarks
    assert remark.is_warning
    for word in ("cluster/1", "cluster/2", f"data with the id {DATA_ID}", "remote.locator.bootstrap.servers"):
        assert word in remark.text


def test_a_metadata_topic_that_cannot_be_read_accuses_no_brokers() -> None:
    apart = Apart(settings={"remote.storage.enable": "true"})
    apart.metadata.may_read = False
    apart.locator.partitions("data")
    assert apart.remarks == []
    apart.metadata.may_read = True
    apart.locator.take_credentials(None)
    apart.locator.partitions("data")
    assert len(apart.remarks) == 1


@pytest.mark.parametrize(
    ("cluster", "settings", "is_known"),
    [
        ("cluster/1", {"remote.storage.enable": "true"}, False),
        ("cluster/2", {"remote.storage.enable": "false"}, False),
        ("cluster/2", {}, False),
        ("cluster/2", None, False),
        ("cluster/2", {"remote.storage.enable": "true"}, True),
    ],
    ids=["the same brokers", "not tiered", "brokers without a tier", "settings may not be asked", "it has records"],
)
def test_a_metadata_topic_that_may_be_the_right_one(
    cluster: str, settings: dict[str, str] | None, *, is_known: bool
) -> None:
    apart = Apart(cluster=cluster, settings=settings)
    if is_known:
        apart.metadata.write(PARTITIONS[1], 0)
    apart.locator.partitions("data")
    assert apart.remarks == []


def test_refresh_reads_only_new_records_of_the_needed_partition() -> None:
    topics = Topics()
    partition = PARTITIONS[3]
    topics.write(partition, 0)
    reader = Reader(topics)
    reader.locator.partitions("data")
    assert reader.locator.refresh(partition).end_offset == 10
    before = len(topics.assignments)
    topics.write(partition, 1)
    assert reader.starts(partition) == [0]
    assert reader.locator.recheck(partition, 10).end_offset == 20
    assert topics.assignments[before:] == [[metadata_partition(DATA_ID, 3, COUNT)]]
    assert reader.locator.measure(partition, [segment(partition, 1)]) == reader.locator.timeline(partition)
    assert not reader.locator.end_is_inferred(segment(partition, 1))


def test_each_answer_of_the_topic_is_noted() -> None:
    """A consumer that waits for its turn waits for longer while this one is answered."""
    topics = Topics()
    topics.write(PARTITIONS[0], *range(3))
    reader = Reader(topics)
    reader.locator.refresh(PARTITIONS[0])
    assert reader.locator.answered_s == topics.answered_s > 0


def test_the_end_is_reached_though_the_last_records_were_compacted_away() -> None:
    topics = Topics()
    partition = PARTITIONS[0]
    at = metadata_partition(DATA_ID, 0, COUNT)
    topics.logs[at] = [None, record(partition, 0), None, record(partition, 1), None, None]
    topics.starts[at] = 5
    reader = Reader(topics)
    reader.locator.partitions("data")
    assert reader.starts(partition) == [0, 10]
    assert reader.locator.timeline(partition).next_metadata_offset == 9


class Retention(Topics):
    """A metadata topic that deletes its first record after each of the next `left` questions about its ends."""

    left = 0

    def ends(self, name: str, numbers: Collection[int]) -> dict[int, tuple[int, int, int]]:
        found = super().ends(name, numbers)
        for number in numbers if self.left > 0 else ():
            self.starts[number] = self.starts.get(number, 0) + 1
            del self.logs[number][0]
        self.left -= 1
        return found


def test_records_that_are_deleted_between_the_question_and_the_reading() -> None:
    topics = Retention()
    topics.left = 2
    topics.write(PARTITIONS[0], *range(9))
    reader = MetadataTopic(cast(Cluster, topics), timeout_ms=10_000)
    reader.read_for(PARTITIONS[:1])
    assert [one.start_offset for one in reader.timeline(PARTITIONS[0]).segments] == [10 * at for at in range(2, 9)]
    assert len(topics.asked) == 3


def test_a_topic_that_deletes_faster_than_it_is_read_ends_a_reading() -> None:
    topics = Retention()
    topics.left = 100
    topics.write(PARTITIONS[0], *range(9))
    with pytest.raises(Unlocatable, match="deletes records faster than they are read"):
        MetadataTopic(cast(Cluster, topics), timeout_ms=10_000).read_for(PARTITIONS[:1])


def test_a_metadata_topic_that_became_shorter_is_read_again() -> None:
    """The topic was made again, or an unclean election cut it off. The records read before may be gone."""
    topics = Topics()
    partition, other = (
        PARTITIONS[0],
        next(
            one
            for one in PARTITIONS
            if metadata_partition(DATA_ID, one.partition, COUNT) != metadata_partition(DATA_ID, 0, COUNT)
        ),
    )
    topics.write(partition, 0, 1, 2)
    topics.write(other, 0)
    reader = Reader(topics)
    reader.locator.partitions("data")
    topics.logs = {number: [] for number in range(COUNT)}
    topics.write(partition, 7)
    topics.write(other, 8)
    reader.locator.refresh(partition)
    assert reader.starts(partition) == [70]
    assert reader.starts(other) == [80]


def test_a_tombstone_deletes_the_uploads_of_its_key() -> None:
    topics = Topics()
    topics.write(PARTITIONS[0], 0, 1)
    topics.logs[metadata_partition(DATA_ID, 0, COUNT)].append((b"key-0", None))
    reader = Reader(topics)
    reader.locator.partitions("data")
    assert reader.starts(PARTITIONS[0]) == [10]


def test_all_topics_are_named_in_order() -> None:
    topics = Topics()
    other = TopicIdPartition(Uuid(bytes(16)), "zebra", 0)
    topics.write(other, 0)
    topics.write(PARTITIONS[1], 0)
    topics.write(PARTITIONS[0], 0)
    reader = Reader(topics)
    assert reader.locator.partitions(None) == (PARTITIONS[0], PARTITIONS[1], other)
    assert reader.starts(other) == [0]


def test_news_of_connections_do_not_keep_a_reader_waiting_for_ever() -> None:
    topics = Topics(is_mute=True, news=[broker_down() for _ in range(10_000)])
    topics.write(PARTITIONS[0], 0)
    reader = Reader(topics, timeout_ms=50)
    reader.locator.partitions("data")
    assert topics.news
    assert reader.starts(PARTITIONS[0]) == []
    assert reader.said == [f"no answer from {METADATA_TOPIC} within 50 ms"]


class Hung(Topics):
    """The leader hangs, for the clients that know it."""

    replaced = 0

    def replace(self, consumer: object) -> None:
        self.replaced += 1
        self.is_mute = False


def test_another_client_reads_on_if_the_leader_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker has become the leader, but librdkafka stays with the old one as long as that is connected."""
    monkeypatch.setattr(metadata_replay, "ONE_ANSWER_S", 0.01)
    topics = Hung()
    topics.write(PARTITIONS[0], 0)
    reader = Reader(topics, timeout_ms=1_000)
    assert reader.locator.refresh(PARTITIONS[0]).end_offset == 10
    for number in (1, 2):
        topics.is_mute = True
        topics.write(PARTITIONS[0], number)
        assert reader.locator.refresh(PARTITIONS[0]).end_offset == 10 * number + 10
        assert topics.replaced == number
    assert reader.said == []


def test_a_client_that_was_never_answered_may_only_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_replay, "ONE_ANSWER_S", 0.001)
    topics = Hung(is_mute=True)
    topics.write(PARTITIONS[0], 0)
    reader = Reader(topics, timeout_ms=50)
    assert reader.locator.refresh(PARTITIONS[0]).end_offset is None
    assert reader.said == [f"no answer from {METADATA_TOPIC} within 50 ms"]
    assert topics.replaced == 1


class Client:
    """A client of its own that reads what the topics have."""

    def __init__(self, topics: Topics) -> None:
        self.assign, self.unassign, self.consume = topics.assign, topics.unassign, topics.consume
        self.list_topics = topics.list_topics


class Clients(Topics):
    """Counts its clients by references that keep none alive."""

    made: tuple[weakref.ref[Client], ...] = ()
    client: Client | None = None

    def catcher(self) -> Client:  # type: ignore[override]
        if self.client is None:
            self.client = Client(self)
            self.made += (weakref.ref(self.client),)
        return self.client

    def replace(self, consumer: object) -> None:
        self.client = None


def test_a_client_that_was_replaced_ends() -> None:
    """librdkafka's threads and sockets live as long as the client: neither its error nor its turn may keep it."""
    topics = Clients(is_mute=True)
    topics.write(PARTITIONS[0], 0)
    reader = Reader(topics, timeout_ms=20)
    reader.locator.refresh(PARTITIONS[0])
    assert len(reader.said) == 1
    gc.collect()
    assert [made() for made in topics.made] == [None]


def test_a_failure_that_passed_is_reported_once() -> None:
    failure = KafkaError(KafkaError.UNKNOWN)
    topics = Topics(refusal=failure)
    topics.write(PARTITIONS[0], 0)
    reader = Reader(topics)
    reader.locator.partitions("data")
    reader.locator.refresh(PARTITIONS[0])
    assert (len(reader.said), reader.recoveries) == (1, 0)
    topics.refusal = None
    topics.news = [broker_down()]
    assert reader.locator.refresh(PARTITIONS[0]).end_offset == 10
    assert reader.locator.refresh(PARTITIONS[0]).end_offset == 10
    assert reader.recoveries == 1
    topics.write(PARTITIONS[0], 1)
    topics.refusal = failure
    reader.locator.refresh(PARTITIONS[0])
    assert len(reader.said) == 2, "it is news again"


def test_a_right_that_was_taken_away_shows_when_nothing_comes() -> None:
    topics = Topics()
    topics.write(PARTITIONS[0], 0)
    reader = Reader(topics, timeout_ms=500)
    reader.locator.partitions("data")
    topics.write(PARTITIONS[0], 1)
    topics.is_mute, topics.may_read = True, False
    assert reader.locator.refresh(PARTITIONS[0]).end_offset == 10
    asked = len(topics.described)
    assert reader.locator.refresh(PARTITIONS[0]).end_offset == 10
    assert len(topics.described) == asked
    (said,) = reader.said
    assert said.startswith(f"this principal may not read {METADATA_TOPIC}. Grant READ")


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_an_unreadable_topic_is_asked_for_again_after_a_minute(code: int) -> None:
    """A service runs for long. Its administrator may grant the right that the notice asks for."""
    topics = Topics(refusal=KafkaError(code))
    topics.write(PARTITIONS[0], 0)
    reader = Reader(topics)
    reader.locator.partitions("data")
    topics.described_first = None
    reader.clock.now_s += 59
    reader.locator.partitions("data")
    assert topics.described == ["data", METADATA_TOPIC, "data"]
    assert topics.described_first is None, "no client connects for it either"
    reader.clock.now_s += 2
    assert reader.locator.refresh(PARTITIONS[0]).segments == ()
    assert (len(reader.said), reader.recoveries) == (1, 0), "it is no news"
    failure = reader.locator.failure
    assert failure is (Denied if code == KafkaError.TOPIC_AUTHORIZATION_FAILED else Unreadable)
    topics.refusal = None
    assert reader.locator.refresh(PARTITIONS[0]).segments == ()
    reader.clock.now_s += 61
    assert reader.locator.refresh(PARTITIONS[0]).end_offset == 10
    assert (len(reader.said), reader.recoveries, reader.locator.failure) == (1, 1, None)


def test_a_failure_that_turns_out_to_last_is_reported() -> None:
    topics = Topics(refusal=KafkaError(KafkaError._TRANSPORT))
    reader = Reader(topics, timeout_ms=20)
    reader.locator.refresh(PARTITIONS[0])
    topics.refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    reader.locator.refresh(PARTITIONS[0])
    assert ["may not read" in text for text in reader.said] == [False, True]


def test_threads_pass_on_a_remark_once() -> None:
    heard, are_two = list[Notice](), threading.Event()

    def remark(each: Notice) -> None:
        heard.append(each)
        if len(heard) == 2:
            are_two.set()
        are_two.wait(0.2)

    topic = SimpleNamespace(remarks=(Notice("full", is_warning=True),))
    locator = MetadataTopicLocator(cast(Cluster, Topics()), cast(MetadataTopic, topic), say=pytest.fail, remark=remark)
    at_once([locator.pass_on_remarks] * 2)
    assert len(heard) == 1


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._TRANSPORT])
def test_threads_that_fail_at_the_same_moment_report_it_once(code: int) -> None:
    topics, said, both = Topics(refusal=KafkaError(code)), list[str](), threading.Barrier(2, timeout=60)
    describe, is_said_twice = topics.describe, threading.Event()

    def at_the_same_moment(name: str) -> Topic:
        both.wait()
        return describe(name)

    def say(why: str) -> None:
        said.append(why)
        if len(said) == 2:
            is_said_twice.set()
        is_said_twice.wait(0.2)

    topics.describe = at_the_same_moment  # type: ignore[method-assign]
    cluster = cast(Cluster, topics)
    locator = MetadataTopicLocator(cluster, MetadataTopic(cluster, timeout_ms=0), say=say)
    at_once([partial(locator.refresh, each) for each in PARTITIONS[:2]])
    assert len(said) == 1


@pytest.mark.parametrize("has_description", [True, False])
def test_a_refusal_is_noted_if_all_topics_are_asked_for(has_description: bool) -> None:
    topics = Topics(may_read=False)
    topics.refusal = None if has_description else KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    reader = Reader(topics)
    with pytest.raises(Unlocatable, match="may not read"):
        reader.locator.partitions(None)
    assert (reader.locator.failure, reader.said) == (Denied, [])
    topics.may_read, topics.refusal = True, None
    assert reader.locator.partitions(None) == ()
    assert reader.locator.failure is None


@pytest.mark.parametrize("has_another", [True, False])
def test_new_credentials_are_tried_after_refused_ones(has_another: bool) -> None:
    topics = Topics(refusal=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    topics.write(PARTITIONS[0], 0)
    reader = Reader(topics)
    assert reader.locator.refresh(PARTITIONS[0]).segments == ()
    topics.refusal = None
    assert reader.locator.refresh(PARTITIONS[0]).segments == ()
    reader.locator.take_credentials(MetadataTopic(cast(Cluster, topics), timeout_ms=10_000) if has_another else None)
    assert reader.locator.refresh(PARTITIONS[0]).end_offset == 10
    assert reader.recoveries == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, f"there is no topic {METADATA_TOPIC}: tiered storage is off"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, f"this principal may not read {METADATA_TOPIC}"),
        (KafkaError._TRANSPORT, f"{METADATA_TOPIC} cannot be read: "),
    ],
)
def test_the_reason_of_an_unreadable_topic_is_reported_once(code: int, said: str) -> None:
    topics = Topics(refusal=KafkaError(code))
    reader = Reader(topics, timeout_ms=20)
    assert reader.locator.partitions("data") == tuple(PARTITIONS)
    reader.locator.refresh(PARTITIONS[0])
    assert [text.startswith(said) for text in reader.said] == [True]
    with pytest.raises(Unlocatable, match=METADATA_TOPIC):
        reader.locator.partitions(None)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._TRANSPORT,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    ],
)
def test_a_moment_without_a_leader_is_waited_for(code: int) -> None:
    topics = Topics(passing=[code, code])
    topics.write(PARTITIONS[0], 0)
    reader = Reader(topics)
    assert reader.locator.refresh(PARTITIONS[0]).end_offset == 10
    assert len(topics.asked) == 3
    assert reader.said == []


@pytest.mark.parametrize(
    "code", [KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION]
)
def test_the_wait_for_a_leader_has_a_deadline(code: int) -> None:
    """The topic is there, whatever a broker says of its partition. So it is asked for again at once."""
    topics = Topics(passing=[code] * 10_000)
    reader = Reader(topics, timeout_ms=500)
    reader.locator.refresh(PARTITIONS[0])
    assert topics.passing
    (said,) = reader.said
    assert said.startswith(f"{METADATA_TOPIC} cannot be read: ")
    topics.passing = []
    topics.write(PARTITIONS[0], 0)
    assert reader.locator.refresh(PARTITIONS[0]).end_offset == 10


def test_a_metadata_partition_without_a_leader_holds_up_no_other() -> None:
    """Only the partitions that it describes come through the broker."""
    away = metadata_partition(DATA_ID, PARTITIONS[0].partition, COUNT)
    topics = Topics(leaderless=frozenset({away}))
    for partition in PARTITIONS:
        topics.write(partition, 0)
    reader = Reader(topics, timeout_ms=500)
    reader.locator.partitions("data")
    described = {metadata_partition(DATA_ID, one.partition, COUNT): bool(reader.starts(one)) for one in PARTITIONS}
    assert described == {number: number != away for number in described}
    assert len(described) > 1
    assert ["Leader not available" in text for text in reader.said] == [True]
    with pytest.raises(Unlocatable, match="Leader not available"):
        reader.locator.partitions(None)
    topics.leaderless = frozenset()
    reader.locator.partitions("data")
    assert all(reader.starts(one) == [0] for one in PARTITIONS)
    assert reader.recoveries == 1


def test_a_silent_leader_is_asked_once() -> None:
    topics = Topics(passing=[KafkaError.LEADER_NOT_AVAILABLE] * 10_000)
    reader = Reader(topics, timeout_ms=20)
    ends = topics.ends

    def silent(name: str, numbers: Collection[int]) -> dict[int, tuple[int, int, int]]:
        if len(numbers) == 1:
            topics.passing = [KafkaError._TIMED_OUT]
        return ends(name, numbers)

    topics.ends = silent  # type: ignore[method-assign]
    reader.locator.partitions("data")
    assert len(topics.asked[-1]) == 1
    assert len(topics.asked[-2]) > 1
    assert len(reader.said) == 1


def test_a_metadata_topic_that_was_deleted_is_not_waited_for() -> None:
    topics = Topics()
    reader = Reader(topics)
    reader.locator.partitions("data")
    topics.passing, topics.refusal = [KafkaError._UNKNOWN_PARTITION], KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    reader.locator.refresh(PARTITIONS[0])
    assert len(topics.asked) == 2
    assert [text.startswith(f"there is no topic {METADATA_TOPIC}") for text in reader.said] == [True]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "may not read"),
        (KafkaError(KafkaError._FATAL, "fenced", fatal=True), "cannot be read: fenced"),
    ],
)
def test_an_error_among_the_messages_ends_the_replay(failure: KafkaError, said: str) -> None:
    topics = Topics(news=[Message(failure=failure)])
    topics.write(PARTITIONS[0], 0)
    reader = Reader(topics)
    reader.locator.partitions("data")
    assert said in reader.said[0]
    assert topics.assigned == []


def test_records_before_an_error_are_not_read_again() -> None:
    asked: list[int] = []

    class Breaking(Topics):
        """Gives one record and a failure at once, the first time."""

        def assign(self, partitions: Sequence[TopicPartition]) -> None:
            asked.extend(one.offset for one in partitions)
            super().assign(partitions)

        def consume(self, num_messages: int, timeout: float) -> list[Message]:
            found = super().consume(num_messages, timeout)
            fatal = Message(failure=KafkaError(KafkaError._FATAL, "fenced", fatal=True))
            return [found[0], fatal] if len(asked) == 1 else found

    topics = Breaking()
    topics.write(PARTITIONS[0], 0, 1)
    reader = Reader(topics)
    reader.locator.refresh(PARTITIONS[0])
    assert reader.starts(PARTITIONS[0]) == [0]
    assert reader.locator.refresh(PARTITIONS[0]).end_offset == 20
    assert asked == [0, 1]


def test_without_a_storage_nothing_is_asked() -> None:
    topics = Topics()
    reader = Reader(topics, is_configured=False)
    assert reader.locator.partitions("data") == tuple(PARTITIONS)
    assert reader.locator.refresh(PARTITIONS[0]).segments == ()
    assert METADATA_TOPIC not in topics.described
    assert reader.said == []
    with pytest.raises(Unlocatable, match="no remote storage"):
        reader.locator.partitions(None)


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("absent", "the cluster has no topic 'absent'"),
        (f"data:{OTHER_ID}", f"has the id {DATA_ID} now, not {OTHER_ID}"),
        ("data:nonsense", "not a topic id"),
    ],
)
def test_a_wrong_topic_id_is_an_error(topic: str, message: str) -> None:
    with pytest.raises(UnknownTopic, match=message):
        Reader(Topics()).locator.partitions(topic)


def test_a_topic_without_an_id() -> None:
    topics = Topics(data=Topic("data", None, (0,), may_read=True))
    with pytest.raises(UnknownTopic, match=r"older than Kafka 2\.8"):
        Reader(topics).locator.partitions("data")


def test_a_topic_that_may_not_be_described_gives_the_brokers_error() -> None:
    class Refusing(Topics):
        def describe(self, name: str) -> Any:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    with pytest.raises(KafkaException):
        Reader(Refusing()).locator.partitions("data")


# ------------------------------------------------------------------------------------------------ several that read it


def test_who_waits_for_another_reader_finds_it_read() -> None:
    """Consumers of one process ask at once: one of them reads for all that have asked by then."""
    topics = Topics()
    topic = MetadataTopic(cast(Cluster, topics), timeout_ms=10_000)
    entered, may_go_on = held_up_at_ends(topics)
    first = threading.Thread(target=topic.read_for, args=(PARTITIONS[:1],))
    first.start()
    assert entered.wait(60)
    askers = Askers(topic)
    others = [threading.Thread(target=topic.read_for, args=([one],)) for one in PARTITIONS * 3]
    for other in others:
        other.start()
    assert eventually(lambda: askers.are(others))
    topics.write(PARTITIONS[3], 0)  # after the first has begun, and before the others can
    may_go_on.set()
    for thread in (first, *others):
        thread.join(60)
    assert len(topics.asked) <= 1 + len(others) // 2, "most found it read"
    assert [one.start_offset for one in topic.timeline(PARTITIONS[3]).segments] == [0]


def test_who_waits_for_another_reader_finds_its_error() -> None:
    """Else the last of n threads would wait n times as long as a question may take."""
    topics, errors = Topics(), list[str]()
    topic = MetadataTopic(cast(Cluster, topics), timeout_ms=10_000)
    topic.read_for(PARTITIONS[:1])
    entered, may_go_on = held_up_at_ends(topics)

    def read(partition: TopicIdPartition) -> None:
        try:
            topic.read_for([partition])
        except KafkaException as error:
            errors.append(error.args[0].name())

    topics.refusal = KafkaError(KafkaError.INVALID_REQUEST)
    topics.asked.clear()
    first = threading.Thread(target=read, args=PARTITIONS[:1])
    first.start()
    assert entered.wait(60)
    askers = Askers(topic)
    others = [threading.Thread(target=read, args=(partition,)) for partition in PARTITIONS * 3]
    for other in others:
        other.start()
    assert eventually(lambda: askers.are(others))
    may_go_on.set()
    for thread in (first, *others):
        thread.join(60)
    assert errors == ["INVALID_REQUEST"] * (1 + len(others))
    assert len(topics.asked) <= 1 + len(others) // 2, "most found the error"
    topics.refusal = None
    topic.read_for(PARTITIONS)
