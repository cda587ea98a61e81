"""The records of the metadata topic that were read for one topic, and the place where reading goes on.

Rules of the file:

- A replay is used by one thread at a time.
- What a replay saves is enough to end with the same timelines as without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.locate.answers import leader_epoch_of
from remote_fetch.locate.replay_cache import TopicOrigin
from remote_fetch.locate.saved_replay import SavedReplay
from remote_fetch.locate.timeline_builder import TimelineBuilder
from remote_fetch.locate.unreadable import denied
from remote_fetch.model import NO_EPOCH, TopicIdPartition, Uuid

__all__ = ["CutOff", "Replay"]

_EOF = KafkaError._PARTITION_EOF


class CutOff(Exception):
    """The log no longer has the place at which reading was to go on, or to begin."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The builder of one topic's timelines, and for each metadata partition:

    - `read_to`: the next offset to read.
    - `epochs`: the leader epoch of the last record.
    - `confirmed`: the last leader epoch whose leader was asked, and had that record.
    - `since_ms`: when the last reading to the end began (wall clock); of the first reading, if none has ended.
    - `saved_to`: the next offset to read in the saved replay.
    """

    builder: TimelineBuilder
    read_to: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    confirmed: dict[int, int] = field(default_factory=dict)
    since_ms: dict[int, int] = field(default_factory=dict)
    saved_to: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, topic_id: Uuid | None) -> Replay:
        """An empty replay for a topic, or for all topics."""
        return cls(TimelineBuilder(None if topic_id is None else [topic_id]))

    def restore(self, saved: SavedReplay) -> None:
        """Go on from a saved replay."""
        number = saved.number
        self.builder.count_malformed(number, saved.malformed_records)
        for timeline, rest in zip(saved.timelines, saved.rests, strict=True):
            self.builder.restore(timeline, rest)
        self.read_to[number] = self.saved_to[number] = saved.next_offset
        self.epochs[number], self.since_ms[number] = saved.leader_epoch, saved.origin.taken_at_ms

    def unsaved(self) -> dict[int, int]:
        """How many offsets each metadata partition was read on since it was saved. -1 counts as never saved."""
        return {
            number: offset - self.saved_to.get(number, -1)
            for number, offset in self.read_to.items()
            if offset > self.saved_to.get(number, -1)
        }

    def to_save(self, origin: TopicOrigin, topic_id: Uuid | None) -> list[SavedReplay]:
        """The metadata partitions that were read on since they were saved."""
        numbers = self.unsaved()
        partitions: dict[int, list[TopicIdPartition]] = {number: [] for number in numbers}
        for partition in self.builder.partitions():
            number = metadata_partition(partition.topic_id, partition.partition, origin.partition_count)
            if number in partitions:
                partitions[number].append(partition)
        rests = self.builder.rest([partition for found in partitions.values() for partition in found])
        return [
            SavedReplay(
                origin.at(number, self.read_to[number], self.since_ms[number]),
                topic_id,
                self.epochs.get(number, NO_EPOCH),
                self.builder.malformed_of(number),
                tuple(self.builder.build(partition) for partition in found),
                tuple(rests[partition] for partition in found),
            )
            for number, found in partitions.items()
        ]

    def take(self, messages: Iterable[Any], ends: dict[int, int], name: str) -> bool:
        """Apply the messages of a consumer. Return whether any came from the topic, not from librdkafka's connections.

        Raises CutOff, Unlocatable if reading is forbidden, and KafkaException.
        """
        apply = self.builder.apply
        reached: dict[int, int] = {}
        lasts: dict[int, Any] = {}
        try:
            for message in messages:
                error, offset = message.error(), message.offset()
                if error is None:
                    number = message.partition()
                    apply(message.value(), key=message.key(), offset=offset, source=number)
                    reached[number] = offset + 1
                    lasts[number] = message
                elif error.code() == _EOF:
                    # This offset is one past the end, even if the last records were compacted away.
                    reached[message.partition()] = offset
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise denied(name)
                elif error.fatal():
                    raise KafkaException(error)
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise CutOff
                # librdkafka recovers from other errors. The deadline of the caller bounds how long.
        finally:
            for number, offset in reached.items():
                self.read_to[number] = max(self.read_to.get(number, 0), offset)
                if offset >= ends.get(number, offset + 1):
                    del ends[number]
            for number, message in lasts.items():
                self.epochs[number] = leader_epoch_of(message)
        return bool(reached)
