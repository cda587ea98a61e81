"""A log that parts, by an unclean leader election, from the records that a read has given.

Rules of the file:

- The broker follows a script, and librdkafka's texts are the real ones. tests/rig/test_leaders.py has real elections.
- The store has given offsets 0 to 4 in leader epoch 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.errors import LogTruncated, TopicRecreated
from remote_fetch.locate.lineage import Lineage
from remote_fetch.model import LeaderEpoch, LogBounds, TopicIdPartition
from remote_fetch.plan.ranges import BrokerRange
from tests.session.test_broker import OTHER_ID, PARTITION, REFUSED, UNCOMMITTED, Broker, Message, reader_of

STORE = Lineage((LeaderEpoch(2, 0),), 5)
NO_STORE = Lineage.unknown()


def parted(end: int) -> Message:
    text = (
        f"Partition log truncation detected at offset 5 (leader epoch 2): broker end offset is {end} (offset leader "
        "epoch 2). Reset to INVALID.: Local: Partition log truncation detected (broker 2)"
    )
    return Message(5, REFUSED, text)


NO_EPOCH = Message(
    5,
    REFUSED,
    "No epoch found less or equal to offset 5 (leader epoch 2): broker end offset is -1 (offset leader epoch -1). "
    "Reset to INVALID.: Local: Partition log truncation detected (broker 2)",
)
OTHER_WORDS = Message(5, REFUSED, "in other words: Local: Partition log truncation detected (broker 2)")


def records(first: int, stop: int, epoch: int) -> list[Message]:
    return [Message(offset, epoch=epoch) for offset in range(first, stop)]


@dataclass
class Log(Broker):
    """A broker whose consumer seeks. The first `refused` seeks come before librdkafka has assigned the partition.

    A reader that only waits for the log fails. `holds`: the log has the end of the store's lineage. `is_electing`: no
    leader answers the first question about it. The log starts at `starts` after a message came that refuses an offset.
    """

    refused: int = 0
    starts: int = 0
    sought: list[tuple[int, int | None]] = field(default_factory=list)
    times_asked: int = 0
    holds: bool = False
    is_electing: bool = False
    proven: list[tuple[int, int]] = field(default_factory=list)

    def still_holds(self, partition: TopicIdPartition, leader_epoch: int, end_offset: int) -> bool:
        if self.is_electing:
            self.is_electing = False
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        self.proven.append((leader_epoch, end_offset))
        return self.holds

    def log_bounds(self, *_: object, **__: object) -> LogBounds:
        self.times_asked += 1
        assert self.times_asked < 10, "the reader waits without end"
        return self.bounds

    def seek(self, wanted: TopicPartition) -> None:
        if self.refused:
            self.refused -= 1
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sought.append((wanted.offset, wanted.leader_epoch))
        self.at = wanted.offset

    def consume(self, count: int, timeout: float) -> list[Message]:
        given = super().consume(count, timeout)
        if self.starts and any(one.code == REFUSED for one in given):
            self.bounds = LogBounds(self.starts, 100)
        return given


def read(
    log: Log, lineage: Lineage, first: int = 5, last: int = 9, *, skips: bool = False
) -> tuple[list[int], LogTruncated | None]:
    """The offsets that were given, and the error after them."""
    rows: list[int] = []
    reader = reader_of(log, lambda event: None, skips=skips)
    try:
        for batch in reader.read(BrokerRange(PARTITION, first, last, "local"), UNCOMMITTED, ("offset",), lineage):
            rows.extend(one.as_py() for one in batch.column("offset"))
    except LogTruncated as error:
        return rows, error
    return rows, None


class TestBesideRowsOfTheStore:
    def test_the_log_is_compared_once_before_the_first_record(self) -> None:
        log = Log([records(5, 7, 3), records(7, 10, 3)])
        assert read(log, STORE) == ([5, 6, 7, 8, 9], None)
        assert (log.assigned, log.sought) == ([5], [(5, 2)])

    def test_a_log_that_has_parted_ends_the_read(self) -> None:
        log = Log([[], [parted(3)]])
        rows, error = read(log, STORE)
        assert rows == []
        assert error is not None
        assert (error.topic, error.partition, error.offset) == ("topic", 0, 3)
        assert "other records from offset 3 on" in error.message
        assert "Read again" in str(error)

    def test_also_if_librdkafka_tells_it_in_other_words(self) -> None:
        _, error = read(Log([[OTHER_WORDS]]), STORE)
        assert error is not None
        assert error.offset is None
        assert "the log has other records than this read" in error.message

    def test_a_shorter_log_is_compared_before_it_is_waited_for(self) -> None:
        """It is assigned where it ends, because librdkafka may fetch before the seek."""
        log = Log([[parted(3)]], bounds=LogBounds(0, 3))
        assert read(log, STORE)[1] is not None
        assert (log.assigned, log.sought) == ([3], [(5, 2)])

    def test_a_shorter_log_that_has_not_parted_is_waited_for(self) -> None:
        """As after a clean election, while the high watermark is not known yet."""

        class Grows(Log):
            def consume(self, count: int, timeout: float) -> list[Message]:
                given = super().consume(count, timeout)
                self.bounds = LogBounds(0, 100)
                return given

        log = Grows([[Message(5, REFUSED)], records(5, 10, 3)], bounds=LogBounds(0, 3))
        assert read(log, STORE) == ([5, 6, 7, 8, 9], None)
        assert log.sought == [(5, 2), (5, 2)]

    def test_a_shorter_log_is_compared_once_while_it_is_waited_for(self) -> None:
        class Grows(Log):
            def log_bounds(self, *_: object, **__: object) -> LogBounds:
                found = super().log_bounds()
                if self.times_asked == 5:
                    self.bounds = LogBounds(0, 100)
                return found

            def consume(self, count: int, timeout: float) -> list[Message]:
                is_short = self.bounds.end_offset == 3
                return [Message(5, REFUSED)] if is_short else super().consume(count, timeout)

        log = Grows([records(5, 10, 3)], bounds=LogBounds(0, 3))
        assert read(log, STORE) == ([5, 6, 7, 8, 9], None)
        assert log.sought == [(5, 2), (5, 2)]

    def test_a_seek_that_fails_in_another_way_is_no_reason_to_compare_nothing(self) -> None:
        class Fails(Log):
            def seek(self, wanted: TopicPartition) -> None:
                raise KafkaException(KafkaError(KafkaError._FATAL))

        with pytest.raises(KafkaException):
            read(Fails([records(5, 10, 2)]), STORE)

    def test_a_leader_that_does_not_know_the_epoch_tells_nothing(self) -> None:
        log = Log([[NO_EPOCH], records(5, 10, 3)])
        assert read(log, STORE) == ([5, 6, 7, 8, 9], None)
        assert (log.assigned, log.sought) == ([5, 5], [(5, 2)])

    def test_a_seek_waits_for_the_assignment(self) -> None:
        log = Log([records(5, 10, 2)], refused=3)
        assert read(log, STORE) == ([5, 6, 7, 8, 9], None)
        assert log.sought == [(5, 2)]

    def test_a_seek_that_is_never_taken_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("remote_fetch.session.known_log._ASSIGNED_S", 0.01)
        log = Log([records(5, 10, 2)], refused=10**9)
        assert read(log, STORE) == ([5, 6, 7, 8, 9], None)
        assert (log.assigned, log.sought) == ([5, 5], [])

    @pytest.mark.parametrize(("end", "is_parted"), [(4, True), (5, False), (7, False)])
    def test_a_range_that_begins_after_other_tasks_ranges(self, end: int, is_parted: bool) -> None:
        """A later leader may have written the records between. Only what the store gives has to be there."""
        log = Log([[parted(end)], records(8, 10, 3)])
        rows, error = read(log, STORE, first=8)
        assert (rows, error is not None) == (([], True) if is_parted else ([8, 9], False))
        assert log.sought == [(8, 2)]


class TestRecords:
    """A hole: the store has also the offsets after the range."""

    HOLE = Lineage((LeaderEpoch(1, 0), LeaderEpoch(2, 7)), 20)

    @pytest.mark.parametrize(
        ("given", "rows", "offset"),
        [
            ([records(5, 7, 1), records(7, 10, 2)], [5, 6, 7, 8, 9], None),
            ([[*records(5, 7, 1), *records(7, 10, 2)]], [5, 6, 7, 8, 9], None),
            ([records(5, 7, 1), records(7, 10, 3)], [5, 6], 7),
            ([[*records(5, 7, 1), *records(7, 10, 3)]], [], 9),
            ([[*records(5, 7, 0), *records(7, 10, 2)]], [], 5),
        ],
    )
    def test_of_another_leader_than_in_the_store_s_log(
        self, given: Sequence[Sequence[Message]], rows: list[int], offset: int | None
    ) -> None:
        found, error = read(Log(given), self.HOLE)
        assert found == rows
        assert (None if error is None else error.offset) == offset

    @pytest.mark.parametrize("holds", [True, False])
    def test_a_lineage_that_is_wrong_about_the_past_is_not_believed(self, holds: bool) -> None:
        """Its end is what the brokers have confirmed. A log that has the end has all records of the store."""
        whole = ([5, 6, 7, 8, 9], None)
        log = Log([records(5, 7, 0), records(7, 10, 2)], holds=holds)
        assert (read(log, self.HOLE) == whole) is holds
        assert log.proven == [(2, 20)]
        log = Log([[parted(3)], records(5, 10, 0)], holds=holds)
        assert (read(log, self.HOLE) == whole) is holds
        assert (log.proven, log.sought) == ([(2, 20)], [(5, 1)])

    @pytest.mark.parametrize("holds", [True, False])
    def test_a_broker_that_is_away_does_not_decide_about_a_lineage(self, holds: bool) -> None:
        log = Log([records(5, 7, 0), records(7, 10, 2)], holds=holds, is_electing=True)
        rows, error = read(log, self.HOLE)
        assert (rows, error is None) == (([5, 6, 7, 8, 9], True) if holds else ([], False))

    def test_of_an_older_leader_than_the_store_s_last(self) -> None:
        """librdkafka finds the log long enough, although the store's last leader never led it."""
        log = Log([records(5, 10, 1)], holds=True)
        assert read(log, STORE)[1] is not None
        assert log.proven == []

    def test_without_a_leader_epoch(self) -> None:
        assert read(Log([records(5, 10, -1)]), self.HOLE) == ([5, 6, 7, 8, 9], None)


