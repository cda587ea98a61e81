"""How a feed ends, and which fallbacks are counted."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from remote_fetch.config import Config
from remote_fetch.consumer.feed import Ending, Feed
from remote_fetch.consumer.feed_context import FeedContext
from remote_fetch.decode.messages import MessageCursor
from remote_fetch.errors import (
    ErrorKind,
    OffsetOutOfRange,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageTimeout,
    TopicRecreated,
    UnknownTopic,
    Unlocatable,
)
from remote_fetch.locate.cluster import Topic
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition, Uuid
from remote_fetch.observe import Event, Fallback
from remote_fetch.prepare.refusals import unexpected
from remote_fetch.session.decode_pool import DecodePool
from remote_fetch.session.guard import LogGuard
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from tests.eventually import eventually
from tests.scan.bucket import Bucket

PARTITION = TopicIdPartition(Uuid(b"i" * 16), "t", 3)


class Panic(BaseException):
    """As pyo3 raises it for a panic of Rust."""


class Locator:
    """Knows one partition without tiered segments, or raises."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def partitions(self, topic: str, numbers: Collection[int]) -> tuple[TopicIdPartition, ...]:
        return (PARTITION,)

    def refresh(self, partition: TopicIdPartition) -> Any:
        if self.error is not None:
            raise self.error
        return SimpleNamespace(segments=())


def test_the_partitions_of_a_topic_are_asked_for_once() -> None:
    """Several workers need them at the same time, and each answer takes several round trips."""
    asked: list[str] = []
    waits = threading.Event()

    def partitions(topic: str, numbers: Collection[int]) -> tuple[TopicIdPartition, ...]:
        asked.append(topic)
        assert numbers == (), "each feed lists its own segments"
        waits.wait(0.2)
        return (PARTITION,)

    session = SimpleNamespace(locator=SimpleNamespace(partitions=partitions))
    context = FeedContext(session, IsolationLevel.READ_COMMITTED, 64 << 20, 64 << 20)  # type: ignore[arg-type]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: context.partition("t", 3), range(4))) == 4 * [PARTITION]
    assert asked == ["t"]
    context.forget("t")
    assert context.partition("t", 3) == PARTITION
    assert asked == ["t", "t"]


def test_an_answer_from_before_another_topic_of_the_name_does_not_count() -> None:
    """The topic was deleted and made again while a worker asked for its partitions."""
    old, new = PARTITION, replace(PARTITION, topic_id=Uuid(b"n" * 16))
    answers = [old, new]

    def partitions(topic: str, numbers: Collection[int]) -> tuple[TopicIdPartition, ...]:
        context.forget(topic)
        return (answers.pop(0),)

    session: Any = SimpleNamespace(locator=SimpleNamespace(partitions=partitions))
    context = FeedContext(session, IsolationLevel.READ_COMMITTED, 64 << 20, 64 << 20)
    assert [context.partition("t", 3) for _ in range(2)] == [old, new]


@pytest.mark.parametrize("error", [StorageTimeout("silent"), KafkaException(KafkaError(KafkaError._TIMED_OUT))])
def test_workers_that_wait_for_the_same_topic_share_its_error(error: Exception) -> None:
    """Else the last of many workers would wait many times as long. A later question is asked."""
    asked: list[str] = []
    looks: list[None] = []

    def clock() -> float:
        looks.append(None)
        return float(len(looks))

    def partitions(topic: str, numbers: Collection[int]) -> tuple[TopicIdPartition, ...]:
        asked.append(topic)
        assert eventually(lambda: len(looks) >= 4)  # all four have looked at the clock, which is before they wait
        raise error

    session: Any = SimpleNamespace(locator=SimpleNamespace(partitions=partitions))
    context = FeedContext(session, IsolationLevel.READ_COMMITTED, 64 << 20, 64 << 20, clock=clock)

    def ask(_: int) -> str:
        with pytest.raises(type(error)) as raised:
            context.partition("t", 3)
        return str(raised.value)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == 4 * [str(error)]
    assert asked == ["t"]
    with pytest.raises(type(error)):
        context.partition("t", 3)
    assert asked == ["t", "t"]


