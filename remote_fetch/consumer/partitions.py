"""The assigned partitions of one consumer: assignments, seeks and pauses of the application, positions for commits.

Rules of the file:

- Only the application's thread uses it. No call waits for a broker, because the application's timeout may be 0.
- librdkafka alone handles a partition that is not in `assigned`.
- librdkafka keeps a pause if a partition is assigned again, and so does this class.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from confluent_kafka import KafkaException, TopicPartition

from remote_fetch.consumer.assigned import AssignedPartition, Key, key_of
from remote_fetch.consumer.committed import CommittedOffsets, Start
from remote_fetch.consumer.due_work import DueWork
from remote_fetch.consumer.feed_context import FeedContext
from remote_fetch.consumer.handover import Handover
from remote_fetch.consumer.librdkafka import LibrdkafkaConsumer
from remote_fetch.consumer.offsets import BEGINNING, COMMITTED, END, INVALID, STORED, named_epoch
from remote_fetch.consumer.position import storable
from remote_fetch.consumer.settings import ConsumerSettings, ResetPolicy
from remote_fetch.consumer.states import Mode, PartitionState
from remote_fetch.consumer.transitions import PROBE_AGAIN_S, Transitions
from remote_fetch.consumer.waiting import WaitLog
from remote_fetch.consumer.workers import Workers
from remote_fetch.failures.broker_errors import is_of_no_topic
from remote_fetch.model import LogBounds
from remote_fetch.session.circuit import Circuit

__all__ = ["Partitions"]

_UNANSWERED_S = 5.0
"""How long librdkafka reads a partition before the store is tried, if the group has not answered."""
_DUE_EVERY_S = 0.01
"""How often all partitions are looked at if there is no news of any, because each record may be a `poll` of its own."""
_DUE_EACH_S = 20e-6
"""With more than 500 partitions, the time for each. It is ten times what a look takes."""
_STORE_EVERY_S = 0.1
"""How often positions are stored for librdkafka's auto-commit."""
_RESET_OFFSETS = {ResetPolicy.EARLIEST: BEGINNING, ResetPolicy.LATEST: END}


