"""Holds librdkafka back in partitions that the store is read for, and hands them over to it afterwards.

Rules of the file:

- Only the application's thread uses it. No call waits for a broker.
- librdkafka fetches as soon as a partition is assigned. So the partition is paused before, and assigned at a
  placeholder offset. Before librdkafka goes on, it is sent to another offset, so it never fetches the placeholder.
- After records of the store a hand-over seeks with their leader epoch. The log may have been truncated since they were
  read, and librdkafka finds that out (KIP-320).
- While librdkafka looks up the end of a log, a seek with a leader epoch can hang. A repeated seek makes it go on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import KafkaException, TopicPartition

from remote_fetch.consumer.assigned import AssignedPartition, Key, key_of
from remote_fetch.consumer.librdkafka import LibrdkafkaConsumer
from remote_fetch.consumer.offsets import INVALID, STORED, is_looked_up, partition_at
from remote_fetch.consumer.settings import ConsumerSettings
from remote_fetch.consumer.states import Mode
from remote_fetch.deadline import Clock
from remote_fetch.failures.broker_errors import is_of_state

__all__ = ["Handover", "pause_before_assign"]

_PLACEHOLDER = 0
"""The offset with which a partition is assigned that librdkafka must not fetch."""


def pause_before_assign(librdkafka: LibrdkafkaConsumer, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Pause new partitions that the store may have. Returns all partitions with the offsets to assign in librdkafka.

    librdkafka pauses only partitions that it knows. A request for the cached watermarks makes a partition known.
    The metadata is kept: a synchronous `commit` shows it for partitions that have no position to commit.
    """
    paused = [TopicPartition(*key_of(each)) for each in partitions if is_looked_up(each.offset)]
    with contextlib.suppress(KafkaException):  # the assignment meets the same error, and raises it
        for partition in paused:
            librdkafka.get_watermark_offsets(partition, cached=True)
        librdkafka.pause(paused)
    return [
        partition_at(
            partition.topic,
            partition.partition,
            _PLACEHOLDER if is_looked_up(partition.offset) else partition.offset,
            leader_epoch=None,
            metadata=partition.metadata,
        )
        for partition in partitions
    ]


