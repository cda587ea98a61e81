"""The replay of the metadata topic: its name, how long it may be away, and what it takes from a cache."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.config import KEYS
from remote_fetch.errors import Cancelled, Unlocatable
from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.locate import metadata_replay
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.metadata_replay import METADATA_TOPIC, MetadataTopic
from remote_fetch.locate.metadata_topic import MetadataTopicLocator
from remote_fetch.locate.replay_cache import ReplayCache
from remote_fetch.locate.unreadable import unlocatable
from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import Notice
from tests.locate.metadata_double import (
    COUNT,
    DATA_ID,
    OTHER_ID,
    PARTITIONS,
    Files,
    Message,
    Topics,
    held_up_at_ends,
    record,
)

COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "10000"}
PARTITION = PARTITIONS[0]
NUMBER = metadata_partition(DATA_ID, 0, COUNT)
NEIGHBOUR = next(each for each in PARTITIONS[1:] if metadata_partition(DATA_ID, each.partition, COUNT) == NUMBER)
"""A partition whose records lie in the same metadata partition."""
ELSEWHERE = next(each for each in PARTITIONS if metadata_partition(DATA_ID, each.partition, COUNT) != NUMBER)
OTHER = next(
    each
    for each in (TopicIdPartition(OTHER_ID, "other", number) for number in range(99))
    if metadata_partition(OTHER_ID, each.partition, COUNT) == NUMBER
)


class Clock:
    """A wall clock that a test sets, in milliseconds."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def opened(topics: Topics, clock: Callable[[], int], files: Files | None = None) -> MetadataTopic:
    """A reader of the topic, as a process of its own would make it."""
    cache = None if files is None else ReplayCache(files)
    return MetadataTopic(cast(Cluster, topics), timeout_ms=100, name=topics.name, cache=cache, now_ms=clock)


def starts(topic: MetadataTopic, partition: TopicIdPartition = PARTITION) -> list[int]:
    return [segment.start_offset for segment in topic.timeline(partition).segments]


def compact(topics: Topics, *offsets: int) -> None:
    """The cleaner takes these records away."""
    for offset in offsets:
        topics.logs[NUMBER][offset] = None


# ------------------------------------------------------------------------------------------------------------- its name


