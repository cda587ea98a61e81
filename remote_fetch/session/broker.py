"""Reads the offsets that only a broker can give, through confluent_kafka, into the same columns.

Rules of the file:

- librdkafka fetches no offset outside [log start, high watermark], because its own reset would be silent. An offset
  with a leader epoch may lie outside: it is compared before it is fetched.
- A range begins and ends at exact offsets. If the log does not reach that far yet, the reader waits.
- The records of a range, and those of the store beside it, are of one log: see `known_log`.
- librdkafka fetches by topic name. So no row is given before its topic is confirmed to be the planned one.
- Records that librdkafka cannot decode are an error. librdkafka passes over some of them.
- If a broker makes no progress, a notice reports it. The reader asks again, as any consumer does, up to `give_up_s`.
- Only the thread that iterates over the rows uses the consumer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from math import ldexp
from operator import methodcaller
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message, TopicPartition

from remote_fetch.decode.arrays import Array, bytes_array, headers_array, numbers_array
from remote_fetch.decode.columns import is_saturated, microseconds, schema_for
from remote_fetch.errors import LogTruncated, UnsupportedFormat
from remote_fetch.failures.broker_errors import BrokerStalled, is_unreadable
from remote_fetch.kafka_clients import Consumer
from remote_fetch.locate.answers import leader_epoch_of
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.lineage import Lineage
from remote_fetch.model import IsolationLevel, TopicIdPartition
from remote_fetch.observe import BrokerRead, Notice, Observer, RecordsRead, TimestampsSaturated
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.session.guard import LogGuard
from remote_fetch.session.known_log import KnownLog, is_refused_offset
from remote_fetch.session.pace import Pace

__all__ = ["BrokerReader", "batch_of_messages"]

_BATCH_MESSAGES = 5_000
_POLL_S = 0.2
_STALL_S = 10.0
"""How long a broker may give nothing below the end of the log before a notice reports it."""
_LEAST_WAIT_S = 1.0
"""The shortest wait of a read in haste, if the broker answers with errors. A silent one may be slow: `stall_s`."""
_SAY_AGAIN_S = 3600.0
"""A read that follows goes on for days. The same broker may be away again."""
_EOF = KafkaError._PARTITION_EOF
_FOR_EVER = 2**63 - 1
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

        - `lineage` has the leader epochs of the records that the same read takes from the store. Unknown: none.
        - `haste`: how often `give_up_s` is halved until the broker gives something: it has given nothing before.

        Raises OffsetOutOfRange if the log start has passed offsets that were not read yet, LogTruncated if the log has
        parted from the records that were read, TopicRecreated if the name belongs to another topic now,
        UnsupportedFormat for a header key that is not UTF-8, BrokerStalled, and KafkaException with the broker's own
        error. After `give_up_s` without progress: OffsetOutOfRange if the log ends inside the range.
        """
        partition, stop = step.partition, step.stop_offset
        pace = Pace(step.first_offset, self._clock, self._clock(), haste)
        log = KnownLog(self._guard, partition, step.first_offset, lineage)
        while pace.offset < stop and (log_end := self._wait_ready(step, isolation, pace, log)) is not None:
            consumer = self._cluster.consumer(isolation)
            log.assign(consumer, pace.offset, log_end)
            try:
                for messages in self._messages(consumer, step, isolation, pace, log):
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
            heard, damage = _until_damage(consumer.consume(_BATCH_MESSAGES, timeout=_POLL_S))
            refusals = [message for message in heard if is_refused_offset(message)]
            messages = [
                message for message in heard if not is_refused_offset(message) and not _is_news(message, _FOR_EVER)
            ]
            if messages:
                yield messages
            for refusal in refusals:
                log = logs[_place(refusal)]
                self._guard.confirm(log.partition)  # another topic that has the name now has another log, too
                if not log.heed(refusal):
                    raise KafkaException(refusal.error())
            if refusals:
                return
            if damage is not None:
                raise _unreadable(damage)
            if messages:
                heard_at = self._clock()
            elif logs and self._clock() - heard_at > self._stall_s:
                heard_at = self._clock()
                self._guard.look(next(iter(logs.values())).partition, isolation)  # may replace it

    def _wait_ready(self, step: BrokerRange, isolation: IsolationLevel, pace: Pace, log: KnownLog) -> int | None:
        """Wait until the log holds the next offset, and return its end. None: the log start has passed the whole range.

        A log that ends before may have parted from what was read. So this does not wait before it was compared.
        """
        while True:
            with pace.paused():
                bounds = self._guard.bounds(step.partition, isolation)
            start, end = bounds.log_start_offset or 0, bounds.end_offset or 0
            pace.reached(self._guard.pass_over(step.partition, pace.offset, start))
            log.passed_over(start)
            if pace.offset > step.last_offset:
                return None
            if pace.offset < end or log.wants_comparison:
                return end
            self._mind(step, isolation, pace)
            time.sleep(_POLL_S)

    def _messages(
        self, consumer: Consumer, step: BrokerRange, isolation: IsolationLevel, pace: Pace, log: KnownLog
    ) -> Iterator[list[Message]]:
        """Messages of the range, until the consumer's position reaches its end. The last offsets may hold no records.

        Ends early if the broker refuses the position, because the ends of the log may have moved, and if the consumer
        was replaced.
        """
        stop = step.stop_offset
        wanted = TopicPartition(step.partition.topic, step.partition.partition)
        while pace.offset < stop:
            most = min(_BATCH_MESSAGES, stop - pace.offset)  # for more, librdkafka would wait until the timeout
            heard, damage = _until_damage(consumer.consume(most, timeout=_POLL_S))
            told = [message for message in heard if message.error() is not None]
            pace.heard(told)
            refusals = [message for message in told if is_refused_offset(message)]
            ends = [message for message in told if not is_refused_offset(message) and not _is_news(message, stop)]
            given = [message for message in heard if message.error() is None]
            records = [message for message in given if (message.offset() or 0) < stop]
            at_end = bool(ends)
            if records:
                log.took(records)
                yield records
                pace.moved_at = self._clock()  # the caller's time is no stall of the broker
            if damage is not None and not at_end and len(records) == len(given):
                if (damage.offset() or 0) < stop:
                    raise _unreadable(damage)
                at_end = True
            (position,) = consumer.position([wanted])
            read_to = max(position.offset, (records[-1].offset() or 0) + 1 if records else 0)
            pace.reached(stop if at_end or len(records) < len(given) else read_to)
            if pace.offset < stop:
                for refusal in refusals:
                    log.heed(refusal)
            self._mind(step, isolation, pace)
            if refusals:
                time.sleep(_POLL_S)
            if refusals or self._cluster.consumer(isolation) is not consumer:
                return

    def _mind(self, step: BrokerRange, isolation: IsolationLevel, pace: Pace) -> None:
        """Report a broker that gives nothing, once for each stall, and check that the topic still exists."""
        if self._give_up_s is not None:
            shortest_s = min(self._give_up_s, _LEAST_WAIT_S if pace.cause else self._stall_s)
            give_up_s = max(ldexp(self._give_up_s, -pace.haste), shortest_s)
            if self._clock() - pace.moved_at > give_up_s:
                self._give_up(step, isolation, pace, give_up_s)
        if self._clock() - max(pace.moved_at, pace.checked_at) <= self._stall_s:
            return
        pace.checked_at = self._clock()
        with pace.paused():
            self._guard.confirm(step.partition)  # the next question replaces a consumer without brokers
            bounds = self._guard.bounds(step.partition, isolation, by_consumer=True)
        if pace.is_reported:
            pace.check_refusal(step.partition, bounds)
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

    def _give_up(self, step: BrokerRange, isolation: IsolationLevel, pace: Pace, waited_s: float) -> None:
        """Raise the cause of the stall. If the log ends inside the range and records may be skipped, end the range."""
        end = self._guard.bounds(step.partition, isolation).end_offset or 0
        if end <= step.last_offset:
            self._guard.cut_short(step.partition, max(pace.offset, end), step.last_offset, end)
            pace.reached(step.stop_offset)
            return
        text = (
            f"{step.partition.topic_partition}: the broker gave nothing from offset {pace.offset} on "
            f"for {waited_s:g} s, though the log goes on to {end}{pace.cause}"
        )
        stalled = BrokerStalled(KafkaError(KafkaError._TIMED_OUT, text))
        stalled.was_hurried = waited_s < (self._give_up_s or 0)
        raise stalled

    def _rows(self, messages: Sequence[Message], partition: TopicIdPartition, columns: Sequence[str]) -> pa.RecordBatch:
        size_bytes = sum(len(message.key() or b"") + len(message.value() or b"") for message in messages)
        self._observer(BrokerRead(partition, len(messages), size_bytes))
        saturated = sum(is_saturated(_timestamp_ms(message)) for message in messages) if "timestamp" in columns else 0
        if saturated:
            self._observer(TimestampsSaturated(partition, saturated))
        return batch_of_messages(messages, columns)


