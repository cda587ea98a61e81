"""The decisions of a stream's driver, over a bucket alone and without Spark; each micro-batch is read task by task."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import BrokerUnavailable, ConfigError, ErrorKind, OffsetOutOfRange, UnknownTopic
from remote_fetch.locate.locator import KnownTimelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition, Uuid
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.prepare.planner import Planner
from remote_fetch.session.brokers import Brokers
from remote_fetch.session.session import Session
from remote_fetch.spark import patience, stream_driver
from remote_fetch.spark.options import parse_options
from remote_fetch.spark.reader import read_task
from remote_fetch.spark.stream_driver import StreamDriver
from remote_fetch.spark.stream_limits import Positions, parse_trigger_limits
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from tests.scan.bucket import plain_log
from tests.scan.sparse import SparseTier
from tests.spark.buckets import COLUMNS, Row, bucket_alone, expected, rows_of, tier
from tests.stores.stand_in import Broker, sessions_without_segments

AT = ("topic", 0)
_REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED


class Clock:
    """Time that tests tell."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


Make = Callable[..., StreamDriver]


@pytest.fixture
def driver() -> Iterator[Make]:
    """Drivers of these options, closed at the end."""
    made: list[StreamDriver] = []

    def make(options: dict[str, str], *, at_clock: Clock | None = None, **more: str) -> StreamDriver:
        given = {"startingOffsets": "earliest", **options, **more}
        one = StreamDriver(parse_options(given), parse_trigger_limits(given), clock=at_clock or Clock())
        again: StreamDriver = pickle.loads(pickle.dumps(one))
        assert again._options == one._options
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def rows_between(stream: StreamDriver, start: Positions, end: Positions) -> list[Row]:
    config = stream._options.config
    return [row for task in stream.tasks(start, end) for row in rows_of(read_task(task, config, COLUMNS))]


@pytest.fixture
def bucket(tmp_path: Path) -> dict[str, str]:
    return tier(tmp_path, plain_log().segments())


@pytest.mark.parametrize("seed", range(6))
def test_batches_are_the_log_whatever_the_limits_and_whoever_goes_on(
    bucket: dict[str, str], seed: int, driver: Make
) -> None:
    """Each batch has a new driver, as after a restart, and some batches are repeated."""
    dice = random.Random(seed)
    log = list(plain_log().records())
    found: list[Row] = []
    at = driver(bucket).initial()
    assert at == {AT: log[0].offset}
    for _ in range(10_000):
        limits = {
            "maxOffsetsPerTrigger": str(dice.randrange(1, 40)),
            "maxBytesPerTrigger": str(dice.randrange(1, 9_000)),
        }
        some = dict(dice.sample(sorted(limits.items()), dice.randrange(3)))
        with_limits = driver({**bucket, **some}, minPartitions=str(dice.randrange(1, 4)))
        end = with_limits.next_stop(at, is_limited=bool(some))
        if end == at:
            break
        rows = rows_between(with_limits, at, end)
        assert rows_between(driver(bucket), at, end) == rows
        if "maxOffsetsPerTrigger" in some:
            assert end[AT] - at[AT] <= int(some["maxOffsetsPerTrigger"])
        with_limits.close()
        found += rows
        at = end
    assert found == expected(log)


@pytest.mark.parametrize(("limit_bytes", "stop"), [(1 << 30, 1063), (4 << 30, 1253), (8 << 30, 1506)])
def test_a_limit_of_bytes_knows_the_size_that_metadata_cannot_hold(
    tmp_path: Path, limit_bytes: int, stop: int, driver: Make
) -> None:
    """8 GiB in offsets 1000 to 1505, of which metadata says 2 GiB and one byte less."""
    sparse = SparseTier(tmp_path, 8 << 30)
    options = {"subscribe": "topic", **bucket_alone(tmp_path), **sparse.clamped(tmp_path)}
    limited = driver({**options, "maxBytesPerTrigger": str(limit_bytes)})
    assert limited.next_stop({AT: 1000}, is_limited=True) == {AT: stop}
    assert driver({**options, "maxOffsetsPerTrigger": "7"}).next_stop({AT: 1000}, is_limited=True) == {AT: 1007}


