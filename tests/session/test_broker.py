"""Brokers in states that a real one does not enter on demand: still, away, with another topic, refusing an offset.

Rules of the file:

- The reader and the guard are the real ones.
- The clients are stubs that follow a script.
- Time passes only while a client waits.
"""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.errors import LogTruncated, OffsetOutOfRange, TopicRecreated, UnsupportedFormat
from remote_fetch.failures.broker_errors import BrokerStalled
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.locate.contact import Causes
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition, Uuid
from remote_fetch.observe import BrokerRead, Event, Notice, RecordsRead, TimestampsSaturated
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.session.broker import BrokerReader
from remote_fetch.session.guard import LogGuard, Patience

ID, OTHER_ID = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")
PARTITION = TopicIdPartition(ID, "topic", 0)
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
STALL_S = 10
AWAY = KafkaError(KafkaError._TIMED_OUT, "Local: Timed out")


@dataclass
class Message:
    """As much of a message as is read of one; `code` makes it an error, with the text `says`."""

    at: int
    code: int | None = None
    says: str = "said the broker"
    epoch: int | None = None

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code, self.says)

    def leader_epoch(self) -> int | None:
        return self.epoch

    def topic(self) -> str:
        return "topic"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return b"%d" % self.at


LOG = LogBounds(0, 100)
EOF = KafkaError._PARTITION_EOF
REFUSED = KafkaError._AUTO_OFFSET_RESET


@dataclass
class Broker:
    """A cluster and its one consumer. Each `consume` takes a second and the next answer of the script."""

    script: Sequence[Sequence[Message]] = ()
    bounds: LogBounds = LOG
    topic_id: Uuid = ID
    errors: list[KafkaError] = field(default_factory=list)
    now_s: float = 0.0
    at: int = -1
    assigned: list[int] = field(default_factory=list)
    causes: Causes = field(default_factory=Causes)
    answers: Iterator[Sequence[Message]] = field(init=False)

    def __post_init__(self) -> None:
        self.answers = iter(self.script)

    def consumer(self, isolation: IsolationLevel) -> Broker:
        return self

    def describe(self, name: str, *, timeout_s: float | None = None) -> Topic:
        self.fail()
        return Topic(name, self.topic_id, (0,), may_read=True)

    def log_bounds(self, *_: object, by_consumer: bool = False, **__: object) -> LogBounds:
        self.fail()
        return self.bounds

    def fail(self) -> None:
        if self.errors:
            self.now_s += 1
            raise KafkaException(self.errors.pop(0))

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.at = partitions[0].offset
        self.assigned.append(self.at)

    def unassign(self) -> None:
        self.at = -1

    def consume(self, count: int, timeout: float) -> list[Message]:
        self.now_s += 1
        given = list(next(self.answers))  # a read that goes on asking when the script is over fails here
        self.at = max([self.at, *(one.at + 1 for one in given if one.code is None)])
        return given

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition("topic", 0, self.at)]


class Closed(Broker):
    """A cluster that was closed, as far as a consumer shows that."""

    def unassign(self) -> None:
        raise RuntimeError("Consumer closed")


def test_a_reading_that_outlives_its_session() -> None:
    """Python would print the error of a generator that it drops."""
    one, other = (reader_of(Closed([records(0, 3)]), lambda _: None) for _ in range(2))
    for batches in (
        one.read(BrokerRange(PARTITION, 0, 9, "hole"), UNCOMMITTED, ("offset",)),
        other.follow({PARTITION: 0}, UNCOMMITTED, ("offset",)),
    ):
        assert next(batches).num_rows == 3
        cast("Generator[pa.RecordBatch]", batches).close()


def records(first: int, stop: int) -> list[Message]:
    return [Message(offset) for offset in range(first, stop)]