def _give_back(consumer: Consumer) -> None:
    """End the assignment. An abandoned reading may outlive its session, whose consumers are closed then."""
    with suppress(RuntimeError):
        consumer.unassign()


def batch_of_messages(messages: Sequence[Message], columns: Sequence[str]) -> pa.RecordBatch:
    """Records of confluent_kafka as an Arrow batch. Raises ConfigError for an unknown column, and UnsupportedFormat."""
    schema = schema_for(columns)
    arrays = [_column(name, schema.field(name).type, messages) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _place(message: Message) -> tuple[str, int]:
    return message.topic() or "", message.partition() or 0


def _until_damage(heard: Sequence[Message]) -> tuple[Sequence[Message], Message | None]:
    """The messages before the first error about records that librdkafka cannot decode, and that error, if any."""
    for at, message in enumerate(heard):
        error = message.error()
        if error is not None and is_unreadable(error):
            return heard[:at], message
    return heard, None


def _unreadable(message: Message) -> KafkaException:
    error, place = message.error(), f"{message.topic()}-{message.partition()}, offset {message.offset()}"
    assert error is not None, "`_until_damage` found it"
    return KafkaException(KafkaError(error.code(), f"{error.str()} [{place}, as the broker gives it]"))


def _is_news(message: Message, stop: int) -> bool:
    """Whether a message is neither a record nor the end of the range, but an event that librdkafka handles.

    Raises KafkaException for an error that librdkafka does not handle.
    """
    error = message.error()
    if error is None:
        return False
    if error.code() == _EOF:
        return (message.offset() or 0) < stop  # the log has grown past this end
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED or error.fatal():
        raise KafkaException(error)
    return True


# Never `message.headers()`. For a key that is not UTF-8, `c_headers_to_py` of confluent_kafka (seen in 2.16.1) sets an
# exception and still returns its list, with NULL for the key. The interpreter's generic call turns that into a
# SystemError. A call site that CPython (3.11 and later) has specialised for a method of C does not check, and the first
# use of the list kills the process. A methodcaller always takes the generic call. Ask a message once: it keeps the
# list, and returns it a second time without an exception.
_client_headers = methodcaller("headers")


def _headers(message: Message) -> Sequence[tuple[str, bytes | None]]:
    """A key ends at its first NUL, because the client holds it as a C string."""
    try:
        headers = _client_headers(message)
    except (SystemError, UnicodeDecodeError) as error:
        raise UnsupportedFormat(
            "a header key of the record is not UTF-8, and the client cannot give it",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            hint="Leave the column headers out, or read the record from the store with fetch.remote.when=always",
        ) from error
    return headers or ()


def _timestamp_ms(message: Message) -> int:
    """A record of magic 0 has no timestamp: Kafka says -1, the client 0."""
    kind, timestamp_ms = message.timestamp()
    return -1 if kind == TIMESTAMP_NOT_AVAILABLE else int(timestamp_ms)


_FIELDS: dict[str, Any] = {
    "key": lambda message: message.key(),
    "value": lambda message: message.value(),
    "topic": lambda message: message.topic().encode(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": lambda message: microseconds(_timestamp_ms(message)),
    "timestampMs": _timestamp_ms,
    # librdkafka numbers from "not available", Kafka from CreateTime.
    "timestampType": lambda message: message.timestamp()[0] - 1,
    "headers": _headers,
    "leaderEpoch": leader_epoch_of,
}


def _column(name: str, arrow_type: pa.DataType, messages: Sequence[Message]) -> Array:
    values = [_FIELDS[name](message) for message in messages]
    if name == "headers":
        return headers_array(values)
    return bytes_array(values, arrow_type) if name in ("key", "value", "topic") else numbers_array(values, arrow_type)
