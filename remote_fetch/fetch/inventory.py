"""The protocols of a plug-in that an audit uses: the objects of a storage, and those that a segment should have.

Rules of the file:

- Both are optional. A fetcher without them reads as any other, and cannot be audited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from remote_fetch.fetch.spi import ObjectInfo, ObjectStore
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata

__all__ = ["ExpectedObject", "InventoryLayout", "ObjectInventory"]


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    """An object that a segment has in the store, by the segment's metadata.

    - `name` is its name below the store's root. `kinds` are the files in it: `log`, values of IndexType, or a kind of
      the layout's own.
    - `size_bytes` is its size, None if the metadata does not tell it.
    - `is_required`: each finished upload has it.
    """

    name: str
    kinds: tuple[str, ...]
    size_bytes: int | None = None
    is_required: bool = True


@runtime_checkable
class ObjectInventory(Protocol):
    """Optional. Tells which objects are in the storage, and which should be there. For an audit."""

    def list_objects(self) -> Iterator[ObjectInfo]:
        """Every object below the URL, in any order. Raises the errors of `fetch_log_segment`."""

    def expected_objects(self, metadata: RemoteLogSegmentMetadata) -> Sequence[ExpectedObject]:
        """The objects of a segment. Asks no store, or looks once for the folder of all segments.

        Raises ConfigError if the layout cannot tell, CorruptSegment for metadata that leads out of the storage, and the
        errors of `fetch_log_segment`.
        """

    def segment_of(self, name: str) -> RemoteLogSegmentId | None:
        """The segment that an object belongs to by its name. None for a name that the layout does not give."""

    def object_size(self, name: str) -> int | None:
        """As `SizedStore.size`, for an object by its name below the URL."""


@runtime_checkable
class InventoryLayout(Protocol):
    """Optional protocol of a layout. It makes the layout's fetcher an ObjectInventory."""

    def expected_objects(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> Sequence[ExpectedObject]:
        """As `ObjectInventory.expected_objects`."""

    def segment_of(self, name: str) -> RemoteLogSegmentId | None:
        """As `ObjectInventory.segment_of`."""
