"""Where librdkafka is told to be: kept from fetching what may come from the store, and sent on when it is to fetch.

Rules of the file: no call here waits for a broker. librdkafka fetches as soon as a partition is assigned, so it is
paused before; it then stays at a place that it never fetches from, for it is sought elsewhere before it goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from confluent_kafka import KafkaException, TopicPartition

from remote_fetch.consumer.entries import UNKNOWN, Entry
from remote_fetch.consumer.inner import Inner
from remote_fetch.consumer.states import BEGINNING, STORED, TAIL

__all__ = ["COMMITTED", "IDLE", "keep_from_fetching", "may_be_tiered", "send_on", "waits"]

COMMITTED = (UNKNOWN, STORED)
"""With these offsets a partition is assigned to go on where the group has committed."""
IDLE = 0
"""Where librdkafka has what it is kept from fetching."""


def may_be_tiered(offset: int) -> bool:
    """Whether the store may have an offset, given or logical: anything but the end and "whatever was committed"."""
    return offset >= 0 or offset == BEGINNING or offset <= TAIL


def waits(offset: int) -> bool:
    """Whether librdkafka is kept from fetching: the store may have the offset, or it is not known yet."""
    return may_be_tiered(offset) or offset in COMMITTED


def keep_from_fetching(inner: Inner, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """What librdkafka is to be assigned for partitions that are new to it; what the store may have, it has paused.

    It pauses only what it knows, and it knows a partition once it was asked for the watermarks it has heard of it.
    """
    kept = [TopicPartition(one.topic, one.partition) for one in partitions if waits(one.offset)]
    with contextlib.suppress(KafkaException):  # to assign them meets the same, and raises it
        for one in kept:
            inner.get_watermark_offsets(one, cached=True)
        inner.pause(kept)
    return [TopicPartition(one.topic, one.partition, IDLE if waits(one.offset) else one.offset) for one in partitions]


def send_on(inner: Inner, entry: Entry, offset: int) -> None:
    """Let librdkafka fetch a partition from an offset on. Raises KafkaException (_STATE) if it has stopped it.

    It is sought while it is still paused, for it must not fetch from where it was, and once more when it is resumed:
    only what changes a partition's state wakes the broker's thread, which else sleeps up to a second. To seek 0 changes
    nothing; so 1 is sought before, if the log is known to have it.
    """
    inner.seek(entry.at(offset))
    inner.resume([entry.at()])
    if offset == 0 < entry.end_offset:
        inner.seek(entry.at(1))
    if offset >= 0:
        inner.seek(entry.at(offset))
