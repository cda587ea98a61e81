"""Fakes of librdkafka, of the group, of the workers and of the clock; tests fill the feeds.

Rules of the file:

- No fake waits. A wait moves the clock on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from remote_fetch.config import Config
from remote_fetch.consumer.assigned import AssignedPartition
from remote_fetch.consumer.callbacks import Callbacks
from remote_fetch.consumer.committed import Start
from remote_fetch.consumer.feed import Ending, Feed
from remote_fetch.consumer.feed_context import FeedContext
from remote_fetch.consumer.merge import Merge
from remote_fetch.consumer.offsets import STORED
from remote_fetch.consumer.partitions import Partitions
from remote_fetch.consumer.settings import ConsumerSettings, ResetPolicy
from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.model import IsolationLevel, LogBounds
from remote_fetch.observe import Event
from tests.clock import Clock
from tests.decoded import decoded

_LOG = LogBounds(0, 1_000)


class FakeLibrdkafka:
    """The parent's half of a consumer.

    `calls` are the calls that it was given, `live` the messages that it will give, `positions` its positions. A seek in
    a partition of `stopped` fails, and it does not know those of `unknown`. A partition of `stops_at_resume` gets there
    once it is resumed, and one whose offset is out of range with that error, unless `errors_are_late`. If the group
    `rebalances_eagerly`, librdkafka refuses incremental calls. If it `refuses_assign`, nothing is assigned after that,
    or as before if it `keeps_refused`. After `fail` it has met a fatal error: it assigns nothing, and raises nothing.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self.calls: list[tuple[Any, ...]] = []
        self.live: deque[Message | BaseException] = deque()
        self.positions: dict[int, int] = {}
        self.high_watermark: int | None = None
        self.stored: dict[int, int] = {}
        self.assigned: list[TopicPartition] = []
        self.refuses_assign = self.keeps_refused = self._is_fatal = False
        self.store_error: KafkaException | None = None
        self.stopped: set[int] = set()
        self.unknown: set[int] = set()
        self.stops_at_resume: set[int] = set()
        self.rebalances_eagerly = False
        self.errors_are_late = False

    def poll(self, timeout: float = -1) -> Message | None:
        self.calls.append(("poll", timeout > 0))
        if not self.live:
            self._clock.now_s += timeout
            return None
        given = self.live.popleft()
        if isinstance(given, BaseException):
            raise given
        return self._given(given)

    def fail(self) -> None:
        """Meet a fatal error, and report it. No callback is called for what was assigned."""
        self._is_fatal, self.assigned = True, []
        self.live.append(error_of(-1, KafkaError._FATAL))

    def _given(self, message: Message) -> Message:
        error = message.error()
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET and not self.errors_are_late:
            self.stopped.add(message.partition() or 0)
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        given: list[Message] = []
        while self.live and len(given) < num_messages:
            message = self.poll(timeout)
            assert message is not None
            given.append(message)
        if not given:
            self._clock.now_s += timeout
        return given

    def assign(self, partitions: list[TopicPartition], /) -> None:
        if self.refuses_assign:
            self.assigned = self.assigned if self.keeps_refused else []
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        self.assigned = [] if self._is_fatal else partitions
        self.stopped.clear()
        self.positions.clear()
        self.calls.append(("assign", [place(partition) for partition in partitions]))

    def unassign(self) -> None:
        self.assigned = []
        self.calls.append(("unassign",))

    def assignment(self) -> list[TopicPartition]:
        return self.assigned

    def incremental_unassign(self, partitions: list[TopicPartition], /) -> None:
        if self.rebalances_eagerly:
            raise KafkaException(KafkaError(KafkaError._STATE))
        gone = {(partition.topic, partition.partition) for partition in partitions}
        if not gone <= {(each.topic, each.partition) for each in self.assigned}:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        self.stopped -= {partition.partition for partition in partitions}
        self.assigned = [each for each in self.assigned if (each.topic, each.partition) not in gone]
        self.calls.append(("incremental_unassign", [partition.partition for partition in partitions]))

    def incremental_assign(self, partitions: list[TopicPartition], /) -> None:
        self.assigned = [] if self._is_fatal else self.assigned + partitions
        self.calls.append(("incremental_assign", [place(partition) for partition in partitions]))

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.calls += [("pause", partition.partition) for partition in partitions]

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.calls += [("resume", partition.partition) for partition in partitions]
        self.stopped |= self.stops_at_resume & {partition.partition for partition in partitions}

    def seek(self, partition: TopicPartition) -> None:
        if partition.partition in self.unknown:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        if partition.partition in self.stopped or partition.offset == STORED:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.calls.append(("seek", *place(partition)))
        self.positions.pop(partition.partition, None)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition(partition.topic, partition.partition, self.positions.get(partition.partition, -1001))
            for partition in partitions
        ]

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        raise NotImplementedError

    def store_offsets(self, *, offsets: Sequence[TopicPartition]) -> None:
        if self.store_error is not None:
            raise self.store_error
        self.stored.update({partition.partition: partition.offset for partition in offsets})

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        if not cached:
            self.calls.append(("watermarks", partition.partition))
        return None if self.high_watermark is None else (0, self.high_watermark)

    def calls_since(self) -> list[tuple[Any, ...]]:
        """The calls since this was last asked, without polls."""
        calls, self.calls = [call for call in self.calls if call[0] != "poll"], []
        return calls