@pytest.mark.parametrize("limit", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
@pytest.mark.parametrize("is_stepwise", [False, True])
def test_a_limit_does_without_segments_where_brokers_can_read(
    bucket: dict[str, str], limit: str, is_stepwise: bool, driver: Make
) -> None:
    log = plain_log()
    stream = driver({**bucket, "fetch.remote.when": "always"}, **{limit: "7" if "Offsets" in limit else "7168"})
    with sessions_without_segments(log, is_stepwise=is_stepwise):
        at, steps = stream.initial(), []
        while (end := stream.next_stop(at, is_limited=True)) != at:
            steps += [step for task in stream.tasks(at, end) for step in task.steps]
            at = end
    assert all(isinstance(step, BrokerRange) and step.reason == ErrorKind.UNLOCATABLE for step in steps)
    assert [(step.first_offset, step.last_offset) for step in steps] == [
        (first, min(first + 6, log.next_offset - 1)) for first in range(log.start_offset, log.next_offset, 7)
    ]


def test_a_query_begins_at_the_end(bucket: dict[str, str]) -> None:
    """Unless an option says otherwise."""
    with closing(StreamDriver(parse_options(bucket), parse_trigger_limits({}))) as stream:
        at = stream.initial()
        assert at == {AT: plain_log().next_offset}
        for _ in range(2):
            assert stream.next_stop(at, is_limited=False) == at
        assert stream.tasks(at, at) == ()
        assert stream.latest() == at


def test_the_first_batch_keeps_where_a_query_began(tmp_path: Path, driver: Make) -> None:
    """Done again after a crash, it would begin at another "latest" otherwise."""
    built = plain_log().segments()
    options = {"subscribe": "topic", **bucket_alone(tmp_path)}
    tier(tmp_path, built[:1])
    began, end = built[1].metadata.start_offset, plain_log().next_offset
    never = str(2**53)
    by_time = {"startingOffsetsByTimestampStrategy": "latest"}
    for start in (
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"topic": {"0": -1}}'},
        {"startingTimestamp": never, **by_time},
        {"startingOffsetsByTimestamp": f'{{"topic": {{"0": {never}}}}}', **by_time},
        {"startingOffsets": '{"topic": {"0": 9000}}', "failOnDataLoss": "false"},
    ):
        stream = driver({**options, **start})
        at = stream.initial()
        tier(tmp_path, built)
        assert at == {AT: began}
        assert stream.next_stop(at, is_limited=False) == at
        assert stream.next_stop(at, is_limited=False) == {AT: end}
        for number in (1, 2):
            for path in tmp_path.rglob(f"*{built[number].metadata.segment_id.id}*"):
                path.unlink()
    stream = driver({**options, "startingOffsets": "earliest"})
    assert stream.next_stop(stream.initial(), is_limited=False) == {AT: began}


def test_the_first_batch_has_the_partitions_that_begin_earlier(tmp_path: Path, driver: Make) -> None:
    """Partition 1 begins at the end. Its offset is kept, also if the batch is done again after the log has grown."""
    logs = [LogBuilder(partition=number) for number in range(3)]
    for log in logs:
        log.append_batch([Record(n, n, b"k", b"v") for n in range(5)])
        log.roll()
    options = {"subscribe": "topic", **bucket_alone(tmp_path), "startingOffsets": '{"topic": {"0": 2, "1": -1}}'}
    tier(tmp_path, [one for log in logs[:2] for one in log.segments()])
    stream = driver(options)
    at = stream.initial()
    first, second, third = AT, ("topic", 1), ("topic", 2)
    assert at == {first: 2, second: 5}
    for log in logs[:2]:
        log.append_batch([Record(n, n, b"k", b"v") for n in range(4)])
        log.roll()
    tier(tmp_path, [one for log in logs for one in log.segments()])
    end = stream.next_stop(at, is_limited=False)
    assert end == {first: 9, second: 5}
    assert [row[1:3] for row in rows_between(stream, at, end)] == [(0, offset) for offset in range(2, 9)]
    again = driver({**options, "startingOffsets": '{"topic": {"0": 2, "1": -1, "2": -1}}'})
    begin = again.initial()
    assert begin[second] == 9
    assert [row[1:3] for row in rows_between(again, begin, end)] == [(0, offset) for offset in range(2, 9)]
    for each in (stream, again):
        after = each.next_stop(end, is_limited=False)
        assert after == {first: 9, second: 9, third: 5}
        assert [row[1:3] for row in rows_between(each, end, after)] == [
            *((1, offset) for offset in range(5, 9)),
            *((2, offset) for offset in range(5)),
        ]


