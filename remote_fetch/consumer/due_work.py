"""Does the due work of a partition: its feed has news, its hand-over is late, or the store is to be tried again.

Rules of the file:

- Only the application's thread uses it.
- No call waits for a broker.
"""

from __future__ import annotations

from remote_fetch.consumer.assigned import AssignedPartition
from remote_fetch.consumer.feed import Ending, Feed
from remote_fetch.consumer.feed_context import FeedContext
from remote_fetch.consumer.handover import Handover
from remote_fetch.consumer.states import Mode
from remote_fetch.consumer.transitions import PROBE_AGAIN_S, Transitions
from remote_fetch.consumer.workers import Workers
from remote_fetch.errors import ErrorKind
from remote_fetch.plan.ranges import Reason

__all__ = ["DueWork"]

_SOONER_S = {Reason.HOLE.value: 1.0, Reason.UNSTABLE.value: 5.0}
"""Shorter pauses for reasons that often end soon."""
_RESUMED_AGAIN_S = 1.0
"""The pause if a partition seems to be at its end after it was paused for long.

librdkafka knows only the end of before the pause until its first fetch.
"""


class DueWork:
    """Looks at one partition at a time, and moves it to its next state.

    `patience_s` is how long a feed may wait without any answer of the store or the brokers.
    """

    def __init__(
        self, handover: Handover, transitions: Transitions, context: FeedContext, workers: Workers, patience_s: float
    ) -> None:
        self._handover = handover
        self._transitions = transitions
        self._context = context
        self._workers = workers
        self._patience_s = patience_s
        self._clock = context.clock

    def run(self, partition: AssignedPartition, now_s: float) -> None:
        """Do the work that is due for the partition."""
        if partition.undone or partition.records.is_torn:
            self._transitions.make_good(partition)
        if partition.feed is not None:
            self._check_feed(partition, partition.feed, now_s)
        elif partition.state.mode is Mode.BROKER:
            self._check_librdkafka(partition, now_s)

    # ---------------------------------------------------------------------------------------------------- its feed

    def _check_feed(self, partition: AssignedPartition, feed: Feed, now_s: float) -> None:
        partition.note_log(feed.log)
        partition.note_topic(feed.topic_id)
        is_late = feed.is_late(now_s, self._patience_s)
        is_locating = partition.state.mode is Mode.LOCATING
        if feed.chunks and partition.state.is_probing:
            if not self._take_over(partition):
                return
        elif is_locating and partition.is_found:
            partition.note_success()
            self._transitions.notice(partition, f"is read from the store from offset {feed.first_offset} on")
            self._transitions.apply(partition, partition.state.found())
        elif is_locating and is_late and feed.ending is None:
            # No record was taken, so librdkafka begins where the feed began. The feed's records are dropped with it.
            self._leave(partition, feed.late(partition.state.offset, partition.state.leader_epoch))
            return
        elif is_late and feed.asks_brokers and feed.ending is None and self._has_nothing(partition):
            position = partition.position
            self._leave(partition, feed.late(position.next_offset, position.leader_epoch))
            return
        if partition.records.skip_before and feed.chunks:
            partition.records.drop_skipped()
            self._workers.wake(feed)
        if partition.records.are_ready or partition.records.is_torn:
            return
        if feed.ending is None:
            self._workers.wake(feed)  # a handler of a signal may have raised between the taking of records and this
            return
        if partition.state.mode is Mode.REMOTE and feed.is_outdated:
            feed.look_again()
            self._workers.wake(feed)
        else:
            self._end_feed(partition, feed, feed.ending)

    @staticmethod
    def _has_nothing(partition: AssignedPartition) -> bool:
        """Whether the application has taken all that the store has given of a partition that is read from it."""
        is_begun = partition.state.mode is Mode.REMOTE and partition.position.next_offset >= 0
        return is_begun and not partition.records.are_ready

    def _leave(self, partition: AssignedPartition, ending: Ending) -> None:
        """Let librdkafka go on, because the feed of the partition is late. Its records are dropped."""
        retry_at_s = self._retry_at_s(partition, ending)
        state = partition.state.at_broker(ending.offset, ending.reason, retry_at_s, ending.leader_epoch)
        self._transitions.apply(partition, state)

    def _take_over(self, partition: AssignedPartition) -> bool:
        """Let the store go on at librdkafka's position. Returns whether it does; if not, the feed is dropped.

        If librdkafka has come to the end of the log, it stays: a hand-over there would repeat the event of the end.
        """
        if self._handover.is_at_end(partition, self._handover.next_offset(partition)):
            retry_at_s = self._clock() + PROBE_AGAIN_S
            self._transitions.apply(partition, partition.state.probe_failed(Reason.NOT_TIERED.value, retry_at_s))
            return False
        position = self._handover.stop(partition)
        self._transitions.apply(partition, partition.take_over(position))
        self._transitions.notice(
            partition, f"is read from the store again, from offset {partition.records.skip_before} on"
        )
        return True

    def _end_feed(self, partition: AssignedPartition, feed: Feed, ending: Ending) -> None:
        retry_at_s = self._retry_at_s(partition, ending)
        if partition.state.is_probing:
            self._transitions.apply(partition, partition.state.probe_failed(ending.reason, retry_at_s))
        elif ending.reason == Ending.OUT_OF_RANGE:
            self._transitions.reset(partition, ending.offset, feed.log.end_offset)
        else:
            offset = max(ending.offset, partition.records.skip_before) if ending.offset >= 0 else ending.offset
            epoch = ending.leader_epoch if offset == ending.offset else None
            partition.position.skip_to(offset, epoch, feed.first_offset)
            self._transitions.apply(partition, partition.state.at_broker(offset, ending.reason, retry_at_s, epoch))

    def _retry_at_s(self, partition: AssignedPartition, ending: Ending) -> float | None:
        """When to try the store again after an ending. None: never."""
        if ending.reason == ErrorKind.NOT_CONFIGURED:
            return None
        circuit = self._context.open_circuit()
        if ending.is_storage and circuit is not None:
            return circuit.retry_at_s
        if ending.is_failure:
            return partition.note_failure(ending.reason, self._clock())
        return self._clock() + _SOONER_S.get(ending.reason, PROBE_AGAIN_S)

    # -------------------------------------------------------------------------------------------------- librdkafka

    def _check_librdkafka(self, partition: AssignedPartition, now_s: float) -> None:
        if self._handover.is_overdue(partition, now_s):
            position, log_end = self._handover.position(partition), self._handover.log_end(partition)
            self._transitions.apply(partition, partition.state.overdue(position, log_end))
        if partition.state.is_due(now_s):
            offset = self._handover.next_offset(partition)
            if offset < 0 or self._handover.is_at_end(partition, offset):
                # A partition that is not paused is looked at as soon as that is due.
                was_paused = now_s - (partition.state.retry_at_s or 0.0) > PROBE_AGAIN_S
                pause_s = _RESUMED_AGAIN_S if was_paused else PROBE_AGAIN_S
                self._transitions.apply(partition, partition.state.postponed(self._clock() + pause_s))
            else:
                self._transitions.apply(partition, partition.state.probe(offset))
