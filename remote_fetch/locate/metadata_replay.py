"""The metadata topic as far as it has been read, for one reader or for all readers of a process with the same rights.

Rules of the file:

- Only the metadata partitions that are needed are read: first between their watermarks, then further on demand.
- A metadata partition without a leader is waited for. Then the others are read, and its error is raised.
- One thread reads at a time, for all threads that wait. They share its result, or its error.
- A reader that may have missed a tombstone, or whose records the topic no longer has, begins with the first record.
- Reading goes on where it ended, or where a saved replay ends. If the log has a later leader epoch, the leader is asked
  for that place (KIP-320). If an election has cut the log off there, reading begins with the first record.
- The topic is described again from time to time, and if its log has become shorter. If it was created again, or has
  another partition count, all that was read is forgotten.
- The records of a user topic that is not asked for any more are forgotten: it may be deleted, or others read it.
- A client that was answered before and is silent now is replaced after seconds: it may stay with a leader that hangs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaException, TopicPartition

from remote_fetch.config import KEYS
from remote_fetch.deadline import Deadline
from remote_fetch.errors import Cancelled, Unlocatable
from remote_fetch.failures.broker_errors import is_of_another_leader
from remote_fetch.failures.shared_failure import SharedFailure
from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.kafka_clients import Consumer
from remote_fetch.locate.answers import LogEnds
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.locate.leases import Leases
from remote_fetch.locate.metadata_questions import MetadataQuestions
from remote_fetch.locate.replay import CutOff, Replay
from remote_fetch.locate.replay_cache import ReplayCache, TopicOrigin
from remote_fetch.locate.replay_saver import ReplaySaver
from remote_fetch.locate.saved_replay import SavedReplay
from remote_fetch.locate.slices import ONE_ANSWER_S, Newcomer
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.tombstones import Tombstones
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.observe import Notice

__all__ = ["METADATA_TOPIC", "METADATA_TOPICS", "MetadataTopic"]

METADATA_TOPIC = str(KEYS["remote.locator.topic"].default)
"""The name that brokers give it."""

_CONSUME_MESSAGES = 2_000
"""Small, so that a reader releases the interpreter's lock often and the application's threads can run."""
_POLL_S = 0.2
_DESCRIBED_S = 60.0
"""How long a description of the topic is believed. Its partition count decides where the records of a partition are."""
_UNREAD_S = 3600.0
"""How long the records of a user topic are kept that is not asked for. Then its next reading begins with the first."""
_MAX_BEGINS = 5
"""How often one reading begins, because retention can delete the first records of the topic during it."""


class _Replaced(Exception):
    """The topic was created again, or has another partition count."""


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)


@dataclass(slots=True)
class _UserTopic:
    """The records of one user topic. `topic_id` None: those of all topics together.

    - `asked_s` is the time of the last question.
    - `read_at_s` has, for each metadata partition, the time when the last reading to its end began.
    - `failure` is the error of the last reading, which was of the metadata partitions `tried`.
    """

    topic_id: Uuid | None
    replay: Replay
    asked_s: float = 0.0
    read_at_s: dict[int, float] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    failure: SharedFailure = field(default_factory=SharedFailure)


class MetadataTopic:
    """The metadata topic of one `cluster`. Thread-safe. `name` is that of the topic.

    `cache` keeps replays for later readers. `new_replay` makes an empty replay. `now_ms` is the wall clock.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        timeout_ms: int,
        name: str = METADATA_TOPIC,
        cache: ReplayCache | None = None,
        new_replay: Callable[[Uuid | None], Replay] = Replay.of,
        now_ms: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        self.name = name
        self.cluster = cluster
        self._new_replay = new_replay
        self._now_ms = now_ms
        self._questions = MetadataQuestions(cluster, name, timeout_ms)
        self._tombstones = Tombstones(lambda: cluster.topic_settings(name))
        self._saver = ReplaySaver(cache, self._unsaved)
        self._is_finished = threading.Event()
        self._timeout_ms = timeout_ms
        self._known: Topic | None = None
        self._known_s = 0.0
        self._reading = threading.Lock()  # for a reading, and for `_user_topics`
        self._asking = threading.Lock()  # for `_known`, `_known_s`, `_wanted`: no request is made under it
        self._user_topics: dict[Uuid | None, _UserTopic] = {}
        self._wanted: dict[Uuid | None, set[int]] = {}
        self._newcomer = Newcomer()

    @property
    def remarks(self) -> tuple[Notice, ...]:
        """The reports of the cache so far."""
        return self._saver.remarks

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """The readable segments of a partition, by the records read so far."""
        with self._reading:
            user_topic = self._user_topics.get(partition.topic_id) or self._user_topic(None)
            return user_topic.replay.builder.build(partition)

    def read_for(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Read the records of these partitions to the current end.

        Raises Unlocatable, KafkaException, and the errors of the cluster's first contact.
        """
        asked = tuple(partitions)

        def wanted(count: int) -> dict[Uuid | None, set[int]]:
            found: dict[Uuid | None, set[int]] = {}
            for partition in asked:
                number = metadata_partition(partition.topic_id, partition.partition, count)
                found.setdefault(partition.topic_id, set()).add(number)
            return found

        self._read_wanted(wanted)

    def read_all(self) -> tuple[TopicIdPartition, ...]:
        """Read the whole topic, and return the partitions that have records. Raises as `read_for`."""
        self._read_wanted(lambda count: {None: set(range(count))})
        with self._reading:
            return self._user_topic(None).replay.builder.partitions()

    def close(self) -> None:
        """Save the replays and close the client. May be called twice."""
        self.finish()
        self.cluster.close()

    def finish(self) -> None:
        """Save the replays and close the cache. May be called twice. A reading under way ends with Cancelled.

        The part that it has read is saved too, with the time of `Replay.since_ms`.
        """
        self._is_finished.set()
        self._saver.close()

    def _unsaved(self, origin: TopicOrigin) -> list[tuple[Replay, list[SavedReplay]]]:
        """The replays, each with the part of it that was read since it was saved."""
        with self._reading:
            return [(each.replay, each.replay.to_save(origin, each.topic_id)) for each in self._user_topics.values()]

    def _read_wanted(self, wanted: Callable[[int], Mapping[Uuid | None, set[int]]]) -> None:
        """Read the metadata partitions that `wanted` names for a partition count, of the topic as it is at the end."""
        topic, before = self._described(), None
        while topic != before:
            before = topic
            with contextlib.suppress(_Replaced):
                for topic_id, numbers in wanted(len(topic.partitions)).items():
                    self._read(topic, topic_id, numbers)
            topic = self._known or topic

    def _read(self, topic: Topic, topic_id: Uuid | None, numbers: set[int]) -> None:
        """Read metadata partitions of `topic` to their current ends. Nothing is read of a topic that was replaced."""
        asked_s = time.monotonic()
        with self._asking:
            if topic != self._known:
                return
            self._wanted.setdefault(topic_id, set()).update(numbers)
        with self._reading:
            if topic != self._known:
                return
            user_topic = self._user_topic(topic_id)
            user_topic.asked_s = asked_s
            # A reading that began after this call has reached the end that this call needs.
            if all(user_topic.read_at_s.get(number, 0.0) >= asked_s for number in numbers):
                return
            if numbers <= user_topic.tried:
                user_topic.failure.check(asked_s)
            self._read_all_wanted(user_topic, numbers)

    def _read_all_wanted(self, user_topic: _UserTopic, numbers: set[int]) -> None:
        """Read these metadata partitions, and those that other threads wait for. They share the result or the error."""
        with self._asking:
            numbers |= self._wanted.pop(user_topic.topic_id, set())
        user_topic.tried, user_topic.failure, began_s = numbers, SharedFailure(), time.monotonic()
        with user_topic.failure.kept(Unlocatable, KafkaException):
            try:
                self._catch_up(user_topic, numbers)
            except KafkaException as error:
                if is_of_another_leader(error):
                    numbers = self._questions.led(numbers)
                    self._catch_up(user_topic, numbers)
                    self._note_read(user_topic, numbers, began_s)
                raise
        self._note_read(user_topic, numbers, began_s)

    def _note_read(self, user_topic: _UserTopic, numbers: Iterable[int], began_s: float) -> None:
        user_topic.read_at_s.update(dict.fromkeys(numbers, began_s))
        self._saver.save_soon(user_topic.replay)

    def _user_topic(self, topic_id: Uuid | None) -> _UserTopic:
        if topic_id not in self._user_topics:
            self._user_topics[topic_id] = _UserTopic(topic_id, self._new_replay(topic_id))
        return self._user_topics[topic_id]

    def _described(self) -> Topic:
        """The metadata topic, by a description of the last minute. Raises as `MetadataQuestions.describe`."""
        known = self._known
        if known is None or time.monotonic() - self._known_s > _DESCRIBED_S:
            known = self._questions.describe()
            with self._reading:
                self._drop_unread()
                self._take(known)
        return known

    def _drop_unread(self) -> None:
        """Forget the user topics that were not asked for lately. The replay of all topics together stays.

        The hour ends at the last description. So a stream with a batch every two hours keeps its topics.
        """
        before_s = self._known_s - _UNREAD_S
        self._user_topics = {
            topic_id: each
            for topic_id, each in self._user_topics.items()
            if topic_id is None or each.asked_s >= before_s
        }

    def _take(self, found: Topic) -> bool:
        """Keep a description. Return whether it is of another topic than before: all that was read is forgotten."""
        with self._asking:
            before, self._known, self._known_s = self._known, found, time.monotonic()
            if found == before:
                return False
            self._wanted.clear()
        self._user_topics.clear()
        if self._saver.is_on:
            self._saver.origin = self._questions.origin_of(found)
        return before is not None

    def _check_topic(self) -> None:
        """Raise _Replaced if the topic is another one now, and the errors of `MetadataQuestions.describe`."""
        if self._take(self._questions.describe()):
            raise _Replaced

    def _catch_up(self, user_topic: _UserTopic, numbers: Iterable[int], *, begins: int = 1) -> None:
        """Read the metadata partitions to their current ends. The first begin, by `begins`, uses saved replays.

        Raises Unlocatable if it takes too long or is forbidden, and KafkaException with the broker's error.
        """
        self._check_open()
        self.cluster.catcher()  # made first: it connects while the bounds are looked up
        began_ms = self._now_ms()
        replay = user_topic.replay
        bounds = self._questions.bounds(numbers, self._check_topic)
        if self._is_lost(replay, bounds, began_ms):
            self._check_topic()
            bounds |= self._questions.bounds(replay.read_to.keys() - bounds.keys(), self._check_topic)
            replay = user_topic.replay = self._new_replay(user_topic.topic_id)
        if begins == 1:
            self._resume(user_topic, bounds, began_ms)
        if not self._questions.still_holds(replay, bounds):
            self._begin_again(user_topic, replay.read_to.keys() | bounds.keys(), begins)
            return
        ends: dict[int, int] = {}
        for number, (low, high, _) in bounds.items():
            start = replay.read_to[number] = max(replay.read_to.get(number, low), low)
            replay.since_ms.setdefault(number, began_ms)
            if start < high:
                ends[number] = high
        try:
            while ends:
                self._consume(self.cluster.catcher(), replay, ends)
        except CutOff:
            self._begin_again(user_topic, replay.read_to.keys(), begins)
            return
        replay.since_ms.update(dict.fromkeys(bounds, began_ms))

    def _begin_again(self, user_topic: _UserTopic, numbers: Iterable[int], begins: int) -> None:
        """Read the metadata partitions of a topic from their first records, and use no saved replay."""
        user_topic.replay = self._new_replay(user_topic.topic_id)
        if begins == _MAX_BEGINS:
            raise Unlocatable(f"{self.name} deletes records faster than they are read; {begins} readings were cut off")
        self._catch_up(user_topic, numbers, begins=begins + 1)

    def _is_lost(self, replay: Replay, bounds: dict[int, LogEnds], now_ms: int) -> bool:
        """Whether the records read before are not enough to go on from.

        The topic was created again, or an election has made it shorter: they are not its records. Or it is compacted,
        and the last reading was so long ago that a tombstone may be gone.
        """
        if any(replay.read_to.get(number, 0) > high for number, (_, high, _) in bounds.items()):
            return True
        times_ms = [replay.since_ms[number] for number in bounds if number in replay.since_ms]
        return bool(times_ms) and any(
            self._tombstones.missed(at_ms, now_ms) for at_ms in (min(times_ms), max(times_ms))
        )

    def _resume(self, user_topic: _UserTopic, bounds: dict[int, LogEnds], now_ms: int) -> None:
        """Restore the saved replays of metadata partitions that were not read yet."""
        fresh = bounds.keys() - user_topic.replay.read_to.keys()
        for number, saved in self._saver.load(user_topic.topic_id, sorted(fresh)).items():
            low, high, _ = bounds[number]
            if low <= saved.next_offset <= high and not self._tombstones.missed(saved.origin.taken_at_ms, now_ms):
                user_topic.replay.restore(saved)

    def _check_open(self) -> None:
        """Raise Cancelled after `finish`."""
        if self._is_finished.is_set():
            raise Cancelled("the reader of the metadata topic was closed")

    def _consume(self, consumer: Consumer, replay: Replay, ends: dict[int, int]) -> None:
        """Read to the ends, or until the client is replaced because its leader may hang. A reached end is removed."""
        turn = self._newcomer.turn(consumer, min(ONE_ANSWER_S, self._timeout_ms / 1000))
        if not turn.is_answered:
            # librdkafka (2.16) looks for a topic at the moment when it connects. A consumer that is connected
            # before it knows the topic would look for it only up to a second later.
            with contextlib.suppress(KafkaException):
                consumer.list_topics(self.name, timeout=turn.slice_s)
        deadline = Deadline.after(self._timeout_ms / 1000)
        silence = Deadline.after(turn.slice_s) if turn.is_last else deadline
        try:
            # Explicit offsets: librdkafka takes half a second to resolve "the beginning".
            consumer.assign([TopicPartition(self.name, number, replay.read_to[number]) for number in ends])
            while ends:
                self._check_open()
                # At most the records that are left, because `consume` waits until it has as many as it wants.
                left = sum(end - replay.read_to.get(number, 0) for number, end in ends.items())
                messages = consumer.consume(max(1, min(left, _CONSUME_MESSAGES)), timeout=_POLL_S)
                if replay.take(messages, ends, self.name):
                    deadline = silence = Deadline.after(self._timeout_ms / 1000)
                    self._newcomer.note_answer(turn)
                    self.cluster.answered()
                elif silence.is_over:
                    self._newcomer = Newcomer()  # the old one keeps the client
                    self.cluster.replace(consumer)
                    if not deadline.is_over:
                        return
                    self._check_topic()  # raises if the permission was taken away
                    raise Unlocatable(f"no answer from {self.name} within {self._timeout_ms} ms")
        finally:
            with contextlib.suppress(RuntimeError):  # it may be closed
                consumer.unassign()


METADATA_TOPICS: Leases[MetadataTopic] = Leases()
"""The metadata topics that the consumers of this process share. Empty without consumers (design note 0013)."""
