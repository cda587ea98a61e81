"""librdkafka's logical offsets, which offsets the store may have, and partitions at an offset.

Rules of the file:

- Pure.
- The values are librdkafka's own (`RD_KAFKA_OFFSET_*`).
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import TopicPartition

__all__ = [
    "BEGINNING",
    "COMMITTED",
    "END",
    "INVALID",
    "STORED",
    "TAIL",
    "is_looked_up",
    "may_be_tiered",
    "named_epoch",
    "partition_at",
    "place_of",
]

END = -1
"""The end of the log."""
BEGINNING = -2
"""The start of the log."""
STORED = -1000
"""The offset that the group has committed."""
INVALID = -1001
"""No offset. A partition that is assigned with it also begins at the committed offset."""
TAIL = -2000
"""This and all lower values count back from the end of the log."""
COMMITTED = (INVALID, STORED)
"""A partition that is assigned with one of these begins at the group's committed offset."""


def partition_at(
    topic: str, number: int, offset: int, leader_epoch: int | None, metadata: str | None = None
) -> TopicPartition:
    """A partition at an offset, as confluent_kafka's type. The constructor of that type takes no None."""
    more: dict[str, Any] = {} if metadata is None else {"metadata": metadata}
    if leader_epoch is not None and leader_epoch >= 0:
        more["leader_epoch"] = leader_epoch
    return TopicPartition(topic, number, offset, **more)


def named_epoch(partition: TopicPartition) -> int | None:
    """The leader epoch of the record before the partition's offset. None if the application does not name both."""
    return partition.leader_epoch if partition.offset >= 0 else None


def may_be_tiered(offset: int) -> bool:
    """Whether the store may have records from `offset` on, which may be logical. The end of the log is not tiered."""
    return offset >= 0 or offset == BEGINNING or offset <= TAIL


def is_looked_up(offset: int) -> bool:
    """Whether librdkafka has to wait before it fetches from `offset`.

    The store may have it, or it has to be resolved.
    """
    return may_be_tiered(offset) or offset in COMMITTED


def place_of(offset: int) -> str:
    """An offset, which may be logical, in words."""
    places = {END: "its end", BEGINNING: "its beginning", **dict.fromkeys(COMMITTED, "its committed offset")}
    return places.get(offset, f"offset {offset}")