def read(
    broker: Broker, first: int, last: int, *, skips: bool = False, give_up_s: float | None = None
) -> tuple[list[int], list[str]]:
    """The offsets of the rows, and the notices."""
    heard: list[Event] = []
    reader = reader_of(broker, heard.append, skips=skips, give_up_s=give_up_s)
    rows: list[int] = []
    for batch in reader.read(BrokerRange(PARTITION, first, last, "hole"), UNCOMMITTED, ("offset", "value")):
        rows.extend(one.as_py() for one in batch.column("offset"))
    assert broker.at == -1, "the partition is given back"
    assert sum(one.records for one in heard if isinstance(one, BrokerRead)) == len(rows)
    return rows, [one.text for one in heard if isinstance(one, Notice)]


def reader_of(
    broker: Broker, observer: Callable[[Event], None], *, skips: bool = False, give_up_s: float | None = None
) -> BrokerReader:
    cluster = cast(Cluster, broker)
    patience = Patience(wait_s=5, pause_s=0)
    guard = LogGuard(cluster, observer, skips=skips, patience=patience, clock=lambda: broker.now_s)
    return BrokerReader(cluster, guard, observer, stall_s=STALL_S, give_up_s=give_up_s, clock=lambda: broker.now_s)


class Headed(Message):
    """A message with headers; without any its keys are such as the client fails on."""

    def __init__(self, at: int, headers: list[tuple[str, bytes]] | None) -> None:
        super().__init__(at)
        self.given = headers
        self.asked = 0

    def headers(self) -> list[tuple[str, bytes]]:
        self.asked += 1
        if self.given is None:
            raise SystemError("<method 'headers'> returned a result with an exception set")
        return self.given


class Timed(Message):
    """A message with a timestamp as confluent_kafka has it: its kind, and milliseconds."""

    def __init__(self, at: int, timestamp: tuple[int, int]) -> None:
        super().__init__(at)
        self.given = timestamp

    def timestamp(self) -> tuple[int, int]:
        return self.given


def test_timestamps_are_those_that_the_store_would_give() -> None:
    """Also of records of magic 0, whose timestamp is 0 to the client, and of any that microseconds cannot hold."""
    given = [(0, 0), (1, -1), (1, 7), (2, 8), (1, 1_700_000_000 * 10**9), (1, -(2**63))]
    broker = Broker([[Timed(at, timestamp) for at, timestamp in enumerate(given)]])
    columns, heard = ("timestamp", "timestampMs", "timestampType"), list[Event]()
    (batch,) = reader_of(broker, heard.append).read(BrokerRange(PARTITION, 0, 5, "hole"), UNCOMMITTED, columns)
    assert batch.column(0).cast(pa.int64()).to_pylist() == [-1000, -1000, 7000, 8000, 2**63 - 1, -(2**63)]
    assert batch.column(1).to_pylist() == [-1, -1, 7, 8, 1_700_000_000 * 10**9, -(2**63)]
    assert batch.column(2).to_pylist() == [-1, 0, 0, 1, 0, 0]
    assert [one for one in heard if isinstance(one, TimestampsSaturated)] == [TimestampsSaturated(PARTITION, 2)]


