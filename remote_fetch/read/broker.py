"""Stretches that only a broker can answer for, read through confluent_kafka into the same columns.

Rules of the file: no offset outside [log start, high watermark] is handed to librdkafka, whose own reset would be
silent; a stretch begins and ends at exact offsets; a broker that makes no progress is said, and asked on, as any
consumer would. Only the thread that draws the rows touches the consumer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from remote_fetch.decode.columns import schema_for
from remote_fetch.errors import OffsetOutOfRange
from remote_fetch.locate.cluster import Cluster
from remote_fetch.model import IsolationLevel, TopicIdPartition
from remote_fetch.observe import BrokerRead, Notice, Observer
from remote_fetch.plan.ranges import BrokerRange

__all__ = ["BrokerReader"]

_BATCH_MESSAGES = 5_000
_POLL_S = 0.2
_STALL_S = 10.0
"""How long a broker may stand still, below the end it has named, before that is said."""
_EOF = KafkaError._PARTITION_EOF
_FOR_EVER = 2**63 - 1


class BrokerReader:
    """Reads BrokerRanges from one cluster. Not thread-safe."""

    def __init__(self, cluster: Cluster, observer: Observer) -> None:
        self._cluster = cluster
        self._observer = observer

    def read(self, step: BrokerRange, isolation: IsolationLevel, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records of the stretch that the isolation level shows, in order.

        Raises OffsetOutOfRange when the log start has passed the stretch's first offset, and KafkaException with the
        broker's own error.
        """
        consumer = self._cluster.consumer(isolation)
        partition = step.partition
        bounds = self._cluster.log_bounds(partition, isolation)
        low, high = bounds.log_start_offset or 0, bounds.end_offset or 0
        if step.first_offset < low:
            raise OffsetOutOfRange(
                f"offsets {step.first_offset} to {min(step.last_offset, low - 1)} are gone: the log starts at {low}",
                topic=partition.topic,
                partition=partition.partition,
                offset=step.first_offset,
                hint="They were deleted by retention or DeleteRecords while they were being read",
            )
        if step.first_offset >= high:
            return
        consumer.assign([TopicPartition(partition.topic, partition.partition, step.first_offset)])
        try:
            for messages in self._messages(consumer, step, min(step.last_offset + 1, high)):
                yield self._rows(messages, partition, columns)
        finally:
            consumer.unassign()

    def follow(
        self, starts: Mapping[TopicIdPartition, int], isolation: IsolationLevel, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """What is written from these offsets on, as it comes, without end. Raises KafkaException as `read` does."""
        consumer = self._cluster.consumer(isolation)
        known = {(one.topic, one.partition): one for one in starts}
        consumer.assign([TopicPartition(one.topic, one.partition, offset) for one, offset in starts.items()])
        try:
            while True:
                messages = [
                    one for one in consumer.consume(_BATCH_MESSAGES, timeout=_POLL_S) if not _is_news(one, _FOR_EVER)
                ]
                messages.sort(key=lambda one: (one.topic(), one.partition()))
                for key, group in groupby(messages, key=lambda one: (one.topic(), one.partition())):
                    yield self._rows(list(group), known[key], columns)
        finally:
            consumer.unassign()

    def _messages(self, consumer: Consumer, step: BrokerRange, stop: int) -> Iterator[list[Any]]:
        """Messages below `stop`, until the consumer's position reaches it: the last offsets may hold no records."""
        wanted = TopicPartition(step.partition.topic, step.partition.partition)
        offset, moved_at, is_stalled = step.first_offset, time.monotonic(), False
        while offset < stop:
            messages = [one for one in consumer.consume(_BATCH_MESSAGES, timeout=_POLL_S) if not _is_news(one, stop)]
            at_end = any(one.error() is not None for one in messages)
            records = [one for one in messages if one.error() is None and int(one.offset() or 0) < stop]
            if records:
                yield records
            (position,) = consumer.position([wanted])
            reached = stop if at_end or len(records) < len(messages) else max(position.offset, offset)
            if reached > offset:
                offset, moved_at, is_stalled = reached, time.monotonic(), False
            elif time.monotonic() - moved_at > _STALL_S and not is_stalled:
                is_stalled = True
                self._observer(
                    Notice(
                        f"{step.partition.topic}-{step.partition.partition}: the broker gives nothing from offset "
                        f"{offset} on, though the log goes on to {stop}; still asking",
                        is_warning=True,
                    )
                )

    def _rows(self, messages: Sequence[Any], partition: TopicIdPartition, columns: Sequence[str]) -> pa.RecordBatch:
        size_bytes = sum(len(one.key() or b"") + len(one.value() or b"") for one in messages)
        self._observer(BrokerRead(partition, len(messages), size_bytes))
        schema = schema_for(columns)
        arrays = [pa.array([_FIELDS[name](one) for one in messages], schema.field(name).type) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_news(message: Any, stop: int) -> bool:
    """Whether a message is neither a record nor the end, but something that librdkafka deals with by itself."""
    error = message.error()
    if error is None:
        return False
    if error.code() == _EOF:
        return bool(message.offset() < stop)  # an end that lies before ours: the log goes on
    if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTO_OFFSET_RESET) or error.fatal():
        raise KafkaException(error)
    return True


def _headers(message: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in message.headers() or ()]


def _leader_epoch(message: Any) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else int(epoch)


_FIELDS: dict[str, Any] = {
    "key": lambda message: message.key(),
    "value": lambda message: message.value(),
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": lambda message: message.timestamp()[1] * 1000,
    # librdkafka numbers from "not available", Kafka from CreateTime.
    "timestampType": lambda message: message.timestamp()[0] - 1,
    "headers": _headers,
    "leaderEpoch": _leader_epoch,
}