def test_messages_name_the_configured_topic() -> None:
    assert KEYS["remote.locator.topic"].default == METADATA_TOPIC
    topics = Topics(name="metadata.v2", may_read=False)
    with pytest.raises(Unlocatable, match=r"may not read metadata\.v2\. Grant READ on the topic metadata\.v2"):
        opened(topics, Clock()).read_for([PARTITION])
    assert topics.described == ["metadata.v2"]
    topics = Topics(name="metadata.v2", is_mute=True)
    topics.write(PARTITION, 0)
    with pytest.raises(Unlocatable, match=r"no answer from metadata\.v2 within 100 ms"):
        opened(topics, Clock()).read_for([PARTITION])
    said: list[str] = []
    topics = Topics(name="metadata.v2", refusal=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    reader = opened(topics, Clock())
    MetadataTopicLocator(cast(Cluster, topics), reader, say=said.append).refresh(PARTITION)
    assert said[0].startswith("there is no topic metadata.v2: ")
    assert "remote.locator.topic" in said[0]
    away = KafkaException(KafkaError(KafkaError._TRANSPORT, "gone"))
    assert unlocatable(away, "metadata.v2").message == "metadata.v2 cannot be read: gone"


# ------------------------------------------------------------------------------------------------------- created again


@pytest.mark.parametrize(
    ("count", "missing"),
    [(COUNT, 0), (11, 0), (1, KafkaError.UNKNOWN_TOPIC_OR_PART), (1, KafkaError._UNKNOWN_PARTITION)],
)
def test_a_topic_that_was_created_again_is_read_in_its_own_partitions(count: int, missing: int) -> None:
    """Its log is shorter, or the metadata partition is not there any more.

    librdkafka asks the leader that it knows of such a partition, or it has no leader for it.
    """
    topics, files = written(), Files()
    topics.missing = missing
    reader = opened(topics, Clock(), files)
    reader.read_for(PARTITIONS)
    topics.create_again(count)
    topics.write(PARTITION, 7)
    reader.read_for(PARTITIONS)
    assert (starts(reader), starts(reader, ELSEWHERE)) == ([70], [])
    assert reader.read_all() == (PARTITION,)
    topics.write(PARTITION, 8)
    reader.read_for([PARTITION])
    assert starts(reader) == [70, 80]
    reader.close()
    topics.offsets_read = 0
    resumed = opened(topics, Clock(), files)
    resumed.read_for(PARTITIONS)
    assert (starts(resumed), topics.offsets_read) == ([70, 80], 0)


def test_a_topic_that_is_not_asked_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process follows topics that are made and deleted for weeks. Nothing tells it that one was deleted."""
    topics, now_s = written(), [1000.0]
    reader = opened(topics, Clock())
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    reader.read_for([OTHER, PARTITION])
    for _ in range(4):
        now_s[0] += 0.4 * metadata_replay._UNREAD_S
        reader.read_for([PARTITION])
    assert (starts(reader), starts(reader, OTHER)) == ([0, 10], [])
    assert reader._user_topics.keys() == {DATA_ID, None}, "the replay of all topics stays"
    reader.read_for([OTHER])
    assert starts(reader, OTHER) == [0, 10]


def test_a_topic_is_not_forgotten_because_nothing_was_asked_for_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream has a batch every few hours. It would read all metadata records again in each."""
    topics, now_s = written(), [1000.0]
    reader = opened(topics, Clock())
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    reader.read_for([PARTITION])
    read = topics.offsets_read
    for _ in range(3):
        now_s[0] += 2 * metadata_replay._UNREAD_S
        reader.read_for([PARTITION])
    assert (starts(reader), topics.offsets_read) == ([0, 10], read)


@pytest.mark.parametrize("count", [COUNT, 11])
def test_a_longer_log_of_another_topic_is_noticed_within_a_minute(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    topics = written()
    reader = opened(topics, Clock())
    for _ in range(2):
        reader.read_for([PARTITION])
    assert topics.described == [METADATA_TOPIC]
    topics.create_again(count)
    for number in range(count):
        topics.logs[number] += [None] * 20
    topics.write(PARTITION, 7)
    monkeypatch.setattr(metadata_replay, "_DESCRIBED_S", 0.0)
    reader.read_for([PARTITION])
    assert starts(reader) == [70]


def test_readers_that_wait_read_the_topic_that_is_there_when_their_turn_comes() -> None:
    topics = written()
    reader = MetadataTopic(cast(Cluster, topics), timeout_ms=10_000)
    entered, may_go_on = held_up_at_ends(topics)
    threads = [threading.Thread(target=reader.read_for, args=([each],)) for each in PARTITIONS]
    for thread in threads:
        thread.start()
    assert entered.wait(60)
    while len(reader._wanted.get(DATA_ID, ())) < 2:
        time.sleep(0.001)
    topics.create_again(1)
    topics.write(PARTITION, 7)
    topics.write(ELSEWHERE, 8)
    may_go_on.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert (starts(reader), starts(reader, ELSEWHERE)) == ([70], [80])


# ------------------------------------------------------------------------------------------------------------------ age


@pytest.mark.parametrize(
    ("settings", "away_ms", "begins_again"),
    [
        (COMPACTED, 10_000, False),
        (COMPACTED, 10_001, True),
        ({"cleanup.policy": "delete"}, 10**12, False),
        (None, 86_400_000, False),
        (None, 86_400_001, True),
    ],
)
def test_a_reader_that_was_away_for_too_long_begins_again(
    settings: dict[str, str] | None, away_ms: int, begins_again: bool
) -> None:
    topics, clock = Topics(settings=settings), Clock()
    topics.write(PARTITION, 0, 1)
    topics.write(ELSEWHERE, 5)
    reader = opened(topics, clock)
    reader.read_for(PARTITIONS)
    assert starts(reader) == [0, 10]
    # The first segment was deleted. The cleaner has taken its record and the tombstone away.
    topics.write(PARTITION, 2)
    compact(topics, 0)
    clock.now_ms += away_ms
    reader.read_for([PARTITION])
    assert starts(reader) == ([10, 20] if begins_again else [0, 10, 20])
    assert starts(reader, ELSEWHERE) == [50]


def test_a_reader_that_follows_asks_for_the_settings_once() -> None:
    topics, clock = Topics(settings=COMPACTED), Clock()
    reader = opened(topics, clock)
    for _ in range(20):
        reader.read_for([PARTITION])
        clock.now_ms += 9_000
    assert topics.settings_asked == 1
    topics.settings = {"cleanup.policy": "delete"}
    clock.now_ms += 60_001
    reader.read_for([PARTITION])
    assert topics.settings_asked == 2


def test_a_reading_that_failed_counts_from_its_begin() -> None:
    """The part that was read then is as old as that reading."""
    topics, clock = Topics(settings=COMPACTED), Clock()
    topics.write(PARTITION, 0)
    reader = opened(topics, clock)
    reader.read_for([PARTITION])
    clock.now_ms += 9_000
    topics.write(PARTITION, 1)
    topics.is_mute = True
    with pytest.raises(Unlocatable):
        reader.read_for([PARTITION])
    topics.is_mute = False
    compact(topics, 0)
    clock.now_ms += 2_000
    reader.read_for([PARTITION])
    assert starts(reader) == [10]


# ---------------------------------------------------------------------------------------------------------------- cache


def saved_by(topics: Topics, clock: Clock, partitions: list[TopicIdPartition] = PARTITIONS) -> Files:
    """The files of a reader that has read these partitions and was closed."""
    files = Files()
    reader = opened(topics, clock, files)
    reader.read_for(partitions)
    reader.close()
    assert files.closed
    assert topics.closed
    assert reader.remarks == ()
    return files


def written() -> Topics:
    topics = Topics(epoch=4)
    for partition in (PARTITION, NEIGHBOUR, ELSEWHERE, OTHER):
        topics.write(partition, 0, 1)
    return topics


def test_the_next_reader_goes_on_from_the_files() -> None:
    topics, clock = written(), Clock()
    files = saved_by(topics, clock)
    places = {metadata_partition(DATA_ID, each.partition, COUNT) for each in PARTITIONS}
    assert len(files.files) == len(places)
    topics.write(PARTITION, 2)
    topics.offsets_read = 0
    resumed, cold = opened(topics, clock, files), opened(topics, clock)
    resumed.read_for(PARTITIONS)
    assert topics.offsets_read == 1
    cold.read_for(PARTITIONS)
    assert [resumed.timeline(each) for each in PARTITIONS] == [cold.timeline(each) for each in PARTITIONS]
    assert starts(resumed) == [0, 10, 20]
    calls = files.calls
    resumed.read_for(PARTITIONS)
    assert files.calls == calls, "it is loaded once"


def test_a_reader_of_other_partitions_uses_the_same_files_and_adds_its_own() -> None:
    topics, clock = written(), Clock()
    files = saved_by(topics, clock, [PARTITION])
    assert len(files.files) == 1
    topics.offsets_read = 0
    reader = opened(topics, clock, files)
    reader.read_for([NEIGHBOUR])
    assert (topics.offsets_read, starts(reader, NEIGHBOUR)) == (0, [0, 10])
    reader.read_for([ELSEWHERE])
    assert (topics.offsets_read, starts(reader, ELSEWHERE)) == (2, [0, 10])
    reader.close()
    assert len(files.files) == 2


def test_a_reader_of_another_topic_reads_for_itself() -> None:
    topics, clock = written(), Clock()
    files = saved_by(topics, clock)
    topics.offsets_read = 0
    reader = opened(topics, clock, files)
    reader.read_for([OTHER])
    assert starts(reader, OTHER) == [0, 10]
    assert topics.offsets_read == 6
    assert reader.remarks == ()


def test_a_reader_of_all_topics_has_files_of_its_own() -> None:
    topics, clock = written(), Clock()
    files = Files()
    for expected in (8, 0):
        topics.offsets_read = 0
        reader = opened(topics, clock, files)
        assert reader.read_all() == (*sorted([PARTITION, NEIGHBOUR, ELSEWHERE]), OTHER)
        assert topics.offsets_read == expected
        reader.close()
    assert all("/all." in name for name in files.files)


def test_nothing_is_written_if_nothing_was_read() -> None:
    topics, clock = written(), Clock()
    files = saved_by(topics, clock)
    before = dict(files.files)
    files.files = dict(before)
    clock.now_ms += 5
    reader = opened(topics, clock, files)
    reader.read_for(PARTITIONS)
    calls = files.calls
    reader.close()
    reader.close()
    assert (files.files, files.calls) == (before, calls)


def test_offsets_that_the_topic_no_longer_has_are_not_gone_on_from() -> None:
    topics, clock = written(), Clock()
    files = saved_by(topics, clock)
    topics.starts[NUMBER] = 100  # the log now begins past the end of the replay
    reader = opened(topics, clock, files)
    reader.read_for([PARTITION])
    assert starts(reader) == [0, 10]
    topics.starts[NUMBER], topics.logs[NUMBER] = 0, []
    reader = opened(topics, clock, files)
    reader.read_for([PARTITION])
    assert starts(reader) == []


def test_a_replay_that_an_election_cut_off_is_not_used() -> None:
    """The log was cut off and grew again: the offsets fit, and the records are others."""
    topics, clock = written(), Clock()
    files = saved_by(topics, clock)
    for number in range(COUNT):
        topics.logs[number] = topics.logs[number][:1]
    topics.write(PARTITION, 7, 8, 9, 10)
    topics.epoch_ends, topics.epoch = {4: 1}, 5
    reader = opened(topics, clock, files)
    reader.read_for([PARTITION, ELSEWHERE])
    assert starts(reader) == [0, 70, 80, 90, 100]
    reader.close()
    topics.epoch_ends = {}
    again = opened(topics, clock, files)
    topics.offsets_read = 0
    again.read_for([PARTITION])
    assert (starts(again), topics.offsets_read) == ([0, 70, 80, 90, 100], 0)


def test_an_election_costs_no_metadata_partition_that_was_not_read_yet() -> None:
    """One of two has a file, and it was cut off: both are read from their first records."""
    topics, clock = written(), Clock()
    files = saved_by(topics, clock, [PARTITION])
    topics.epoch_ends, topics.epoch = {4: 1}, 5
    reader = opened(topics, clock, files)
    reader.read_for([PARTITION, ELSEWHERE])
    assert (starts(reader), starts(reader, ELSEWHERE)) == ([0, 10], [0, 10])


def test_a_reader_that_an_election_cut_off_begins_again() -> None:
    """Between two readings of one process the log was cut off and grew past the place that was read."""
    for files in (None, Files()):
        topics, clock = written(), Clock()
        reader = opened(topics, clock, files)
        reader.read_for([PARTITION])
        topics.logs[NUMBER] = topics.logs[NUMBER][:1]
        topics.write(PARTITION, *range(4, 12))
        topics.epoch_ends, topics.epoch = {4: 1}, 5
        reader.read_for([PARTITION])
        assert starts(reader) == [0, *range(40, 120, 10)]
        assert topics.compared == [NUMBER]
        reader.read_for([PARTITION])
        assert topics.compared == [NUMBER], "the leader has written the last record"


def test_a_reader_asks_each_new_leader_once() -> None:
    topics, clock = written(), Clock()
    reader = opened(topics, clock)
    for epoch in (4, 5, 6):
        topics.epoch = epoch
        for _ in range(3):
            reader.read_for([PARTITION])
    assert topics.compared == [NUMBER, NUMBER]
    assert starts(reader) == [0, 10]


def test_an_election_during_the_comparison_is_waited_for() -> None:
    topics = written()
    reader = MetadataTopic(cast(Cluster, topics), timeout_ms=10_000, now_ms=Clock())
    reader.read_for([PARTITION])
    topics.epoch = 5
    topics.electing = [KafkaError._UNKNOWN_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]
    reader.read_for([PARTITION])
    assert topics.compared == [NUMBER]
    topics.epoch, topics.electing = 6, [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaException):
        reader.read_for([PARTITION])


def test_a_new_leader_that_has_the_log_is_gone_on_with() -> None:
    topics, clock = written(), Clock()
    files = saved_by(topics, clock)
    assert_resumes(topics, clock, files)
    assert topics.compared == [], "the leader is the same, and there is nothing to compare"
    topics.epoch = 5
    assert_resumes(topics, clock, files)
    assert topics.compared == [NUMBER]


def test_an_old_file_of_a_compacted_topic_is_not_used() -> None:
    for settings, is_used in ((COMPACTED, False), ({"cleanup.policy": "delete"}, True), (None, True)):
        topics, clock = written(), Clock()
        topics.settings = settings
        files = saved_by(topics, clock)
        compact(topics, 0)
        clock.now_ms += 10_001
        reader = opened(topics, clock, files)
        reader.read_for([PARTITION])
        assert starts(reader) == ([0, 10] if is_used else [10])
        reader.close()
        clock.now_ms += 5_000
        assert_resumes(topics, clock, files)


def assert_resumes(topics: Topics, clock: Clock, files: Files) -> None:
    topics.offsets_read = 0
    opened(topics, clock, files).read_for([PARTITION])
    assert topics.offsets_read == 0


def test_a_file_keeps_the_age_of_what_it_holds() -> None:
    """Else a file that is saved again and again would never be too old."""
    topics, clock = written(), Clock()
    topics.settings = COMPACTED
    files = saved_by(topics, clock)
    clock.now_ms += 9_000
    topics.write(PARTITION, 2)
    topics.is_mute = True
    reader = opened(topics, clock, files)
    with pytest.raises(Unlocatable):
        reader.read_for([PARTITION])
    reader.close()
    topics.is_mute = False
    clock.now_ms += 2_000
    topics.offsets_read = 0
    opened(topics, clock, files).read_for([PARTITION])
    assert topics.offsets_read == 7, "all records of the metadata partition"


def test_closing_ends_a_reading_and_saves_its_part() -> None:
    """A consumer whose first record came through the broker may be closed while it reads."""

    class Endless(Topics):
        """Gives one record, and no other until the test has closed the reader."""

        def consume(self, num_messages: int, timeout: float) -> list[Message]:
            if self.offsets_read:
                is_under_way.set()
                time.sleep(0.001)
                return []
            return super().consume(1, timeout)

        def unassign(self) -> None:
            if is_under_way.is_set():
                raise RuntimeError("Consumer closed")

    is_under_way, clock, files = threading.Event(), Clock(), Files()
    topics = Endless(epoch=4)
    topics.write(PARTITION, 0, 1)
    reader = MetadataTopic(cast(Cluster, topics), timeout_ms=60_000, cache=ReplayCache(files), now_ms=clock)
    errors: list[Exception] = []

    def read() -> None:
        try:
            reader.read_for([PARTITION])
        except Cancelled as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert is_under_way.wait(60)
    reader.close()
    thread.join(60)
    assert len(errors) == 1
    with pytest.raises(Cancelled):
        reader.read_for([PARTITION])
    whole = Topics(epoch=4, logs=topics.logs)
    resumed = opened(whole, clock, files)
    resumed.read_for([PARTITION])
    assert (starts(resumed), whole.offsets_read) == ([0, 10], 1)


def test_tombstones_find_their_segments_after_a_resume() -> None:
    topics, clock = written(), Clock()
    files = saved_by(topics, clock)
    topics.logs[NUMBER].append((b"key-0:UPDATE", None))
    reader = opened(topics, clock, files)
    reader.read_for([PARTITION])
    assert starts(reader) == [10]


def test_brokers_without_ids_are_read_without_a_cache() -> None:
    clock = Clock()
    for nameless in ({"cluster": None}, {"topic_id": None}):
        topics = Topics(**nameless)  # type: ignore[arg-type]
        topics.write(PARTITION, 0)
        files = saved_by(topics, clock)
        assert files.files == {}


def test_a_cluster_that_does_not_tell_its_id_ends_no_read() -> None:
    class Silent(Topics):
        def cluster_id(self) -> str | None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    topics = Silent()
    topics.write(PARTITION, 0)
    assert saved_by(topics, Clock()).files == {}


def test_remarks_reach_each_reader_once() -> None:
    topics, clock = written(), Clock()
    files = Files("Permission denied")
    topic = opened(topics, clock, files)
    heard: list[str] = []
    for _ in range(2):
        locator = MetadataTopicLocator(
            cast(Cluster, topics), topic, say=pytest.fail, remark=lambda one: heard.append(one.text)
        )
        for _ in range(2):
            assert locator.refresh(PARTITION).end_offset == 20
        locator.pass_on_remarks()
    assert len(heard) == 2
    assert len(set(heard)) == 1


def test_the_failure_of_the_last_save_is_passed_on() -> None:
    """A session ends its reader first, and then passes on the remarks."""
    topics, files = written(), Files()
    heard: list[Notice] = []
    reader = opened(topics, Clock(), files)
    locator = MetadataTopicLocator(cast(Cluster, topics), reader, say=pytest.fail, remark=heard.append)
    locator.refresh(PARTITION)
    files.error = "Disk full"
    reader.finish()
    locator.pass_on_remarks()
    assert ["Disk full" in one.text for one in heard] == [True]


def test_records_that_cannot_be_read_are_counted_after_a_resume_too() -> None:
    topics, clock = written(), Clock()
    topics.logs[NUMBER].append((None, b"damaged"))
    topics.logs[(NUMBER + 1) % COUNT].append((None, b"damaged"))
    files = saved_by(topics, clock)
    reader = opened(topics, clock, files)
    reader.read_for([PARTITION])
    assert reader.timeline(PARTITION).malformed_records == 1
    reader.read_for(PARTITIONS)
    assert reader.timeline(PARTITION).malformed_records == 2


def test_a_message_without_an_epoch_is_no_place_to_compare() -> None:
    topics, clock = written(), Clock()
    topics.epoch = None
    files = saved_by(topics, clock)
    assert Message().leader_epoch() is None
    before = len(topics.assignments)
    opened(topics, clock, files).read_for([PARTITION])
    assert len(topics.assignments) == before, "nothing is new, and there is nothing to compare"
    topics.logs[NUMBER].append(record(PARTITION, 2))
    opened(topics, clock, files).read_for([PARTITION])
    assert topics.assignments[before:] == [[NUMBER]]
