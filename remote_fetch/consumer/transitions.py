"""Carries out the actions of a partition's state machine: in librdkafka, and with feeds.

Rules of the file:

- Only the application's thread uses it. No call waits for a broker.
- Records of the store are delivered before a hand-over.
- librdkafka gets no offset outside the log, except to raise its own error for it.
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaException

from remote_fetch.consumer.assigned import AssignedPartition
from remote_fetch.consumer.feed import Ending, Feed
from remote_fetch.consumer.feed_context import FeedContext
from remote_fetch.consumer.handover import Handover
from remote_fetch.consumer.librdkafka import LibrdkafkaConsumer
from remote_fetch.consumer.offsets import BEGINNING, END, TAIL, may_be_tiered, place_of
from remote_fetch.consumer.settings import ResetPolicy
from remote_fetch.consumer.states import (
    Action,
    HandOver,
    Mode,
    Pause,
    Resume,
    StartFeed,
    Step,
    StopFeed,
)
from remote_fetch.consumer.workers import Workers
from remote_fetch.observe import Notice

__all__ = ["PROBE_AGAIN_S", "Transitions"]

PROBE_AGAIN_S = 30.0
"""How long librdkafka reads a partition before the store is tried: a slow reader may be in the tier by then."""


class Transitions:
    """Moves the partitions of one consumer from state to state."""

    def __init__(
        self,
        librdkafka: LibrdkafkaConsumer,
        handover: Handover,
        context: FeedContext,
        workers: Workers,
        reset: ResetPolicy,
    ) -> None:
        self._librdkafka = librdkafka
        self._handover = handover
        self._context = context
        self._workers = workers
        self._reset = reset
        self._clock = context.clock

    def apply(self, partition: AssignedPartition, step: Step, enter: Callable[[Step], None] | None = None) -> None:
        """Enter the state of a step, and carry out its actions. `enter` may also move the partition's position."""
        mode_before = partition.state.mode
        (enter or partition.enter)(step)
        self._carry_out_all(partition)
        state = partition.state
        if state.mode is Mode.BROKER and mode_before is not Mode.BROKER:
            self.notice(partition, f"is read from the broker from {place_of(state.offset)} on ({state.reason})")

    def _carry_out_all(self, partition: AssignedPartition) -> None:
        try:
            for action in partition.undone:
                self._carry_out(partition, action)
            partition.note_done()
        except KafkaException:
            partition.note_done()
            raise
        except BaseException:  # a handler of a signal has raised, and the application may go on
            self._workers.notify()
            raise

    def make_good(self, partition: AssignedPartition) -> None:
        """Do what a handler of a signal has ended before its time."""
        if partition.undone:
            self._carry_out_all(partition)
        if partition.records.is_torn and partition.state.mode is Mode.BROKER:
            self.apply(partition, partition.state.probe_failed(partition.state.reason, self._clock()))
        elif partition.records.is_torn:
            self.read_again(partition)

    def read_again(self, partition: AssignedPartition) -> None:
        """Read the store from the application's position on once more. The records that wait are dropped."""
        feed, (offset, epoch) = partition.feed, partition.goes_on_at
        if offset <= TAIL and feed is not None:  # the log has grown since the feed counted back from its end
            offset = feed.first_offset
        self.apply(partition, partition.state.sought(offset, leader_epoch=epoch))

    def _carry_out(self, partition: AssignedPartition, action: Action) -> None:
        match action:
            case Pause():
                self._librdkafka.pause([partition.topic_partition()])
            case Resume():
                self._librdkafka.resume([partition.topic_partition()])
            case HandOver(offset, leader_epoch):
                self._handover.start(partition, offset, leader_epoch)
            case StopFeed():
                self.stop_feed(partition)
            case StartFeed(offset, confirms_topic, leader_epoch):
                self.stop_feed(partition)
                expected_id = partition.topic_id if confirms_topic else None
                feed = Feed(self._context, partition.topic, partition.number, offset, expected_id, leader_epoch)
                partition.records.start(feed)
                self._workers.add(feed)

    def stop_feed(self, partition: AssignedPartition) -> None:
        """Drop the feed of the partition, and the records that it has brought."""
        if partition.feed is not None:
            self._workers.drop(partition.feed)  # first: a handler of a signal may raise, and then this is called again
        partition.records.stop()

    def begin_at(self, partition: AssignedPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Read an assigned partition from `offset` on, from the store if it may be used and may have the offset.

        `leader_epoch`: that of the record before, if the application names it.
        """
        self.apply(partition, self._beginning(partition, offset, leader_epoch))

    def begin_before_held(self, partition: AssignedPartition) -> None:
        """As `begin_at`, at the first message that a running `consume` holds. It drops its messages."""
        step = self._beginning(partition, partition.position.first_held, None)
        self.apply(partition, step, partition.enter_before_held)

    def _beginning(self, partition: AssignedPartition, offset: int, leader_epoch: int | None) -> Step:
        circuit, state = self._context.open_circuit(), partition.state
        if not may_be_tiered(offset) or offset == partition.log_end:
            return state.at_broker(offset, "assigned", self._clock() + PROBE_AGAIN_S, leader_epoch)
        if circuit is None:
            return state.sought(offset, leader_epoch=leader_epoch)
        return state.at_broker(offset, circuit.reason, circuit.retry_at_s, leader_epoch)

    def seek(self, partition: AssignedPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Let the application go on at `offset`, which may be logical. `leader_epoch` as for `begin_at`."""
        if may_be_tiered(offset):
            step = partition.state.sought(offset, leader_epoch=leader_epoch)
        else:
            step = partition.state.at_broker(offset, "sought", self._clock() + PROBE_AGAIN_S)
        self.apply(partition, step, partition.enter_elsewhere)

    def reset(self, partition: AssignedPartition, offset: int, end_offset: int | None = None) -> None:
        """Apply the application's `auto.offset.reset`, because `offset` is not in the log.

        `end_offset` is the end of the log when that became known. None: librdkafka looks it up now.
        """
        partition.reset_position()
        self._context.forget(partition.topic)  # it may be the log of another topic of the same name
        if self._reset is ResetPolicy.ERROR:
            # librdkafka is configured to reset no offset. So it raises its own error.
            self.apply(partition, partition.state.at_broker(offset, Ending.OUT_OF_RANGE, None))
            return
        self.notice(partition, f"offset {offset} is out of range: reset to {self._reset}")
        if self._reset is ResetPolicy.EARLIEST:
            self.apply(partition, partition.state.sought(BEGINNING))
        else:
            end_offset = END if end_offset is None else end_offset
            self.apply(partition, partition.state.at_broker(end_offset, Ending.OUT_OF_RANGE, None))

    def truncate(self, partition: AssignedPartition, offset: int) -> None:
        """Go on at `offset`, because the log was truncated there and has other records now.

        As librdkafka does it if the application wants a reset. No record is lost, so no policy applies.

        A plain consumer compares leader epochs only after an election. A hand-over always does, and another topic of
        the same name looks like a truncated log. In that case the policy applies, as for a plain consumer.
        """
        is_of_handover = partition.state.leader_epoch is not None and self._handover.position(partition) < 0
        partition.reset_position()
        self._context.forget(partition.topic)  # as for a reset
        self.notice(partition, f"the log was truncated: its records from offset {offset} on are others now")
        self.apply(partition, partition.state.sought(offset, confirms_topic=is_of_handover))

    def notice(self, partition: AssignedPartition, text: str) -> None:
        """Send the observer a notice about the partition."""
        self._context.session.observe(Notice(f"{partition.topic}-{partition.number} {text}"))
