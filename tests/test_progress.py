"""How far a command is: share, rates, time left, and when a line is due. The test is the clock."""

from __future__ import annotations

import pytest

from remote_fetch.model import IndexType, TopicIdPartition, Uuid
from remote_fetch.observe import BrokerRead, Notice, RangeFetched, ReadPlanned, RecordsRead
from remote_fetch.progress import Meter, Position, ReadPosition

ONE, TWO = (TopicIdPartition(Uuid(bytes(16)), "shop", number) for number in range(2))


def test_a_line_is_due_once_in_each_interval() -> None:
    meter = Meter(60.0, 1000.0, wait_s=60.0)
    asked = [1000.0, 1059.9, 1060.0, 1060.1, 1119.9, 1125.0, 1180.0, 1185.0]
    assert [now_s for now_s in asked if meter.is_due(now_s)] == [1060.0, 1125.0, 1185.0]
    assert Meter(0.2, 7.0).is_due(7.0), "a terminal shows the first line at once"


@pytest.mark.parametrize(
    ("position", "line"),
    [
        (Position("offsets read", 25, 100), "offsets read: 25 of 100 (25%), 2/s, 0:30 left"),
        (Position("objects listed", 3000), "objects listed: 3000, 300/s"),
        (Position("offsets read", 100, 100, records=90), "offsets read: 100 of 100 (100%), 9 records/s, 0:00 left"),
        (
            Position("offsets read", 50, 200, records=40, size_bytes=30_000_000),
            "offsets read: 50 of 200 (25%), 4 records/s, 3.0 MB/s, 0:30 left",
        ),
        (
            Position("bytes read", 10 << 20, 40 << 20, is_bytes=True),
            "bytes read: 10.0 MiB of 40.0 MiB (25%), 1.0 MB/s, 0:30 left",
        ),
        (Position("offsets read", 0, 10), "offsets read: 0 of 10 (0%), 0/s"),
        (Position("offsets read", 0, 0), "offsets read: 0 of 0, 0/s"),
    ],
)
def test_a_line_after_ten_seconds(position: Position, line: str) -> None:
    meter = Meter(1.0, 0.0)
    first = Position(position.step, 0, position.total, position.is_bytes)
    assert meter.line(first, 100.0).partition(":")[0] == position.step
    assert meter.line(position, 110.0) == line


def test_the_first_line_has_no_rates() -> None:
    assert Meter(1.0, 0.0).line(Position("offsets read", 5, 10, records=5), 3.0) == "offsets read: 5 of 10 (50%)"


def test_rates_begin_with_the_first_position_of_a_step() -> None:
    """A job that goes on begins at 500, and has made 10 a second since then."""
    meter = Meter(1.0, 0.0)
    meter.take(Position("offsets restored", 500, 1000), 0.0)
    assert meter.line(Position("offsets restored", 600, 1000), 10.0).endswith("(60%), 10/s, 0:40 left")
    meter.take(Position("offsets compared", 0, 1000), 11.0)
    assert meter.line(Position("offsets compared", 100, 1000), 13.0).endswith("(10%), 50/s, 0:18 left")
    meter.take(Position("offsets compared", 0, 1000), 14.0)
    assert meter.line(Position("offsets compared", 100, 1000), 15.0).endswith("(10%), 100/s, 0:09 left")


def test_a_change_of_speed_shows_within_half_a_minute() -> None:
    meter = Meter(1.0, 0.0)
    for second in range(100):
        meter.take(Position("offsets read", second * 100, 20_000), float(second))
    for second in range(100, 140):
        meter.take(Position("offsets read", 9_900 + (second - 99), 20_000), float(second))
    assert " 1/s, " in meter.line(Position("offsets read", 9_941, 20_000), 140.0)


def test_the_position_of_a_read() -> None:
    read = ReadPosition("offsets read")
    assert not read.is_planned
    read(ReadPlanned({ONE: (10, 20), TWO: (0, 30)}))
    assert read.is_planned
    assert read.position() == Position("offsets read", 0, 40, records=0, size_bytes=0)
    read(RangeFetched(ONE, 100, 0.1))
    read(RangeFetched(ONE, 7, 0.1, IndexType.OFFSET))
    read(RecordsRead(ONE, 3, 15))
    read(Notice("hello"))
    assert read.position() == Position("offsets read", 5, 40, records=3, size_bytes=100)
    read(BrokerRead(TWO, 2, 11))
    read(RecordsRead(TWO, 2, 99))
    assert read.position() == Position("offsets read", 35, 40, records=5, size_bytes=111)
    read(ReadPlanned({ONE: (0, 4)}))
    read(RecordsRead(TWO, 1, 3))
    assert read.position() == Position("offsets read", 0, 4, records=1, size_bytes=0)


def test_a_read_of_a_few_records_is_measured_by_them() -> None:
    read = ReadPosition("offsets read", most=8)
    read(ReadPlanned({ONE: (0, 1000)}))
    read(RecordsRead(ONE, 6, 6))
    assert (read.position().step, read.position().share) == ("records read", 0.75)
    read(RecordsRead(ONE, 60, 66))
    assert read.position().done == 8
    read(ReadPlanned({ONE: (0, 5)}))
    assert read.position() == Position("offsets read", 0, 5, records=0, size_bytes=0)
