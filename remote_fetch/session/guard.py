"""Asks a broker during a read: is READ still allowed, is it still the same topic, where does the log start?

Rules of the file:

- A read of objects does not pass the broker's own checks. The guard makes them: permission and topic id every few
  seconds, the log start before each slice (KIP-405: it moves, also inside a segment).
- A name is no identity. Records that came through the broker are confirmed to be of the planned topic.
- If the broker is away in the middle of a read, the guard waits within a deadline, and one notice reports it. Slices
  are still read for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.deadline import Deadline, retry
from remote_fetch.errors import LogTruncated, OffsetOutOfRange, TopicRecreated
from remote_fetch.failures.broker_errors import is_passing, refusal_of
from remote_fetch.locate.cluster import Cluster
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition, Uuid
from remote_fetch.observe import Notice, Observer

__all__ = ["READ_AGAIN", "LogGuard", "Patience"]

T = TypeVar("T")

READ_AGAIN = "Read again: a new read gives the records that the log has now"
"""The hint of an error about a log that has parted from the records of a read."""
_LOG_START_S = 0.5
"""How long an answer about the log start is believed. Records that are deleted later count as fetched, as in a
consumer's own buffers. The time counts from the answer on, because over a slow line each answer would be too old when
it comes. A consumer's records are under way for as long."""
_TOPIC_S = 5.0
"""How long the guard relies on a permission and on a topic id while objects are read."""
_LEAST_S = 0.5
"""Shortest time for an answer, so that a broker which has just answered slowly is asked at all."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a broker may be away in the middle of a read, in seconds.

    - `wait_s`: how long the guard waits for a broker that does not answer.
    - `blind_s`: how old the last known log start may be while slices are read and no broker answers.
    - `pause_s`: the pause between two questions.
    - `slice_pause_s`: the pause between two looks at the broker while slices are read. It is longer, because each look
      may hold up the read for `slice_timeout_s`.
    """

    wait_s: float = 300.0
    blind_s: float = 60.0
    pause_s: float = 0.2
    slice_pause_s: float = 10.0
    slice_timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class _Heard:
    """A log start, the time of the question, and the time from which on the guard asks again."""

    log_start: int
    heard_at: float
    ask_at: float


