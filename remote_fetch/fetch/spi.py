"""The protocols of a plug-in: KIP-1254's RemoteStorageFetcher in Python, with the long positions of KIP-1333.

Rules of the file:

- It has protocols only. A fetcher inherits from no class of this package.
- A fetcher needs this page, `remote_fetch.model` and `remote_fetch.errors`, and nothing else of the package.
- A fetcher is found by its short name in the entry-point group `remote_fetch.fetchers`, or named as
  `package.module:Class`.
- What only an audit asks for is in `remote_fetch.fetch.inventory`.
- The built-in fetchers join two parts: a *layout* (how a storage plug-in names and stores segments) and an *object
  store* (ranged reads and listings). You can write either part alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentMetadata, Survey, TopicIdPartition

__all__ = [
    "BrokerStorage",
    "BrokerStorageReader",
    "ChunkSizer",
    "ChunkedLayout",
    "CredentialRefresher",
    "Layout",
    "LevelFinder",
    "LocationSource",
    "LocationTaker",
    "ObjectInfo",
    "ObjectNamer",
    "ObjectSigner",
    "ObjectStore",
    "PartitionLayout",
    "PartitionLister",
    "RemoteStorageFetcher",
    "RootedLayout",
    "SegmentLister",
    "SegmentSizer",
    "SizedLayout",
    "SizedStore",
    "SizedUrlStore",
    "StorageSurveyor",
    "StoredSizer",
    "UrlStore",
]


@runtime_checkable
class RemoteStorageFetcher(Protocol):
    """Reads segments and their indexes from one remote storage.

    - The methods are called from several threads at once.
    - A position is a byte of the segment as Kafka wrote it, also if the store holds chunks of it, compressed or
      encrypted.
    - The fetcher raises only `remote_fetch.errors`. It maps each error of the store's SDK to one of these.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        """Take the configuration. Called once, before any other method.

        `configs` has this package's keys (`remote.storage.url`, `remote.storage.options.*`, both timeouts in
        milliseconds), all as strings. The fetcher sets both timeouts in its SDK. Raises ConfigError.
        """

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> Buffer:
        """The bytes [start_position, end_position) of the segment. -1 stands for its end.

        - Only the end of the segment makes the result shorter. If `start_position` is at the end or past it, the result
          is empty.
        - The reader always gives an end, and asks for `fetch.remote.range.bytes` at most. It gives no `start_position`
          below 0, and no `end_position` below -1: the built-in fetchers raise ValueError for such a call.

        Raises SegmentNotFound, StorageDenied, StorageTimeout, StorageThrottled, StorageUnavailable, CorruptSegment.
        """

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        """One whole index of the segment, or None if the store proves that the index does not exist.

        A refusal is no such proof: it raises StorageDenied. Raises the errors of `fetch_log_segment`.
        """

    def close(self) -> None:
        """Release connections. Later calls raise."""


@runtime_checkable
class SegmentLister(Protocol):
    """Optional. Lists segments, so that a bucket can be read without any broker."""

    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """Every segment whose objects are in the store, of one topic name or of all topics, in any order.

        A field that the objects' names do not have is left unknown. An unknown `end_offset` is -1. `txn_index_empty` is
        True only if the listing shows that there is no transaction index. A finished upload of which only the log is
        missing may be in the answer too, with the state DELETE_SEGMENT_STARTED. No reader reads it.
        """


@runtime_checkable
class PartitionLister(Protocol):
    """Optional, in addition to SegmentLister. Lists single partitions, so that not the whole topic must be listed."""

    def list_partitions(self, topic: str | None = None) -> Iterable[TopicIdPartition] | None:
        """The partitions whose folders are in the store, of one topic name or of all topics. Each comes once.

        None if only the names of segments tell the partitions. A partition in the result may have no segments.
        """

    def list_partition(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """As `SegmentLister.list_segments`, for one partition."""


@runtime_checkable
class StorageSurveyor(Protocol):
    """Optional. Finds out, if no segment was found, whether the URL or the layout is wrong or the topic is absent."""

    def survey(self) -> Survey:
        """Describe what the storage holds, from a few listings. Raises the errors of `list_segments`."""


@runtime_checkable
class CredentialRefresher(Protocol):
    """Optional. Looks up credentials again, so that a read can take longer than its credentials are valid."""

    def refresh_credentials(self) -> None:
        """Look up the credentials again at their source.

        Called after a StorageDenied, at most every few seconds, while other calls run. The refused call is then
        repeated once. Raises the errors of `configure`, or a RetriableError, after which it is called again sooner.
        """


@runtime_checkable
class SegmentSizer(Protocol):
    """Optional: the size of a segment that its metadata cannot say (KIP-1333)."""

    def size(self, metadata: RemoteLogSegmentMetadata) -> int | None:
        """The bytes of the `.log` as Kafka wrote it; None if the store cannot tell. Raises as `fetch_log_segment`."""


@runtime_checkable
class StoredSizer(Protocol):
    """Optional, on a fetcher and on a layout: the size of a segment in the store, by metadata alone."""

    def stored_size(self, metadata: RemoteLogSegmentMetadata) -> int | None:
        """The bytes of all objects of the segment, as the plug-in wrote it down (KIP-917: REMOTE_SIZE).

        None if the metadata does not tell. Asks no store, and raises nothing: the number is shown and decides nothing.
        """


@runtime_checkable
class ChunkSizer(Protocol):
    """Optional, on a fetcher: the size of the pieces in which a segment's object is compressed or encrypted."""

    def chunk_size(self, metadata: RemoteLogSegmentMetadata) -> int | None:
        """The bytes of one piece before the plug-in changed it. A read gets whole pieces.

        None if the object has the segment's bytes as Kafka wrote them. Raises the errors of `fetch_log_segment`.
        """