class TestHeaders:
    def test_they_are_asked_for_once(self) -> None:
        message = Headed(5, [("name", b"value")])
        reader = reader_of(Broker([[message]]), lambda event: None)
        (batch,) = reader.read(BrokerRange(PARTITION, 5, 5, "hole"), UNCOMMITTED, ("headers",))
        assert batch.to_pylist() == [{"headers": [{"key": "name", "value": b"value"}]}]
        assert message.asked == 1

    def test_a_key_that_the_client_cannot_give_is_an_error_that_says_where(self) -> None:
        message = Headed(6, None)
        reader = reader_of(Broker([[Headed(5, [("a", b"b")])], [message]]), lambda event: None)
        rows = reader.read(BrokerRange(PARTITION, 5, 6, "hole"), UNCOMMITTED, ("offset", "headers"))
        assert next(rows).num_rows == 1
        with pytest.raises(UnsupportedFormat, match="not UTF-8") as raised:
            next(rows)
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("topic", 0, 6)
        assert message.asked == 1

    def test_the_client_s_own_failure_is_caught_after_many_good_calls_too(self) -> None:
        """Runs in a separate process: a call site that CPython has specialised makes no check, and the process dies."""
        command = [sys.executable, "-m", "tests.scan.hot_headers"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(r"t 0 200 SystemError\(.*returned a result with an exception set.*\)\n", done.stdout)


class TestNoProgress:
    def test_it_is_said_once_and_reading_goes_on(self) -> None:
        broker = Broker([records(5, 7), *[[]] * 50, records(7, 10)])
        rows, notices = read(broker, 5, 9)
        assert rows == list(range(5, 10))
        (notice,) = notices
        said = "topic-0: the broker gives nothing from offset 7 on, though the log goes on to 10; still asking"
        assert notice == said

    def test_it_is_said_with_the_last_error(self) -> None:
        errors = [[Message(7, KafkaError.UNKNOWN, f"error {number}")] for number in range(3)]
        broker = Broker(
            [records(5, 7), *errors, [Message(7, EOF)], *[[]] * 20, records(7, 8), *[[]] * 20, records(8, 10)]
        )
        rows, notices = read(broker, 5, 9)
        assert rows == list(range(5, 10))
        assert [notice.partition(" on, though ")[2] for notice in notices] == [
            "the log goes on to 10 (error 2); still asking",
            "the log goes on to 10; still asking",
        ]

    def test_an_offset_of_the_log_that_is_refused_on_and_on_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As a segment in the middle of the tier whose deletion has begun. A plain consumer raises at once."""
        monkeypatch.setattr("remote_fetch.session.broker._POLL_S", 0.0)
        broker = Broker([records(5, 7), *[[Message(7, REFUSED, "out of range")]] * 30])
        heard = list[Event]()
        rows = reader_of(broker, heard.append).read(BrokerRange(PARTITION, 5, 9, "hole"), UNCOMMITTED, ("offset",))
        assert next(rows).column("offset").to_pylist() == [5, 6]
        with pytest.raises(BrokerStalled, match=r"refuses offset 7 \(out of range\), though its log goes from 0"):
            next(rows)
        assert len([one for one in heard if isinstance(one, Notice)]) == 1

    def test_an_offset_that_was_refused_for_a_while_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By a leader that has begun a moment ago."""
        monkeypatch.setattr("remote_fetch.session.broker._POLL_S", 0.0)
        refused = [[Message(7, REFUSED, "out of range")]] * 15
        assert read(Broker([records(5, 7), *refused, records(7, 10)]), 5, 9)[0] == list(range(5, 10))

    def test_it_is_said_again_after_progress(self) -> None:
        broker = Broker([[], *[[]] * 20, records(5, 7), *[[]] * 20, records(7, 10)])
        rows, notices = read(broker, 5, 9)
        assert rows == list(range(5, 10))
        assert [notice.split(" on,")[0] for notice in notices] == [
            "topic-0: the broker gives nothing from offset 5",
            "topic-0: the broker gives nothing from offset 7",
        ]

    def test_a_pause_that_is_short_enough_is_no_news(self) -> None:
        assert read(Broker([*[[]] * STALL_S, records(5, 10)]), 5, 9) == (list(range(5, 10)), [])

    def test_an_end_before_the_end_is_none(self) -> None:
        """A log that ends too soon goes on later, as a consumer takes it: a new leader may not know better yet."""
        broker = Broker([records(5, 7), [Message(7, EOF)], *[[]] * 20, records(7, 10)])
        assert read(broker, 5, 9)[0] == list(range(5, 10))

    def test_errors_that_librdkafka_deals_with_are_no_rows(self) -> None:
        lost = Message(-1, KafkaError._TRANSPORT)
        assert read(Broker([[lost], [*records(5, 8), lost], records(8, 10)]), 5, 9) == (list(range(5, 10)), [])


class TestDamage:
    """librdkafka passes over a damaged message, and fetches a damaged batch for ever."""

    @pytest.mark.parametrize("code", [KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED])
    def test_it_is_an_error_after_the_records_before_it(self, code: int) -> None:
        broker, heard = Broker([records(5, 7), [*records(7, 8), Message(8, code), *records(9, 12)]]), list[Event]()
        rows = reader_of(broker, heard.append).read(BrokerRange(PARTITION, 5, 20, "hole"), UNCOMMITTED, ("offset",))
        assert next(rows).column("offset").to_pylist() == [5, 6]
        assert next(rows).column("offset").to_pylist() == [7]
        with pytest.raises(KafkaException, match=r"said the broker \[topic-0, offset 8, as the broker") as raised:
            next(rows)
        assert raised.value.args[0].code() == code

    def test_after_the_range_it_is_the_end(self) -> None:
        for last in ([*records(7, 10), Message(10, KafkaError._BAD_MSG)], [Message(10, KafkaError._BAD_MSG)]):
            expected = [5, 6] if len(last) == 1 else list(range(5, 10))
            assert read(Broker([records(5, 7), last]), 5, 9) == (expected, [])

    def test_its_error_keeps_no_client_alive(self) -> None:
        """Until Python's collector runs, a client that is kept has its threads and sockets."""

        def read_or_follow(*, follows: bool) -> weakref.ref[Broker]:
            broker = Broker([[Message(5, KafkaError._BAD_MSG)]])
            reader, step = reader_of(broker, lambda event: None), BrokerRange(PARTITION, 5, 9, "hole")
            followed = reader.follow({PARTITION: 5}, UNCOMMITTED, ("offset",))
            with suppress(KafkaException):  # pytest would keep the error
                next(followed if follows else reader.read(step, UNCOMMITTED, ("offset",)))
            broker.causes.listener = str
            return weakref.ref(broker)

        gc.disable()
        try:
            assert [read_or_follow(follows=follows)() for follows in (False, True)] == [None, None]
        finally:
            gc.enable()

    def test_it_ends_what_is_followed(self) -> None:
        broker = Broker([[*records(7, 9), Message(9, KafkaError._BAD_COMPRESSION)]])
        rows = reader_of(broker, lambda event: None).follow({PARTITION: 7}, UNCOMMITTED, ("offset",))
        assert next(rows).num_rows == 2
        with pytest.raises(KafkaException, match="offset 9"):
            next(rows)


class TestEnds:
    def test_exact_offsets(self) -> None:
        broker = Broker([records(5, 20)])
        assert read(broker, 5, 9) == (list(range(5, 10)), [])
        assert broker.assigned == [5]

    def test_the_last_offsets_may_hold_no_records(self) -> None:
        assert read(Broker([records(5, 7), [Message(100, EOF)]]), 5, 9) == ([5, 6], [])

    def test_a_log_that_is_shorter_than_planned_is_waited_for(self) -> None:
        """As after an election, while the high watermark is not known yet."""
        broker = Broker([records(5, 10)], bounds=LogBounds(0, 3))

        def longer(event: Event) -> None:
            broker.bounds = LogBounds(0, 100)

        heard: list[Event] = []

        def observer(event: Event) -> None:
            heard.append(event)
            longer(event)

        # The clock stands while the log is too short, so that the wait is made long by hand.
        reader = BrokerReader(
            cast(Cluster, broker),
            LogGuard(cast(Cluster, broker), observer, skips=False),
            observer,
            stall_s=-1,
            clock=lambda: broker.now_s,
        )
        step = BrokerRange(PARTITION, 5, 9, "hole")
        (batch,) = reader.read(step, UNCOMMITTED, ("offset",))
        assert batch.column("offset").to_pylist() == list(range(5, 10))
        assert broker.assigned == [5]
        assert isinstance(heard[0], Notice)


class TestGivingUp:
    def test_a_broker_that_gives_nothing(self) -> None:
        with pytest.raises(
            KafkaException, match="topic-0: the broker gave nothing from offset 7 on for 20 s"
        ) as raised:
            read(Broker([records(5, 7), [Message(7, KafkaError.UNKNOWN, "no object")], *[[]] * 21]), 5, 9, give_up_s=20)
        assert raised.value.args[0].code() == KafkaError._TIMED_OUT
        assert str(raised.value.args[0].str()).endswith("the log goes on to 100 (no object)")

    def test_a_read_in_haste_waits_less(self) -> None:
        """A broker that answers with errors may have lost a thousand segments. A silent one may only be slow."""

        def waited_s(script: Sequence[Sequence[Message]], haste: int, give_up_s: float = 60) -> float:
            broker = Broker(script)
            reader = reader_of(broker, lambda event: None, give_up_s=give_up_s)
            step = BrokerRange(PARTITION, 5, 9, "hole")
            with pytest.raises(BrokerStalled) as raised:
                list(reader.read(step, UNCOMMITTED, ("offset",), haste=haste))
            assert raised.value.was_hurried is (f"for {give_up_s} s" not in str(raised.value))
            return broker.now_s

        failing = [[Message(5, KafkaError.UNKNOWN, "no object")]] * 99
        assert [waited_s(failing, haste) for haste in (0, 1, 2, 9, 9_999)] == [61, 31, 16, 2, 2]
        silent: list[list[Message]] = [[]] * 99
        assert [waited_s(silent, haste) for haste in (0, 1, 2, 9)] == [61, 31, 16, STALL_S + 1]
        assert waited_s(silent, 9, 5) == 6, "no read waits longer than it was told"
        assert waited_s([records(5, 7), *silent], 9) == 62, "a broker that gives something has the whole time again"

    @pytest.mark.parametrize("is_in_the_middle", [False, True])
    def test_a_broker_that_is_away_has_the_whole_time_when_it_is_back(self, *, is_in_the_middle: bool) -> None:
        """The guard waits for it, and has its own limit. A restart may take longer than a broker may stall."""
        away = [KafkaError(KafkaError._TRANSPORT, "down") for _ in range(4)]

        class Restarted(Broker):
            def log_bounds(self, *how: object, by_consumer: bool = False, **more: object) -> LogBounds:
                while by_consumer is is_in_the_middle and away:
                    self.errors.append(away.pop())
                return super().log_bounds(*how, by_consumer=by_consumer, **more)

        broker = Restarted([*[[]] * 12, records(5, 10)])
        assert read(broker, 5, 9, give_up_s=12)[0] == list(range(5, 10))
        assert broker.now_s == 17

    def test_a_broker_that_is_slow(self) -> None:
        slow = [answer for offset in range(5, 10) for answer in (*[[]] * 15, records(offset, offset + 1))]
        assert read(Broker(slow), 5, 9, give_up_s=20)[0] == list(range(5, 10))

    def test_whoever_takes_the_records_may_be_slow(self) -> None:
        broker = Broker([records(5, 7), *[[]] * 15, records(7, 10)])
        reader = reader_of(broker, lambda event: None, give_up_s=20)
        batches = reader.read(BrokerRange(PARTITION, 5, 9, "hole"), UNCOMMITTED, ("offset",))
        next(batches)
        broker.now_s += 1_000
        assert next(batches).column("offset").to_pylist() == [7, 8, 9]

    @pytest.mark.parametrize("skips", [False, True])
    def test_a_log_that_ends_too_soon(self, skips: bool) -> None:
        """As after an unclean leader election between plan and read."""

        class Truncated(Broker):
            def consume(self, count: int, timeout: float) -> list[Message]:
                self.bounds = LogBounds(0, 7)
                return super().consume(count, timeout)

        broker = Truncated([records(5, 7), [Message(7, EOF)], *[[]] * 20])
        if not skips:
            with pytest.raises(OffsetOutOfRange, match="offsets 7 to 9 are gone: the log ends at 7 now"):
                read(broker, 5, 9, give_up_s=20)
            return
        rows, notices = read(broker, 5, 9, skips=True, give_up_s=20)
        assert rows == [5, 6]
        assert "offsets 7 to 9 are gone: the log ends at 7 now; going on without" in notices[-1]
        for may_skip in (True, False):
            guard = LogGuard(cast(Cluster, broker), print, skips=may_skip, may_be_cut=False)
            with pytest.raises(LogTruncated, match="offsets 7 to 9 are gone: the log ends at 7 now"):
                guard.cut_short(PARTITION, 7, 9, 7)


def test_no_more_messages_are_asked_for_than_the_stretch_has_offsets() -> None:
    """If fewer are there than were asked for, librdkafka waits for more until the timeout."""
    asked: list[int] = []

    class Counting(Broker):
        def consume(self, count: int, timeout: float) -> list[Message]:
            asked.append(count)
            return super().consume(count, timeout)

    read(Counting([records(5, 7), [], records(7, 10)]), 5, 9)
    read(Counting([records(0, 5_000), records(5_000, 6_000)], bounds=LogBounds(0, 6_000)), 0, 5_999)
    assert asked == [5, 3, 3, 5_000, 1_000]


class TestTheLogStart:
    def test_before_the_stretch_is_read(self) -> None:
        with pytest.raises(OffsetOutOfRange, match="offsets 5 to 6 are gone: the log starts at 7 now") as raised:
            read(Broker(bounds=LogBounds(7, 100)), 5, 9)
        assert raised.value.offset == 5
        rows, notices = read(Broker([records(7, 10)], bounds=LogBounds(7, 100)), 5, 9, skips=True)
        assert rows == [7, 8, 9]
        assert len(notices) == 1

    def test_behind_the_stretch(self) -> None:
        broker = Broker(bounds=LogBounds(50, 100))
        rows, notices = read(broker, 5, 9, skips=True)
        assert (rows, broker.assigned) == ([], [])
        assert len(notices) == 1

    @pytest.mark.parametrize("skips", [False, True])
    def test_in_the_middle(self, skips: bool) -> None:
        class Deletes(Broker):
            def consume(self, count: int, timeout: float) -> list[Message]:
                given = super().consume(count, timeout)
                if any(one.code == REFUSED for one in given):
                    self.bounds = LogBounds(8, 100)
                return given

        broker = Deletes([records(5, 7), [Message(7, REFUSED)], records(8, 10)])
        if not skips:
            with pytest.raises(OffsetOutOfRange, match="offsets 7 to 7 are gone"):
                read(broker, 5, 9)
            return
        rows, notices = read(broker, 5, 9, skips=True)
        assert rows == [5, 6, 8, 9]
        assert broker.assigned == [5, 8]
        assert len(notices) == 1

    def test_a_refusal_that_passes(self) -> None:
        """The log still has the offset: it is asked for again, and nothing is read twice."""
        broker = Broker([records(5, 7), [Message(7, REFUSED)], records(7, 10)])
        assert read(broker, 5, 9) == (list(range(5, 10)), [])
        assert broker.assigned == [5, 7]


class TestAnotherTopic:
    def test_rows_of_another_topic_never_leave(self) -> None:
        class MadeAnew(Broker):
            def consume(self, count: int, timeout: float) -> list[Message]:
                given = super().consume(count, timeout)
                if given[0].at == 7:
                    self.topic_id = OTHER_ID
                return given

        reader = reader_of(MadeAnew([records(5, 7), records(7, 10)]), lambda event: None)
        batches = reader.read(BrokerRange(PARTITION, 5, 9, "hole"), UNCOMMITTED, ("offset",))
        assert next(batches).column("offset").to_pylist() == [5, 6]
        with pytest.raises(TopicRecreated, match="it was deleted and made again"):
            next(batches)

    def test_another_topic_that_is_empty(self) -> None:
        """The log start of another topic is no reason to skip anything."""
        with pytest.raises(TopicRecreated):
            read(Broker(bounds=LogBounds(50, 100), topic_id=OTHER_ID), 5, 9, skips=True)

    @pytest.mark.parametrize(("topic_id", "error"), [(ID, LogTruncated), (OTHER_ID, TopicRecreated)])
    def test_another_topic_that_has_other_records(self, topic_id: Uuid, error: type[Exception]) -> None:
        """librdkafka tells of it as of a log that was cut off."""

        class Parted(Broker):
            def consume(self, count: int, timeout: float) -> list[Message]:
                given = super().consume(count, timeout)
                if given[0].code is not None:
                    self.topic_id = topic_id
                return given

        says = "log truncation detected at offset 7: broker end offset is 3 (leader epoch 0)"
        with pytest.raises(error):
            read(Parted([records(5, 7), [Message(7, REFUSED, says)]]), 5, 9)

    def test_another_topic_in_which_nothing_comes(self) -> None:
        with pytest.raises(TopicRecreated):
            read(Broker([[]] * 20, topic_id=OTHER_ID), 5, 9)


class TestAwayInTheMiddle:
    def test_it_is_waited_for_and_said_once(self) -> None:
        rows, notices = read(Broker([records(5, 10)], errors=[AWAY, AWAY, AWAY]), 5, 9)
        assert rows == list(range(5, 10))
        (notice,) = notices
        assert "topic-0: the broker does not answer" in notice

    @pytest.mark.parametrize("name", ["NOT_LEADER_FOR_PARTITION", "OFFSET_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR"])
    def test_a_leader_that_is_new_or_is_replaced(self, name: str) -> None:
        error = KafkaError(getattr(KafkaError, name), "said the broker")
        assert read(Broker([records(5, 10)], errors=[error, error]), 5, 9)[0] == list(range(5, 10))

    def test_it_is_not_waited_for_without_end(self) -> None:
        broker = Broker([records(5, 10)], errors=[AWAY] * 100)
        with pytest.raises(KafkaException) as raised:
            read(broker, 5, 9)
        assert raised.value.args[0].code() == KafkaError._TIMED_OUT
        assert broker.now_s == 5

    def test_what_the_broker_refuses_is_its_own_error(self) -> None:
        refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no")
        with pytest.raises(KafkaException) as raised:
            read(Broker(errors=[refusal]), 5, 9)
        assert raised.value.args[0] is refusal

    def test_a_topic_that_is_no_more_is_not_waited_for(self) -> None:
        gone = [
            KafkaError(KafkaError._UNKNOWN_PARTITION, "Local: Unknown partition"),
            KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "Broker: Unknown topic or partition"),
        ]
        with pytest.raises(KafkaException) as raised:
            read(Broker(errors=gone), 5, 9)
        assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_another_consumer_goes_on_after_one_that_was_replaced() -> None:
    """A consumer that has lost all brokers gives nothing for ever. The question about the ends of the log shows it."""
    successor = Broker([records(7, 10)])

    @dataclass
    class Lost(Broker):
        questions: int = 0

        def log_bounds(self, *_: object, by_consumer: bool = False, **__: object) -> LogBounds:
            self.questions += by_consumer
            return self.bounds

        def consumer(self, isolation: IsolationLevel) -> Broker:
            return successor if self.questions else self

    lost = Lost([records(5, 7), *[()] * (int(STALL_S) + 2)])
    assert read(lost, 5, 9)[0] == [5, 6, 7, 8, 9]
    assert (lost.assigned, successor.assigned) == ([5], [7])