def test_a_beginning_that_the_log_does_not_have(
    bucket: dict[str, str], caplog: pytest.LogCaptureFixture, driver: Make
) -> None:
    end = plain_log().next_offset
    for offset, begin, said in ((end, end, ""), (end + 1, end, f"the log ends at offset {end}, before {end + 1}")):
        start = f'{{"topic": {{"0": {offset}}}}}'
        with pytest.raises(OffsetOutOfRange, match=said) if said else nullcontext():
            driver(bucket, startingOffsets=start).initial()
        stream = driver(bucket, startingOffsets=start, failOnDataLoss="false")
        assert stream.initial() == {AT: begin}
        assert said in caplog.text


def test_a_time_that_a_record_reaches_is_the_same_offset_again(bucket: dict[str, str], driver: Make) -> None:
    """So the first batch has records, as Trigger.Once needs it."""
    stream = driver(bucket, startingTimestamp="0", startingOffsetsByTimestampStrategy="latest")
    assert stream.next_stop(stream.initial(), is_limited=False) == {AT: plain_log().next_offset}


def test_spark_asks_twice_where_a_query_begins(tmp_path: Path, driver: Make) -> None:
    """Before the first batch and when it runs: the next is not an empty one too, which would end the query."""
    built = plain_log().segments()
    options = {"subscribe": "topic", **bucket_alone(tmp_path)}
    tier(tmp_path, built[:1])
    began, end = built[1].metadata.start_offset, plain_log().next_offset
    first = driver(options, startingOffsets="latest")
    at = first.initial()
    assert first.next_stop(at, is_limited=False) == at
    assert first.initial() == at
    assert first.tasks(at, at) == ()
    again = driver(options, startingOffsets="latest")  # restarted before the first batch was committed
    assert again.initial() == at
    assert again.tasks(at, at) == ()
    tier(tmp_path, built)
    assert at == {AT: began}
    for stream in (first, again):
        assert stream.next_stop(at, is_limited=False) == {AT: end}


def test_what_comes_between_the_target_and_the_beginning(tmp_path: Path, driver: Make) -> None:
    """Spark fixes the target of `Trigger.AvailableNow` first, and asks for the beginning then."""
    built = plain_log().segments()
    options = {"subscribe": "topic", **bucket_alone(tmp_path)}
    tier(tmp_path, built[:1])
    stream = driver(options, startingOffsets="latest")
    stream.fix_target()
    tier(tmp_path, built[:2])
    at = stream.initial()
    assert at == {AT: built[1].metadata.end_offset + 1}
    for _ in range(2):
        assert stream.next_stop(at, is_limited=False) == at


def test_a_partition_that_comes_between_the_target_and_the_beginning(tmp_path: Path, driver: Make) -> None:
    """It belongs to the query from its first offset on, which this run does not pass."""
    options = {"subscribe": "topic", **bucket_alone(tmp_path)}
    logs = [LogBuilder(partition=number) for number in (0, 1)]
    for log in logs:
        log.append_batch([Record(n, n, b"k", b"v") for n in range(5)])
        log.roll()
    tier(tmp_path, logs[0].segments())
    stream = driver(options)
    stream.fix_target()
    tier(tmp_path, logs[1].segments())
    at, later = stream.initial(), ("topic", 1)
    assert at == {AT: 0, later: 0}
    end = stream.next_stop(at, is_limited=False)
    assert end == {AT: 5, later: 0}
    assert driver(options).next_stop(end, is_limited=False) == {AT: 5, later: 5}


def test_a_query_waits_for_enough(bucket: dict[str, str], driver: Make) -> None:
    clock = Clock()
    stream = driver(bucket, at_clock=clock, minOffsetsPerTrigger="7", maxOffsetsPerTrigger="7", maxTriggerDelay="10s")
    end = plain_log().next_offset
    assert stream.next_stop({AT: end - 3}, is_limited=True) == {AT: end}, "the first batch waits for nothing"
    clock.now_s = 9
    assert stream.next_stop({AT: end - 3}, is_limited=True) == {AT: end - 3}
    assert stream.next_stop({AT: end - 9}, is_limited=True)[AT] > end - 9
    clock.now_s = 18
    assert stream.next_stop({AT: end - 3}, is_limited=True) == {AT: end - 3}
    clock.now_s = 19
    assert stream.next_stop({AT: end - 3}, is_limited=True) == {AT: end}
    stream.fix_target()
    assert stream.next_stop({AT: end - 3}, is_limited=True) == {AT: end}, "a query that ends does not wait"


