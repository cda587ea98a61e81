"""The rows that the book of an audit gives: histories of segments, damaged records, sizes of objects and of topics.

Rules of the file:

- Pure. Values alone.
"""

from __future__ import annotations

from typing import NamedTuple

from remote_fetch.model import Uuid

__all__ = ["Damaged", "History", "Sized", "TopicTotals"]


class History(NamedTuple):
    """The values of a segment's records, in order.

    - `is_buried`: a tombstone of its key has deleted it (KIP-1266).
    - `is_replaced`: another segment was written under its key later (KIP-1266).
    - `is_partition_gone`: the deletion of its partition ended after its last record.
    - `is_ordered`: its records are in one metadata partition, so that their offsets are their order.
    """

    values: tuple[bytes, ...]
    is_buried: bool
    is_replaced: bool
    is_partition_gone: bool
    is_ordered: bool


class TopicTotals(NamedTuple):
    """The sizes of a topic in the storage: finished segments, with the bytes of their logs; objects, with their bytes.

    `oldest_ms` and `newest_ms` are the largest timestamps of the first and of the last segment by time, -1 without any.
    """

    topic: str
    topic_id: Uuid
    partitions: int
    segments: int
    segment_bytes: int
    objects: int
    object_bytes: int
    oldest_ms: int
    newest_ms: int


class Damaged(NamedTuple):
    """A record of the metadata topic that cannot be read: its metadata partition, its offset, and the reason."""

    source: int
    offset: int
    text: str


class Sized(NamedTuple):
    """An object that a segment should have, and its size in the storage; None: it is not there.

    `values` are those of the segment's records.
    """

    values: tuple[bytes, ...]
    name: str
    kinds: tuple[str, ...]
    expected_bytes: int | None
    found_bytes: int | None