class TestInTheMiddle:
    def test_the_records_before_it_are_given(self) -> None:
        rows, error = read(Log([records(5, 7, 2), [*records(7, 8, 2), parted(6)]]), NO_STORE)
        assert rows == [5, 6, 7]
        assert error is not None
        assert error.offset == 6

    def test_after_the_end_of_the_range_it_is_no_error(self) -> None:
        assert read(Log([[*records(5, 10, 2), parted(6)]]), NO_STORE) == ([5, 6, 7, 8, 9], None)

    def test_a_range_of_a_log_that_is_not_in_the_store_is_not_compared(self) -> None:
        log = Log([records(5, 10, 2)])
        assert read(log, NO_STORE) == ([5, 6, 7, 8, 9], None)
        assert (log.assigned, log.sought) == ([5], [])

    def test_after_a_refusal_the_log_is_compared_with_the_last_record(self) -> None:
        log = Log([records(5, 7, 4), [Message(7, REFUSED)], [parted(7)], records(7, 10, 5)])
        assert read(log, NO_STORE) == ([5, 6, 7, 8, 9], None)
        assert (log.assigned, log.sought) == ([5, 7, 7], [(7, 4)])
        log = Log([records(5, 7, 4), [Message(7, REFUSED)], [parted(6)]])
        rows, error = read(log, NO_STORE)
        assert (rows, error is not None) == ([5, 6], True)

    def test_the_first_leader_has_an_epoch_as_any_other(self) -> None:
        log = Log([records(5, 7, 0), [Message(7, REFUSED)], [parted(6)]])
        rows, error = read(log, NO_STORE)
        assert (rows, error is not None) == ([5, 6], True)
        assert log.sought == [(7, 0)]

    def test_a_log_that_became_shorter_since_it_was_compared_is_compared_again(self) -> None:
        """Else the read would wait for its end to come, although it has parted."""

        class Shrinks(Log):
            def consume(self, count: int, timeout: float) -> list[Message]:
                given = super().consume(count, timeout)
                if any(one.code == REFUSED for one in given):
                    self.bounds = LogBounds(0, 6)
                return given

        log = Shrinks([records(5, 7, 2), [Message(7, REFUSED)], [parted(6)]])
        rows, error = read(log, STORE)
        assert (rows, error is not None) == ([5, 6], True)
        assert log.sought == [(5, 2), (7, 2)]

    def test_a_refusal_of_another_kind_says_nothing_about_the_lineage(self) -> None:
        log = Log([records(5, 7, 1), [Message(7, REFUSED)], records(7, 10, 2)], holds=True)
        assert read(log, TestRecords.HOLE) == ([5, 6, 7, 8, 9], None)
        assert (log.proven, log.sought) == ([], [(5, 1), (7, 1)])

    def test_deleted_records_are_not_compared(self) -> None:
        log = Log([records(5, 7, 4), [Message(7, REFUSED)], records(8, 10, 5)], starts=8)
        assert read(log, NO_STORE, skips=True) == ([5, 6, 8, 9], None)
        assert (log.assigned, log.sought) == ([5, 8], [])