def test_the_target_stays(tmp_path: Path, driver: Make) -> None:
    built = plain_log().segments()
    tier(tmp_path, built[:1])
    options = {"subscribe": "topic", **bucket_alone(tmp_path)}
    stream = driver(options)
    stream.fix_target()
    end = built[0].metadata.end_offset + 1
    stream.close()
    tier(tmp_path, built)
    assert stream.next_stop({AT: 0}, is_limited=False) == {AT: end}
    assert driver(options).next_stop({AT: 0}, is_limited=False) == {AT: plain_log().next_offset}


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ({AT: 10**6}, "Partition topic-0: offset was changed from 1000000 to"),
        ({AT: 0, ("topic", 5): 3}, "Partition topic-5: the partition is gone"),
    ],
)
def test_what_was_lost_is_an_error_or_said(
    bucket: dict[str, str], caplog: pytest.LogCaptureFixture, start: Positions, said: str, driver: Make
) -> None:
    with pytest.raises(OffsetOutOfRange, match=said) as caught:
        driver(bucket).next_stop(start, is_limited=False)
    assert "failOnDataLoss" in str(caught.value)
    stream = driver(bucket, failOnDataLoss="false")
    assert stream.next_stop(start, is_limited=False) == {AT: plain_log().next_offset}
    assert said in caplog.text
    assert stream.next_stop({AT: plain_log().next_offset}, is_limited=False) == {AT: plain_log().next_offset}


def test_offsets_that_went_between_plan_and_plan(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, driver: Make
) -> None:
    built = plain_log().segments()
    options = tier(tmp_path, built[1:])
    first, end = built[1].metadata.start_offset, plain_log().next_offset
    for start in ({AT: 0}, {}):  # a partition that the batch before did not have begins at 0
        with pytest.raises(OffsetOutOfRange, match=f"offsets 0 to {first - 1} are gone"):
            driver(options).tasks(start, {AT: end})
    stream = driver(options, failOnDataLoss="false")
    assert [row[2] for row in rows_between(stream, {AT: 0}, {AT: end})] == list(range(first, end))
    assert rows_between(stream, {AT: 0}, {AT: 1}) == []
    assert [row[2] for row in rows_between(stream, {AT: end - 2}, {AT: end + 9})] == [end - 2, end - 1]
    assert f"the log ends at offset {end}, before {end + 9}" in caplog.text


def test_a_partition_that_is_gone(bucket: dict[str, str], driver: Make) -> None:
    end = plain_log().next_offset
    with pytest.raises(OffsetOutOfRange, match="Partition topic-7: the partition is gone"):
        driver(bucket).tasks({AT: 0, ("topic", 7): 1}, {AT: end, ("topic", 7): 2})
    stream = driver(bucket, failOnDataLoss="false")
    assert len(rows_between(stream, {AT: end - 1}, {AT: end, ("topic", 7): 2})) == 1


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize(
    "narrowed", [{"subscribe": "other"}, {"assign": '{"topic": [1]}'}, {"subscribePattern": "oth"}], ids=str
)
def test_a_batch_is_done_again_with_partitions_that_the_options_leave_out(
    tmp_path: Path, driver: Make, narrowed: dict[str, str], fails: str
) -> None:
    """A stream's options may change between the batch that a crash ended and the same batch after a restart."""
    places = [AT, ("topic", 1), ("other", 0)]
    for topic, number in places:
        log = LogBuilder(topic, Uuid(topic.encode().rjust(16, b"\1")), partition=number)
        log.append_batch([Record(n, n, b"k", b"v") for n in range(5)])
        log.roll()
        write_kafka_local(tmp_path, log.segments())
    start, end = dict.fromkeys(places, 2), dict.fromkeys(places, 5)
    for options in ({"subscribe": "topic,other"}, narrowed):
        stream = driver({**options, **bucket_alone(tmp_path)}, failOnDataLoss=fails)
        found = [row[:3] for row in rows_between(stream, start, end)]
        assert sorted(found) == sorted((*place, offset) for place in places for offset in range(2, 5))


