"""The positions of the assigned partitions: taken from librdkafka, and stored for commits.

Rules of the file:

- Only the application's thread uses it. No call waits for a broker.
- librdkafka is configured to store no position. It does not know the committed offsets that this package has asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from confluent_kafka import KafkaException, TopicPartition

from remote_fetch.consumer.assigned import AssignedPartition, Key, key_of
from remote_fetch.consumer.committed import Start
from remote_fetch.consumer.librdkafka import LibrdkafkaConsumer
from remote_fetch.consumer.offsets import INVALID, partition_at
from remote_fetch.consumer.settings import ConsumerSettings
from remote_fetch.deadline import Clock

__all__ = ["Positions"]

T = TypeVar("T")

_STORE_EVERY_S = 0.1
"""How often positions are stored for librdkafka's auto-commit."""


class Positions:
    """The positions of one consumer. `assigned` has all partitions that are assigned now."""

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
        self._store_at_s = 0.0
        self._are_frozen = self._are_ahead = False
        self._floors: dict[Key, int] = {}
        """The offsets that the group had committed when it was asked. They stay if a partition is assigned again.

        Without one the group had committed none, or librdkafka has asked itself.
        """
        self._own_commits: dict[Key, int] = {}
        """The offsets up to which librdkafka may have committed since it has asked for the committed offset."""

    # ---------------------------------------------------------------------------------------- taken from librdkafka

    def freeze(self) -> None:
        """Take no more positions from librdkafka, because they are ahead of the application's."""
        self._are_frozen = True

    def frozen_during(self, consume: Callable[[], T]) -> T:
        """Call librdkafka's `consume`, and take no positions while it runs. A callback in it may close or consume."""
        was_ahead, self._are_ahead = self._are_ahead, True
        try:
            return consume()
        finally:
            self._are_ahead = was_ahead

    @property
    def are_frozen(self) -> bool:
        """Whether no positions are taken from librdkafka."""
        return self._are_frozen or self._are_ahead

    def refresh(self, keys: Iterable[Key] | None = None) -> None:
        """Take librdkafka's positions in the partitions that it reads, if `keys` names them. None: in all of them.

        They also pass transaction markers.
        """
        named = self._assigned if keys is None else [key for key in keys if key in self._assigned]
        chosen = map(self._assigned.__getitem__, named)
        fetched = [partition for partition in chosen if partition.state.is_fetched]
        if not fetched or self.are_frozen:
            return
        found = self._librdkafka.position([partition.topic_partition() for partition in fetched])
        for partition, answer in zip(fetched, found, strict=True):
            if answer.offset >= 0 and answer.error is None:
                partition.position.follow(answer.offset, answer.leader_epoch)

    # -------------------------------------------------------------------------------------------- stored for commits

    @property
    def were_stored_lately(self) -> bool:
        """Whether positions were stored within the last tenth of a second. Any thread may ask."""
        return self._clock() < self._store_at_s

    def store(self) -> None:
        """Store the positions for commits, as `enable.auto.offset.store` would.

        Offsets that an assignment has made librdkafka forget are stored again, also those of the application.
        """
        self._store_at_s = self._clock() + _STORE_EVERY_S
        if lost := [found for each in self._assigned.values() if (found := each.stored.lost) is not None]:
            with contextlib.suppress(KafkaException):
                self._librdkafka.store_offsets(offsets=lost)
        self.refresh()
        if not self._settings.stores_offsets:
            return
        moved = [partition.stored for partition in self._assigned.values() if not partition.stored.is_current]
        if not moved:
            return
        # librdkafka refuses a partition that a rebalance has taken. Its position need not be stored.
        with contextlib.suppress(KafkaException):
            self._librdkafka.store_offsets(offsets=[stored.to_store() for stored in moved])
        for stored in moved:
            stored.mark()

    def note_stored(self, offsets: Iterable[TopicPartition]) -> None:
        """Note offsets that the application has stored for commits. librdkafka forgets those that are withheld."""
        withheld = []
        for given in offsets:
            if (partition := self._assigned.get(key_of(given))) is not None:
                # A copy, because the application may change its object.
                kept = partition_at(*partition.key, given.offset, given.leader_epoch, given.metadata)
                partition.stored.mark_own(kept)
                if partition.stored.withholds(kept.offset):
                    withheld.append(partition.topic_partition())
        if withheld:
            self._librdkafka.store_offsets(offsets=withheld)

    # ----------------------------------------------------------------------------------- what the group has committed

    def begin(self, partition: AssignedPartition) -> None:
        """Begin with a new assignment of a partition."""
        partition.stored.keep_above(self._floors.get(partition.key, INVALID))

    def accept(self, partition: AssignedPartition, start: Start | None) -> Start | None:
        """Take the group's answer for a partition. Returns it, or None if librdkafka has to ask the group again.

        It has to if the group has not answered, or if librdkafka has committed a later offset: it commits none before
        that one until it asks.
        """
        floor = INVALID if start is None or start.is_end else start.offset
        # With `keeps_all` the answer is older than a commit of the application, and librdkafka would begin there.
        if not partition.stored.keeps_all and floor < self._own_commits.get(partition.key, INVALID):
            start, floor = None, INVALID
            del self._own_commits[partition.key]
        partition.stored.keep_above(floor)
        if partition.stored.withholds(floor):
            self._floors[partition.key] = floor
        else:
            self._floors.pop(partition.key, None)
        return start

    def _forget_committed(self, keys: Iterable[Key]) -> None:
        """Forget the offsets that the group had committed: librdkafka knows those that it commits itself.

        An answer of the group that is taken after this is older.
        """
        for key in keys:
            self._floors.pop(key, None)
            if key in self._assigned:
                self._assigned[key].stored.keep_all()

    def note_own_commits(self, offsets: Sequence[TopicPartition]) -> None:
        """Note that librdkafka commits these offsets for the application. Empty: those that are stored."""
        self._forget_committed(map(key_of, offsets))
        self._own_commits.update({key_of(each): each.offset for each in offsets if each.offset >= 0})
        if not offsets:
            for partition in self._assigned.values():
                self._note_own_commit(partition)

    def _note_own_commit(self, partition: AssignedPartition) -> None:
        known = self._own_commits.get(partition.key, INVALID)
        self._own_commits[partition.key] = max(known, partition.stored.last)

    def prepare_to_leave(self, partitions: Iterable[TopicPartition] | None) -> None:
        """Prepare for the end of assignments. librdkafka then commits what is stored, also before the committed offset.

        None: of all assignments. Positions are to be stored after this.
        """
        if self._settings.commits:
            self._forget_committed(self._assigned if partitions is None else map(key_of, partitions))

    def end(self, partition: AssignedPartition) -> None:
        """Note that the assignment of a partition has ended. If automatic commits are on, librdkafka commits."""
        partition.position.release()
        if self._settings.commits:
            self._note_own_commit(partition)
