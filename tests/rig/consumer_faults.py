"""A RemoteConsumer whose store fails at one place. Records each delivered record with the side that it came from.

Rules of the file:

- A fault hits one batch of one segment, and only while it is switched on. The broker's own tier is never touched.
- Reads through the broker are slow, a batch at a time, so that a consumer that fell back still has records to read from
  the store.
- Every wait has a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from fetchers.local import LocalFetcher
from remote_fetch import RemoteConsumer
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.formats.batches import BatchFramer
from remote_fetch.model import Buffer
from remote_fetch.testing.faults import CountingFetcher, FetchCall
from tests.rig import topics
from tests.rig.faults import tier_folder
from tests.rig.rig import Rig
from tests.rig.topics import OracleRecord

__all__ = ["Delivered", "Meddle", "Place", "Spot", "Switch", "broken_store", "spot_of", "store"]

_NARROW: Mapping[str, Any] = {"fetch.remote.range.bytes": 1024, "fetch.remote.max.bytes": 8192}
"""A segment takes several GETs, and few of them run at the same time."""
_SLOW_BROKER: Mapping[str, Any] = {
    "fetch.message.max.bytes": 1024,
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 300,
}
"""librdkafka fetches one batch, and the next batch a third of a second later."""
_DEADLINE_S = 180
_POLL_S = 0.2

Meddle = Callable[[FetchCall, Buffer | None], Buffer | None]
"""Changes the answer of a store, or raises."""


class Place(StrEnum):
    """The place of a fault in a partition."""

    START = "start"
    MIDDLE = "mid-segment"
    HAND_OVER = "hand-over"


class Spot(NamedTuple):
    """The place of one batch: the start offset of its segment, its byte position there, and its base offset."""

    segment_start: int
    position: int
    base_offset: int


def spot_of(rig: Rig, topic: str, place: Place) -> Spot:
    """The first batch of the tier, a batch in the middle of a segment, or the last batch that only the tier has."""
    local_start = topics.offsets(rig, topic, 0).earliest_local
    segments: list[list[Spot]] = []
    for path in sorted(tier_folder(rig, topic, 0).glob("*.log")):
        start = int(path.name.split("-")[0])
        framer, batches = BatchFramer(0), []
        framer.feed(memoryview(path.read_bytes()))
        while (batch := framer.next_batch()) is not None:
            batches.append(Spot(start, batch.position, batch.header.base_offset))
        if batches and batches[-1].base_offset < local_start:
            segments.append(batches)
    segments.sort()
    match place:
        case Place.START:
            return segments[0][0]
        case Place.MIDDLE:
            amid = segments[len(segments) // 2]
            return amid[len(amid) // 2]
        case Place.HAND_OVER:
            return segments[-1][-1]


@dataclass(slots=True)
class Switch:
    """Switches a fault on and off."""

    is_on: bool = True


class _Meddling(CountingFetcher):
    """A fetcher whose answers are changed while a switch is on."""

    def __init__(self, inner: RemoteStorageFetcher, meddle: Meddle, switch: Switch) -> None:
        super().__init__(inner)
        self._meddle = meddle
        self._switch = switch

    def _altered(self, call: FetchCall, ask: Callable[[], Buffer | None]) -> Buffer | None:
        if not self._switch.is_on:
            return ask()
        return self._meddle(call, ask())


def store() -> RemoteStorageFetcher:
    """The fetcher of `remote.storage.fetcher.class`. `broken_store` replaces this function."""
    return LocalFetcher()


@contextmanager
def broken_store(meddle: Meddle) -> Iterator[tuple[dict[str, Any], Switch]]:
    """The configuration of a store whose answers are changed, and the switch for that."""
    switch = Switch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.store", lambda: _Meddling(LocalFetcher(), meddle, switch))
        yield {"remote.storage.fetcher.class": f"{__name__}:store"}, switch


@dataclass(slots=True)
class Delivered:
    """The records that a consumer of partition 0 has delivered, each with whether it came through the broker."""

    consumer: RemoteConsumer
    tolerated: frozenset[int]
    records: list[OracleRecord] = field(default_factory=list)
    through_broker: list[bool] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)

    @classmethod
    @contextmanager
    def by(
        cls, configuration: Mapping[str, Any], topic: str, start: int, *, tolerated: frozenset[int] = frozenset()
    ) -> Iterator[Delivered]:
        """A consumer that is assigned partition 0 of the topic from an offset on. It is closed at the end.

        `tolerated` are errors after which it goes on.
        """
        consumer = RemoteConsumer(
            {
                "group.id": f"faults-{topic}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.remote.enabled": True,
                **topics.QUIET,
                **_SLOW_BROKER,
                **_NARROW,
                **configuration,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, 0, start)])
            yield cls(consumer, tolerated | {KafkaError._PARTITION_EOF})
        finally:
            consumer.close()

    @property
    def reasons(self) -> set[str]:
        """The reasons of its fallbacks so far."""
        return set(self.consumer.remote_metrics()["remote-fetch-fallbacks-by-reason"])

    def until(self, condition: Callable[[], bool]) -> None:
        """Poll until the condition holds. Raises TimeoutError, and an error of the consumer that is not tolerated."""
        deadline = time.monotonic() + _DEADLINE_S
        while not condition():
            if time.monotonic() > deadline:
                last = self.records[-1].offset if self.records else None
                raise TimeoutError(f"{len(self.records)} records, the last at {last}: {self.consumer.remote_metrics()}")
            self._poll()

    def to_the_end(self, stop: int) -> None:
        """Poll until the position reaches `stop`, the end of the log, and the broker has no more records."""
        (partition,) = self.consumer.assignment()

        def is_done() -> bool:
            (position,) = self.consumer.position([TopicPartition(partition.topic, 0)])
            return position.offset >= stop and KafkaError._PARTITION_EOF in self.errors

        self.until(is_done)

    def seek(self, topic: str, offset: int) -> None:
        """Begin again from an offset, and forget the delivered records."""
        self.records.clear()
        self.through_broker.clear()
        self.errors.clear()
        self.consumer.seek(TopicPartition(topic, 0, offset))

    def _poll(self) -> None:
        before = self.consumer.remote_metrics()["broker-records-total"]
        message = self.consumer.poll(_POLL_S)
        if message is None:
            return
        error = message.error()
        if error is not None:
            self.errors.append(error.code())
            if error.code() not in self.tolerated:
                raise KafkaException(error)
            return
        self.records.append(topics.oracle_record(message))
        self.through_broker.append(self.consumer.remote_metrics()["broker-records-total"] > before)
