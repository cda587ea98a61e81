"""The layout of Kafka's own LocalTieredStorage: plain copies of the broker's files, one object each.

    [kafka-tiered-storage/]<topic>-<partition>-<topic id>/<start offset, 20 digits>-<segment id><suffix>

Rules of the file:

- Names are parsed from the right, because a topic's name may have all characters of an id.
- A name that does not look like a segment is skipped.
- A name has only the start offset. The end offset is left unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar
from urllib.parse import urlsplit

from fetchers.layouts.naming import (
    SUFFIXES,
    checked_names,
    expected_files,
    partition_of,
    read_bounded_index,
    segment_of,
    uuid_of,
)
from fetchers.layouts.options import layout_options
from remote_fetch.errors import ConfigError, SegmentNotFound, StorageDenied, Unlocatable
from remote_fetch.fetch.inventory import ExpectedObject
from remote_fetch.fetch.spi import BrokerStorage, ObjectInfo, ObjectStore, SizedStore
from remote_fetch.model import (
    UNKNOWN_SIZE,
    Buffer,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)

__all__ = ["KafkaLocalLayout"]

T = TypeVar("T")

_TREE = "kafka-tiered-storage"
"""The folder that LocalTieredStorage puts below its `dir`."""

_ALWAYS = {SUFFIXES[IndexType.PRODUCER_SNAPSHOT], SUFFIXES[IndexType.LEADER_EPOCH]}
"""Every finished upload has these files. The `.log` comes first, so that an upload without them has not ended."""
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})-(?P<id>[A-Za-z0-9_-]{22})")
_SEGMENT = re.compile(r"(?P<stem>[0-9]{20}-[A-Za-z0-9_-]{22})(?P<suffix>\.[a-z_]+)")

_PROBED_NAMES = 1_000
"""How many names are looked at to know a folder of this layout."""
_PROBED_FOLDERS = 8
"""How many of these folders are looked into."""


class KafkaLocalLayout:
    """The layout `kafka_local`. The URL may name the tier's directory or the `kafka-tiered-storage` folder in it."""

    storage_managers = frozenset({"org.apache.kafka.server.log.remote.storage.LocalTieredStorage"})

    def __init__(self) -> None:
        self._tree: str | None = None  # unknown until it has been seen
        self._is_named = False
        self._cannot_look = False

    def configure(self, configs: Mapping[str, str]) -> None:
        """As `Layout.configure`: the URL may name the tree itself, and then no listing is needed to find it.

        Raises ConfigError for an option of another layout.
        """
        layout_options(configs).refuse_unknown((), layout="kafka_local")
        path = urlsplit(configs.get("remote.storage.url", "")).path
        self._is_named = path.rstrip("/").endswith(f"/{_TREE}")

    def from_broker_properties(self, properties: Mapping[str, str]) -> BrokerStorage:
        """As `BrokerStorageReader.from_broker_properties`. Raises ConfigError."""
        directory = properties.get("dir", "").strip()
        if not directory:
            raise ConfigError("the broker's file does not say which directory its LocalTieredStorage has", key="dir")
        return BrokerStorage({"remote.storage.url": directory, "remote.storage.layout": "kafka_local"})

    def _tree_in(self, store: ObjectStore, *, listed: bool = False) -> str:
        if self._tree is None and (listed or not self._is_named):  # two threads may ask: the answer is the same
            try:
                self._tree = _tree_of(store.folders())
            except (StorageDenied, Unlocatable):  # reading needs no listing: the tree is where brokers put it
                self._cannot_look = True
        return self._likely_tree

    @property
    def _likely_tree(self) -> str:
        """Where the tree was seen, else where brokers put it."""
        if self._tree is None:
            return "" if self._is_named else f"{_TREE}/"
        return self._tree

    def read_segment(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> Buffer:
        """As `Layout.read_segment`: the object is the segment."""
        return self._get(store, metadata, ".log", start, end)

    def read_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> Buffer | None:
        """As `Layout.read_index`: each index is an object, and one that is not there does not exist."""
        suffix = SUFFIXES[index_type]
        data = read_bounded_index(
            lambda start, end: self._get(store, metadata, suffix, start, end), _name(metadata, suffix)
        )
        if self._tree is None:  # its place is a guess, and nothing was found there: this raises if no segment is there
            self._get(store, metadata, ".log", 0, 1)
        return data

    def segment_size(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> int | None:
        """As `SizedLayout.segment_size`: the object is the segment."""
        if not isinstance(store, SizedStore):
            return None
        return self._found(store, lambda tree: store.size(f"{tree}{_name(metadata, '.log')}"))

    def _get(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, suffix: str, start: int, end: int) -> Buffer:
        if 0 <= end <= start:
            return b""
        return self._found(store, lambda tree: store.get(f"{tree}{_name(metadata, suffix)}", start, end))

    def _found(self, store: ObjectStore, ask: Callable[[str], T]) -> T:
        """The answer of the store below the tree. Raises as the store does."""
        tree = self._tree_in(store)
        try:
            answer = ask(tree)
        except SegmentNotFound:  # a broker's directory may be called as the tree in it, as another thread has seen
            if self._tree_in(store, listed=True) == tree:
                raise
            return self._found(store, ask)
        self._tree = tree  # what was found there is there
        return answer

    def object_names(self, metadata: RemoteLogSegmentMetadata, store: ObjectStore | None = None) -> Mapping[str, str]:
        """As `ObjectNamer.object_names`. Lists folders until they show the tree, or until a listing is refused."""
        return checked_names(self._names(metadata, store), metadata)

    def _names(self, metadata: RemoteLogSegmentMetadata, store: ObjectStore | None) -> Mapping[str, str]:
        if store is not None and self._tree is None and not self._cannot_look:
            self._tree_in(store, listed=True)
        stem = f"{self._likely_tree}{_name(metadata, '')}"
        return {kind: stem + suffix for kind, suffix in SUFFIXES.items()}

    def expected_objects(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> Sequence[ExpectedObject]:
        """As `InventoryLayout.expected_objects`: each file is an object. A transaction index may be missing."""
        return expected_files(self._names(metadata, store), metadata)

    def segment_of(self, name: str) -> RemoteLogSegmentId | None:
        """As `InventoryLayout.segment_of`, by the last two parts of the name."""
        folder, _, file = name.rpartition("/")
        match = _SEGMENT.fullmatch(file)
        partition = None if match is None else _partition_of(folder.rpartition("/")[2])
        segment_id = None if match is None else uuid_of(match["stem"][21:])
        if match is None or partition is None or segment_id is None or match["suffix"] not in SUFFIXES.values():
            return None
        return RemoteLogSegmentId(partition, segment_id)

    def list_segments(self, store: ObjectStore, topic: str | None) -> Iterator[RemoteLogSegmentMetadata]:
        """As `Layout.list_segments`: every `.log` object, with its size, and finished uploads whose `.log` is gone."""
        for partition in self.list_partitions(store, topic):
            yield from self.list_partition(store, partition)

    def list_partitions(self, store: ObjectStore, topic: str | None) -> Iterator[TopicIdPartition]:
        """As `PartitionLayout.list_partitions`: one listing of folders."""
        for folder in store.folders(self._tree_in(store, listed=True).rstrip("/")):
            partition = _partition_of(folder)
            if partition is not None and topic in (None, partition.topic):
                yield partition

    def list_partition(self, store: ObjectStore, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """As `PartitionLayout.list_partition`."""
        return _segments(partition, f"{self._tree_in(store, listed=True)}{_folder(partition)}", store)

    def levels_below(self, store: ObjectStore, folder: str = "") -> int | None:
        """As `LevelFinder.levels_below`: the tree, or folders of partitions in it; or the files of a partition."""
        names = list(islice(store.folders(folder), _PROBED_NAMES))
        if _TREE in names:
            return 0
        start = f"{folder}/" if folder else ""
        partitions = (f"{start}{name}" for name in names if _partition_of(name) is not None)
        # Aiven's plug-in gives a topic `orders-0` such a folder too, with a folder for each partition in it.
        if any(_has_files(store, partition) for partition in islice(partitions, _PROBED_FOLDERS)):
            return 0
        return 1 if not names and _has_files(store, folder) else None


def _has_files(store: ObjectStore, folder: str) -> bool:
    """Whether files of segments are among the first objects of a folder."""
    start = f"{folder}/" if folder else ""
    files = islice(store.list(folder), _PROBED_NAMES)
    return any(_SEGMENT.fullmatch(info.name.removeprefix(start)) for info in files)


def _tree_of(folders: Iterable[str]) -> str | None:
    """Where the tree begins, by the names of the first folders: in a folder of its own, or there. None: not seen."""
    found = None
    for folder in folders:
        if folder == _TREE:
            return f"{_TREE}/"
        if found is None and _partition_of(folder) is not None:
            found = ""
    return found


def _name(metadata: RemoteLogSegmentMetadata, suffix: str) -> str:
    """The name of one file of a segment, below the tree."""
    return f"{_folder(metadata.topic_id_partition)}/{metadata.object_stem}{suffix}"


def _folder(partition: TopicIdPartition) -> str:
    """The name of a partition's folder, below the tree."""
    return f"{partition.topic}-{partition.partition}-{partition.topic_id}"


def _segments(partition: TopicIdPartition, folder: str, store: ObjectStore) -> Iterator[RemoteLogSegmentMetadata]:
    found: dict[str, dict[str, ObjectInfo]] = {}
    for info in store.list(folder):
        match = _SEGMENT.fullmatch(info.name.removeprefix(f"{folder}/"))
        if match is not None:
            found.setdefault(match["stem"], {})[match["suffix"]] = info
    # A tree of bare `.log` files was copied by hand. Among finished uploads a bare one is no upload.
    has_finished = any(_ALWAYS & files.keys() for files in found.values())
    for stem, files in found.items():
        if has_finished and not _ALWAYS & files.keys():
            continue
        log = files.get(".log")
        segment = segment_of(partition, uuid_of(stem[21:]), stem[:20], UNKNOWN_SIZE if log is None else log.size_bytes)
        if segment is None:
            continue
        if log is not None:
            yield replace(segment, txn_index_empty=SUFFIXES[IndexType.TRANSACTION] not in files)
        elif _ALWAYS & files.keys():
            yield replace(segment, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)


def _partition_of(folder: str) -> TopicIdPartition | None:
    match = _PARTITION.fullmatch(folder)
    return None if match is None else partition_of(uuid_of(match["id"]), match["topic"], match["partition"])