@runtime_checkable
class ChunkedLayout(Protocol):
    """Optional, on a layout: makes the layout's fetcher a ChunkSizer."""

    def chunk_size(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> int | None:
        """As `ChunkSizer.chunk_size`."""


@runtime_checkable
class ObjectSigner(Protocol):
    """Optional. Signs URLs: a service that has credentials gives them to clients that have none (KIP-1254)."""

    def sign(self, metadata: RemoteLogSegmentMetadata, kinds: Collection[str], expires_s: int) -> Mapping[str, str]:
        """Signed URLs of a segment's objects, by the names of the objects below the root of the storage.

        - `kinds` are `log` and values of IndexType. The objects that the layout needs to read these are signed.
        - A URL permits GET of one object, for at most `expires_s` seconds. The time is shorter if the store or the
          credentials require it.
        - Only names for which `remote_fetch.formats.object_names.belongs_to` is true are signed.
        - A signed object may not exist. Signing sends no request for it.

        URLs are secrets. Raises ConfigError if this storage or these credentials cannot sign, UnsupportedFormat if the
        segment's objects have no names that may be signed, and the errors of `fetch_log_segment`.
        """


@runtime_checkable
class LocationSource(Protocol):
    """Gives a LocationTaker the URLs of segments' objects. Called from several threads."""

    def layout(self) -> tuple[str, Mapping[str, str]]:
        """The name of the layout that wrote the segments, and its options without `remote.storage.layout.`.

        Raises the errors of `RemoteStorageFetcher.fetch_log_segment`, and ConfigError.
        """

    def locations(self, metadata: RemoteLogSegmentMetadata, *, refused: bool) -> Mapping[str, str]:
        """A URL for each object of a segment, by the names of the objects below the root of the storage.

        `refused` is True if the URLs of the last answer were refused or have expired. The source then gives new URLs.
        Raises the errors of `layout`, and SegmentNotFound if the source does not know the segment.
        """


@runtime_checkable
class LocationTaker(Protocol):
    """Optional protocol of a fetcher. It reads the URLs that a LocationSource gives."""

    def take_locations(self, source: LocationSource) -> None:
        """Take the source. Called once before the first read, before or after `configure`."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing: its name below the store's root, and its size."""

    name: str
    size_bytes: int


class ObjectStore(Protocol):
    """Reads and lists objects for a layout. Names are relative to the configured URL, with `/` between folders."""

    def get(self, name: str, start: int = 0, end: int = -1) -> Buffer:
        """The bytes [start, end) of an object. -1 stands for its end.

        The result is shorter if the object ends before `end`, and empty if `start` is at its end or past it. Raises
        SegmentNotFound if there is no such object, and the other errors of a fetcher. An index is missing only if the
        error's `is_absent` is True.
        """

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object below the folder `prefix`, which has no `/` at its end ("": all objects). May be empty."""

    def folders(self, prefix: str = "") -> Iterator[str]:
        """The names of the folders directly below `prefix`, without their parents. May be empty."""


@runtime_checkable
class UrlStore(Protocol):
    """Optional protocol of an object store. It reads URLs that hold their own permission (presigned URLs)."""

    def get_url(self, url: str, start: int = 0, end: int = -1) -> Buffer:
        """As `ObjectStore.get`, for a whole URL. No message and no cause of an error has the URL's query."""


@runtime_checkable
class SizedUrlStore(Protocol):
    """Optional, beside UrlStore: the sizes of what such URLs name."""

    def url_size(self, url: str) -> int | None:
        """As `SizedStore.size`, of a whole URL, which may be signed for GET alone."""


@runtime_checkable
class SizedStore(Protocol):
    """Optional, on an object store: the sizes of objects, without their bytes."""

    def size(self, name: str) -> int | None:
        """The size of an object in bytes, None if the store does not tell it. Raises as `ObjectStore.get`."""


class Layout(Protocol):
    """How one storage plug-in keeps a segment and its indexes in objects. Called from several threads."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Take the configuration, once. Raises ConfigError."""

    def read_segment(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> Buffer:
        """As `RemoteStorageFetcher.fetch_log_segment`."""

    def read_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> Buffer | None:
        """As `RemoteStorageFetcher.fetch_index`."""

    def list_segments(self, store: ObjectStore, topic: str | None) -> Iterator[RemoteLogSegmentMetadata]:
        """As `SegmentLister.list_segments`."""


@runtime_checkable
class PartitionLayout(Protocol):
    """Optional protocol of a layout. It lists the segments of one partition without listing the whole topic.

    The fetcher over such a layout uses it for `PartitionLister`.
    """

    def list_partitions(self, store: ObjectStore, topic: str | None) -> Iterable[TopicIdPartition] | None:
        """As `PartitionLister.list_partitions`."""

    def list_partition(self, store: ObjectStore, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """As `PartitionLister.list_partition`."""


@runtime_checkable
class RootedLayout(Protocol):
    """Optional, on a layout: what lets a segment's metadata choose its root (KIP-917), among `remote.storage.roots`.

    A layout without it is refused beside that key.
    """

    def take_roots(self, roots: Mapping[str, ObjectStore]) -> None:
        """Take the stores below the further roots, by the URL of each root.

        Called after `configure`, and again with other stores after credentials were renewed.
        """


@runtime_checkable
class SizedLayout(Protocol):
    """Optional, on a layout: what lets its fetcher be a SegmentSizer."""

    def segment_size(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> int | None:
        """As `SegmentSizer.size`."""


@runtime_checkable
class LevelFinder(Protocol):
    """Optional protocol of a layout. It finds the folder that the URL should name, for the hint of a survey."""

    def levels_below(self, store: ObjectStore, folder: str = "") -> int | None:
        """How many levels `folder` lies below the folder that the URL has to name. 0: it is that folder.

        None if no name of this layout is in `folder`. Looks at a few names only. Raises the errors of
        `ObjectStore.list`.
        """


@runtime_checkable
class ObjectNamer(Protocol):
    """Optional protocol of a layout. It makes the layout's fetcher an ObjectSigner."""

    def object_names(self, metadata: RemoteLogSegmentMetadata, store: ObjectStore | None = None) -> Mapping[str, str]:
        """The names of a segment's objects below the root of the storage, by kind.

        - A kind is `log` or a value of IndexType. Several kinds may share an object.
        - Further kinds belong to the layout (`manifest`). Their objects are needed to read any other kind.
        - A kind that this storage does not keep is missing. A named object may not exist.
        - With `store`, the layout can look once for the folder of its objects. Without it, the usual folder is assumed.

        Reads no object. Raises ConfigError if the layout's options give no name for which
        `remote_fetch.formats.object_names.belongs_to` is true, and UnsupportedFormat if this segment has no such name.
        """


class BrokerStorage(NamedTuple):
    """A broker's properties as a layout reads them: keys of this package, and settings without a counterpart.

    `unmapped` has a line for each setting that a reader needs and that has no counterpart here. The line has its name
    and what to do instead, but not its value.
    """

    configs: Mapping[str, str]
    unmapped: tuple[str, ...] = ()


@runtime_checkable
class BrokerStorageReader(Protocol):
    """Optional protocol of a layout class. It converts the file of `remote.storage.broker.properties`.

    `storage_managers` are the values of `remote.log.storage.manager.class.name` that the layout can read.
    """

    storage_managers: frozenset[str]

    def from_broker_properties(self, properties: Mapping[str, str]) -> BrokerStorage:
        """Convert the properties that the broker hands to its storage manager into keys of this package.

        `properties` has the manager's own names, without the broker's prefix (`rsm.config.`). The method needs no
        `configure`. Raises ConfigError, and UnsupportedFormat if objects with these settings cannot be read at all.
        """