class LogGuard:
    """Asks one cluster about the topics of one read.

    If `skips` is true, records that were deleted during the read are skipped, with a notice. If it is false, they raise
    OffsetOutOfRange. The same holds for records after the end of a log that has become shorter. But if `may_be_cut`
    is false, these always raise LogTruncated. Several threads may call the guard; at worst it asks a question twice.
    """

    def __init__(
        self,
        cluster: Cluster,
        observer: Observer,
        *,
        skips: bool,
        may_be_cut: bool = True,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._observer = observer
        self._skips = skips
        self._may_be_cut = may_be_cut
        self._patience = patience or Patience()
        self._clock = clock
        self._is_away = False
        self._asked_at: dict[tuple[str, Uuid], float] = {}  # topics without an id have the same one
        self._heard: dict[TopicIdPartition, _Heard] = {}
        self._told_gone: dict[TopicIdPartition, int] = {}

    def authorise(
        self, partition: TopicIdPartition, timeout_s: float | None = None, *, since_s: float = float("-inf")
    ) -> None:
        """Check that this principal may READ the topic, and that the name still belongs to the same topic.

        An answer of the last few seconds counts, if the question was asked at `since_s` or later.

        Raises KafkaException (TOPIC_AUTHORIZATION_FAILED) as the broker would, TopicRecreated for another topic id.
        """
        asked_at = self._asked_at.get((partition.topic, partition.topic_id))
        if asked_at is None or asked_at < since_s or self._clock() - asked_at >= _TOPIC_S:
            self._describe(partition, timeout_s)

    def check(self, partition: TopicIdPartition, isolation: IsolationLevel, next_offset: int) -> int:
        """The offset from which to read on: `next_offset`, or the log start if it is larger and records may be skipped.

        Raises OffsetOutOfRange if records were deleted before they were read, and the errors of `authorise`.
        """
        heard = self._heard.get(partition)
        if heard is None or self._clock() >= heard.ask_at:
            heard = self._heard[partition] = self._log_start_of(partition, isolation, heard)
        return self.pass_over(partition, next_offset, heard.log_start)

    def remember(self, partition: TopicIdPartition, log_start: int) -> None:
        """Take the log start from the session that planned the read. The guard asks for a newer one if it needs one."""
        now = self._clock()
        self._heard[partition] = _Heard(log_start, now, now)

    def bounds(self, partition: TopicIdPartition, isolation: IsolationLevel, *, by_consumer: bool = False) -> LogBounds:
        """The ends of the log now, with `by_consumer` as in `Cluster.log_bounds`. Raises the errors of `confirm`.

        `check` still asks: records may be deleted between a plan and its first slice.
        """
        return self._patiently(
            partition, lambda: self._cluster.log_bounds(partition, isolation, by_consumer=by_consumer)
        )

    def still_holds(self, partition: TopicIdPartition, leader_epoch: int, end_offset: int) -> bool:
        """As `Cluster.still_holds`. Raises the errors of `confirm`."""
        return self._patiently(partition, lambda: self._cluster.still_holds(partition, leader_epoch, end_offset))

    def offset_for_time(self, partition: TopicIdPartition, timestamp_ms: int, isolation: IsolationLevel) -> int | None:
        """As `Cluster.offset_for_time`. Raises the errors of `confirm`."""
        return self._patiently(partition, lambda: self._cluster.offset_for_time(partition, timestamp_ms, isolation))

    def ask(
        self, partition: TopicIdPartition, isolation: IsolationLevel, *, timeout_s: float | None = None
    ) -> LogBounds:
        """The ends of the log now, for a caller that reads at once: `check` relies on this answer for a moment.

        A broker that is away is not waited for. Raises KafkaException with the broker's error.
        """
        told, self._heard[partition] = self._ends_of(partition, isolation, timeout_s)
        return told

    def _ends_of(
        self, partition: TopicIdPartition, isolation: IsolationLevel, timeout_s: float | None
    ) -> tuple[LogBounds, _Heard]:
        now = self._clock()
        told = self._cluster.log_bounds(partition, isolation, timeout_s=timeout_s)
        return told, _Heard(told.log_start_offset or 0, now, self._clock() + _LOG_START_S)

    def forget(self, partition: TopicIdPartition) -> None:
        """Forget the log start of a partition that is not read any more. If it is read again, the guard asks again."""
        self._heard.pop(partition, None)
        self._told_gone.pop(partition, None)

    def look(self, partition: TopicIdPartition, isolation: IsolationLevel) -> None:
        """Ask for the ends of the log with the consumer of `isolation`, and report once that the broker is away."""
        try:
            self._cluster.log_bounds(partition, isolation, by_consumer=True)
            self._is_away = False
        except KafkaException as error:
            if is_passing(error):
                self._say_away(partition, error)

    def confirm(self, partition: TopicIdPartition) -> None:
        """Check now what `authorise` checks. After that, records that were fetched by the topic's name are its records.

        Raises the errors of `authorise`, and KafkaException with the broker's error after it was away too long.
        """
        self._patiently(partition, lambda: self._describe(partition))

    def pass_over(self, partition: TopicIdPartition, next_offset: int, log_start: int) -> int:
        """`next_offset`, or the log start if it is larger and records may be skipped.

        A log start that passes unread records is asked for once more: a leader that has just started may have given
        another offset. Raises OffsetOutOfRange if the records may not be skipped, and TopicRecreated if the name
        belongs to another topic.
        """
        if log_start <= next_offset:
            return next_offset
        self.confirm(partition)
        log_start = self.bounds(partition, IsolationLevel.READ_UNCOMMITTED).log_start_offset or 0
        if log_start <= next_offset:
            return next_offset
        gone = f"offsets {next_offset} to {log_start - 1} are gone: the log starts at {log_start} now"
        if not self._skips:
            raise OffsetOutOfRange(
                gone,
                offset=next_offset,
                hint="They were deleted while they were being read; auto.offset.reset=earliest goes on after them",
                **partition.place,
            )
        if log_start > self._told_gone.get(partition, 0):  # each later range of the plan that lies before it comes here
            self._told_gone[partition] = log_start
            self._observer(Notice(f"{partition.topic_partition}: {gone}; going on from there", is_warning=True))
        return log_start

    def cut_short(self, partition: TopicIdPartition, first_offset: int, last_offset: int, log_end: int) -> None:
        """Handle a log that now ends before a planned offset, for example after an unclean leader election.

        Raises LogTruncated if the log may not be cut, OffsetOutOfRange if records may not be skipped, and
        TopicRecreated if the name belongs to another topic.
        """
        self.confirm(partition)
        gone = f"offsets {first_offset} to {last_offset} are gone: the log ends at {log_end} now"
        if not self._may_be_cut:
            raise LogTruncated(gone, offset=log_end, hint=READ_AGAIN, **partition.place)
        if not self._skips:
            raise OffsetOutOfRange(gone, offset=first_offset, **partition.place)
        self._observer(Notice(f"{partition.topic_partition}: {gone}; going on without", is_warning=True))

    def _log_start_of(self, partition: TopicIdPartition, isolation: IsolationLevel, known: _Heard | None) -> _Heard:
        """Ask the broker for the log start.

        If the broker is away and `known` is younger than `blind_s` seconds, return the log start of `known`. Otherwise
        ask again for up to `wait_s` seconds, then raise the broker's error.
        """

        def ask(timeout_s: float | None) -> _Heard:
            deadline = None if timeout_s is None else Deadline.after(timeout_s, self._clock)
            self.authorise(partition, timeout_s)
            left_s = None if deadline is None else max(deadline.left_s, _LEAST_S)
            return self._ends_of(partition, isolation, left_s)[1]

        if known is not None and self._clock() - known.heard_at < self._patience.blind_s:
            until = Deadline.after(self._patience.slice_timeout_s, self._clock)
            try:
                heard = ask(self._patience.slice_timeout_s)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                    self._is_there(partition, max(until.left_s, _LEAST_S))
                self._say_away(partition, error)
                return replace(known, ask_at=self._clock() + self._patience.slice_pause_s)
            self._is_away = False
            return heard
        return self._patiently(partition, lambda: ask(None))

    def _patiently(self, partition: TopicIdPartition, ask: Callable[[], T]) -> T:
        """Ask a question again while the broker is away.

        Raises the last error after `wait_s`, and an error that has another cause at once.
        """
        deadline = Deadline.after(self._patience.wait_s, self._clock)

        def is_away(error: KafkaException) -> bool:
            self._say_away(partition, error)
            if error.args[0].code() == KafkaError._UNKNOWN_PARTITION and not deadline.is_over:
                self._is_there(partition)
            return True

        answer = retry(ask, KafkaException, until=deadline, pause_s=self._patience.pause_s, may_pass=is_away)
        self._is_away = False
        return answer

    def _is_there(self, partition: TopicIdPartition, timeout_s: float | None = None) -> None:
        """Raise the broker's error about a topic that was deleted, or that this principal may not see any more."""
        try:
            self._describe(partition, timeout_s)
        except KafkaException as error:
            self._say_away(partition, error)

    def _say_away(self, partition: TopicIdPartition, error: KafkaException) -> None:
        """Report once that the broker is away. Raises the error if it has another cause."""
        if not is_passing(error):
            raise error
        if not self._is_away:
            self._is_away = True
            has_no_leader = error.args[0].code() == KafkaError._UNKNOWN_PARTITION  # librdkafka has no other word for it
            said = "the partition has no leader" if has_no_leader else error.args[0].str()
            self._observer(
                Notice(
                    f"{partition.topic_partition}: the broker does not answer ({said}); still asking",
                    is_warning=True,
                    is_wait=True,
                )
            )

    def _describe(self, partition: TopicIdPartition, timeout_s: float | None = None) -> None:
        asked_at = self._clock()
        described = self._cluster.describe(partition.topic, timeout_s=timeout_s)
        if not described.may_read:
            raise refusal_of("READ", partition.topic)
        if described.topic_id not in (None, partition.topic_id):
            raise TopicRecreated(
                f"topic {partition.topic!r} has the id {described.topic_id} now: it was deleted and made again",
                topic=partition.topic,
                hint=f"This read is of {partition.topic}:{partition.topic_id}",
            )
        known = self._asked_at.copy()  # other threads may add to it. Answers that are too old are dropped
        self._asked_at = {topic: at for topic, at in known.items() if asked_at - at < _TOPIC_S}
        self._asked_at[partition.topic, partition.topic_id] = asked_at