class FakeWorkers:
    """Workers that do nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.feeds: list[Feed] = []
        self.dropped: list[Feed] = []
        self.woken = 0
        self._has_news = False

    def add(self, feed: Feed) -> None:
        self.feeds.append(feed)

    def wake(self, feed: Feed) -> None:
        self.woken += 1

    def drop(self, feed: Feed) -> None:
        self.dropped.append(feed)

    def notify(self) -> None:
        self._has_news = True

    def take_news(self) -> bool:
        had, self._has_news = self._has_news, False
        return had

    def wait(self, timeout_s: float) -> None:
        assert timeout_s <= 0.01
        self._clock.now_s += max(timeout_s, 0.0)


class FakeGroup:
    """A group that answers a request for committed offsets when the test says so."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self.requested: list[TopicPartition] = []
        self._notify = notify
        self._answers: list[tuple[list[TopicPartition], list[Start]]] = []

    def request(self, partitions: list[TopicPartition]) -> None:
        self.requested = partitions

    def answer(self, *offsets: int, are_ends: bool = False) -> None:
        """The requested partitions have these offsets committed. Without offsets the group has not answered.

        `are_ends`: none is committed, and these are the ends of the logs.
        """
        requested = self.requested
        pairs = zip(requested, offsets, strict=True) if offsets else ()
        found = [Start(partition.topic, partition.partition, offset, are_ends) for partition, offset in pairs]
        self._answers.append((requested, found))
        self._notify()

    def take_answers(self) -> list[tuple[list[TopicPartition], list[Start]]]:
        answers, self._answers = self._answers, []
        return answers


class Bench:
    """Partitions of topic `t`, assigned at their `starts`, and their merge, over fakes."""

    def __init__(
        self,
        starts: dict[int, int] | None = None,
        *,
        reset: ResetPolicy = ResetPolicy.EARLIEST,
        stores_offsets: bool = True,
        is_cooperative: bool = False,
        patience_s: float = 60.0,
        queued_bytes: int = 64 << 20,
        idle_store_s: float | None = None,
        commits: bool = True,
    ) -> None:
        self.clock = Clock()
        self.librdkafka, self.workers = FakeLibrdkafka(self.clock), FakeWorkers(self.clock)
        self.events: list[Event] = []
        self.reader = SimpleNamespace(is_asking=True)
        self.session = SimpleNamespace(observe=self.events.append, reader=self.reader, answered_s=0.0)
        self.context = FeedContext(
            self.session,  # type: ignore[arg-type]
            IsolationLevel.READ_COMMITTED,
            64 << 20,
            queued_bytes,
            clock=self.clock,
        )
        settings = ConsumerSettings(
            True,
            {},
            Config.parse({}),
            reset=reset,
            stores_offsets=stores_offsets,
            is_cooperative=is_cooperative,
            patience_s=patience_s,
            idle_store_s=idle_store_s,
            commits=commits,
        )
        self.group = FakeGroup(self.workers.notify)
        self.partitions = Partitions(
            self.librdkafka,
            settings,
            self.context,
            self.workers,  # type: ignore[arg-type]
            self.group,  # type: ignore[arg-type]
        )
        self.counted = [0, 0]
        self.merge = Merge(
            self.librdkafka,
            self.partitions,
            self.workers,  # type: ignore[arg-type]
            settings,
            self._count,
            self.clock,
            Callbacks(),
        )
        if starts is not None:
            self.assign(starts)

    def _count(self, records: int, size_bytes: int) -> None:
        self.counted[0] += records
        self.counted[1] += size_bytes

    def assign(self, starts: dict[int, int], *, replaces: bool = True) -> None:
        """Assign partitions, each at its start."""
        partitions = [TopicPartition("t", number, start) for number, start in starts.items()]
        self.partitions.note_committed()  # what librdkafka has committed before
        kept = [] if replaces else [each for each in self.librdkafka.assigned if each.partition not in starts]
        self.librdkafka.assigned = kept + partitions
        self.begin(partitions)

    def begin(self, partitions: list[TopicPartition]) -> None:
        """librdkafka has assigned these partitions."""
        self.partitions.expect(partitions)
        self.partitions.follow()

    def run_due_work(self, *, after_s: float = 0.0) -> None:
        """Do what is due after so many seconds."""
        self.clock.now_s += after_s
        self.partitions.run_due_work()

    def partition(self, number: int) -> AssignedPartition:
        return self.partitions.assigned["t", number]

    def feed(self, number: int) -> Feed:
        feed = self.partition(number).feed
        assert feed is not None
        return feed

    def give(self, number: int, offsets: Iterable[int]) -> None:
        """The partition's feed brings records of these offsets."""
        self.feed(number).chunks.append(chunk(offsets))
        self.workers.notify()

    def end(self, number: int, offset: int, reason: str = "not-tiered", *, log: LogBounds = _LOG, **more: Any) -> None:
        """The partition's feed ends."""
        self.feed(number).log = log
        self.feed(number).ending = Ending(offset, reason, **more)
        self.workers.notify()

    def mode(self, number: int) -> str:
        return self.partition(number).state.mode.value


def place(partition: TopicPartition) -> tuple[int, ...]:
    """Number and offset, and the leader epoch if there is one."""
    epoch = () if partition.leader_epoch is None else (partition.leader_epoch,)
    return partition.partition, partition.offset, *epoch


def chunk(offsets: Iterable[int]) -> DecodedRows:
    """Decoded rows of these offsets, each with its number as value."""
    return decoded(
        [
            {"key": None, "value": b"%d" % offset, "offset": offset, "timestampMs": offset * 1000, "leaderEpoch": 3}
            for offset in offsets
        ]
    )


def live(number: int, offset: int) -> Message:
    """A record that came through librdkafka."""
    return Message("t", number, offset, None, b"live%d" % offset)


def error_of(number: int, code: int, offset: int = -1001, text: str | None = None) -> Message:
    """An error that librdkafka reports about a partition."""
    return Message("t", number, offset, None, None, None, KafkaError(code, text))
