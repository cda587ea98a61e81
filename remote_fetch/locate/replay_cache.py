"""Saved replays in a directory or a store, for the next reader of the metadata topic (design note 0026).

Rules of the file:

- There is one file for each metadata partition and topic. All records of a user partition lie in one metadata
  partition, so a file is complete without the others. Readers of different partitions of a topic use different files.
- A file is believed if it is whole, and if it names the cluster, the metadata topic, its partition count, the metadata
  partition and the topic that were asked for. `MetadataTopic` then compares its offset and its age with the topic.
- A damaged or foreign file is ignored and replaced. A place that cannot be used is left alone from then on. Both are
  reported once. No failure of the cache ends a read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from remote_fetch.errors import CorruptSegment, RemoteFetchError
from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.locate.saved_replay import SavedReplay, dump_replay, load_replay
from remote_fetch.locate.snapshot import SnapshotOrigin
from remote_fetch.model import Uuid
from remote_fetch.observe import Notice

__all__ = ["MAX_FILE_BYTES", "FileStore", "ReplayCache", "StoreFailed", "TopicOrigin"]

MAX_FILE_BYTES = 1 << 27
"""The largest file that is read. A larger one counts as damaged."""
_ALL_TOPICS = "all"
_CLUSTER_ID_CHARACTERS = 100


class StoreFailed(Exception):
    """A place for saved replays cannot be read or written. The text says why and holds no secret."""


class FileStore(Protocol):
    """Keeps files by name. A name has one slash. Every call has a deadline of its own."""

    def read(self, names: Collection[str]) -> Mapping[str, bytes]:
        """The files that exist, each with at most MAX_FILE_BYTES + 1 bytes. Raises StoreFailed."""

    def write(self, files: Mapping[str, bytes]) -> None:
        """Replace each file at once: a reader sees the old bytes or the new ones. Raises StoreFailed."""

    def close(self) -> None:
        """Release what the store holds."""


@dataclass(frozen=True, slots=True)
class TopicOrigin:
    """The metadata topic of today: cluster, topic id and number of partitions."""

    cluster_id: str
    topic_id: Uuid
    partition_count: int

    def at(self, number: int, next_offset: int, taken_at_ms: int) -> SnapshotOrigin:
        """The origin of a saved replay of one metadata partition."""
        return SnapshotOrigin(
            self.cluster_id, self.topic_id, self.partition_count, ((number, next_offset),), taken_at_ms
        )


class ReplayCache:
    """The saved replays of a store. One thread may load while another one saves."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._is_failed = False
        self._is_damage_reported = False
        self._remarks: list[Notice] = []

    @property
    def remarks(self) -> tuple[Notice, ...]:
        """The reports so far."""
        return tuple(self._remarks)

    def load(self, origin: TopicOrigin, topic_id: Uuid | None, numbers: Iterable[int]) -> dict[int, SavedReplay]:
        """The saved replays of these metadata partitions that can be believed as far as the files tell."""
        names = {_name(origin, topic_id, number): number for number in numbers}
        if self._is_failed:
            return {}
        try:
            files = self._store.read(names)
        except StoreFailed as error:
            self._fail(f"the saved timelines cannot be read: {error}")
            return {}
        found: dict[int, SavedReplay] = {}
        for name, data in files.items():
            try:
                saved = _checked(data, origin, topic_id, names[name])
            except RemoteFetchError as error:
                self._report_damage(name, error)
            else:
                found[names[name]] = saved
        return found

    def save(self, origin: TopicOrigin, replays: Iterable[SavedReplay]) -> bool:
        """Write the replays. Return whether that worked."""
        if self._is_failed:
            return False
        files = {}
        for saved in replays:
            try:
                files[_name(origin, saved.topic_id, saved.number)] = dump_replay(saved)
            except ValueError:
                continue  # a topic id with two names, which no broker writes: this file is left out
        try:
            self._store.write({name: data for name, data in files.items() if len(data) <= MAX_FILE_BYTES})
        except StoreFailed as error:
            self._fail(f"the timelines cannot be saved: {error}")
            return False
        return True

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _fail(self, text: str) -> None:
        self._is_failed = True
        self._remarks.append(Notice(f"remote.locator.cache: {text}. Reading goes on without it", is_warning=True))

    def _report_damage(self, name: str, error: RemoteFetchError) -> None:
        if not self._is_damage_reported:
            self._is_damage_reported = True
            text = f"remote.locator.cache: {name} is not used and will be replaced: {error.message}"
            self._remarks.append(Notice(text, is_warning=False))


def _name(origin: TopicOrigin, topic_id: Uuid | None, number: int) -> str:
    """The name of a file: CLUSTER.METADATA-TOPIC/TOPIC.NUMBER.replay, the topics by their ids."""
    cluster = quote(origin.cluster_id, safe="")[:_CLUSTER_ID_CHARACTERS]
    return f"{cluster}.{origin.topic_id}/{_ALL_TOPICS if topic_id is None else topic_id}.{number}.replay"


def _checked(data: bytes, origin: TopicOrigin, topic_id: Uuid | None, number: int) -> SavedReplay:
    """The replay of a file. Raises RemoteFetchError if it is damaged, or of another place than its name says."""
    if len(data) > MAX_FILE_BYTES:
        raise CorruptSegment(f"it has more than {MAX_FILE_BYTES} bytes")
    saved = load_replay(data)
    if saved.origin != origin.at(number, saved.next_offset, saved.origin.taken_at_ms) or saved.topic_id != topic_id:
        raise CorruptSegment("it is the file of another cluster, topic or metadata partition")
    for timeline in saved.timelines:
        partition = timeline.partition
        if metadata_partition(partition.topic_id, partition.partition, origin.partition_count) != number:
            raise CorruptSegment(f"{partition} does not belong to metadata partition {number}")
    return saved
