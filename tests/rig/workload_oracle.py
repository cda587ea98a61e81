"""Asks a plain consumer about a log: its ends, the offset of a time, and its records.

Rules of the file:

- No module of the package is imported, only the rig.
- Each question has its own client, so that no answer is out of date.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.rig.rig import Rig
from tests.rig.topics import QUIET, broker_records

__all__ = ["LogEnds", "Place", "TimeAnswer", "Times", "listed_offset", "log_ends", "offset_for_time"]

Place = tuple[str, int]
"""A topic and one of its partitions."""

_TIMEOUT_S = 150
_PASSING = (KafkaError.REPLICA_NOT_AVAILABLE, KafkaError.REQUEST_TIMED_OUT, KafkaError.UNKNOWN)
"""Errors of a leader that cannot look into the tier yet: it is new and has not read the tier's metadata, or it is busy.
Kafka 3.9 has UNKNOWN_SERVER_ERROR for it if its metadata manager is not ready after a restart."""


class LogEnds(NamedTuple):
    """A partition's log start offset, and the end that an isolation level may read (exclusive)."""

    start: int
    stop: int


class TimeAnswer(NamedTuple):
    """The offset for a time. If `is_certain` is false, the broker is wrong, and an earlier marker may be right."""

    offset: int
    is_certain: bool


class Times(NamedTuple):
    """A range of timestamps, in milliseconds since 1970: [first_ms, stop_ms)."""

    first_ms: int
    stop_ms: int

    def at(self, fraction: float) -> int:
        """The timestamp at this fraction of the range."""
        return self.first_ms + int(fraction * (self.stop_ms - self.first_ms))


@contextmanager
def _consumer(rig: Rig, isolation: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {"bootstrap.servers": rig.bootstrap, "group.id": "oracle", "isolation.level": isolation, **QUIET}
    )
    try:
        yield consumer
    finally:
        consumer.close()


def log_ends(rig: Rig, places: Iterable[Place], isolation: str) -> dict[Place, LogEnds]:
    """The start and the end of each partition for the isolation level. Raises KafkaException with the broker's error.

    A consumer returns the smaller offset first. The start is known from the high watermark. If DeleteRecords in an open
    transaction has left an end before the start, this returns the start as the end.
    """
    found = {}
    with _consumer(rig, "read_uncommitted") as plain, _consumer(rig, isolation) as asked:
        for place in places:
            start, _ = plain.get_watermark_offsets(TopicPartition(*place), timeout=_TIMEOUT_S)
            pair = asked.get_watermark_offsets(TopicPartition(*place), timeout=_TIMEOUT_S)
            found[place] = LogEnds(start, start if pair[0] < start else pair[1])
    return found


def offset_for_time(rig: Rig, place: Place, log: LogEnds, timestamp_ms: int, isolation: str) -> TimeAnswer:
    """The first offset of [log.start, log.stop) whose record is not before `timestamp_ms`, as ListOffsets has it.

    Kafka 3.9.2 and 4.3.1 are wrong in one case. RemoteLogManager.findOffsetByTimestamp searches only the first segment
    whose largest timestamp is late enough. If DeleteRecords has moved the log start into that segment, past its late
    records, Kafka finds none and does not search later segments of the tier. This function corrects Kafka only if one
    of the broker's own records proves the mistake.
    """
    found = listed_offset(rig, place, timestamp_ms, isolation)
    if log.start > 0:
        records = broker_records(rig, *place, "read_uncommitted", start=log.start)
        late = next((record.offset for record in records if record.timestamp_ms >= timestamp_ms), None)
        if late is not None and late < log.stop and (found is None or late < found):
            # The broker also misses a segment that leaves its disk during the search. So it is asked a second time.
            found = listed_offset(rig, place, timestamp_ms, isolation)
            if found is None or late < found:
                return TimeAnswer(late, is_certain=False)
    return TimeAnswer(log.stop if found is None else min(found, log.stop), is_certain=True)


def listed_offset(rig: Rig, place: Place, timestamp_ms: int, isolation: str) -> int | None:
    """The broker's own answer. None: no record is late enough. Raises KafkaException with the broker's error."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    with _consumer(rig, isolation) as consumer:
        while True:
            try:
                (found,) = consumer.offsets_for_times([TopicPartition(*place, timestamp_ms)], timeout=_TIMEOUT_S)
                if found.error is not None:
                    raise KafkaException(found.error)
                return None if found.offset < 0 else int(found.offset)
            except KafkaException as error:
                may_pass = error.args[0].code() in _PASSING
                if not may_pass or time.monotonic() > deadline_s:
                    raise
            time.sleep(0.1)