def test_another_consumer_follows_after_one_that_was_replaced() -> None:
    successor = Broker([records(9, 12)])

    @dataclass
    class Lost(Broker):
        is_asked: bool = False

        def log_bounds(self, *_: object, by_consumer: bool = False, **__: object) -> LogBounds:
            self.is_asked = by_consumer
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

        def consumer(self, isolation: IsolationLevel) -> Broker:
            return successor if self.is_asked else self

    lost = Lost([records(7, 9), *[()] * (int(STALL_S) + 2)])
    rows = reader_of(lost, lambda _: None).follow({PARTITION: 7}, UNCOMMITTED, ("offset",))
    assert [next(rows).column("offset").to_pylist() for _ in range(2)] == [[7, 8], [9, 10, 11]]
    assert (lost.assigned, successor.assigned) == ([7], [9])
    assert lost.at == -1, "the partition is given back"
    rows.close()  # type: ignore[attr-defined]


def test_a_broker_that_is_away_while_it_is_followed_is_said_once() -> None:
    heard: list[Event] = []
    silence = [()] * (int(STALL_S) + 2)
    broker = Broker([records(7, 8), *silence, *silence, records(8, 9), *silence, records(9, 10)])
    rows = reader_of(broker, heard.append).follow({PARTITION: 7}, UNCOMMITTED, ("offset",))

    def said_before(offset: int) -> list[str]:
        assert next(rows).column("offset").to_pylist() == [offset]
        return [event.text for event in heard if isinstance(event, Notice)]

    assert said_before(7) == []
    broker.errors = [KafkaError(KafkaError._ALL_BROKERS_DOWN, "all are down") for _ in range(2)]
    once = ["topic-0: the broker does not answer (all are down); still asking"]
    assert said_before(8) == once
    broker.errors = [KafkaError(KafkaError._TRANSPORT, "it went away")]
    assert said_before(9) == [*once, "topic-0: the broker does not answer (it went away); still asking"]
    rows.close()  # type: ignore[attr-defined]


