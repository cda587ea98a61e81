"""The rules of an audit: faults of a segment, of an object, and of the order of segments.

Rules of the file:

- Pure. Each rule takes values and gives findings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from remote_fetch.checks.audit_rows import Sized
from remote_fetch.checks.audit_segment import SegmentLife, faults_of
from remote_fetch.checks.findings import Finding, FindingKind
from remote_fetch.formats.indexes import LEGACY_ENTRY_BYTES, TIME_ENTRY_BYTES, TRANSACTION_ENTRY_BYTES
from remote_fetch.locate.lineage import epoch_at
from remote_fetch.model import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)

__all__ = [
    "ENTRY_BYTES",
    "folder_above",
    "is_one_word",
    "judge_index_size",
    "judge_life",
    "judge_order",
    "judge_size",
    "of_segment",
    "start_of",
]

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED

ENTRY_BYTES = (
    (IndexType.OFFSET.value, LEGACY_ENTRY_BYTES // 2),
    (IndexType.TIMESTAMP.value, TIME_ENTRY_BYTES),
    (IndexType.TRANSACTION.value, TRANSACTION_ENTRY_BYTES),
)
"""The size of an index is a multiple of this. Entries of offset indexes have 8 or 12 bytes (KIP-1333)."""

_SPLITS = re.compile(r"""[\s'"\\]""")
"""Where a shell and `xargs` split or join words."""


def is_one_word(name: str) -> bool:
    """Whether a name is one line and one word of a list: it has no blank, quote, backslash or unprintable character."""
    return name.isprintable() and _SPLITS.search(name) is None


def start_of(name: str, segment_id: RemoteLogSegmentId) -> int | None:
    """The start offset of a segment by the name of its object. None if the name has no `object_stem`."""
    digits = name.rpartition(f"-{segment_id.id}")[0][-20:]
    return int(digits) if len(digits) == 20 and digits.isdecimal() else None


def folder_above(name: str, segment_id: RemoteLogSegmentId) -> str:
    """The folders of an object's name above the one that has the topic's id. Empty if the name does not have it."""
    before, found, _ = name.partition(str(segment_id.topic_id_partition.topic_id))
    return before.rpartition("/")[0] if found else ""


def of_segment(finding: Finding, life: SegmentLife) -> Finding:
    """The finding with the segment and its offsets."""
    start, end = life.bounds
    return replace(finding, segment_id=life.segment_id, start_offset=start, end_offset=end)


def judge_life(
    life: SegmentLife, *, stale_before_ms: int, is_topic_gone: bool, log_start: Callable[[TopicIdPartition], int | None]
) -> Finding | None:
    """The fault of a segment by its events alone, None without one. The segment was not deleted.

    `log_start` as for `judge_order`. It is asked for only if the answer matters.
    """
    kind, text = None, ""
    if is_topic_gone:
        kind, text = FindingKind.DELETED_TOPIC, "the cluster has no topic of this name and id"
    elif life.metadata is None:
        kind = FindingKind.ORPHANED_EVENT
        text = f"an event says {life.state.name}, but no event says what the segment is"
    elif life.state is _STARTED and life.event_ms < stale_before_ms:
        kind, text = FindingKind.STALE_COPY, "its copy has begun and never ended (COPY_SEGMENT_STARTED)"
    elif life.state is _DELETING and life.event_ms < stale_before_ms:
        kind, text = FindingKind.STALE_DELETE, "its deletion has begun and never ended (DELETE_SEGMENT_STARTED)"
    elif (fault := faults_of(life.metadata, log_start)) is not None:
        kind, text = FindingKind.WRONG_METADATA, fault
    return None if kind is None else of_segment(Finding(kind, text), life)


def judge_size(sized: Sized) -> Finding:
    """The fault of an object that is missing or has another size than the metadata says."""
    name, wanted, found = sized.name, sized.expected_bytes, sized.found_bytes
    what = "the log" if sized.kinds == ("log",) else f"the object of {', '.join(sized.kinds)}"
    if found is None:
        return Finding(FindingKind.MISSING, f"{what} is not in the storage", object_name=name)
    kind = FindingKind.SHORT if wanted is not None and found < wanted else FindingKind.TOO_LONG
    return Finding(kind, f"{what} has {found} bytes, and {wanted} by the metadata", object_name=name, size_bytes=found)


def judge_index_size(sized: Sized, entry_bytes: int) -> Finding:
    """The fault of an index whose size no index has."""
    text = f"the {sized.kinds[0]} index has {sized.found_bytes} bytes, no multiple of {entry_bytes}"
    return Finding(FindingKind.DAMAGED_INDEX, text, object_name=sized.name, size_bytes=sized.found_bytes)


def judge_order(
    segments: Iterable[RemoteLogSegmentMetadata], log_start: Callable[[TopicIdPartition], int | None]
) -> Iterator[Finding]:
    """Holes and overlaps. The segments are finished, and sorted by partition, start and end.

    - `log_start` tells the log start offset of a partition, None if it is not known. Before it nothing has to be there.
    - Two segments overlap if both have offsets of one leader epoch. After a change of leaders, that is usual.
    """
    before: RemoteLogSegmentMetadata | None = None
    start: int | None = None
    for segment in segments:
        if before is None or before.topic_id_partition != segment.topic_id_partition:
            before, start = None, log_start(segment.topic_id_partition)
        wanted = start if before is None else before.end_offset + 1
        if wanted is not None and segment.start_offset > max(wanted, start or 0):
            text = f"no segment has the offsets {max(wanted, start or 0)} to {segment.start_offset - 1} before it"
            yield Finding.about(segment, FindingKind.HOLE, text)
        elif before is not None and _overlap(before, segment):
            last = min(before.end_offset, segment.end_offset)
            text = f"segment {before.segment_id.id} has the offsets {segment.start_offset} to {last} too"
            yield Finding.about(segment, FindingKind.OVERLAP, text)
        if before is None or segment.end_offset > before.end_offset:
            before = segment


def _overlap(before: RemoteLogSegmentMetadata, segment: RemoteLogSegmentMetadata) -> bool:
    is_reached = segment.start_offset <= before.end_offset
    epochs = {epoch_at(each.segment_leader_epochs, segment.start_offset) for each in (before, segment)}
    return is_reached and len(epochs) == 1
