"""The protocols of a plug-in: KIP-1254's RemoteStorageFetcher in Python, with the long positions of KIP-1333.

Rules of the file: protocols only, nothing to inherit from. A fetcher needs this page, `remote_fetch.model` and
`remote_fetch.errors`, and nothing else of the package. It is found by name through the entry-point group
`remote_fetch.fetchers`, or named as `package.module:Class`. The built-in fetchers are a *layout* (how a plug-in names
and stores what Kafka gave it) over an *object store* (ranged reads and listings); either can be written alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentMetadata, Survey, TopicIdPartition

__all__ = [
    "BrokerStorage",
    "BrokerStorageReader",
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

    Called from several threads at once. Positions are those of the segment as Kafka wrote it, whatever the store did
    to it (chunks, compression, encryption). Raises only `remote_fetch.errors`: what the store's SDK throws is mapped
    at this border.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        """Take the configuration, once, before anything else.

        `configs` holds this package's keys (`remote.storage.url`, `remote.storage.options.*`, both timeouts in
        milliseconds), all as strings. The fetcher sets both timeouts in its SDK. Raises ConfigError.
        """

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> Buffer:
        """The bytes [start_position, end_position) of the segment; -1 is its end.

        Shorter than asked only at the end of the segment; empty when `start_position` is at or past it. The reader
        never asks for more than `fetch.remote.range.bytes` at once; -1 is for small objects.
        Raises SegmentNotFound, StorageDenied, StorageTimeout, StorageThrottled, StorageUnavailable, CorruptSegment.
        """

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        """One whole index of the segment, or None where it provably does not exist.

        A refusal is never "does not exist". Raises as `fetch_log_segment` does.
        """

    def close(self) -> None:
        """Release connections. Later calls raise."""


@runtime_checkable
class SegmentLister(Protocol):
    """Optional: what makes a bucket readable without any broker."""

    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """Every segment whose objects are in the store, of one topic name or of all, in no particular order.

        Fields that the objects' names cannot tell are left unknown: `end_offset` is then -1, and `txn_index_empty` is
        True only if the listing shows that there is no transaction index.
        """


@runtime_checkable
class PartitionLister(Protocol):
    """Optional, beside SegmentLister: what keeps a listing small, where less than a whole topic is wanted."""

    def list_partitions(self, topic: str | None = None) -> Iterable[TopicIdPartition] | None:
        """The partitions that names of folders tell, of one topic name or of all, each once, as they are found.

        None where partitions are known only by the names of their segments. A partition may turn out to have none.
        """

    def list_partition(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """As `SegmentLister.list_segments`, of one partition."""


@runtime_checkable
class StorageSurveyor(Protocol):
    """Optional: what tells a wrong URL, or a wrong layout, from a topic that is not there."""

    def survey(self) -> Survey:
        """Look around, by a few listings. Asked when nothing was found. Raises as `list_segments` does."""


@runtime_checkable
class CredentialRefresher(Protocol):
    """Optional: what makes a long read outlive its credentials."""

    def refresh_credentials(self) -> None:
        """Look for credentials again, where they came from. Called after a StorageDenied, now and then, while other
        calls are under way; the refused call is then made once more. Raises as `configure` does.
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
class ObjectSigner(Protocol):
    """Optional: what lets a service with credentials vend access to clients without any (KIP-1254)."""

    def sign(self, metadata: RemoteLogSegmentMetadata, kinds: Collection[str], expires_s: int) -> Mapping[str, str]:
        """Signed URLs of a segment's objects, by the names of the objects below the root of the storage.

        - `kinds` are `log` and values of IndexType. The objects that the layout needs to read these are signed.
        - A URL permits GET of one object, for at most `expires_s` seconds: less if the store or the life of the
          credentials bounds it.
        - Only names that `remote_fetch.formats.object_names.belongs_to` holds for are signed.
        - An object that is signed need not exist. No request asks for it.

        URLs are secrets. Raises ConfigError if this storage or these credentials cannot sign, UnsupportedFormat if the
        segment's objects have no names that may be signed, and the errors of `fetch_log_segment`.
        """