def ended(
    error: BaseException | None = None, unlocated: ErrorKind | None = None, *, is_cancelled: bool = False
) -> tuple[Feed, FeedContext, list[Event]]:
    """A feed from offset 7 on that has come to its end. The events of a cancelled one are all that it has sent."""
    events: list[Event] = []
    locator = Locator(error)
    session = SimpleNamespace(
        locator=locator,
        newest_timeline=lambda partition, *offsets, **limits: locator.refresh(partition),
        observe=events.append,
        note_unusable=lambda timeline: None,
        local_starts=lambda partitions: {},
        asks_local_starts=False,
        brokers=None,
        configured_locator=SimpleNamespace(unlocated=unlocated, is_off=False),
        surveyor=SimpleNamespace(explain=lambda reason, waits: None),
    )
    context = FeedContext(session, IsolationLevel.READ_COMMITTED, 64 << 20, 64 << 20)  # type: ignore[arg-type]
    feed = Feed(context, "t", 3, 7)
    if is_cancelled:
        feed.cancel()
    assert feed.work()
    assert feed.ending is not None
    assert not feed.wants_work
    return feed, context, [event for event in events if is_cancelled or isinstance(event, Fallback)]


def caused(error: RemoteFetchError, cause: RemoteFetchError) -> RemoteFetchError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason", "opens"),
    [
        (StorageDenied("no"), "auth", True),
        (StorageDenied("archived", is_of_object=True), "auth", False),
        (caused(Unlocatable("no object", first=7, last=9), SegmentNotFound("404")), "not-found", False),
        (ZeroDivisionError(), "error", False),
        (Panic(), "error", False),
    ],
    ids=["denied", "archived", "not found", "a bug", "a panic"],
)
def test_a_failure_is_counted_by_its_reason(error: BaseException, reason: str, opens: bool) -> None:
    feed, context, fallbacks = ended(error)
    assert feed.ending is not None
    assert (feed.ending.offset, feed.ending.reason, feed.ending.is_failure) == (7, reason, True)
    assert fallbacks == [Fallback(PARTITION, 7, -1, reason)]
    assert (context.open_circuit() is not None) == opens


@pytest.mark.parametrize(
    ("error", "reason"), [(UnknownTopic("no topic"), "unknown-topic"), (TopicRecreated("another id"), "recreated")]
)
def test_a_topic_that_does_not_exist_is_not_called_recreated(error: UnknownTopic, reason: str) -> None:
    feed, _, fallbacks = ended(error)
    assert feed.ending is not None
    assert (feed.ending.reason, feed.ending.is_failure) == (reason, True)
    assert [fallback.reason for fallback in fallbacks if isinstance(fallback, Fallback)] == [reason]


@pytest.mark.parametrize("error", [RuntimeError("Consumer closed"), StorageDenied("no")], ids=["closed", "denied"])
def test_a_cancelled_feed_says_nothing(error: Exception) -> None:
    """Its worker may have waited for a broker while the consumer was closed. No record is read elsewhere."""
    _, _, events = ended(error, is_cancelled=True)
    assert events == []


def test_a_partition_without_tiered_segments_is_not_a_failure() -> None:
    feed, _, fallbacks = ended()
    assert feed.ending is not None
    assert (feed.ending.reason, feed.ending.is_failure, fallbacks) == ("not-tiered", False, [])


def test_the_end_of_the_tier_is_looked_at_a_second_time_and_then_believed() -> None:
    feed, _, _ = ended()
    assert feed.ending is not None
    assert not feed.is_outdated
    feed.ending = replace(feed.ending, at_s=feed.ending.at_s - 60)
    assert feed.is_outdated
    feed.look_again()
    assert feed.wants_work
    assert feed.work()
    assert feed.ending is not None
    feed.ending = replace(feed.ending, at_s=feed.ending.at_s - 60)
    assert not feed.is_outdated