class Handover:
    """Lets librdkafka read partitions, and repeats that if librdkafka gives no records.

    `assigned` has all partitions that are assigned now.
    """

    def __init__(
        self,
        librdkafka: LibrdkafkaConsumer,
        assigned: Mapping[Key, AssignedPartition],
        settings: ConsumerSettings,
        clock: Clock,
    ) -> None:
        self._librdkafka = librdkafka
        self._assigned = assigned
        self._settings = settings
        self._clock = clock
        self._empty_poll_at_s = 0.0

    def position(self, partition: AssignedPartition) -> int:
        """librdkafka's position: after its last record, INVALID if it has given none since the hand-over."""
        return int(self._position(partition).offset)

    def _position(self, partition: AssignedPartition) -> TopicPartition:
        (found,) = self._librdkafka.position([partition.topic_partition()])
        return found

    def next_offset(self, partition: AssignedPartition) -> int:
        """The offset from which librdkafka would fetch the partition, if it was assigned at an offset."""
        return int(self._next(partition).offset)

    def _next(self, partition: AssignedPartition) -> TopicPartition:
        """As `next_offset`, with the leader epoch of what is before it."""
        state = partition.state
        if state.mode is not Mode.BROKER:
            return partition.topic_partition(_PLACEHOLDER)
        if state.is_fetched and (found := self._position(partition)).offset >= 0:
            return found
        return partition.topic_partition(state.offset, state.leader_epoch)

    def is_at_end(self, partition: AssignedPartition, offset: int) -> bool:
        """Whether librdkafka knows of no record from `offset` on."""
        return offset >= self._heard_end(partition) >= 0

    def log_end(self, partition: AssignedPartition) -> int:
        """The end of the log that librdkafka or a feed has heard of, INVALID if none has."""
        return max(self._heard_end(partition), partition.log_end)

    def _heard_end(self, partition: AssignedPartition) -> int:
        watermarks = self._librdkafka.get_watermark_offsets(partition.topic_partition(), cached=True)
        return INVALID if watermarks is None else int(watermarks[1])

    def note_empty_poll(self, now_s: float) -> None:
        """Note that librdkafka was polled and had no record of any partition."""
        self._empty_poll_at_s = now_s

    def is_overdue(self, partition: AssignedPartition, now_s: float) -> bool:
        """Whether librdkafka should have given a record of the partition by now."""
        return partition.state.is_overdue(now_s, self._empty_poll_at_s, self._settings.watchdog_s)

    def start(self, partition: AssignedPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Let librdkafka fetch the partition from `offset` on. If it is paused, librdkafka only looks `offset` up.

        With the `leader_epoch` of the record before, librdkafka finds out whether the log was truncated.
        """
        try:
            if offset == STORED:
                self.assign_again([partition], offset)
            else:
                self._send_on(partition, partition.topic_partition(offset, leader_epoch))
        except KafkaException as error:
            if not is_of_state(error):
                raise
            self.assign_again([partition], offset, leader_epoch)
        partition.enter(partition.state.handed_over(self._clock()))

    def stop(self, partition: AssignedPartition) -> TopicPartition:
        """Stop librdkafka from fetching the partition. Returns its position, with the leader epoch before it."""
        self._librdkafka.pause([partition.topic_partition()])
        return self._position(partition)

    def is_outdated(self, partition: AssignedPartition, offset: int) -> bool:
        """Whether librdkafka's error that `offset` is out of range is older than a seek or an assignment.

        librdkafka gives such an error all the same. If `offset` is below 0, the error has none.
        """
        expected = self._next(partition)
        if expected.offset == STORED:
            return False
        has_begun = partition.state.is_fetched and self.position(partition) >= 0
        if min(offset, expected.offset) >= 0 and (offset <= expected.offset or not has_begun):
            # librdkafka gives the records before the offset first. It may pass markers and aborted records after them.
            return offset != expected.offset
        return not self._has_stopped(partition, expected)

    def _has_stopped(self, partition: AssignedPartition, expected: TopicPartition) -> bool:
        """Whether librdkafka has stopped the partition: it refuses to seek then. If not, it goes on at `expected`."""
        with _unless_stopped():
            self._librdkafka.seek(expected)
            partition.enter(partition.state.assigned_again(expected.offset, expected.leader_epoch))
            return False
        return True

    def _send_on(self, partition: AssignedPartition, target: TopicPartition) -> None:
        """Seek, and resume. Raises KafkaException (_STATE) if librdkafka has stopped the partition.

        - The first seek comes while the partition is paused, because librdkafka must not fetch from the placeholder.
        - A second seek comes after the resumption. Only a change of the partition's state wakes the thread of its
          broker, which may sleep for up to a second. The last seek has the leader epoch: each such seek is a request.
        - A seek from 0 to 0 changes no state. So a seek to 1 comes before it, if the log has that offset.
        - If librdkafka has fetched and stopped the partition between the resumption and the second seek, its error is
          on the way. A new assignment would bring the same error again.
        """
        if partition.state.is_paused:
            self._librdkafka.seek(target)
            return
        self._librdkafka.seek(partition.topic_partition(target.offset))
        self._librdkafka.resume([partition.topic_partition()])
        with _unless_stopped():
            if target.offset == 0 < partition.log_end:
                self._librdkafka.seek(partition.topic_partition(1))
            if target.offset >= 0:
                self._librdkafka.seek(target)

    def assign_again(
        self, partitions: Sequence[AssignedPartition], offset: int, leader_epoch: int | None = None
    ) -> None:
        """Assign partitions again at `offset`, because librdkafka cannot seek there or has stopped the partitions.

        librdkafka stops a partition whose offset is out of range, and does not seek it any more. A new assignment makes
        it go on. In a group whose rebalances are not incremental, librdkafka refuses to assign single partitions.
        """
        self._forget_stored(partitions)
        starts = [partition.assignable(offset, leader_epoch) for partition in partitions]
        try:
            is_unassigned = self._unassigned_alone(partitions)
            self._librdkafka.resume(
                [partition.topic_partition() for partition in partitions if not partition.state.is_paused]
            )
            if not is_unassigned:
                self._assign_all(partitions, offset, leader_epoch)
                return
            self._librdkafka.incremental_assign(starts)
        except KafkaException:
            raise
        except BaseException:  # a handler of a signal has raised, and none of the partitions may be lost
            held = set(map(key_of, self._librdkafka.assignment()))
            if missing := [start for start in starts if key_of(start) not in held]:
                self._librdkafka.incremental_assign(missing)
            raise

    def _forget_stored(self, partitions: Sequence[AssignedPartition]) -> None:
        """Let librdkafka forget what is stored, which `Positions` stores again after the assignment.

        With automatic commits it would commit that when it unassigns, also before what the group has committed.
        """
        for partition in partitions:
            partition.stored.lose()
        if self._settings.commits:
            with contextlib.suppress(KafkaException):  # the assignment meets the same error, and raises it
                self._librdkafka.store_offsets(offsets=[partition.topic_partition() for partition in partitions])

    def _unassigned_alone(self, partitions: Sequence[AssignedPartition]) -> bool:
        """Unassign partitions, and no others. Returns whether librdkafka allows that."""
        try:
            self._librdkafka.incremental_unassign([partition.topic_partition() for partition in partitions])
        except KafkaException as error:
            if self._settings.is_cooperative or not is_of_state(error):
                raise
            return False
        return True

    def _assign_all(self, chosen: Sequence[AssignedPartition], offset: int, leader_epoch: int | None) -> None:
        """Assign all partitions: the chosen ones at `offset`, and each of the others where librdkafka is.

        That repeats the hand-over of those that wait at their committed offsets. Else each would assign all once more.
        """
        partitions, moved = list(self._assigned.values()), set(chosen)
        starts = []
        for partition in partitions:
            if partition in moved:
                starts.append(partition.assignable(offset, leader_epoch))
            else:
                found = self._next(partition)
                starts.append(partition.assignable(found.offset, found.leader_epoch))
        self._forget_stored(partitions)
        for partition, start in zip(partitions, starts, strict=True):  # first: librdkafka forgets its positions
            partition.enter(partition.state.assigned_again(start.offset, start.leader_epoch))
        self._librdkafka.assign(starts)
        for partition in partitions:
            if partition.state.awaits_librdkafka and partition.state.offset == STORED:
                partition.enter(partition.state.repeated(self._clock()))


@contextlib.contextmanager
def _unless_stopped() -> Iterator[None]:
    """End the block at a seek that fails because librdkafka has stopped the partition."""
    try:
        yield
    except KafkaException as error:
        if not is_of_state(error):
            raise