@runtime_checkable
class LocationSource(Protocol):
    """Handed to a LocationTaker: answers where the objects of segments are. Called from several threads."""

    def layout(self) -> tuple[str, Mapping[str, str]]:
        """The name of the layout that wrote the segments, and its options without `remote.storage.layout.`.

        Raises the errors of `RemoteStorageFetcher.fetch_log_segment`, and ConfigError.
        """

    def locations(self, metadata: RemoteLogSegmentMetadata, *, refused: bool) -> Mapping[str, str]:
        """A URL for each object of a segment, by the names of the objects below the root of the storage.

        `refused` is True if the URLs of the last answer were refused or have expired: the answer is then a new one.
        Raises as `layout`; SegmentNotFound if the source does not know the segment.
        """


@runtime_checkable
class LocationTaker(Protocol):
    """Optional, on a fetcher: what reads URLs that a LocationSource gives."""

    def take_locations(self, source: LocationSource) -> None:
        """Take the source, once, before the first read. Before or after `configure`."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing: its name below the store's root, and its size."""

    name: str
    size_bytes: int


class ObjectStore(Protocol):
    """The medium under a layout: names are relative to the configured URL and use `/`."""

    def get(self, name: str, start: int = 0, end: int = -1) -> Buffer:
        """Bytes [start, end) of an object, -1 its end; fewer where it ends sooner, none at or past its end.

        Raises SegmentNotFound where there is no such object, and the other errors of a fetcher.
        """

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object below `prefix`, a folder name without the closing `/` ("": everything). May be empty."""

    def folders(self, prefix: str = "") -> Iterator[str]:
        """The last name of every folder right below `prefix`. May be empty."""


@runtime_checkable
class UrlStore(Protocol):
    """Optional, on an object store: what reads a URL that carries its own permission (a presigned one)."""

    def get_url(self, url: str, start: int = 0, end: int = -1) -> Buffer:
        """As `ObjectStore.get`, of a whole URL. Its query is in no message and no cause."""


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
    """Optional, on a layout: what lets its fetcher be a PartitionLister."""

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
    """Optional, on a layout: what lets its fetcher tell which folder the URL should have named."""

    def levels_below(self, store: ObjectStore, folder: str = "") -> int | None:
        """How many levels `folder` lies below the one that the URL has to name: 0 if it is that one.

        None where no name of this layout is seen in it. Looks at a few names only. Raises as `ObjectStore.list`.
        """


@runtime_checkable
class ObjectNamer(Protocol):
    """Optional, on a layout: what lets its fetcher be an ObjectSigner."""

    def object_names(self, metadata: RemoteLogSegmentMetadata, store: ObjectStore | None = None) -> Mapping[str, str]:
        """The names of a segment's objects below the root of the storage, by kind.

        - A kind is `log` or a value of IndexType. Several kinds may share an object.
        - Other kinds are the layout's own (`manifest`). Their objects are needed to read any other kind.
        - A kind that this storage does not keep is missing. An object that is named need not exist.
        - `store` lets the layout look once where its objects begin. Without it the layout assumes the usual place.

        Reads no object. Raises ConfigError if the layout's options give no name that
        `remote_fetch.formats.object_names.belongs_to` holds for, UnsupportedFormat if this segment has none.
        """


class BrokerStorage(NamedTuple):
    """A broker's properties in a layout's view: keys of this package, and settings that have no counterpart.

    `unmapped` has a line for each setting that changes what a reader needs and has no counterpart here: its name, and
    what to do instead, without its value.
    """

    configs: Mapping[str, str]
    unmapped: tuple[str, ...] = ()


@runtime_checkable
class BrokerStorageReader(Protocol):
    """Optional, on a layout's class: what lets `remote.storage.broker.properties` name a broker's own file.

    `storage_managers` are the classes that brokers name in `remote.log.storage.manager.class.name`.
    """

    storage_managers: frozenset[str]

    def from_broker_properties(self, properties: Mapping[str, str]) -> BrokerStorage:
        """The keys of this package for what the broker hands to its storage manager.

        `properties` has the manager's own names, without the broker's prefix (`rsm.config.`). Needs no `configure`.
        Raises ConfigError, and UnsupportedFormat for what cannot be read at all.
        """
