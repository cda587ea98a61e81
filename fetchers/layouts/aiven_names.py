"""The names of folders and objects in a tier of Aiven's plug-in, and the custom metadata, which may give other names.

    <key.prefix><topic>-<topic id>/<partition>/<start offset, 20 digits>-<segment id>{.log,.indexes,.rsm-manifest}

Rules of the file:

- A name that the plug-in does not write is skipped.
- No object is read.

Sources: the plug-in's ObjectKeyFactory (names) and SegmentCustomMetadataField with KIP-917 (custom metadata).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from fetchers.layouts import naming
from remote_fetch.errors import CorruptSegment
from remote_fetch.fetch.spi import ObjectStore
from remote_fetch.formats.tagged_fields import read_compact_string, read_tagged_fields, read_varlong
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid

__all__ = [
    "MANIFEST_SUFFIX",
    "custom_names",
    "custom_size",
    "levels_below",
    "main_of",
    "partitions_named",
    "segment_of",
    "segments_named",
]

MANIFEST_SUFFIX = ".rsm-manifest"

_REMOTE_SIZE_TAG, _OBJECT_PREFIX_TAG, _OBJECT_KEY_TAG = 0, 1, 2
"""The fields of the custom metadata."""

_TOPIC = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<id>[A-Za-z0-9_-]{22})")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_STEM = re.compile(r"(?P<offset>[0-9]{20})-(?P<id>[A-Za-z0-9_-]{22})")
_PROBED_FOLDERS = 8
"""How many folders are looked into to know one of this layout."""
_PROBED_OBJECTS = 100


def main_of(metadata: RemoteLogSegmentMetadata) -> str:
    """The name of a segment's objects, without key prefix and suffix."""
    partition = metadata.topic_id_partition
    folder = f"{partition.topic}-{partition.topic_id}/{partition.partition}"
    return f"{folder}/{metadata.object_stem}"


def partitions_named(store: ObjectStore, prefix: str, topic: str | None) -> Iterator[tuple[TopicIdPartition, str]]:
    """The partitions that folders name, each with the path of its folder."""
    folder, _, start = prefix.rpartition("/")
    for topic_folder in store.folders(folder):
        named = _topic_of(topic_folder, start)
        if named is None or topic not in (None, named[0]):
            continue
        path = f"{folder}/{topic_folder}" if folder else topic_folder
        for number in store.folders(path):
            partition = _partition_of(named, number)
            if partition is not None:
                yield partition, f"{path}/{number}"


def segments_named(
    store: ObjectStore, partition: TopicIdPartition, path: str
) -> Iterator[tuple[str, RemoteLogSegmentMetadata]]:
    """The name of each segment's objects, without their suffix, and what it tells of the segment."""
    for info in store.list(path):
        stem = info.name.removesuffix(MANIFEST_SUFFIX)
        segment = _segment_of(partition, stem.removeprefix(f"{path}/"))
        if stem != info.name and segment is not None:
            yield stem, segment


def segment_of(name: str, prefix: str, suffixes: tuple[str, ...]) -> RemoteLogSegmentId | None:
    """The segment that an object belongs to, by the last three parts of its name and one of `suffixes`.

    Of the key prefix only the part counts that is not a folder.
    """
    parts = name.rsplit("/", 2)
    suffix = next((suffix for suffix in suffixes if name.endswith(suffix)), None)
    if suffix is None:
        return None
    named = _topic_of(parts[0].rpartition("/")[2], prefix.rpartition("/")[2])
    partition = None if named is None else _partition_of(named, parts[1])
    segment = None if partition is None else _segment_of(partition, parts[2].removesuffix(suffix))
    return None if segment is None else segment.segment_id


def levels_below(store: ObjectStore, prefix: str, folder: str) -> int | None:
    """As `LevelFinder.levels_below`: folders of topics with numbers in them; or a topic's, or a partition's.

    `prefix` is the key prefix.
    """
    start = f"{folder}/" if folder else ""
    above, _, name_start = f"{start}{prefix}".rpartition("/")
    topics = (folder for folder in store.folders(above) if _topic_of(folder, name_start) is not None)
    for topic in islice(topics, _PROBED_FOLDERS):
        if any(map(_NUMBER.fullmatch, store.folders(f"{above}/{topic}" if above else topic))):
            return 0
    names = list(islice(store.folders(folder), _PROBED_FOLDERS))
    if names and not all(map(_NUMBER.fullmatch, names)):
        return None
    # In a partition's folder the objects themselves, in a topic's those of its first partition.
    inner = f"{start}{names[0]}" if names else folder
    stems = (
        info.name.removesuffix(MANIFEST_SUFFIX).rpartition("/")[2]
        for info in islice(store.list(inner), _PROBED_OBJECTS)
    )
    return (1 if names else 2) if any(map(_STEM.fullmatch, stems)) else None


def _topic_of(folder: str, start: str) -> tuple[str, Uuid] | None:
    """The topic that a folder names after `start`, None for folders that the plug-in does not make."""
    match = _TOPIC.fullmatch(folder.removeprefix(start)) if folder.startswith(start) else None
    topic_id = None if match is None else naming.uuid_of(match["id"])
    return None if match is None or topic_id is None else (match["topic"], topic_id)


def _partition_of(topic: tuple[str, Uuid], number: str) -> TopicIdPartition | None:
    """The partition that two folders name, None for folders that the plug-in does not make."""
    return naming.partition_of(topic[1], topic[0], number) if _NUMBER.fullmatch(number) else None


def _segment_of(partition: TopicIdPartition, stem: str) -> RemoteLogSegmentMetadata | None:
    match = _STEM.fullmatch(stem)
    return None if match is None else naming.segment_of(partition, naming.uuid_of(match["id"]), match["offset"])


def custom_names(custom_metadata: bytes | None) -> tuple[str | None, str | None]:
    """The key prefix and the name of a segment's objects. None if the metadata has none. Raises CorruptSegment."""
    if not custom_metadata:
        return None, None
    fields, _ = read_tagged_fields(custom_metadata, 0)
    prefix, key = (
        None if tag not in fields else read_compact_string(fields[tag], 0)[0]
        for tag in (_OBJECT_PREFIX_TAG, _OBJECT_KEY_TAG)
    )
    if ".." in f"{prefix}{key}".split("/"):
        raise CorruptSegment("the custom metadata names an object outside the store")
    return prefix, key


def custom_size(custom_metadata: bytes | None) -> int | None:
    """The size in bytes of a segment's objects together. None if the metadata does not tell it."""
    try:
        fields, _ = read_tagged_fields(custom_metadata or b"\0", 0)
        size_bytes = read_varlong(fields[_REMOTE_SIZE_TAG], 0)[0] if _REMOTE_SIZE_TAG in fields else 0
    except CorruptSegment:
        return None
    return size_bytes if size_bytes > 0 else None
