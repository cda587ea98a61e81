"""The five scenarios of KIP-1266 as records of a metadata topic, in the dialects of its drafts.

Rules of the file:

- The KIP's text and its pull request (apache/kafka#22459) disagree about keys and tags. Both are here, and the form of
  all released brokers: no keys, version 0.
- The uploads are given. So the same scenarios run over made-up segments and over those of a real tier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from struct import pack
from types import MappingProxyType
from typing import NamedTuple

from remote_fetch.formats.metadata_records import (
    PartitionDeleteRecord,
    RemotePartitionDeleteState,
    SegmentMetadataRecord,
    SegmentUpdateRecord,
)
from remote_fetch.model import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.testing.metadata_records import encode_metadata_record

__all__ = ["DIALECTS", "SCENARIOS", "Dialect", "Event", "another_upload", "compacted", "without_tombstones"]

STARTED, FINISHED, DELETE_STARTED, DELETED = RemoteLogSegmentState


class Event(NamedTuple):
    """One record of the metadata topic. `value` None is a tombstone."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Dialect:
    """How records are keyed, and which tagged fields they have. `has_keys` False: as all released brokers write."""

    name: str
    has_keys: bool
    has_topic_name: bool = False
    update_suffix: bytes = b""
    tag_of_epoch: int = 1

    def key(self, segment: RemoteLogSegmentMetadata, epoch: int) -> bytes | None:
        """The key of a segment's own record."""
        if not self.has_keys:
            return None
        partition = segment.topic_id_partition
        place = f"{partition.topic}:{partition.partition}" if self.has_topic_name else f"{partition.partition}"
        return f"{partition.topic_id}:{place}:{segment.end_offset}:{epoch}".encode()

    def base(self, segment: RemoteLogSegmentMetadata, epoch: int) -> Event:
        """The start of an upload."""
        started = replace(segment, state=STARTED, custom_metadata=None)
        if not self.has_keys:
            return Event(None, encode_metadata_record(SegmentMetadataRecord(started)))
        if self.tag_of_epoch == 1:
            return Event(self.key(segment, epoch), encode_metadata_record(SegmentMetadataRecord(started, epoch, 1)))
        # KIP-1266's text gives the epoch the number of TxnIndexEmpty.
        plain = encode_metadata_record(SegmentMetadataRecord(replace(started, txn_index_empty=False)))
        return Event(self.key(segment, epoch), b"\x01\x00\x01" + plain[3:-1] + b"\x01\x00\x04" + pack(">i", epoch))

    def update(self, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, epoch: int) -> Event:
        """A new state of a segment."""
        key = self.key(segment, epoch)
        record = SegmentUpdateRecord(segment.segment_id, 1, 1, segment.custom_metadata, state)
        if key is None:
            return Event(None, encode_metadata_record(record))
        record = replace(record, broker_leader_epoch=epoch, end_offset=segment.end_offset, version=1)
        return Event(key + self.update_suffix, encode_metadata_record(record))

    def upload(self, segment: RemoteLogSegmentMetadata, epoch: int) -> list[Event]:
        """An upload that went well."""
        return [self.base(segment, epoch), self.update(segment, FINISHED, epoch)]

    def tombstones(self, segment: RemoteLogSegmentMetadata, *epochs: int) -> list[Event]:
        """The tombstones of a segment's keys: of the update first, if it has a key of its own."""
        keys = [key for epoch in epochs if (key := self.key(segment, epoch)) is not None]
        suffixes = (self.update_suffix, b"") if self.update_suffix else (b"",)
        return [Event(key + suffix, None) for key in keys for suffix in suffixes]

    def partition_deletion(self, partition: TopicIdPartition) -> list[Event]:
        """A partition that is being deleted."""
        key = f"{partition.topic_id}:{partition.partition}".encode() + self.update_suffix if self.has_keys else None
        return [
            Event(key, encode_metadata_record(PartitionDeleteRecord(partition, 1, 1, state)))
            for state in RemotePartitionDeleteState
        ]


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (
            Dialect("legacy", has_keys=False),
            Dialect("text", has_keys=True, tag_of_epoch=0),
            Dialect("pull request", has_keys=True, has_topic_name=True, update_suffix=b":UPDATE"),
        )
    }
)


def another_upload(segment: RemoteLogSegmentMetadata, number: int) -> RemoteLogSegmentMetadata:
    """Another upload of the same offsets, under another id. There is no object of it."""
    segment_id = RemoteLogSegmentId(segment.topic_id_partition, Uuid(pack(">qq", 1266, number)))
    return replace(segment, segment_id=segment_id)


def normal_upload(dialect: Dialect, first: RemoteLogSegmentMetadata) -> Iterator[Event]:
    """Scenario 1."""
    yield from dialect.upload(first, 3)


def leadership_change(dialect: Dialect, first: RemoteLogSegmentMetadata) -> Iterator[Event]:
    """Scenario 2, in the order that only the epoch of the leader can settle: the former leader finishes last."""
    former = another_upload(first, 1)
    yield dialect.base(former, 3)
    yield from dialect.upload(first, 4)
    yield dialect.update(former, FINISHED, 3)


def failed_upload(dialect: Dialect, first: RemoteLogSegmentMetadata) -> Iterator[Event]:
    """Scenario 3: the first attempt ends without a record, the second one goes well under the same key."""
    yield dialect.base(another_upload(first, 2), 5)
    yield from dialect.upload(first, 5)


def segment_deletion(dialect: Dialect, first: RemoteLogSegmentMetadata) -> Iterator[Event]:
    """Scenario 4: three leaders have uploaded the segment, a fourth one deletes it."""
    yield from dialect.upload(another_upload(first, 3), 3)
    yield from dialect.upload(another_upload(first, 4), 4)
    yield from dialect.upload(first, 5)
    yield dialect.update(first, DELETE_STARTED, 6)
    yield dialect.update(first, DELETED, 6)
    yield from dialect.tombstones(first, 3, 4, 5, 6)


def partition_deletion(dialect: Dialect, first: RemoteLogSegmentMetadata) -> Iterator[Event]:
    """Scenario 5."""
    yield from dialect.upload(first, 3)
    yield from dialect.partition_deletion(first.topic_id_partition)


Scenario = Callable[[Dialect, RemoteLogSegmentMetadata], Iterator[Event]]
SCENARIOS: Mapping[int, Scenario] = MappingProxyType(
    {1: normal_upload, 2: leadership_change, 3: failed_upload, 4: segment_deletion, 5: partition_deletion}
)


def compacted(events: Sequence[Event]) -> list[Event]:
    """The events that the cleaner leaves. Records without a key are dropped, as the brokers' cleaner does."""
    last = {event.key: at for at, event in enumerate(events)}
    return [event for at, event in enumerate(events) if event.key is not None and last[event.key] == at]


def without_tombstones(events: Sequence[Event]) -> list[Event]:
    """The events of a compacted topic after `delete.retention.ms`."""
    return [event for event in compacted(events) if event.value is not None]