@pytest.mark.parametrize("options", [{"subscribe": "topic:{}"}, {"assign": '{{"topic:{}": [0]}}'}], ids=str)
def test_a_topic_of_another_id_is_no_topic_that_the_options_leave_out(
    tmp_path: Path, driver: Make, options: dict[str, str]
) -> None:
    """A batch is planned again after the topic of the id was deleted, and another one got its name."""
    ids = [Uuid(name.rjust(16)) for name in (b"first", b"second")]
    given = {name: value.format(ids[0]) for name, value in options.items()}
    stream = driver({**given, **bucket_alone(tmp_path)}, failOnDataLoss="false")
    for topic_id in ids:
        log = LogBuilder("topic", topic_id)
        log.append_batch([Record(n, n, b"k", b"v") for n in range(5)])
        log.roll()
        write_kafka_local(tmp_path, log.segments())
        if topic_id == ids[0]:
            assert stream.initial() == {AT: 0}
            assert len(rows_between(stream, {AT: 0}, {AT: 5})) == 5
            for path in tmp_path.glob("*/topic-0-*"):
                shutil.rmtree(path)
    assert rows_between(stream, {AT: 0}, {AT: 5}) == []


@pytest.mark.parametrize("fails", ["true", "false"])
def test_the_first_batch_done_again_without_a_topic(tmp_path: Path, driver: Make, fails: str) -> None:
    """Where the query began in the topic is not known: perhaps at the end. So none of its records may come."""
    at, options = ("other", 0), {"subscribe": "topic", **bucket_alone(tmp_path)}
    for topic in ("topic", "other"):
        log = LogBuilder(topic, Uuid(topic.encode().rjust(16)))
        log.append_batch([Record(n, n, b"k", b"v") for n in range(5)])
        log.roll()
        write_kafka_local(tmp_path, log.segments())
    stream = driver(options, startingOffsets="latest", failOnDataLoss=fails)
    start = stream.initial()
    with nullcontext() if fails == "false" else pytest.raises(OffsetOutOfRange, match=r"other-0: .* no option names"):
        assert rows_between(stream, start, {**start, at: 5}) == []
    assert len(rows_between(driver(options), start, {**start, at: 5})) == 5, "a partition that was new in a later batch"


def test_partitions_that_the_options_name_no_more(bucket: dict[str, str], driver: Make) -> None:
    """They are lost as those that are gone. The message names both causes."""
    given = {name: value for name, value in bucket.items() if name != "subscribe"}
    for options in ({"subscribe": "topic"}, {"assign": '{"topic": [0]}'}, {"subscribePattern": "top"}):
        with pytest.raises(OffsetOutOfRange, match=r"Partition other-0: .* no option names it any more, some data"):
            driver({**given, **options}).next_stop({AT: 0, ("other", 0): 1}, is_limited=False)


class Deletions(Broker):
    """A broker and a locator for `log` and for the topic "gone", which is deleted at the next question of a kind."""

    def __init__(self, log: LogBuilder, deleted_by: str) -> None:
        super().__init__(log)
        self._deleted_by, self._is_deleted = deleted_by, False
        known = (log, LogBuilder("gone", Uuid(bytes(15) + b"\1")))
        self._known = KnownTimelines([Timeline(one.topic_id_partition, (), ()) for one in known])

    def _asked(self, question: str, topic: str) -> bool:
        if question == self._deleted_by:
            self._is_deleted = True
        return self._is_deleted and topic == "gone"

    def authorise(self, partition: TopicIdPartition, **_: object) -> None:
        if self._asked("authorise", partition.topic):
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    def bounds(self, partition: TopicIdPartition, isolation: IsolationLevel) -> LogBounds:
        if self._asked("bounds", partition.topic):
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return super().bounds(partition, isolation)

    def partitions(self, topic: str, _: object = None) -> tuple[TopicIdPartition, ...]:
        if self._asked("partitions", topic):
            raise UnknownTopic(f"the cluster has no topic '{topic}'", topic=topic)
        return self._known.partitions(topic)

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        if self._asked("timeline", partition.topic):
            raise UnknownTopic(f"the cluster has no topic '{partition.topic}'", topic=partition.topic)
        return self._known.timeline(partition)

    @property
    def end_is_inferred(self) -> Callable[..., bool]:
        return self._known.end_is_inferred


