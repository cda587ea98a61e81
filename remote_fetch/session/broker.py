"""Reads the offsets that only a broker can give, through confluent_kafka, into the same columns.

Rules of the file:

- librdkafka fetches no offset outside [log start, high watermark], because its own reset would be silent. An offset
  with a leader epoch may lie outside: it is compared before it is fetched.
- A range begins and ends at exact offsets. If the log does not reach that far yet, the reader waits.
- The records of a range, and those of the store beside it, are of one log: see `known_log`.
- librdkafka fetches by topic name. So no row is given before its topic is confirmed to be the planned one.
- If a broker makes no progress, a notice reports it. The reader asks again, as any consumer does, up to `give_up_s`.
- Only the thread that iterates over the rows uses the consumer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from math import ldexp
from types import MappingProxyType

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from remote_fetch.decode.columns import is_saturated
from remote_fetch.errors import LogTruncated
from remote_fetch.failures.broker_errors import BrokerStalled
from remote_fetch.kafka_clients import Consumer
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.lineage import Lineage
from remote_fetch.model import IsolationLevel, TopicIdPartition
from remote_fetch.observe import BrokerRead, Notice, Observer, RecordsRead, TimestampsSaturated
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.session.guard import LogGuard
from remote_fetch.session.known_log import KnownLog
from remote_fetch.session.messages import Polled, batch_of_messages, timestamp_ms, unreadable
from remote_fetch.session.pace import Pace

__all__ = ["BrokerReader"]

_BATCH_MESSAGES = 5_000
_POLL_S = 0.2
_STALL_S = 10.0
"""How long a broker may give nothing below the end of the log before a notice reports it."""
_LEAST_WAIT_S = 1.0
"""The shortest wait of a read in haste, if the broker answers with errors. A silent one may be slow: `stall_s`."""
_SAY_AGAIN_S = 3600.0
"""A read that follows goes on for days. The same broker may be away again."""
_NO_STORE = Lineage.unknown()


class BrokerReader:
    """Reads BrokerRanges from one cluster. Not thread-safe.

    If the broker has given nothing for `stall_s` seconds of `clock`, a notice reports it. After `give_up_s` the read
    fails. None: it never fails for that reason.
    """

    def __init__(
        self,
        cluster: Cluster,
        guard: LogGuard,
        observer: Observer,
        *,
        stall_s: float = _STALL_S,
        give_up_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._guard = guard
        self._observer = observer
        self._stall_s = stall_s
        self._give_up_s = give_up_s
        self._clock = clock
        self._heard: dict[str, float] = {}

    def read(
        self,
        step: BrokerRange,
        isolation: IsolationLevel,
        columns: Sequence[str],
        lineage: Lineage = _NO_STORE,
        haste: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        """The records of the range that the isolation level shows, in order.

        - `lineage` has the leader epochs of the records that the same read takes from the store. If it
          is unknown, the store gives none.
        - `haste`: how often `give_up_s` is halved until the broker gives something: it has given nothing before.

        Raises OffsetOutOfRange if the log start has passed offsets that were not read yet, LogTruncated if the log has
        parted from the records that were read, TopicRecreated if the name belongs to another topic now,
        UnsupportedFormat for a header key that is not UTF-8, BrokerStalled, and KafkaException with the broker's own
        error. After `give_up_s` without progress: OffsetOutOfRange if the log ends inside the range.
        """
        partition, stop = step.partition, step.stop_offset
        pace = Pace(step, isolation, self._clock, haste)
        log = KnownLog(self._guard, partition, step.first_offset, lineage)
        while pace.offset < stop and (log_end := self._wait_ready(pace, log)) is not None:
            consumer = self._cluster.consumer(isolation)
            log.assign(consumer, pace.offset, log_end)
            try:
                for messages in self._messages(consumer, pace, log):
                    self._guard.confirm(partition)
                    yield self._rows(messages, partition, columns)
            except LogTruncated:
                self._guard.confirm(partition)  # another topic that has the name now has other records, too
                raise
            finally:
                _give_back(consumer)

    def follow(
        self,
        starts: Mapping[TopicIdPartition, int],
        isolation: IsolationLevel,
        columns: Sequence[str],
        lineages: Mapping[TopicIdPartition, Lineage] = MappingProxyType({}),
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records from these offsets on, as they are written, without end.

        `lineages` has the leader epochs of the records that the store gave before. If no broker answers, or one of
        several cannot be reached, a notice reports it once.

        Raises the errors of `read`, except that an offset outside the log raises KafkaException.
        """
        self._cluster.causes.listener = self._hear
        logs = {
            (partition.topic, partition.partition): KnownLog(
                self._guard, partition, start, lineages.get(partition, _NO_STORE)
            )
            for partition, start in starts.items()
        }
        while True:
            consumer = self._cluster.consumer(isolation)
            consumer.assign([log.place(log.offset) for log in logs.values()])
            for log in logs.values():
                log.compare(consumer)
            try:
                for messages in self._news(consumer, isolation, logs):
                    messages.sort(key=_place)
                    for place, group in groupby(messages, key=_place):
                        log, rows = logs[place], list(group)
                        self._guard.confirm(log.partition)
                        log.took(rows)
                        self._observer(RecordsRead(log.partition, len(rows), log.offset))
                        yield self._rows(rows, log.partition, columns)
            finally:
                _give_back(consumer)

    def _hear(self, cause: str) -> None:
        """Report a broker that cannot be reached. librdkafka tries again, and reports each failure."""
        if self._clock() - self._heard.get(cause, -_SAY_AGAIN_S) >= _SAY_AGAIN_S:
            self._heard[cause] = self._clock()
            self._observer(Notice(f"a broker cannot be reached: {cause}", is_warning=True, is_wait=True))

    def _news(
        self, consumer: Consumer, isolation: IsolationLevel, logs: Mapping[tuple[str, int], KnownLog]
    ) -> Iterator[list[Message]]:
        """Yield lists of messages. End when the cluster has another consumer for `isolation`, or to assign it again.

        If no message comes for `stall_s` seconds, the consumer asks for the ends of the log. This replaces a consumer
        that has lost its brokers.
        """
        heard_at = self._clock()
        while self._cluster.consumer(isolation) is consumer:
            polled = Polled(consumer.consume(_BATCH_MESSAGES, timeout=_POLL_S))
            if polled.records:
                yield polled.records
            for refusal in polled.refusals:
                log = logs[_place(refusal)]
                self._guard.confirm(log.partition)  # another topic that has the name now has another log, too
                if not log.heed(refusal):
                    raise KafkaException(refusal.error())
            if polled.refusals:
                return
            if polled.damage is not None:
                raise unreadable(polled.damage)
            if polled.records:
                heard_at = self._clock()
            elif logs and self._clock() - heard_at > self._stall_s:
                heard_at = self._clock()
                self._guard.look(next(iter(logs.values())).partition, isolation)  # may replace it

    def _wait_ready(self, pace: Pace, log: KnownLog) -> int | None:
        """Wait until the log holds the next offset, and return its end. None: the log start has passed the whole range.

        A log that ends before that offset may have parted from what was read. So it is compared first.
        """
        while True:
            with pace.paused():
                bounds = self._guard.bounds(pace.step.partition, pace.isolation)
            start, end = bounds.log_start_offset or 0, bounds.end_offset or 0
            pace.reached(self._guard.pass_over(pace.step.partition, pace.offset, start))
            log.passed_over(start)
            if pace.offset > pace.step.last_offset:
                return None
            if pace.offset < end or log.wants_comparison:
                return end
            self._mind(pace)
            time.sleep(_POLL_S)

    def _messages(self, consumer: Consumer, pace: Pace, log: KnownLog) -> Iterator[list[Message]]:
        """Messages of the range, until the consumer's position reaches its end. The last offsets may hold no records.

        Ends early if the broker refuses the position, because the ends of the log may have moved, and if the consumer
        was replaced.
        """
        stop, partition = pace.step.stop_offset, pace.step.partition
        wanted = TopicPartition(partition.topic, partition.partition)
        while pace.offset < stop:
            most = min(_BATCH_MESSAGES, stop - pace.offset)  # for more, librdkafka would wait until the timeout
            polled = Polled(consumer.consume(most, timeout=_POLL_S))
            pace.heard(polled.cause)
            records = [message for message in polled.records if (message.offset() or 0) < stop]
            if records:
                log.took(records)
                yield records
                pace.moved_at = self._clock()  # the caller's time is no stall of the broker
            is_at_stop = polled.reaches(stop)
            if polled.damage is not None and not is_at_stop:
                raise unreadable(polled.damage)
            (position,) = consumer.position([wanted])
            read_to = max(position.offset, (records[-1].offset() or 0) + 1 if records else 0)
            pace.reached(stop if is_at_stop else read_to)
            if pace.offset < stop:
                for refusal in polled.refusals:
                    log.heed(refusal)
            self._mind(pace)
            if polled.refusals:
                time.sleep(_POLL_S)
            if polled.refusals or self._cluster.consumer(pace.isolation) is not consumer:
                return

    def _mind(self, pace: Pace) -> None:
        """Report a broker that gives nothing, once for each stall, and check that the topic still exists."""
        if self._give_up_s is not None:
            shortest_s = min(self._give_up_s, _LEAST_WAIT_S if pace.cause else self._stall_s)
            give_up_s = max(ldexp(self._give_up_s, -pace.haste), shortest_s)
            if self._clock() - pace.moved_at > give_up_s:
                self._give_up(pace, give_up_s)
        if self._clock() - max(pace.moved_at, pace.checked_at) <= self._stall_s:
            return
        pace.checked_at, step = self._clock(), pace.step
        with pace.paused():
            self._guard.confirm(step.partition)  # the next question replaces a consumer without brokers
            bounds = self._guard.bounds(step.partition, pace.isolation, by_consumer=True)
        if pace.is_reported:
            pace.check_refusal(bounds)
            return
        pace.is_reported = True
        self._observer(
            Notice(
                f"{step.partition.topic_partition}: the broker gives nothing from offset "
                f"{pace.offset} on, though the log goes on to {step.stop_offset}{pace.cause}; still asking",
                is_warning=True,
                is_wait=True,
            )
        )

    def _give_up(self, pace: Pace, waited_s: float) -> None:
        """Raise the cause of the stall. If the log ends inside the range and records may be skipped, end the range."""
        step = pace.step
        end = self._guard.bounds(step.partition, pace.isolation).end_offset or 0
        if end <= step.last_offset:
            self._guard.cut_short(step.partition, max(pace.offset, end), step.last_offset, end)
            pace.reached(step.stop_offset)
            return
        text = (
            f"{step.partition.topic_partition}: the broker gave nothing from offset {pace.offset} on "
            f"for {waited_s:g} s, though the log goes on to {end}{pace.cause}"
        )
        raise BrokerStalled(KafkaError(KafkaError._TIMED_OUT, text), was_hurried=waited_s < (self._give_up_s or 0))

    def _rows(self, messages: Sequence[Message], partition: TopicIdPartition, columns: Sequence[str]) -> pa.RecordBatch:
        size_bytes = sum(len(message.key() or b"") + len(message.value() or b"") for message in messages)
        self._observer(BrokerRead(partition, len(messages), size_bytes))
        saturated = sum(is_saturated(timestamp_ms(message)) for message in messages) if "timestamp" in columns else 0
        if saturated:
            self._observer(TimestampsSaturated(partition, saturated))
        return batch_of_messages(messages, columns)


def _give_back(consumer: Consumer) -> None:
    """End the assignment. An abandoned reading may outlive its session, whose consumers are closed then."""
    with suppress(RuntimeError):
        consumer.unassign()


def _place(message: Message) -> tuple[str, int]:
    return message.topic() or "", message.partition() or 0