class Partitions:
    """The assigned partitions of one consumer. `librdkafka` has the methods of the parent class.

    `reading` has those that may have or get records of the store, as of the last time that due work was done.
    """

    def __init__(
        self,
        librdkafka: LibrdkafkaConsumer,
        settings: ConsumerSettings,
        context: FeedContext,
        workers: Workers,
        committed: CommittedOffsets,
    ) -> None:
        self._librdkafka = librdkafka
        self._settings = settings
        self._context = context
        self._committed = committed
        self._clock = context.clock
        self.assigned: dict[Key, AssignedPartition] = {}
        self.reading: Sequence[AssignedPartition] = ()
        self._workers = workers
        self._due_at_s = self._store_at_s = 0.0
        self._paused: set[Key] = set()
        """The partitions that the application has paused."""
        self._floors: dict[Key, int] = {}
        """The offsets that the group had committed when it was asked. They stay if a partition is assigned again.

        INVALID: none, or librdkafka has asked itself.
        """
        self._own_commits: dict[Key, int] = {}
        """The offsets up to which librdkafka may have committed since it has asked for the committed offset."""
        self._positions_frozen = False
        self.is_committing = False
        """Whether librdkafka may be committing. It commits when partitions are dropped."""
        self._handover = Handover(librdkafka, self.assigned, settings, context.clock)
        self._transitions = Transitions(librdkafka, self._handover, context, workers, settings.reset)
        self._due_work = DueWork(self._handover, self._transitions, context, workers, settings.patience_s)
        self._wait_log = WaitLog(self._transitions.notice, lambda partition: self._handover.position(partition) >= 0)

    def lookup(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition | None]:
        """The assigned partition of each, None if it is not assigned."""
        return [self.assigned.get(key_of(partition)) for partition in partitions]

    def tracked(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        """The partitions of the argument that are assigned."""
        return [partition for partition in self.lookup(partitions) if partition is not None]

    def untracked(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions of the argument that are not assigned."""
        return [partition for partition in partitions if key_of(partition) not in self.assigned]

    def run_due_work(self) -> float:
        """Do the due work of all partitions. Returns the time at which it began.

        It is done if the workers have news, after `note_change`, and every hundredth of a second. Positions are stored
        with it every tenth of a second.
        """
        now_s = self._clock()
        if not self._workers.take_news() and now_s < self._due_at_s:
            return now_s
        self._due_at_s = now_s + max(_DUE_EVERY_S, len(self.assigned) * _DUE_EACH_S)
        try:
            self._look_at_all(now_s)
        except BaseException:  # the application may call again at once
            self.note_change()
            raise
        if now_s >= self._store_at_s:
            self.store_positions()
        return now_s

    def _look_at_all(self, now_s: float) -> None:
        for question, found in self._committed.take_answers():
            waiting = [partition for partition in self.tracked(question) if partition.awaits(question)]
            self._begin_at_committed(waiting, found)
        for partition in self.assigned.values():
            self._due_work.run(partition, now_s)
        self._wait_log.update(self.assigned.values(), now_s)
        self.reading = [partition for partition in self.assigned.values() if partition.awaits_store]

    def note_change(self) -> None:
        """Let the next `run_due_work` look at all partitions."""
        self._due_at_s = 0.0

    def note_commit(self) -> None:
        """Note that librdkafka may be committing from now on."""
        self.is_committing = True

    def note_committed(self) -> None:
        """Note that the group knows all that librdkafka has committed."""
        self.is_committing = False

    def note_empty_poll(self, now_s: float) -> None:
        """Note that librdkafka was polled and had no record of any partition."""
        self._handover.note_empty_poll(now_s)

    # ------------------------------------------------------------------------------------- what the application does

    def begin(self, partitions: Sequence[TopicPartition], *, replaces: bool) -> None:
        """Begin with partitions that librdkafka has assigned: from the store if it may have them, or at the broker.

        If `replaces` is true, all other partitions are no longer assigned.
        """
        self.drop(None if replaces else partitions)
        circuit = Circuit(first_pause_ms=self._settings.retry_pause_ms)
        retry_at_s = self._clock() + PROBE_AGAIN_S
        begun = []
        for given in partitions:
            key, epoch = key_of(given), named_epoch(given)
            is_paused = key in self._paused
            state = PartitionState.assigned(
                given.offset, is_paused=is_paused, retry_at_s=retry_at_s, leader_epoch=epoch
            )
            partition = self.assigned[key] = AssignedPartition(
                given, state, circuit, stores_offsets=self._settings.stores_offsets
            )
            partition.position.keep_above(self._floors.get(key, INVALID))
            begun.append(partition)
        self._context.share_among(len(self.assigned))
        self._librdkafka.pause([partition.topic_partition() for partition in begun if not partition.state.is_fetching])
        self._librdkafka.resume([partition.topic_partition() for partition in begun if partition.state.is_fetching])
        if question := [partition.topic_partition() for partition in begun if partition.state.offset in COMMITTED]:
            for partition in self.tracked(question):
                partition.ask(question)
            self._committed.request(question)
        for partition in begun:
            if partition.state.mode is not Mode.BROKER and partition.state.offset not in COMMITTED:
                self._transitions.begin_at(partition, partition.state.offset, partition.state.leader_epoch)

    def _begin_at_committed(self, waiting: Sequence[AssignedPartition], found: Iterable[Start]) -> None:
        """Begin at the committed offset. If none is committed, begin at the offset of `auto.offset.reset`.

        If the group has not answered for a partition, librdkafka asks it again. So it does if it has committed a later
        offset: it commits none before that one until it asks.
        """
        start_if_none = _RESET_OFFSETS.get(self._settings.reset, STORED)
        starts = {(start.topic, start.partition): start for start in found}
        unanswered = []
        for partition in waiting:
            start = starts.get(partition.key)
            floor = INVALID if start is None or start.is_end else start.offset
            # With `keeps_all` the answer is older than a commit of the application, and librdkafka would begin there.
            if not partition.position.keeps_all and floor < self._own_commits.get(partition.key, INVALID):
                start, floor = None, INVALID
                del self._own_commits[partition.key]
            offset = STORED if start is None else start.offset if start.offset >= 0 else start_if_none
            if start is not None and start.is_end:
                partition.note_log(LogBounds(None, start.offset))
            partition.position.keep_above(floor)
            self._floors[partition.key] = floor if partition.position.withholds(floor) else INVALID
            if offset != STORED:
                self._transitions.begin_at(partition, offset)
            else:
                partition.enter(partition.state.unanswered(self._clock() + _UNANSWERED_S))
                unanswered.append(partition)
        if unanswered:
            self._handover.assign_again(unanswered, STORED)

    def drop(self, partitions: Iterable[TopicPartition] | None) -> None:
        """Drop partitions that are no longer assigned. None: all partitions."""
        for partition in list(self.assigned.values()) if partitions is None else self.tracked(partitions):
            self._transitions.stop_feed(partition)
            partition.position.release()
            if self._settings.commits:
                self._note_own_commit(partition)
            del self.assigned[partition.key]
            self.note_commit()
        self._context.share_among(len(self.assigned))
        self.note_change()

    def stop_feeds(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the records of the store of partitions that are about to be dropped. Their positions stay."""
        for partition in self.tracked(partitions):
            self._transitions.stop_feed(partition)

    def settle(self) -> None:
        """Go on after an assignment that librdkafka has refused, or a fatal error: it may have dropped partitions.

        It may also have paused some of those that it keeps for the assignment.
        """
        kept = set(map(key_of, self._librdkafka.assignment()))
        self.drop([partition.topic_partition() for key, partition in self.assigned.items() if key not in kept])
        fetching = [partition.topic_partition() for partition in self.assigned.values() if partition.state.is_fetching]
        self._librdkafka.resume(fetching)

    def seek(self, partition: AssignedPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Let the application go on at `offset`, which may be logical. `leader_epoch` is that of the record before."""
        self._transitions.seek(partition, offset, leader_epoch)
        self.note_change()

    def reset(self, partition: AssignedPartition, offset: int, truncated_to: int | None = None) -> None:
        """Apply the application's `auto.offset.reset`, because librdkafka tells that `offset` is not in the log.

        If librdkafka tells that the log was truncated, the partition goes on at `truncated_to` instead.
        """
        self.refresh_positions()  # `position` and `commit` take the position before the reset until a record comes
        if self._handover.is_outdated(partition, offset):
            return
        if truncated_to is None:
            self._transitions.reset(partition, partition.state.offset)
        else:
            self._transitions.truncate(partition, truncated_to)
        self.note_change()

    def pause(self, partitions: Iterable[AssignedPartition]) -> None:
        """Pause partitions for the application. Records that were read from the store are kept."""
        for partition in partitions:
            self._paused.add(partition.key)
            self._transitions.apply(partition, partition.state.paused())
        self.note_change()

    def resume(self, partitions: Iterable[AssignedPartition]) -> None:
        """Resume partitions for the application."""
        for partition in partitions:
            self._paused.discard(partition.key)
            self._transitions.apply(partition, partition.state.resumed())
        self.note_change()

    def pause_untracked(self, partitions: Iterable[TopicPartition]) -> None:
        """Pause partitions that are not assigned. The pause takes effect if they are assigned.

        librdkafka keeps no pause of a partition that it does not know. It knows all partitions of a topic of which one
        was assigned, and others that it was asked about.
        """
        self._paused.update(key_of(each) for each in partitions if self._is_known(each))

    def _is_known(self, partition: TopicPartition) -> bool:
        """Whether librdkafka knows the partition. It tells that by its error: it seeks no partition to this offset."""
        try:
            self._librdkafka.seek(TopicPartition(partition.topic, partition.partition, STORED))
        except KafkaException as error:
            return not is_of_no_topic(error)
        return True

    def resume_untracked(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume partitions that are not assigned."""
        self._paused.difference_update(map(key_of, partitions))

    # --------------------------------------------------------------------------------------------------- positions

    def freeze_positions(self) -> None:
        """Take no more positions from librdkafka, because they are ahead of the application's."""
        self._positions_frozen = True

    @contextlib.contextmanager
    def frozen_positions(self) -> Iterator[None]:
        """As `freeze_positions`, during a call of librdkafka's `consume`."""
        self._positions_frozen = True
        try:
            yield
        finally:
            self._positions_frozen = False

    def refresh_positions(self) -> None:
        """Take librdkafka's positions in the partitions that it reads. They also pass transaction markers."""
        fetched = [partition for partition in self.assigned.values() if partition.state.is_fetched]
        if not fetched or self._positions_frozen:
            return
        found = self._librdkafka.position([partition.topic_partition() for partition in fetched])
        for partition, answer in zip(fetched, found, strict=True):
            if answer.offset >= 0 and answer.error is None:
                partition.position.follow(answer.offset, answer.leader_epoch)

    def note_stored(self, offsets: Iterable[TopicPartition]) -> None:
        """Note offsets that the application has stored for commits. librdkafka forgets those that are withheld."""
        withheld = []
        for stored in offsets:
            for partition in self.tracked([stored]):
                # A copy, because the application may change its object.
                kept = storable(*partition.key, stored.offset, stored.leader_epoch, stored.metadata)
                partition.position.note_stored(kept)
                if partition.position.withholds(kept.offset):
                    withheld.append(partition.topic_partition())
        if withheld:
            self._librdkafka.store_offsets(offsets=withheld)

    def forget_committed(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the offsets that the group had committed: librdkafka knows those that it commits itself.

        An answer of the group that is taken after this is older.
        """
        for partition in partitions:
            self._floors.pop(key_of(partition), None)
            for assigned in self.tracked([partition]):
                assigned.position.keep_all()

    def note_own_commits(self, offsets: Sequence[TopicPartition]) -> None:
        """Note that librdkafka commits these offsets for the application. Empty: those that are stored."""
        self.forget_committed(offsets)
        self._own_commits.update({key_of(each): each.offset for each in offsets if each.offset >= 0})
        if not offsets:
            for partition in self.assigned.values():
                self._note_own_commit(partition)

    def _note_own_commit(self, partition: AssignedPartition) -> None:
        known = self._own_commits.get(partition.key, INVALID)
        self._own_commits[partition.key] = max(known, partition.position.last_stored)

    def prepare_to_leave(self, partitions: Iterable[TopicPartition] | None) -> None:
        """Prepare for the end of assignments. librdkafka then commits what is stored, also before the committed offset.

        None: of all assignments. Positions are to be stored after this.
        """
        if self._settings.commits:
            leaving = self.assigned.values() if partitions is None else self.tracked(partitions)
            self.forget_committed([partition.topic_partition() for partition in leaving])

    @property
    def were_stored_lately(self) -> bool:
        """Whether positions were stored within the last tenth of a second. Any thread may ask."""
        return self._clock() < self._store_at_s

    def store_positions(self) -> None:
        """Store the positions for commits, as `enable.auto.offset.store` would.

        Offsets that an assignment has made librdkafka forget are stored again, also those of the application.
        """
        self._store_at_s = self._clock() + _STORE_EVERY_S
        if lost := [found for each in self.assigned.values() if (found := each.position.lost) is not None]:
            with contextlib.suppress(KafkaException):
                self._librdkafka.store_offsets(offsets=lost)
        if not self._settings.stores_offsets:
            return
        self.refresh_positions()
        moved = [partition.position for partition in self.assigned.values() if not partition.position.is_stored]
        if not moved:
            return
        # librdkafka refuses a partition that a rebalance has taken. Its position need not be stored.
        with contextlib.suppress(KafkaException):
            self._librdkafka.store_offsets(offsets=[position.to_store() for position in moved])
        for position in moved:
            position.mark_stored()