@pytest.mark.parametrize("deleted_by", ["authorise", "bounds", "partitions", "timeline"])
@pytest.mark.parametrize("asks_for_tasks", [False, True])
def test_a_topic_that_is_deleted_while_it_is_looked_at(
    bucket: dict[str, str],
    deleted_by: str,
    asks_for_tasks: bool,
    caplog: pytest.LogCaptureFixture,
    driver: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is lost as one that was deleted before the trigger."""
    log, gone = plain_log(), ("gone", 0)
    start, both = {AT: 0, gone: 0}, {AT: log.next_offset, gone: log.next_offset}
    open_session, brokers = Session.open, list[Deletions]()

    def opened(*given: Any) -> Session:
        session = open_session(*given)
        brokers.append(Deletions(log, "nothing"))
        session.brokers = Brokers(*brokers[-1:] * 3)  # type: ignore[arg-type]
        session.fallback.reader, session.locator = session.brokers.reader, brokers[-1]  # type: ignore[assignment]
        return session

    monkeypatch.setattr(Session, "open", opened)
    for fails in ("false", "true"):
        more = {"failOnDataLoss": fails, "fetch.remote.when": "always", "maxBytesPerTrigger": "9999999"}
        stream = driver(bucket, subscribe="topic,gone", **more)
        assert stream.next_stop(start, is_limited=True) == both
        brokers[-1]._deleted_by = deleted_by
        with nullcontext() if fails == "false" else pytest.raises((OffsetOutOfRange, UnknownTopic), match="gone"):
            if not asks_for_tasks:
                stop = stream.next_stop(start, is_limited=True)
                assert stop == {AT: log.next_offset} or deleted_by == "timeline"
            if asks_for_tasks or deleted_by == "timeline":  # which is asked after the bounds
                steps = [step for task in stream.tasks(start, both) for step in task.steps]
                assert [isinstance(step, BrokerRange) and step.partition.topic for step in steps] == ["topic"]
        told = [text for text in caplog.messages if "may have been missed" in text]
        assert fails == "true" or [text.split(",")[0] for text in told] == ["Partition gone-0: the partition is gone"]
        caplog.clear()


class Together(Broker):
    """A broker and a locator of three partitions. No answer comes before all of them are asked for."""

    def __init__(self, log: LogBuilder) -> None:
        super().__init__(log)
        one = log.topic_id_partition
        parts = [TopicIdPartition(one.topic_id, one.topic, number) for number in range(3)]
        known = KnownTimelines([Timeline(part, (), ()) for part in parts])
        self.partitions, self._timeline = known.partitions, known.timeline
        self._all = threading.Barrier(len(parts), timeout=60)

    def bounds(self, partition: TopicIdPartition, isolation: IsolationLevel) -> LogBounds:
        self._all.wait()
        return super().bounds(partition, isolation)

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        self._all.wait()
        return self._timeline(partition)


def test_partitions_are_asked_for_at_the_same_time(
    bucket: dict[str, str], driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic may have hundreds of them, and a stream asks at each trigger."""
    log, open_session = plain_log(), Session.open

    def opened(*given: Any) -> Session:
        session, broker = open_session(*given), Together(log)
        session.brokers = Brokers(*[broker] * 3)  # type: ignore[arg-type]
        session.fallback.reader, session.locator = session.brokers.reader, broker  # type: ignore[assignment]
        return session

    monkeypatch.setattr(Session, "open", opened)
    stream = driver(bucket, maxOffsetsPerTrigger="99999")
    start = {("topic", number): log.start_offset for number in range(3)}
    assert stream.next_stop(start, is_limited=True) == dict.fromkeys(start, log.next_offset)


def open_after(patch: pytest.MonkeyPatch, error: Exception, times: int) -> None:
    """Let a partition be opened only after so many errors."""
    opened, errors = Planner.open, [error] * times

    def open_or_fail(*given: Any) -> Any:
        if errors:
            raise errors.pop()
        return opened(*given)

    patch.setattr(Planner, "open", open_or_fail)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_brokers_that_disagree_about_a_topic(
    bucket: dict[str, str], driver: Make, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """One broker does not know a topic that another one describes, for a while or for too long."""
    refused = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    stream = driver(bucket, failOnDataLoss=fails)
    at, end = stream.initial(), {AT: 60}
    tasks = stream.tasks(at, end)
    monkeypatch.setattr(stream_driver, "_PAUSE_S", 0.0)
    open_after(monkeypatch, refused, 3)
    assert stream.tasks(at, end) == tasks
    monkeypatch.setattr(stream_driver, "_AGREE_S", 0.0)
    monkeypatch.setattr(Planner, "open", Mock(side_effect=refused))
    with pytest.raises(
        UnknownTopic, match="brokers do not agree whether each of these topics exists: topic "
    ) as caught:
        stream.tasks(at, end)
    assert caught.value.__cause__ is refused


def test_brokers_that_are_away(
    bucket: dict[str, str], driver: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For a while, or for too long. A refusal is raised at once."""
    away, refused = (KafkaException(KafkaError(code)) for code in (KafkaError._TIMED_OUT, _REFUSED))
    stream = driver(bucket)
    at, end = stream.initial(), {AT: 60}
    tasks = stream.tasks(at, end)
    monkeypatch.setattr(patience, "_PAUSE_S", 0.0)
    open_after(monkeypatch, away, 3)
    assert stream.tasks(at, end) == tasks
    assert caplog.text.count("no answer from the brokers: Local: Timed out. Check") == 1
    monkeypatch.setattr(Planner, "open", Mock(side_effect=refused))
    with pytest.raises(KafkaException) as caught:
        stream.tasks(at, end)
    assert caught.value is refused
    monkeypatch.setattr(stream_driver, "_AWAY_S", 0.0)
    monkeypatch.setattr(Planner, "open", Mock(side_effect=away))
    with pytest.raises(BrokerUnavailable, match="no answer from the brokers: Local: Timed out"):
        stream.tasks(at, end)


def test_all_topics_that_are_gone_for_a_while(
    bucket: dict[str, str], driver: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As those of a pattern, if the ACL that shows them is taken away and given back. No record comes twice."""
    for fails in ("false", "true"):
        stream = driver(bucket, failOnDataLoss=fails)
        at = stream.next_stop(stream.initial(), is_limited=False)
        with monkeypatch.context() as patched:
            patched.setattr(StreamDriver, "_subscribed", lambda *_: ())
            with nullcontext() if fails == "false" else pytest.raises(OffsetOutOfRange, match="the partition is gone"):
                assert stream.next_stop(at, is_limited=False) == at
        assert stream.next_stop(at, is_limited=False) == at == {AT: plain_log().next_offset}
    assert "Partition topic-0: the partition is gone" in caplog.text


def test_an_assigned_partition_that_is_gone_for_a_while(
    tmp_path: Path, driver: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """A bucket does not show it once retention has deleted its objects. The others go on, and no record comes twice."""
    logs = [LogBuilder(partition=number) for number in (0, 1)]

    def grow(*numbers: int) -> None:
        for number in numbers:
            logs[number].append_batch([Record(n, n, b"k", b"v") for n in range(5)])
            logs[number].roll()
            write_kafka_local(tmp_path, logs[number].segments()[-1:])

    grow(0, 1)
    assigned, other = json.dumps({"topic": [0, 1]}), ("topic", 1)
    stream = driver({"assign": assigned, **bucket_alone(tmp_path)}, failOnDataLoss="false")
    at = stream.next_stop(stream.initial(), is_limited=False)
    assert at == {AT: 5, other: 5}
    for path in tmp_path.glob("*/topic-1-*"):
        shutil.rmtree(path)
    grow(0)
    end = stream.next_stop(at, is_limited=False)
    assert end == {AT: 10}
    assert [row[1:3] for row in rows_between(stream, at, end)] == [(0, offset) for offset in range(5, 10)]
    assert "Partition topic-1: the partition is gone" in caplog.text
    grow(1)
    later = stream.next_stop(end, is_limited=False)
    assert later == {AT: 10, other: 10}
    assert [row[1:3] for row in rows_between(stream, end, later)] == [(1, offset) for offset in range(5, 10)]


def test_a_topic_that_never_was(bucket: dict[str, str], driver: Make) -> None:
    for fails in ("true", "false"):
        with pytest.raises(UnknownTopic):
            driver(bucket, subscribe="nothing", failOnDataLoss=fails).initial()


def test_what_only_a_batch_may_have(bucket: dict[str, str], driver: Make) -> None:
    by_partition = {"endingOffsetsByTimestamp": json.dumps({"topic": {"0": 3}})}
    for what, option in (
        ("offset", {"endingOffsets": "latest"}),
        ("offset", {"endingOffsets": "latest", **by_partition}),
        ("timestamp", by_partition),
        ("timestamp", {"endingTimestamp": "3"}),
    ):
        with pytest.raises(ConfigError, match=f"ending {what} not valid in streaming queries"):
            driver({**bucket, **option})