def test_one_of_several_brokers_that_is_away_while_they_are_followed_is_said_once() -> None:
    """The partitions of the others go on. Only librdkafka notices, and tells it at each try."""
    heard: list[Event] = []
    broker = Broker([records(7, 8)])
    rows = reader_of(broker, heard.append).follow({PARTITION: 7}, UNCOMMITTED, ("offset",))
    next(rows)

    def said(code: int, *texts: str) -> list[str]:
        heard.clear()
        for text in texts:
            broker.causes.hear(KafkaError(code, text))
        return [event.text for event in heard if isinstance(event, Notice)]

    refused = [f"host:9/2: Connect failed: refused (after {after_ms}ms in state CONNECT)" for after_ms in (0, 5)]
    once = ["a broker cannot be reached: host:9/2: Connect failed: refused"]
    assert said(KafkaError._TRANSPORT, *refused) == once
    assert said(KafkaError._TRANSPORT, *refused) == []
    assert said(KafkaError._TRANSPORT, "host:9/2: Disconnected (after 900ms in state UP)") == []
    assert said(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down") == []
    password = "host:9/2: SASL authentication error: Invalid username or password (after 8ms in state AUTH_REQ)"
    assert "Invalid username" in said(KafkaError._AUTHENTICATION, password)[0]
    broker.now_s += 3600
    assert said(KafkaError._TRANSPORT, *refused) == once, "it may be another outage"
    rows.close()  # type: ignore[attr-defined]


def test_what_is_followed_is_counted() -> None:
    """As what a plan gives; else a report would leave it out."""
    heard: list[Event] = []
    rows = reader_of(Broker([records(7, 10)]), heard.append).follow({PARTITION: 7}, UNCOMMITTED, ("offset",))
    assert next(rows).num_rows == 3
    rows.close()  # type: ignore[attr-defined]
    assert [one for one in heard if isinstance(one, RecordsRead)] == [RecordsRead(PARTITION, 3, 10)]
