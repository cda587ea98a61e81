"""The rules that layouts share: Kafka's suffixes, what names tell, the bound of an index, the check before signing.

Rules of the file:

- An index is asked for with a bound, and one that reaches it is refused.
- Only an object that is absent proves that there is no such index.
- A name is signed only if it shows that the object belongs to the segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from remote_fetch.errors import CorruptSegment, SegmentNotFound, UnsupportedFormat
from remote_fetch.fetch.inventory import ExpectedObject
from remote_fetch.formats.object_names import belongs_to
from remote_fetch.model import (
    MAX_OFFSET,
    UNKNOWN_SIZE,
    Buffer,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)

__all__ = [
    "MAX_INDEX_BYTES",
    "SUFFIXES",
    "checked_names",
    "expected_files",
    "get_whole",
    "partition_of",
    "read_bounded_index",
    "segment_of",
    "uuid_of",
]

SUFFIXES: Mapping[str, str] = MappingProxyType(
    {
        "log": ".log",
        IndexType.OFFSET.value: ".index",
        IndexType.TIMESTAMP.value: ".timeindex",
        IndexType.PRODUCER_SNAPSHOT.value: ".snapshot",
        IndexType.TRANSACTION.value: ".txnindex",
        IndexType.LEADER_EPOCH.value: ".leader_epoch_checkpoint",
    }
)
"""The end of a file's name in a broker's log directory, by the kind of the object."""
MAX_INDEX_BYTES = 64 << 20
"""Largest index that is believed: six times what brokers write by default (`segment.index.bytes`, 10 MiB)."""


def get_whole(get: Callable[[], Buffer]) -> Buffer:
    """The bytes of a whole object, which `get` reads by one request. Raises the errors of `get`.

    One request reads no two objects. So if the object has replaced another one, `get` is called once more.
    """
    try:
        return get()
    except SegmentNotFound as error:
        if error.is_absent:
            raise
    return get()


def read_bounded_index(get: Callable[[int, int], Buffer], name: str) -> Buffer | None:
    """An index that is an object of its own. None if there is no such object.

    `get` returns the bytes [start, end) of the object. `name` is for messages. Raises the errors of `get`, and
    CorruptSegment for an object of more than MAX_INDEX_BYTES.
    """
    try:
        data = get_whole(lambda: get(0, MAX_INDEX_BYTES + 1))
    except SegmentNotFound as error:
        if error.is_absent:
            return None
        raise
    if memoryview(data).nbytes > MAX_INDEX_BYTES:
        raise CorruptSegment(f"an index of more than {MAX_INDEX_BYTES} bytes", object_name=name)
    return data


def uuid_of(text: str) -> Uuid | None:
    """The id in a name. None if it is none: 22 characters can hold more than 16 bytes."""
    try:
        return Uuid.parse(text)
    except ValueError:
        return None


def partition_of(topic_id: Uuid | None, topic: str, number: str) -> TopicIdPartition | None:
    """The partition that a name tells. None if no broker makes such a one."""
    try:
        return None if topic_id is None else TopicIdPartition.parsed(topic_id, topic, int(number))
    except ValueError:
        return None


def segment_of(
    partition: TopicIdPartition, segment_id: Uuid | None, start_offset: str, size_bytes: int = UNKNOWN_SIZE
) -> RemoteLogSegmentMetadata | None:
    """The segment that a name tells, whose end is unknown. None if no broker makes such a one."""
    start = int(start_offset)
    if segment_id is None or start > MAX_OFFSET:
        return None
    return RemoteLogSegmentMetadata(RemoteLogSegmentId(partition, segment_id), start, -1, size_bytes)


def expected_files(names: Mapping[str, str], metadata: RemoteLogSegmentMetadata) -> list[ExpectedObject]:
    """Files by kind, each an object of its own. A transaction index may be missing."""
    return [
        ExpectedObject(
            name, (kind,), metadata.known_size_bytes if kind == "log" else None, kind != IndexType.TRANSACTION.value
        )
        for kind, name in names.items()
    ]


def checked_names(names: Mapping[str, str], metadata: RemoteLogSegmentMetadata) -> Mapping[str, str]:
    """The names, by kind. Raises UnsupportedFormat if one does not show that its object belongs to the segment."""
    passed: set[str] = set()  # several kinds may share an object
    for kind, name in names.items():
        if name not in passed and not belongs_to(name, metadata):
            raise UnsupportedFormat(
                f"the name of the segment's {kind!r} object does not show that the object belongs to the segment, "
                "so no URL of it is signed or believed",
                object_name=name[:300],
                hint="A name needs the segment's id, and the topic's id or its name with the partition, and none of "
                "'..', '%', '?', '#' and '\\'",
            )
        passed.add(name)
    return names
