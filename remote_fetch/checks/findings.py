"""The kinds of findings of an audit, how severe each is, and one finding as a value.

Rules of the file:

- Pure.
- Each kind has one meaning, and a line in docs/howto/audit.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata

__all__ = ["SEVERITIES", "Finding", "FindingKind", "Severity"]


class Severity(StrEnum):
    """The meaning of a finding for readers. Notes alone leave the exit code 0."""

    ERROR = "error"
    """Records cannot be read, or not as they should be."""
    WASTE = "waste"
    """The storage keeps what no reader needs."""
    NOTE = "note"
    """Brokers write this too, or the audit does not know what it is."""


class FindingKind(StrEnum):
    """The kinds of findings."""

    MISSING = "missing"
    SHORT = "short"
    TOO_LONG = "too-long"
    HOLE = "hole"
    WRONG_METADATA = "wrong-metadata"
    CORRUPT = "corrupt"
    DAMAGED_INDEX = "damaged-index"
    ORPHANED_EVENT = "orphaned-event"
    MALFORMED_EVENT = "malformed-event"
    ORPHANED = "orphaned"
    STALE_COPY = "stale-copy"
    STALE_DELETE = "stale-delete"
    DELETED_TOPIC = "deleted-topic"
    UNKNOWN_TOPIC = "unknown-topic"
    UNKNOWN_OBJECT = "unknown-object"
    OVERLAP = "overlap"


_WASTE = (
    FindingKind.ORPHANED,
    FindingKind.STALE_COPY,
    FindingKind.STALE_DELETE,
    FindingKind.DELETED_TOPIC,
    FindingKind.UNKNOWN_TOPIC,
)
_NOTES = (FindingKind.UNKNOWN_OBJECT, FindingKind.OVERLAP)

SEVERITIES: Mapping[FindingKind, Severity] = MappingProxyType(
    {
        kind: Severity.WASTE if kind in _WASTE else Severity.NOTE if kind in _NOTES else Severity.ERROR
        for kind in FindingKind
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong in the tier.

    - `segment_id` and its inclusive offsets, if it is about a segment. Offsets are -1 if they are not known.
    - `object_name` and `size_bytes`, if it is about an object.
    - `may_delete`: no broker and no reader needs the object.
    """

    kind: FindingKind
    text: str
    segment_id: RemoteLogSegmentId | None = None
    start_offset: int = -1
    end_offset: int = -1
    object_name: str | None = None
    size_bytes: int | None = None
    may_delete: bool = False

    @classmethod
    def about(cls, segment: RemoteLogSegmentMetadata, kind: FindingKind, text: str) -> Finding:
        """A finding about a segment."""
        return cls(kind, text, segment.segment_id, segment.start_offset, segment.end_offset)

    @property
    def severity(self) -> Severity:
        """The meaning of the finding for readers."""
        return SEVERITIES[self.kind]
