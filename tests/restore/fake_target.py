"""A topic in memory, in place of another cluster's, that can fail at any record."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException

__all__ = ["FakeTarget", "Written"]

Written = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


@dataclass
class FakeTarget:
    """`fails_after`: so many records reach the topic, then the process dies in `flush`; None: never."""

    topic: str = "new"
    logs: dict[int, list[Written]] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    fails_after: int | None = None
    first_offsets: dict[int, int] = field(default_factory=dict)
    flushes: int = 0
    _queue: list[tuple[int, Written]] = field(default_factory=list)
    _has_failed: bool = False

    def open(self, partitions: int, config: Mapping[str, str], replication: int, *, any_retention: bool = False) -> str:
        """As `Target.open`."""
        self.config = config
        for number in range(partitions):
            self.logs.setdefault(number, [])
        return self.topic_id()

    def topic_id(self) -> str:
        """As `Target.topic_id`."""
        return "AAAAAAAAAAAAAAAAAAAAAQ"

    def partitions(self) -> tuple[int, ...]:
        """As `Target.partitions`."""
        return tuple(self.logs)

    def starts(self, partitions: Collection[int]) -> dict[int, int]:
        """As `Target.starts`."""
        return {number: self.first_offsets.get(number, 0) for number in partitions}

    def ends(self, partitions: Collection[int]) -> dict[int, int]:
        """As `Target.ends`."""
        return {number: self.first_offsets.get(number, 0) + len(self.logs[number]) for number in partitions}

    def write(
        self,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        timestamp_ms: int,
    ) -> None:
        """As `Target.write`."""
        number = len(key or b"") % len(self.logs) if partition is None else partition
        self._queue.append((number, (key, value, headers, timestamp_ms)))

    def flush(self) -> None:
        """As `Target.flush`: in order, and only the first ones if it fails."""
        self.flushes += 1
        while self._queue:
            if self.fails_after == 0:
                self._queue.clear()
                self._has_failed = True
                raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
            if self.fails_after is not None:
                self.fails_after -= 1
            number, record = self._queue.pop(0)
            self.logs[number].append(record)

    def settle(self, timeout_s: float) -> bool:
        """As `Target.settle`."""
        if not self._has_failed:
            with suppress(KafkaException):
                self.flush()
        return not self._has_failed

    def close(self) -> None:
        """As `Target.close`."""
        self._queue.clear()
