"""A cluster with a data topic and a metadata topic, and its consumer, that give what a test has written down for them.

Rules of the file:

- Tests with real brokers are in tests/rig. The doubles give answers that a real broker cannot be made to give.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.formats.metadata_records import SegmentMetadataRecord
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.locate.metadata_replay import METADATA_TOPIC, MetadataTopic
from remote_fetch.locate.replay_cache import StoreFailed
from remote_fetch.model import (
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.testing.metadata_records import encode_metadata_record

DATA_ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(16, 32)))
METADATA_ID = Uuid(b"metadata--------")
PARTITIONS = [TopicIdPartition(DATA_ID, "data", number) for number in range(8)]
COUNT = 4

Record = tuple[bytes | None, bytes | None]


def segment(partition: TopicIdPartition, number: int) -> RemoteLogSegmentMetadata:
    """The readable segment of offsets [10 * number, 10 * number + 9]."""
    first = 10 * number
    segment_id = RemoteLogSegmentId(partition, Uuid(partition.topic_id.raw[:14] + bytes([partition.partition, number])))
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    return RemoteLogSegmentMetadata(
        segment_id, first, first + 9, 100, 0, 0, 1, (LeaderEpoch(0, first),), None, finished
    )


def record(partition: TopicIdPartition, number: int) -> Record:
    return b"key-%d" % number, encode_metadata_record(SegmentMetadataRecord(segment(partition, number)))


@dataclass(frozen=True)
class Message:
    """One of a consumer's messages, or of its errors."""

    at: int = -1
    place: int = -1
    pair: Record = (None, None)
    failure: KafkaError | None = None
    epoch: int | None = None

    def error(self) -> KafkaError | None:
        return self.failure

    def partition(self) -> int:
        return self.place

    def offset(self) -> int:
        return self.at

    def leader_epoch(self) -> int | None:
        return self.epoch

    def key(self) -> bytes | None:
        return self.pair[0]

    def value(self) -> bytes | None:
        return self.pair[1]


