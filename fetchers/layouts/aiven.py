"""The layout of Aiven's tiered-storage plug-in (`segment.format=kafka`): chunks, compressed and encrypted or not.

    <key.prefix><topic>-<topic id>/<partition>/<start offset, 20 digits>-<segment id>{.log,.indexes,.rsm-manifest}

Rules of the file:

- One GET fetches all chunks that a range touches.
- Sizes are checked against a limit before memory is allocated.
- The key prefix is joined to the name without a slash, as in the plug-in.
- Only a segment with a manifest is listed, because the plug-in writes the manifest last.
- The manifests of a listing are asked for again after a failure that may pass. Those of a read are the reader's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from fetchers._retries import asked_again
from fetchers.layouts.aiven_backends import from_aiven_properties
from fetchers.layouts.aiven_cache import Known, ManifestCache
from fetchers.layouts.aiven_chunks import bytes_of_chunks
from fetchers.layouts.aiven_keys import KEY_FILE_OPTION, Cipher, KeyRing, key_files
from fetchers.layouts.aiven_manifest import ByteRange, Manifest, parse_manifest
from fetchers.layouts.aiven_names import (
    MANIFEST_SUFFIX,
    custom_names,
    custom_size,
    levels_below,
    main_of,
    partitions_named,
    segment_of,
    segments_named,
)
from fetchers.layouts.naming import checked_names, get_whole
from fetchers.layouts.options import layout_options
from remote_fetch.errors import (
    ConfigError,
    CorruptSegment,
    DecompressionLimit,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageUnavailable,
    UnsupportedFormat,
)
from remote_fetch.fetch.inventory import ExpectedObject
from remote_fetch.fetch.spi import BrokerStorage, ObjectStore, SizedStore
from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition

__all__ = ["AivenLayout"]

_LOG, _INDEXES, _MANIFEST = ".log", ".indexes", MANIFEST_SUFFIX
_MAX_MANIFEST_BYTES = 8 << 20
"""Some five bytes a chunk in base64: enough for the most chunks that are believed."""
_DEFAULT_MAX_CHUNK_BYTES = 256 << 20
_LISTING_THREADS = 8
_LISTED_AT_ONCE = 32
_PROBED_OBJECTS = 2_000
"""How many names are looked at to tell a warehouse of Iceberg tables from a segment that is gone."""


class _Opened(NamedTuple):
    """A segment whose manifest is known: the names of its objects, and the cipher if it is encrypted.

    `name` is the manifest's own, without its suffix.
    """

    name: str
    log: str
    indexes: str
    manifest: Manifest
    cipher: Cipher | None


class AivenLayout:
    """The layout `aiven`. Its options are the plug-in's own `key.prefix` and `...<id>.private.key.file`."""

    storage_managers = frozenset({"io.aiven.kafka.tieredstorage.RemoteStorageManager"})

    def __init__(self) -> None:
        self._prefix = ""
        self._keys = KeyRing({})
        self._max_chunk_bytes = _DEFAULT_MAX_CHUNK_BYTES
        self._cache = ManifestCache()
        self._is_iceberg: bool | None = None

    def configure(self, configs: Mapping[str, str]) -> None:
        """As `Layout.configure`. Raises ConfigError, MissingExtra for keys without the libraries that use them."""
        options = layout_options(configs)
        files = key_files(options)
        known = {"key.prefix", *(KEY_FILE_OPTION.format(key_pair_id) for key_pair_id in files)}
        options.refuse_unknown(known, layout="aiven", also=[KEY_FILE_OPTION.format("<id>")])
        self._prefix = options.get("key.prefix", "")
        self._keys = KeyRing(files)
        limit = configs.get("fetch.remote.max.decompressed.bytes")
        self._max_chunk_bytes = _DEFAULT_MAX_CHUNK_BYTES if limit is None else int(limit)

    def from_broker_properties(self, properties: Mapping[str, str]) -> BrokerStorage:
        """As `BrokerStorageReader.from_broker_properties`."""
        return from_aiven_properties(properties)

    def read_segment(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> Buffer:
        """As `Layout.read_segment`: the chunks that hold the range, by one GET. Raises DecompressionLimit too."""
        opened = self._open(store, metadata)
        chunks = opened.manifest.chunks
        stop = chunks.segment_bytes if end < 0 else min(end, chunks.segment_bytes)
        try:
            if start >= stop:
                if start == chunks.segment_bytes and not 0 <= end <= start:
                    _stored(store, opened.log, ByteRange(chunks.stored_bytes, chunks.stored_bytes), chunks.stored_bytes)
                return b""
            if opened.manifest.is_plain:
                return _stored(store, opened.log, ByteRange(start, stop), chunks.stored_bytes)
            if chunks.original_bytes(0) > self._max_chunk_bytes:
                raise DecompressionLimit(
                    f"chunks of {chunks.original_bytes(0)} bytes, {self._max_chunk_bytes} are allowed",
                    hint="Raise fetch.remote.max.decompressed.bytes",
                )
            return self._read_chunks(store, opened, start, stop)
        except RemoteFetchError as error:
            self._doubt(opened, error)
            raise error.at(object_name=opened.log) from error.__cause__

    def _read_chunks(self, store: ObjectStore, opened: _Opened, start: int, stop: int) -> Buffer:
        chunks = opened.manifest.chunks
        first, last = start // chunks.chunk_bytes, (stop - 1) // chunks.chunk_bytes
        wanted = ByteRange(chunks.stored_range(first).start, chunks.stored_range(last).end)
        stored = _stored(store, opened.log, wanted, chunks.stored_bytes)
        return bytes_of_chunks(stored, opened.manifest, opened.cipher, range(first, last + 1), ByteRange(start, stop))

    def read_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> Buffer | None:
        """As `Layout.read_index`: part of one object, never compressed; None if the manifest says there is none."""
        opened = self._open(store, metadata)
        place = opened.manifest.indexes[index_type]
        if place is None or place.start == place.end:
            return None if place is None else b""
        try:
            data = _stored(store, opened.indexes, place, opened.manifest.indexes_bytes)
            return data if opened.cipher is None else opened.cipher.decrypt(data)
        except RemoteFetchError as error:
            self._doubt(opened, error)
            raise error.at(object_name=opened.indexes) from error.__cause__

    def _doubt(self, opened: _Opened, error: RemoteFetchError) -> None:
        """Forget a manifest that does not fit the bytes: it may have been damaged on its way."""
        if isinstance(error, CorruptSegment | DecompressionLimit):
            self._cache.forget(opened.name)

    def segment_size(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> int | None:
        """As `SizedLayout.segment_size`: the manifest's `originalFileSize`."""
        return self._open(store, metadata).manifest.chunks.segment_bytes

    def chunk_size(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> int | None:
        """As `ChunkedLayout.chunk_size`: the manifest's `originalChunkSize`."""
        manifest = self._open(store, metadata).manifest
        return None if manifest.is_plain else manifest.chunks.chunk_bytes

    def stored_size(self, metadata: RemoteLogSegmentMetadata) -> int | None:
        """As `StoredSizer.stored_size`: log, indexes and manifest, if the plug-in is configured to say so."""
        return custom_size(metadata.custom_metadata)

    # ------------------------------------------------------------------------------------------------ where things are

    def _open(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> _Opened:
        """Find a segment's objects. The manifest is looked for where the plug-in does, then where it was written."""
        configured, written = self._names(metadata)
        names = list(dict.fromkeys((configured, written)))
        for name in names:
            try:
                known = self._manifest(store, name)
            except SegmentNotFound as error:
                missing = error
                continue
            self._is_iceberg = False
            try:
                cipher = self._cipher(name, known)
            except StorageDenied:
                before, known = known, self._manifest(store, name)
                if known.manifest.encryption == before.manifest.encryption:  # not damaged on its way
                    raise
                cipher = self._cipher(name, known)
            return _Opened(name, written + _LOG, written + _INDEXES, known.manifest, cipher)
        if self._is_iceberg is None:
            self._is_iceberg = isinstance(self._what_is_there(store), UnsupportedFormat)
        if self._is_iceberg:
            raise _no_segments().at(object_name=names[0] + _MANIFEST)
        raise missing

    def object_names(self, metadata: RemoteLogSegmentMetadata, store: ObjectStore | None = None) -> Mapping[str, str]:
        """As `ObjectNamer.object_names`: the log, the indexes in one object, and the manifest.

        The manifest has two names if custom metadata gives another prefix or key: `_open` looks under both.
        """
        configured, written = self._names(metadata)
        names = {"log": written + _LOG, **dict.fromkeys((kind.value for kind in IndexType), written + _INDEXES)}
        names["manifest"] = configured + _MANIFEST
        if written != configured:
            names["written-manifest"] = written + _MANIFEST
        return checked_names(names, metadata)

    def expected_objects(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> Sequence[ExpectedObject]:
        """As `InventoryLayout.expected_objects`: log, indexes and manifest. The manifest alone tells their sizes."""
        _, written = self._names(metadata)
        return [
            ExpectedObject(written + _LOG, ("log",)),
            ExpectedObject(written + _INDEXES, tuple(kind.value for kind in IndexType)),
            ExpectedObject(written + _MANIFEST, ("manifest",)),
        ]

    def segment_of(self, name: str) -> RemoteLogSegmentId | None:
        """As `InventoryLayout.segment_of`."""
        return segment_of(name, self._prefix, (_LOG, _INDEXES, _MANIFEST))

    def _names(self, metadata: RemoteLogSegmentMetadata) -> tuple[str, str]:
        """The name that the options give a segment's objects, without suffix, and the name they were written under."""
        main = main_of(metadata)
        prefix, key = custom_names(metadata.custom_metadata)
        written = (self._prefix if prefix is None else prefix) + (main if key is None else key)
        return self._prefix + main, written

    def _cipher(self, name: str, known: Known) -> Cipher | None:
        if known.cipher is None and known.manifest.encryption is not None:
            try:
                known.cipher = self._keys.open(known.manifest.encryption)
            except RemoteFetchError as error:
                self._cache.forget(name)  # it may have been damaged on its way
                raise error.at(object_name=name + _MANIFEST) from None
        return known.cipher

    def _manifest(self, store: ObjectStore, name: str) -> Known:
        with self._cache.turn(name):
            known = self._cache.get(name)
            if known is not None:
                return known
            try:
                data = get_whole(lambda: store.get(name + _MANIFEST, 0, _MAX_MANIFEST_BYTES + 1))
                if memoryview(data).nbytes > _MAX_MANIFEST_BYTES:
                    raise CorruptSegment(f"a manifest of more than {_MAX_MANIFEST_BYTES} bytes")
                known = Known(parse_manifest(data))
            except RemoteFetchError as error:
                raise error.at(object_name=name + _MANIFEST) from error.__cause__
            self._cache.put(name, known)
            return known

    def _what_is_there(self, store: ObjectStore) -> RemoteFetchError | None:
        """The error that explains why no segment was found: Iceberg tables, or another key prefix.

        None if the first object names do not show a cause.
        """
        try:
            for info in islice(store.list(), _PROBED_OBJECTS):
                if info.name.endswith(".puffin") and "/metadata/" in f"/{info.name}":
                    return _no_segments()
                if not info.name.endswith(_MANIFEST):
                    continue
                name = info.name.removesuffix(_MANIFEST)
                described = self._manifest(store, name).manifest.described
                if described is not None and name.endswith(main_of(described)):
                    return _other_prefix(name.removesuffix(main_of(described)))
        except RemoteFetchError:  # no listing, no permission: then nothing more is known
            pass
        return None

    # --------------------------------------------------------------------------------------------------------- listing

    def list_segments(self, store: ObjectStore, topic: str | None) -> Iterator[RemoteLogSegmentMetadata]:
        """As `Layout.list_segments`. Manifests are read too: they know ends, sizes, leader epochs and times.

        If a manifest cannot be read, its segment is listed by the object's name: reading the segment raises the error.
        Raises ConfigError if the names show another key prefix, and UnsupportedFormat for Iceberg tables.
        """
        found = False
        for segment in self._listed(store, partitions_named(store, self._prefix, topic)):
            found = True
            yield segment
        if not found and topic is None:
            self._refuse(store)

    def list_partitions(self, store: ObjectStore, topic: str | None) -> Iterator[TopicIdPartition]:
        """As `PartitionLayout.list_partitions`. Raises the errors of `list_segments`.

        Makes one listing for the folders of topics, and one more for each topic.
        """
        partition = None
        for partition, _ in partitions_named(store, self._prefix, topic):
            yield partition
        if partition is None and topic is None:
            self._refuse(store)

    def list_partition(self, store: ObjectStore, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """As `PartitionLayout.list_partition`."""
        folder = f"{self._prefix}{partition.topic}-{partition.topic_id}/{partition.partition}"
        return self._listed(store, [(partition, folder)])

    def levels_below(self, store: ObjectStore, folder: str = "") -> int | None:
        """As `LevelFinder.levels_below`: folders of topics with numbers in them; or a topic's, or a partition's."""
        return levels_below(store, self._prefix, folder)

    def _refuse(self, store: ObjectStore) -> None:
        """Raise an error with the cause if no segment was found and the first object names show the cause."""
        reason = self._what_is_there(store)
        if reason is not None:
            raise reason

    def _listed(
        self, store: ObjectStore, partitions: Iterable[tuple[TopicIdPartition, str]]
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """The segments of these partitions, each with what its manifest says."""
        named = (one for partition, path in partitions for one in segments_named(store, partition, path))
        with ThreadPoolExecutor(_LISTING_THREADS, "aiven-manifests") as pool:
            while some := list(islice(named, _LISTED_AT_ONCE)):
                yield from filter(None, pool.map(lambda one: self._described(store, *one), some))

    def _described(
        self, store: ObjectStore, name: str, segment: RemoteLogSegmentMetadata
    ) -> RemoteLogSegmentMetadata | None:
        try:
            manifest = asked_again(lambda: self._manifest(store, name)).manifest
        except SegmentNotFound as error:
            return None if error.is_absent else segment  # None: deleted since it was listed
        except (CorruptSegment, UnsupportedFormat):
            return segment
        if manifest.described is not None:
            main = main_of(manifest.described)
            if main == main_of(segment):
                return manifest.described
            if name.endswith(main):  # another topic's segment: the name has another key prefix than the configured one
                return None
        return replace(
            segment,
            segment_size_in_bytes=manifest.chunks.segment_bytes,
            txn_index_empty=manifest.indexes[IndexType.TRANSACTION] is None,
        )


def _no_segments() -> UnsupportedFormat:
    return UnsupportedFormat(
        "the tier holds Iceberg tables and no segments (segment.format=iceberg)",
        hint="Read the topic's Iceberg table instead, or through a broker",
    )


def _other_prefix(prefix: str) -> ConfigError:
    key = "remote.storage.layout.key.prefix"
    text = f"the segments below remote.storage.url have another key prefix: set {key}={prefix}"
    return ConfigError(text, key=key, better=prefix)


def _stored(store: ObjectStore, name: str, wanted: ByteRange, object_bytes: int) -> memoryview:
    """Bytes of an object. At its end by the manifest a byte more is asked for, which must not be there.

    Alibaba's OSS answers such a range with the whole object, which is no answer. Then the object's size is asked for.
    """
    if wanted.end < object_bytes:
        return _whole(store.get(name, *wanted), wanted)
    try:
        found = memoryview(store.get(name, wanted.start, wanted.end + 1))
    except StorageUnavailable:
        if not isinstance(store, SizedStore) or store.size(name) != object_bytes:
            raise
        found = memoryview(store.get(name, *wanted))
    if found.nbytes > wanted.end - wanted.start:
        raise CorruptSegment(f"the object goes on behind byte {object_bytes}, where its manifest ends it")
    return _whole(found, wanted)


def _whole(data: Buffer, wanted: ByteRange) -> memoryview:
    """The fetched bytes. Raises CorruptSegment if some of the wanted ones are missing."""
    view = memoryview(data)
    if view.nbytes != wanted.end - wanted.start:
        end = wanted.start + view.nbytes
        raise CorruptSegment(f"the object ends at byte {end}, before byte {wanted.end} that its manifest knows")
    return view
