"""The assigned partitions of one consumer: assignments, and seeks and pauses of the application.

Rules of the file:

- Only the application's thread uses it. No call waits for a broker, because the application's timeout may be 0.
- librdkafka alone handles a partition that is not in `assigned`.
- librdkafka keeps a pause if a partition is assigned again, and so does this class.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from confluent_kafka import KafkaException, Message, TopicPartition

from remote_fetch.consumer.assigned import AssignedPartition, Key, key_of, key_of_message
from remote_fetch.consumer.committed import Answer, CommittedOffsets, Start
from remote_fetch.consumer.due_work import DueWork
from remote_fetch.consumer.feed_context import FeedContext
from remote_fetch.consumer.handover import Handover
from remote_fetch.consumer.librdkafka import LibrdkafkaConsumer
from remote_fetch.consumer.offsets import BEGINNING, COMMITTED, END, INVALID, STORED, may_be_tiered, named_epoch
from remote_fetch.consumer.positions import Positions
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
_LONG_PAUSE_S = 60.0
"""After a longer pause the store is read again: the records that have waited may be deleted by now."""
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
        self._answers: list[Answer] = []
        self._starts: dict[Key, TopicPartition] = {}
        """The partitions that librdkafka assigns, as the application names them, until they have begun."""
        self._follows = True
        """Whether these partitions are librdkafka's. If not, a handler of a signal has ended a change."""
        self._due_at_s = 0.0
        self._paused: dict[Key, float] = {}
        """The partitions that the application has paused, each with the time since when."""
        self.is_committing = False
        """Whether librdkafka may be committing. If automatic commits are on, it commits when partitions are dropped."""
        self.positions = Positions(librdkafka, self.assigned, settings, context.clock)
        self._handover = Handover(librdkafka, self.assigned, settings, context.clock)
        self._transitions = Transitions(librdkafka, self._handover, context, workers, settings.reset)
        self._due_work = DueWork(self._handover, self._transitions, context, workers, settings.patience_s)
        self._wait_log = WaitLog(self._transitions.notice, self._handover)

    def lookup(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition | None]:
        """The assigned partition of each, None if it is not assigned."""
        return [self.assigned.get(key_of(partition)) for partition in partitions]

    def tracked(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        """The partitions of the argument that are assigned."""
        return [found for found in self.lookup(partitions) if found is not None]

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
            if not self._follows:
                self.settle()
            self._look_at_all(now_s)
        except BaseException:  # the application may call again at once
            self.note_change()
            raise
        if not self.positions.were_stored_lately:
            self.positions.store()
        return now_s

    def _look_at_all(self, now_s: float) -> None:
        self._answers += self._committed.take_answers()
        while self._answers:  # each stays until it is used, because a handler of a signal may raise
            question, found = self._answers[0]
            waiting = [partition for partition in self.tracked(question) if partition.awaits(question)]
            self._begin_at_committed(waiting, found)
            del self._answers[0]
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

    def take_back(self) -> None:
        """Send librdkafka back to the application's positions, because a handler of a signal has ended a call.

        confluent_kafka drops the records that the call has taken. They cannot be found if reading began at the end of
        the log, and the application has got no record yet. The call may also have taken the error of a partition that
        librdkafka has stopped. Then librdkafka gives no record of it until the hand-over is repeated.
        """
        moved = []  # all of them first: to send one back may assign the others where librdkafka is
        for partition in [each for each in self.assigned.values() if each.state.is_fetched]:
            offset, epoch = partition.goes_on_at
            if self._handover.position(partition) in (INVALID, offset):
                if offset >= 0 or offset == STORED:
                    partition.enter(partition.state.doubted(offset, epoch, self._clock()))
            elif partition.may_go_back:
                moved.append((partition, offset, epoch))
        for partition, offset, epoch in moved:
            with contextlib.suppress(KafkaException):  # else the handler's error would not be raised
                self._transitions.apply(partition, partition.state.taken_back(offset, epoch))

    def not_again(self, messages: Iterable[Message]) -> list[Message]:
        """The messages of librdkafka that do not come again after `take_back`."""
        return [message for message in messages if message.error() or not self._may_go_back(key_of_message(message))]

    def _may_go_back(self, key: Key) -> bool:
        return key in self.assigned and self.assigned[key].may_go_back

    # ------------------------------------------------------------------------------------- what the application does

    def expect(self, starts: Iterable[TopicPartition]) -> None:
        """Note that librdkafka's assignment is about to change, and is to get `starts`. Call `follow` after that."""
        self._starts, self._follows = {key_of(each): each for each in starts}, False
        self.note_change()

    def follow(self) -> None:
        """Begin with the partitions that librdkafka has assigned, and drop all that it has not.

        If handlers of signals end the change or this method, it is repeated with the due work.
        """
        self._follows, is_committing = False, self.is_committing  # `drop` may set it
        held = self._librdkafka.assignment()
        kept = set(map(key_of, held))
        self.drop([partition.topic_partition() for key, partition in self.assigned.items() if key not in kept])
        starts = {key_of(each): each for each in self.untracked(held)}
        starts.update((key, each) for key, each in self._starts.items() if key in kept)
        if starts:
            self._starts = starts
            self._begin(list(starts.values()), is_committing=is_committing)
        self._starts, self._follows = {}, True

    def _begin(self, partitions: Sequence[TopicPartition], *, is_committing: bool) -> None:
        """Begin with assigned partitions: from the store if it may have them, or at the broker.

        `is_committing`: librdkafka may be committing what was before the assignment.
        """
        self.drop(partitions)
        circuit = Circuit(first_pause_s=self._settings.retry_pause_s)
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
            self.positions.begin(partition)
            begun.append(partition)
        self._context.share_among(len(self.assigned))
        self._librdkafka.pause([partition.topic_partition() for partition in begun if not partition.state.is_fetching])
        self._librdkafka.resume([partition.topic_partition() for partition in begun if partition.state.is_fetching])
        if question := [partition.topic_partition() for partition in begun if partition.state.offset in COMMITTED]:
            for partition in self.tracked(question):
                partition.ask(question)
            # Only librdkafka waits for its commits of what was before, and asks then.
            ask = self._committed.leave if is_committing else self._committed.request
            ask(question)
        for partition in begun:
            if may_be_tiered(partition.state.offset):
                self._transitions.begin_at(partition, partition.state.offset, partition.state.leader_epoch)

    def ask_again(self) -> None:
        """Ask the group for the committed offsets that librdkafka did not get, and does not ask for any more."""
        fetched = [partition for partition in self.assigned.values() if partition.state.is_fetched]
        if lost := [partition for partition in fetched if self._awaits_committed(partition)]:
            self._ask(lost)

    def _awaits_committed(self, partition: AssignedPartition) -> bool:
        """Whether librdkafka begins at the committed offset, and has given no record yet."""
        return partition.state.offset == STORED and self._handover.position(partition) < 0

    def _ask(self, partitions: Sequence[AssignedPartition]) -> None:
        """Hold librdkafka back, and begin at the group's answer."""
        question = [partition.topic_partition() for partition in partitions]
        self._librdkafka.pause(question)
        for partition in partitions:
            partition.enter(partition.state.asked_again())
            partition.ask(question)
        self._committed.request(question)
        self.note_change()

    def _begin_at_committed(self, waiting: Sequence[AssignedPartition], found: Iterable[Start]) -> None:
        """Begin at the committed offset. If none is committed, begin at the offset of `auto.offset.reset`.

        If the group's answer for a partition cannot be used, librdkafka asks it again.
        """
        start_if_none = _RESET_OFFSETS.get(self._settings.reset, STORED)
        starts = {(start.topic, start.partition): start for start in found}
        unanswered = []
        for partition in waiting:
            start = self.positions.accept(partition, starts.get(partition.key))
            offset = STORED if start is None else start.offset if start.offset >= 0 else start_if_none
            if start is not None and start.is_end:
                partition.note_log(LogBounds(None, start.offset))
            if offset != STORED:
                self._transitions.begin_at(partition, offset)
            else:
                unanswered.append(partition)
        if unanswered:
            self._handover.assign_again(unanswered, STORED)
        for partition in unanswered:  # last: a handler of a signal may raise, and then this is called again
            partition.enter(partition.state.unanswered(self._clock() + _UNANSWERED_S))

    def drop(self, partitions: Iterable[TopicPartition] | None) -> None:
        """Drop partitions that are no longer assigned. None: all partitions."""
        for partition in list(self.assigned.values()) if partitions is None else self.tracked(partitions):
            self._transitions.stop_feed(partition)
            self._context.forget(partition.topic)  # if it is assigned again, the name may be another topic's
            self.positions.end(partition)
            del self.assigned[partition.key]
            self.is_committing |= self._settings.commits
        self._context.share_among(len(self.assigned))
        self.note_change()

    def stop_feeds(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the records of the store of partitions that are about to be dropped. Their positions stay."""
        for partition in self.tracked(partitions):
            self._transitions.stop_feed(partition)

    def settle(self) -> None:
        """Go on with what librdkafka has assigned. An error has ended a change of that, or perhaps a callback about it.

        librdkafka may also have paused some of the partitions that it keeps.
        """
        self.follow()
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
        self.positions.refresh()  # `position` and `commit` take the position before the reset until a record comes
        if self._handover.is_outdated(partition, offset):
            return
        # If a handler of a signal ends the reset, the hand-over is repeated, and librdkafka gives its error again.
        partition.enter(partition.state.doubted(*partition.goes_on_at, self._clock()))
        if truncated_to is None and partition.may_ask_again and self._awaits_committed(partition):
            # While a transaction is open that has sent an offset, librdkafka (2.16) may take it for none if the
            # assignment changes. All records would be read again.
            self._ask([partition])
        elif truncated_to is None:
            self._transitions.reset(partition, partition.state.offset)
        else:
            self._transitions.truncate(partition, truncated_to)
        self.note_change()

    def pause(self, partitions: Iterable[AssignedPartition]) -> None:
        """Pause partitions for the application. Records that were read from the store are kept for a while."""
        for partition in partitions:
            self._paused.setdefault(partition.key, self._clock())
            self._transitions.apply(partition, partition.state.paused())
            if partition.position.is_held:  # a running `consume` drops its messages, and they come after the pause
                self._transitions.begin_before_held(partition)
        self.note_change()

    def resume(self, partitions: Iterable[AssignedPartition]) -> None:
        """Resume partitions for the application."""
        for partition in partitions:
            paused_s = self._clock() - self._paused.pop(partition.key, self._clock())
            self._transitions.apply(partition, partition.state.resumed())
            if paused_s > _LONG_PAUSE_S and partition.feed is not None and partition.state.mode is not Mode.BROKER:
                self._transitions.read_again(partition)
        self.note_change()

    def pause_untracked(self, partitions: Iterable[TopicPartition]) -> None:
        """Pause partitions that are not assigned. The pause takes effect if they are assigned.

        librdkafka keeps no pause of a partition that it does not know. It knows all partitions of a topic of which one
        was assigned, and others that it was asked about.
        """
        for partition in filter(self._is_known, partitions):
            self._paused.setdefault(key_of(partition), self._clock())

    def _is_known(self, partition: TopicPartition) -> bool:
        """Whether librdkafka knows the partition. It tells that by its error: it seeks no partition to this offset."""
        try:
            self._librdkafka.seek(TopicPartition(partition.topic, partition.partition, STORED))
        except KafkaException as error:
            return not is_of_no_topic(error)
        return True

    def resume_untracked(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume partitions that are not assigned."""
        for partition in partitions:
            self._paused.pop(key_of(partition), None)