@dataclass
class Topics:
    """A cluster with one data topic and a metadata topic, and its consumer: both ports that the locator sees.

    The first questions about ends are answered by the errors `passing`, the first comparisons with a new leader by
    `electing`. `settings` are the metadata topic's, None: they may not be asked for. `epoch_ends` has the end of each
    leader epoch that an election has cut off.
    `leaderless` are the metadata partitions without a leader.
    `missing` is the error about a metadata partition that is not there.
    `described_first` has the topics that were described before the clients were to connect, None: they were not.
    `looked_up`: how many assignments there were before each lookup of the leaders by the consumer.
    `logs` are the `count` metadata partitions, from the log start in `starts` on; None stands for a record that was
    compacted away. `news` is handed out before any record; with `is_mute` there is nothing but that.
    """

    logs: dict[int, list[Record | None]] = field(default_factory=lambda: {number: [] for number in range(COUNT)})
    starts: dict[int, int] = field(default_factory=dict)
    count: int = COUNT
    leaderless: frozenset[int] = frozenset()
    missing: int = KafkaError.UNKNOWN_TOPIC_OR_PART
    news: list[Message] = field(default_factory=list)
    is_mute: bool = False
    may_read: bool = True
    refusal: KafkaError | None = None
    data: Topic | None = field(default_factory=lambda: Topic("data", DATA_ID, tuple(range(8)), may_read=True))
    assigned: list[TopicPartition] = field(default_factory=list)
    assignments: list[list[int]] = field(default_factory=list)
    looked_up: list[int] = field(default_factory=list)
    described: list[str] = field(default_factory=list)
    described_first: list[str] | None = None
    passing: list[int] = field(default_factory=list)
    electing: list[int] = field(default_factory=list)
    asked: list[list[int]] = field(default_factory=list)
    answered_s: float = 0.0
    name: str = METADATA_TOPIC
    topic_id: Uuid | None = METADATA_ID
    cluster: str | None = "cluster/1"
    settings: dict[str, str] | None = field(default_factory=lambda: {"cleanup.policy": "delete"})
    settings_asked: int = 0
    epoch: int | None = None
    epoch_ends: dict[int, int] = field(default_factory=dict)
    compared: list[int] = field(default_factory=list)
    offsets_read: int = 0
    closed: bool = False

    def cluster_id(self) -> str | None:
        return self.cluster

    def topic_settings(self, name: str) -> dict[str, str]:
        assert name == self.name
        self.settings_asked += 1
        if self.settings is None:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        return self.settings

    is_tiered = Cluster.is_tiered

    def close(self) -> None:
        self.closed = True

    def names(self) -> tuple[str, ...]:
        return (self.name,) if self.data is None else (self.name, self.data.name)

    def describe(self, name: str) -> Topic:
        self.described.append(name)
        if name == self.name and self.refusal is None:
            return Topic(name, self.topic_id, tuple(range(self.count)), self.may_read)
        if name == self.name:
            raise KafkaException(self.refusal)
        if self.data is None or name != self.data.name:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return self.data

    def connect(self) -> None:
        self.described_first = list(self.described) if self.described_first is None else self.described_first

    def catcher(self) -> Topics:
        return self

    def replace(self, consumer: object) -> None:
        assert consumer is self

    def answered(self) -> None:
        self.answered_s += 1

    def still_holds(self, partition: TopicIdPartition, leader_epoch: int, end_offset: int) -> bool:
        assert partition.topic == self.name
        if self.electing:
            raise KafkaException(KafkaError(self.electing.pop(0)))
        self.compared.append(partition.partition)
        return end_offset <= self.epoch_ends.get(leader_epoch, end_offset)

    def ends(self, name: str, numbers: Collection[int]) -> dict[int, tuple[int, int, int]]:
        assert name == self.name
        self.asked.append(sorted(numbers))
        if self.passing:
            raise KafkaException(KafkaError(self.passing.pop(0)))
        if self.refusal is not None:
            raise KafkaException(self.refusal)
        if not self.leaderless.isdisjoint(numbers):
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        if any(number >= self.count for number in numbers):
            raise KafkaException(KafkaError(self.missing))
        epoch = -1 if self.epoch is None else self.epoch
        return {number: (self.starts.get(number, 0), self.end(number), epoch) for number in numbers}

    def end(self, number: int) -> int:
        return self.starts.get(number, 0) + len(self.logs[number])

    def list_topics(self, topic: str, timeout: float) -> None:
        assert topic == self.name
        self.looked_up.append(len(self.assignments))
        if self.is_mute:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.assigned = list(partitions)
        self.assignments.append(sorted(one.partition for one in partitions))

    def unassign(self) -> None:
        self.assigned = []

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        if self.news:
            time.sleep(0.001)
            return [self.news.pop(0)]
        found: list[Message] = []
        for one in [] if self.is_mute else self.assigned:
            number, end = one.partition, self.end(one.partition)
            while len(found) < num_messages and one.offset <= end:
                if one.offset < self.starts.get(number, 0):  # librdkafka stops the partition
                    one.offset = end + 1
                    found.append(Message(place=number, failure=KafkaError(KafkaError._AUTO_OFFSET_RESET)))
                    break
                if one.offset == end:
                    found.append(Message(end, number, failure=KafkaError(KafkaError._PARTITION_EOF)))
                else:
                    pair = self.logs[number][one.offset - self.starts.get(number, 0)]
                    found += [] if pair is None else [Message(one.offset, number, pair, epoch=self.epoch)]
                    self.offsets_read += 1
                one.offset += 1
        return found

    def write(self, partition: TopicIdPartition, *numbers: int) -> None:
        at = metadata_partition(partition.topic_id, partition.partition, self.count)
        self.logs[at] += [record(partition, number) for number in numbers]

    def create_again(self, count: int) -> None:
        """Another topic has the name now, with this number of metadata partitions and no record."""
        self.topic_id, self.count = Uuid(b"metadata-%7d" % count), count
        self.logs = {number: [] for number in range(count)}


class Files:
    """A store in memory. `error` is raised by every call."""

    def __init__(self, error: str | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self.error = error
        self.calls = 0
        self.closed = False

    def read(self, names: Collection[str]) -> Mapping[str, bytes]:
        self._call()
        return {name: self.files[name] for name in names if name in self.files}

    def write(self, files: Mapping[str, bytes]) -> None:
        self._call()
        self.files.update(files)

    def close(self) -> None:
        self.closed = True

    def _call(self) -> None:
        self.calls += 1
        if self.error is not None:
            raise StoreFailed(self.error)


def held_up_at_ends(topics: Topics) -> tuple[threading.Event, threading.Event]:
    """Hold up the questions about ends. The first event says that one has come, the second lets all go on."""
    entered, may_go_on, ends = threading.Event(), threading.Event(), topics.ends

    def held_up(name: str, numbers: Collection[int]) -> dict[int, tuple[int, int, int]]:
        entered.set()
        assert may_go_on.wait(60)
        return ends(name, numbers)

    topics.ends = held_up  # type: ignore[method-assign]
    return entered, may_go_on


class Askers:
    """Replaces the lock under which readers of the topic ask. Tells which threads have asked."""

    def __init__(self, topic: MetadataTopic) -> None:
        self._lock, self._idents = topic._asking, set[int]()
        topic._asking = self  # type: ignore[assignment]

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._idents.add(threading.get_ident())
        self._lock.release()

    def are(self, threads: Collection[threading.Thread]) -> bool:
        """Whether all these threads have asked."""
        return self._idents >= {thread.ident for thread in threads}
