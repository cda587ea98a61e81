"""A librdkafka that does what it is told and remembers it, and feeds that are filled by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from remote_fetch.config import Config
from remote_fetch.consumer.feed import Chunk, Ending, Feed, Source
from remote_fetch.consumer.merge import Merge
from remote_fetch.consumer.partitions import Partitions
from remote_fetch.consumer.settings import ConsumerSettings, ResetPolicy
from remote_fetch.decode.columns import schema_for
from remote_fetch.decode.messages import MESSAGE_COLUMNS
from remote_fetch.model import IsolationLevel, LogBounds
from remote_fetch.observe import Event


class FakeInner:
    """The parent's half: `calls` is what it was told, `live` what it will give, `positions` where it stands."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.live: deque[Message | Exception] = deque()
        self.positions: dict[int, int] = {}
        self.high_watermark: int | None = None
        self.stored: dict[int, int] = {}
        self.store_error: KafkaException | None = None
        self.stopped: set[int] = set()

    def poll(self, timeout: float = -1) -> Message | None:
        self.calls.append(("poll", timeout > 0))
        if not self.live:
            return None
        given = self.live.popleft()
        if isinstance(given, Exception):
            raise given
        return given

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        given: list[Message] = []
        while self.live and len(given) < num_messages:
            message = self.poll(timeout)
            assert message is not None
            given.append(message)
        return given

    def assign(self, partitions: list[TopicPartition], /) -> None:
        self.stopped.clear()
        self.positions.clear()
        self.calls.append(("assign", [(one.partition, one.offset) for one in partitions]))

    def unassign(self) -> None:
        self.calls.append(("unassign",))

    def incremental_unassign(self, partitions: list[TopicPartition], /) -> None:
        self.stopped -= {one.partition for one in partitions}
        self.calls.append(("incremental_unassign", [one.partition for one in partitions]))

    def incremental_assign(self, partitions: list[TopicPartition], /) -> None:
        self.calls.append(("incremental_assign", [(one.partition, one.offset) for one in partitions]))

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.calls += [("pause", one.partition) for one in partitions]

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.calls += [("resume", one.partition) for one in partitions]

    def seek(self, partition: TopicPartition) -> None:
        assert partition.leader_epoch is None
        if partition.partition in self.stopped:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.calls.append(("seek", partition.partition, partition.offset))

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition(one.topic, one.partition, self.positions.get(one.partition, -1001)) for one in partitions
        ]

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        raise NotImplementedError

    def store_offsets(self, *, offsets: Sequence[TopicPartition]) -> None:
        if self.store_error is not None:
            raise self.store_error
        self.stored.update({one.partition: one.offset for one in offsets})

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        if not cached:
            self.calls.append(("watermarks", partition.partition))
        return None if self.high_watermark is None else (0, self.high_watermark)

    def taken(self) -> list[tuple[Any, ...]]:
        """What it was told since the last time this was asked, but for polls."""
        calls, self.calls = [call for call in self.calls if call[0] != "poll"], []
        return calls


class FakeWorkers:
    """Workers that do nothing: tests fill the feeds."""

    def __init__(self) -> None:
        self.feeds: list[Feed] = []
        self.dropped: list[Feed] = []
        self.woken = 0

    def add(self, feed: Feed) -> None:
        self.feeds.append(feed)

    def wake(self, feed: Feed) -> None:
        self.woken += 1

    def drop(self, feed: Feed) -> None:
        self.dropped.append(feed)

    def wait(self, timeout_s: float) -> None:
        assert timeout_s <= 0.01


class FakeCommitted:
    """A group that is asked for what was committed, and answers when the test does."""

    def __init__(self) -> None:
        self.asked: list[TopicPartition] = []
        self._answers: list[tuple[list[TopicPartition], list[TopicPartition]]] = []

    def ask(self, partitions: list[TopicPartition]) -> None:
        self.asked = partitions

    def answer(self, *offsets: int) -> None:
        """What was asked has these offsets committed; none: there is no answer."""
        asked = self.asked
        pairs = zip(asked, offsets, strict=True) if offsets else ()
        self._answers.append((asked, [TopicPartition(one.topic, one.partition, offset) for one, offset in pairs]))

    def take(self) -> list[tuple[list[TopicPartition], list[TopicPartition]]]:
        answers, self._answers = self._answers, []
        return answers


class Bench:
    """Partitions and their merge over fakes, for partitions of topic `t`."""

    def __init__(
        self,
        reset: ResetPolicy = ResetPolicy.EARLIEST,
        *,
        stores_offsets: bool = True,
        is_cooperative: bool = False,
        patience_ms: int = 60_000,
        queued_bytes: int = 64 << 20,
    ) -> None:
        self.inner, self.workers = FakeInner(), FakeWorkers()
        self.events: list[Event] = []
        self.reader = SimpleNamespace(is_asking=True)
        self.session = SimpleNamespace(observe=self.events.append, reader=self.reader, answered_s=0.0)
        self.source = Source(self.session, IsolationLevel.READ_COMMITTED, 64 << 20, queued_bytes)  # type: ignore[arg-type]
        settings = ConsumerSettings(
            True,
            {},
            Config.parse({}),
            reset=reset,
            stores_offsets=stores_offsets,
            is_cooperative=is_cooperative,
            patience_ms=patience_ms,
        )
        self.committed = FakeCommitted()
        self.partitions = Partitions(
            self.inner,
            settings,
            self.source,
            self.workers,  # type: ignore[arg-type]
            self.committed,  # type: ignore[arg-type]
        )
        self.counted = [0, 0]
        self.merge = Merge(self.inner, self.partitions, self.workers, reset, self._count)  # type: ignore[arg-type]

    def _count(self, records: int, size_bytes: int) -> None:
        self.counted[0] += records
        self.counted[1] += size_bytes

    def assign(self, starts: dict[int, int], *, replaces: bool = True) -> None:
        partitions = [TopicPartition("t", number, start) for number, start in starts.items()]
        self.partitions.begin(partitions, replaces=replaces)

    def feed(self, number: int) -> Feed:
        feed = self.partitions.entries["t", number].feed
        assert feed is not None
        return feed

    def give(self, number: int, offsets: Iterable[int]) -> None:
        self.feed(number).chunks.append(Chunk.of(chunk(offsets)))

    def end(self, number: int, offset: int, reason: str = "not-tiered", **more: Any) -> None:
        self.feed(number).log = LogBounds(0, 1_000)
        self.feed(number).ending = Ending(offset, reason, **more)

    def mode(self, number: int) -> str:
        return self.partitions.entries["t", number].state.mode.value


def chunk(offsets: Iterable[int]) -> pa.RecordBatch:
    """A record batch of these offsets, each with its number as value."""
    rows: list[dict[str, Any]] = [
        {
            "key": None,
            "value": b"%d" % offset,
            "offset": offset,
            "timestampMs": offset * 1000,
            "timestampType": 0,
            "headers": [],
            "leaderEpoch": 3,
        }
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, schema=schema_for(MESSAGE_COLUMNS))


def live(number: int, offset: int) -> Message:
    """A record that came through librdkafka."""
    return Message("t", number, offset, None, b"live%d" % offset)


def news(number: int, code: int) -> Message:
    """An error that librdkafka reports about a partition."""
    return Message("t", number, -1001, None, None, None, KafkaError(code))