class TestFollowing:
    """`cat` follows the log after its read has ended."""

    def test_a_log_that_has_parted(self) -> None:
        log = Log([records(7, 9, 2), [*records(9, 10, 2), parted(6)]])
        rows = reader_of(log, lambda event: None).follow({PARTITION: 7}, UNCOMMITTED, ("offset",), {PARTITION: STORE})
        assert [one.as_py() for one in next(rows).column("offset")] == [7, 8]
        assert [one.as_py() for one in next(rows).column("offset")] == [9]
        with pytest.raises(LogTruncated):
            next(rows)
        assert (log.assigned, log.sought) == ([7], [(7, 2)])

    def test_records_of_another_leader_after_those_of_the_store(self) -> None:
        log = Log([[parted(5)], records(7, 9, 3)])
        rows = reader_of(log, lambda event: None).follow({PARTITION: 7}, UNCOMMITTED, ("offset",), {PARTITION: STORE})
        assert [one.as_py() for one in next(rows).column("offset")] == [7, 8]
        assert (log.assigned, log.sought) == ([7, 7], [(7, 2)])

    def test_an_offset_that_the_log_does_not_have(self) -> None:
        log = Log([[Message(7, REFUSED)]])
        rows = reader_of(log, lambda event: None).follow({PARTITION: 7}, UNCOMMITTED, ("offset",), {PARTITION: STORE})
        with pytest.raises(KafkaException, match="said the broker"):
            next(rows)

    @pytest.mark.parametrize("news", [records(7, 9, 1), [parted(4)], [Message(7, REFUSED)]])
    def test_another_topic_under_the_name(self, news: list[Message]) -> None:
        """Its log has other records, or is shorter. That is no log that was cut off."""
        log = Log([news], topic_id=OTHER_ID)
        rows = reader_of(log, lambda event: None).follow({PARTITION: 7}, UNCOMMITTED, ("offset",), {PARTITION: STORE})
        with pytest.raises(TopicRecreated):
            next(rows)

    def test_without_rows_of_the_store_nothing_is_compared(self) -> None:
        log = Log([records(7, 9, 2)])
        rows = reader_of(log, lambda event: None).follow({PARTITION: 7}, UNCOMMITTED, ("offset",))
        assert next(rows).num_rows == 2
        assert (log.assigned, log.sought) == ([7], [])