def test_the_offsets_on_the_brokers_disk_are_asked_for_again_when_they_are_too_old() -> None:
    asked: list[int] = []
    now_s = 100.0

    def local_starts(wanted: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        asked.append(len(wanted))
        return dict.fromkeys(wanted, 10 * len(asked))

    session: Any = SimpleNamespace(local_starts=local_starts, asks_local_starts=True)
    context = FeedContext(session, IsolationLevel.READ_COMMITTED, 64 << 20, 64 << 20, clock=lambda: now_s)
    assert context.local_start(PARTITION, 30.0) == 10
    now_s = 110.0
    assert context.local_start(PARTITION, 30.0) == 10
    assert context.local_start(PARTITION, 2.0) == 20
    assert asked == [1, 1]


def test_one_question_is_for_all_known_partitions_of_all_topics() -> None:
    """Each question needs new connections: over a slow line each topic would wait for seconds in turn."""
    asked: list[list[TopicIdPartition]] = []

    def local_starts(wanted: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        asked.append(list(wanted))
        return {PARTITION: 10, other: 20}

    sibling, other = replace(PARTITION, partition=4), TopicIdPartition(Uuid(b"j" * 16), "u", 0)
    topics = {"t": (PARTITION, sibling), "u": (other,)}
    session: Any = SimpleNamespace(
        locator=SimpleNamespace(partitions=lambda topic, numbers: topics[topic]),
        local_starts=local_starts,
        asks_local_starts=True,
    )
    context = FeedContext(session, IsolationLevel.READ_COMMITTED, 64 << 20, 64 << 20)
    assert [context.partition(name, number) for name, number in (("t", 3), ("u", 0))] == [PARTITION, other]
    assert context.local_start(other, 30.0) == 20
    assert asked == [[other, PARTITION, sibling]]
    assert (context.local_start(PARTITION, 30.0), context.local_start(sibling, 30.0)) == (10, None)
    assert len(asked) == 1
    context.local_start(other, -1.0)
    context.local_start(PARTITION, -1.0)
    assert asked[1:] == [[other, PARTITION], [PARTITION, sibling, other]], "an unknown one costs the others a request"


def test_one_question_is_for_the_topics_of_feeds_that_have_begun() -> None:
    """Else each of a few workers asks for its own topic."""
    asked: list[list[str]] = []

    def partitions(topic: str, _: object) -> list[TopicIdPartition]:
        if topic == "gone":
            raise UnknownTopic("it is gone", topic=topic)
        return [TopicIdPartition(Uuid(topic.encode() * 16), topic, 0)]

    def local_starts(wanted: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        asked.append(sorted({each.topic for each in wanted}))
        return dict.fromkeys(wanted, 10)

    session: Any = SimpleNamespace(
        locator=SimpleNamespace(partitions=partitions), local_starts=local_starts, asks_local_starts=True
    )
    context = FeedContext(session, IsolationLevel.READ_COMMITTED, 64 << 20, 64 << 20)
    names = "abcdefghijklmnopqrst"
    for name in ("gone", *names, "a"):
        Feed(context, name, 0, 7)
    for name in names:
        assert context.local_start(context.partition(name, 0), 30.0) == 10
    assert len(asked) == 2
    assert len(asked[0]) >= 16, "few of them are found first, because over a slow line each takes long"
    assert asked[1] == [*names]


def test_a_topic_that_is_forgotten_while_others_are_found_ends_no_feed() -> None:
    """The application gives the last one back in its own thread."""

    class Begun(set[str]):
        def __bool__(self) -> bool:
            self.clear()  # the other thread comes after this look
            return True

    session: Any = SimpleNamespace(
        locator=SimpleNamespace(partitions=lambda topic, numbers: ()),
        local_starts=lambda wanted: dict.fromkeys(wanted, 10),
        asks_local_starts=True,
    )
    context = FeedContext(session, IsolationLevel.READ_COMMITTED, 64 << 20, 64 << 20)
    context._begun = Begun({"u"})
    assert context.local_start(PARTITION, 30.0) == 10


def test_no_topic_is_found_for_a_question_that_is_not_asked() -> None:
    """Over a slow line each takes long, and the first record would wait for them."""
    asked: list[str] = []

    def partitions(topic: str, _: object) -> list[TopicIdPartition]:
        asked.append(topic)
        return [PARTITION]

    session: Any = SimpleNamespace(
        locator=SimpleNamespace(partitions=partitions), local_starts=lambda wanted: {}, asks_local_starts=False
    )
    context = FeedContext(session, IsolationLevel.READ_COMMITTED, 64 << 20, 64 << 20)
    for name in ("t", "u", "v"):
        Feed(context, name, 3, 7)
    assert context.local_start(context.partition("t", 3), 30.0) is None
    assert asked == ["t"]


def test_partitions_on_the_brokers_disks_cost_one_question_for_all() -> None:
    """A service that has read to the end of each log starts again. Each further question would be for one partition."""
    asked: list[str] = []
    partitions = [replace(PARTITION, partition=number) for number in range(100)]

    def local_starts(wanted: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        asked.append("local starts")
        return dict.fromkeys(wanted, 7)

    def log_bounds(partition: TopicIdPartition, isolation: IsolationLevel, timeout_s: float | None) -> LogBounds:
        asked.append(f"the ends of {partition.partition}")
        return LogBounds(0, 9)

    def describe(topic: str, timeout_s: float | None) -> Topic:
        asked.append("rights")
        return Topic(topic, PARTITION.topic_id, (), may_read=True)

    clock = lambda: 100.0  # noqa: E731 - an answer about the rights counts for some seconds
    cluster: Any = SimpleNamespace(describe=describe, log_bounds=log_bounds)
    session: Any = SimpleNamespace(
        locator=SimpleNamespace(partitions=lambda topic, numbers: partitions),
        newest_timeline=lambda partition, *offsets, **limits: SimpleNamespace(segments=()),
        note_unusable=lambda timeline: None,
        local_starts=local_starts,
        asks_local_starts=True,
        brokers=SimpleNamespace(guard=LogGuard(cluster, lambda event: None, skips=False, clock=clock)),
        configured_locator=SimpleNamespace(unlocated=None, is_off=False),
        surveyor=SimpleNamespace(explain=lambda reason, waits: None),
    )
    context = FeedContext(session, IsolationLevel.READ_COMMITTED, 64 << 20, 64 << 20, clock=clock)

    def reason(number: int, offset: int) -> str:
        feed = Feed(context, "t", number, offset)
        assert feed.work()
        feed.close()  # librdkafka reads the partition now, and others of its topic have only begun
        assert feed.ending is not None
        assert feed.ending.offset == offset
        return feed.ending.reason

    assert {reason(number, 7) for number in range(100)} == {"local"}
    assert asked == ["rights", "local starts"]
    assert reason(5, 6) == "not-tiered"
    assert asked[-1] == "the ends of 5"
    for partition in partitions:
        context._local_starts[partition] = context.clock(), 0
    assert reason(6, 0) == "not-tiered"
    assert asked[-1] == "the ends of 6", "librdkafka sleeps after a seek from 0 to 0, unless the end is known"


@pytest.mark.parametrize("unlocated", [ErrorKind.NOT_CONFIGURED, ErrorKind.UNLOCATABLE])
def test_a_missing_locator_is_counted_as_a_fallback(unlocated: ErrorKind) -> None:
    feed, _, fallbacks = ended(unlocated=unlocated)
    assert feed.ending is not None
    assert feed.ending.reason == unlocated
    assert fallbacks == [Fallback(PARTITION, 7, -1, unlocated)]


def broken() -> None:
    raise ValueError("numpy.dtype size changed")


def test_an_unexpected_error_is_reported_with_its_place_and_a_hint() -> None:
    with pytest.raises(ValueError, match="numpy") as raised:
        broken()
    text = unexpected(raised.value)
    assert re.match(r"builtins\.ValueError in .*test_feed\.py, line \d+: numpy\.dtype size changed\. ", text)
    assert "an installed package is broken" in text
    assert unexpected(MemoryError()).startswith("builtins.MemoryError: ")


def test_a_feed_with_a_smaller_share_goes_on_after_its_last_record() -> None:
    """When the first chunk is there, the scan has read more. A feed that begins again has to read that again."""
    log = LogBuilder("t")
    for _ in range(40):
        log.append_batch([Record(at, value=bytes(10_000)) for at in range(5)])
    log.roll()
    with Session(Config.parse({}), Bucket(log.segments())) as session:
        session.decode_pool = DecodePool(threads=0, unit_bytes=200_000)
        context = FeedContext(session, IsolationLevel.READ_UNCOMMITTED, 64 << 20, 64 << 20)
        feed, found = Feed(context, "t", 0, 3), list[int]()
        assert feed.work()
        assert 0 < feed.chunks[0].num_rows < 195
        assert feed.offset == feed.chunks[0].end_offset
        context.share_among(8)
        while feed.wants_work:
            feed.work()
        for chunk in feed.chunks:
            cursor = MessageCursor(chunk, "t", 0, Message)
            while cursor:
                found += [message.offset() or 0 for message in cursor.take(100)]
        assert (found, feed.ending and feed.ending.offset) == (list(range(3, 200)), 200)


class Guard:
    """The answers of a broker about a log that grows with each question. Its records are deleted after one slice."""

    def __init__(self, end_offset: int) -> None:
        self._end_offset = end_offset
        self._slices = 0

    def authorise(self, partition: TopicIdPartition, **_: object) -> None:
        """Allow it."""

    def ask(self, partition: TopicIdPartition, isolation: IsolationLevel) -> LogBounds:
        self._end_offset += 10
        return LogBounds(0 if self._slices < 2 else self._end_offset, self._end_offset)

    def check(self, partition: TopicIdPartition, isolation: IsolationLevel, next_offset: int) -> int:
        self._slices += 1
        if self._slices == 2:
            raise OffsetOutOfRange("records were deleted", topic="t", partition=0)
        return next_offset


def test_records_that_are_deleted_under_a_scan_end_it_with_the_log_of_now() -> None:
    """`auto.offset.reset=latest` goes on at the end of that log."""
    log = LogBuilder("t")
    for _ in range(2):
        log.append_batch([Record(at, value=b"v") for at in range(50)])
        log.roll()
    with Session(Config.parse({}), Bucket(log.segments())) as session:
        cluster = SimpleNamespace(still_holds=lambda *question: True, close=lambda: None)
        session.brokers = SimpleNamespace(guard=Guard(200), cluster=cluster)  # type: ignore[assignment]
        session.local_starts = lambda partitions: {}  # type: ignore[method-assign]
        feed = Feed(FeedContext(session, IsolationLevel.READ_UNCOMMITTED, 64 << 20, 64 << 20), "t", 0, 3)
        while feed.wants_work:
            feed.work()
        assert feed.ending is not None
        assert (feed.ending.reason, feed.log) == (Ending.OUT_OF_RANGE, LogBounds(220, 220))


def test_a_feed_believes_no_answer_about_its_topic_from_before_it_began() -> None:
    """It begins with a seek, and by then the name may belong to another topic."""
    asked: list[float] = []

    def authorise(partition: TopicIdPartition, since_s: float) -> None:
        asked.append(since_s)
        raise TopicRecreated("it was made again", topic="t")

    guard = SimpleNamespace(authorise=authorise)
    session: Any = SimpleNamespace(
        locator=Locator(),
        brokers=SimpleNamespace(guard=guard),
        observe=lambda event: None,
        surveyor=SimpleNamespace(explain=lambda *_, **__: None),
    )
    context = FeedContext(session, IsolationLevel.READ_COMMITTED, 64 << 20, 64 << 20, clock=lambda: 50.0)
    feed = Feed(context, "t", 3, 7)
    assert feed.work()
    assert (asked, feed.ending and feed.ending.reason) == ([50.0], ErrorKind.RECREATED)


@pytest.mark.parametrize("is_same", [True, False])
def test_after_a_truncation_another_topic_of_the_name_is_out_of_range(is_same: bool) -> None:
    """Its records have the same offsets and leader epochs, so librdkafka takes it for a truncated log."""
    log, other = LogBuilder("t", Uuid(b"n" * 16)), LogBuilder("t", Uuid(b"o" * 16))
    log.append_batch([Record(at, value=b"v") for at in range(20)])
    log.roll()
    with Session(Config.parse({}), Bucket(log.segments())) as session:
        context = FeedContext(session, IsolationLevel.READ_UNCOMMITTED, 64 << 20, 64 << 20)
        known = (log if is_same else other).topic_id_partition
        context._topics["t"] = SimpleNamespace(partitions={0: known})  # type: ignore[assignment]
        feed = Feed(context, "t", 0, 10, known.topic_id)
        while feed.wants_work:
            feed.work()
        assert feed.ending is not None
        assert feed.ending.reason == ("not-tiered" if is_same else Ending.OUT_OF_RANGE)
        assert (feed.offset, feed.topic_id) == ((20, known.topic_id) if is_same else (10, None))


def branches() -> tuple[LogBuilder, LogBuilder]:
    """A log of one leader, and that of another leader that has lost its end and has gone further."""
    lost = LogBuilder("t")
    for _ in range(4):
        lost.append_batch([Record(at, value=b"lost") for at in range(25)])
        lost.roll()
    new = lost.fork(50)
    new.new_leader_epoch()
    for _ in range(4):
        new.append_batch([Record(at, value=b"new") for at in range(25)])
        new.roll()
    return lost, new


def test_the_ending_has_the_leader_epoch_of_the_record_before() -> None:
    _, log = branches()
    with Session(Config.parse({}), Bucket(log.segments())) as session:
        context = FeedContext(session, IsolationLevel.READ_UNCOMMITTED, 64 << 20, 64 << 20)
        for offset, epoch in ((30, 1), (150, None)):
            feed = Feed(context, "t", 0, offset)
            while feed.wants_work:
                feed.work()
            assert feed.ending is not None
            assert (feed.ending.offset, feed.ending.leader_epoch) == (150, epoch)


@pytest.mark.parametrize(
    ("offset", "epoch", "is_known"),
    [(50, 0, True), (50, 1, True), (50, 2, False), (60, 0, False), (60, 1, True)],
    ids=["the record before", "the record there", "no epoch of this log", "an older one", "the one of both"],
)
def test_an_epoch_that_the_application_names_has_to_be_one_of_the_log(offset: int, epoch: int, is_known: bool) -> None:
    """The leader of epoch 1 begins at 50. As brokers do, a feed also takes the epoch of the record at the offset."""
    _, log = branches()
    with Session(Config.parse({}), Bucket(log.segments())) as session:
        context = FeedContext(session, IsolationLevel.READ_UNCOMMITTED, 64 << 20, 64 << 20)
        feed = Feed(context, "t", 0, offset, leader_epoch=epoch)
        while feed.wants_work:
            feed.work()
        assert feed.ending is not None
        expected = (150, "not-tiered") if is_known else (offset, ErrorKind.TRUNCATED)
        assert (feed.ending.offset, feed.ending.reason) == expected


def test_a_feed_does_not_go_on_in_a_log_that_lost_its_last_record() -> None:
    """The new leader has uploaded the same offsets. librdkafka finds out from where on its records are others."""
    lost, new = branches()
    bucket = Bucket(lost.segments())
    with Session(Config.parse({}), bucket) as session:
        session.decode_pool = DecodePool(threads=0, unit_bytes=1)
        feed = Feed(FeedContext(session, IsolationLevel.READ_UNCOMMITTED, 64 << 20, 64 << 20), "t", 0, 30)
        while feed.offset < 100:
            assert feed.work()
        for segment in new.segments():
            bucket.add(segment)
        while feed.wants_work:
            feed.work()
        assert feed.ending is not None
        assert (feed.ending.offset, feed.ending.reason, feed.ending.leader_epoch) == (100, ErrorKind.TRUNCATED, 0)
        assert {chunk.end_offset for chunk in feed.chunks} <= set(range(31, 101))
