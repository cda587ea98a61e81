"""A read gives records of one log: the broker reader gets the leader epochs of the store's rows beside its range.

Rules of the file:

- A broker stands in that keeps what it gets. tests/session/test_known_log.py has what a real one makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from remote_fetch.config import Config
from remote_fetch.errors import LogTruncated
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.locate.lineage import Lineage
from remote_fetch.model import IsolationLevel, RemoteLogSegmentMetadata
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.prepare.job import plan_job
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.scan import Scan
from remote_fetch.session.brokers import Brokers
from remote_fetch.session.session import Session
from remote_fetch.tables.planning import tasks_of
from remote_fetch.testing.faults import Fault, FaultKind, FetchCall
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from tests.scan.bucket import COLUMNS, UNCOMMITTED, Bucket, WatchedBucket, plain_log, snapshot_config
from tests.stores.stand_in import Broker

UNKNOWN = Lineage.unknown()


class Parted(Broker):
    """Its log has parted from the records of the store."""

    def read(
        self, step: BrokerRange, isolation: IsolationLevel, columns: Sequence[str], lineage: Lineage
    ) -> Iterator[pa.RecordBatch]:
        raise LogTruncated("the log has other records")


def session_of(fetcher: RemoteStorageFetcher, broker: Broker, bucket: Bucket) -> Session:
    session = Session(Config.parse({**snapshot_config(bucket.metadata), "fetch.remote.when": "always"}), fetcher)
    session.brokers = Brokers(broker, broker, broker)  # type: ignore[arg-type]
    session.fallback.reader = session.brokers.reader
    return session


def planned(session: Session, start: Any = "earliest", end: Any = "latest") -> tuple[PartitionPlan, ...]:
    return plan_job(session, "topic", start=start, end=end, partitions=None, isolation=UNCOMMITTED)


def read(
    broker: Broker, bucket: Bucket, *, start: Any = "earliest", end: Any = "latest", fetcher: Any = None
) -> list[int]:
    """The offsets of the rows."""
    with session_of(fetcher or bucket, broker, bucket) as session:
        scan = Scan(session, planned(session, start, end), COLUMNS)
        return [row["offset"] for batch in scan.batches() for row in batch.to_pylist()]


def log_and_tier(*missing: int) -> tuple[LogBuilder, Bucket]:
    """60 records in three segments, without the missing segments in the tier."""
    log = plain_log()
    return log, Bucket([one for number, one in enumerate(log.segments()) if number not in missing])


@pytest.mark.parametrize(
    ("missing", "bounds", "asked"),
    [
        ((2,), {}, [(40, 59)]),
        ((1,), {}, [(20, 39)]),
        ((0,), {}, [(0, 19)]),  # rows of the store follow
        ((0,), {"end": 30}, [(0, 19)]),
    ],
)
def test_beside_rows_of_the_store_a_range_is_compared(
    missing: tuple[int, ...], bounds: dict[str, Any], asked: list[tuple[int, int]]
) -> None:
    log, bucket = log_and_tier(*missing)
    broker = Broker(log)
    assert read(broker, bucket, **bounds) == list(range(bounds.get("end", 60)))
    assert broker.asked == asked
    (lineage,) = broker.lineages
    assert lineage.entries == log.lineage
    assert lineage.epoch_for(bucket.metadata[-1].end_offset) == log.leader_epoch


@pytest.mark.parametrize(
    ("missing", "bounds", "asked"),
    [((2,), {"start": 40}, [(40, 59)]), ((0,), {"end": 20}, [(0, 19)]), ((0, 2), {"start": 45}, [(45, 59)])],
)
def test_without_rows_of_the_store_nothing_is_compared(
    missing: tuple[int, ...], bounds: dict[str, Any], asked: list[tuple[int, int]]
) -> None:
    log, bucket = log_and_tier(*missing)
    broker = Broker(log)
    read(broker, bucket, **bounds)
    assert (broker.asked, broker.lineages) == (asked, [UNKNOWN])


def test_a_store_that_gave_nothing_is_not_compared() -> None:
    log, bucket = log_and_tier()

    def schedule(call: FetchCall) -> Fault | None:
        return Fault(FaultKind.DENIED) if call.index_type is None else None

    broker = Broker(log)
    assert read(broker, bucket, fetcher=WatchedBucket(bucket, schedule), start=40) == list(range(40, 60))
    assert (broker.asked, broker.lineages) == ([(40, 59)], [UNKNOWN])


def test_a_store_that_fails_in_the_middle_is_compared() -> None:
    log, bucket = log_and_tier()

    def schedule(call: FetchCall) -> Fault | None:
        fails = call.index_type is None and call.metadata.start_offset == 40
        return Fault(FaultKind.DENIED) if fails else None

    broker = Broker(log)
    assert read(broker, bucket, fetcher=WatchedBucket(bucket, schedule)) == list(range(60))
    assert broker.asked == [(40, 59)]
    assert broker.lineages[0].entries == log.lineage


def test_ranges_that_touch_are_one_and_others_are_not() -> None:
    log, bucket = log_and_tier(0, 1)
    broker = Broker(log)
    with session_of(bucket, broker, bucket) as session:
        (whole,) = planned(session)
        partition = whole.opened.partition
        ranges = [(0, 4), (5, 9), (20, 24), (25, 29)]
        steps = tuple(BrokerRange(partition, first, last, "hole") for first, last in ranges)
        rows = Scan(session, [replace(whole, steps=steps)], COLUMNS).batches()
        assert [row["offset"] for batch in rows for row in batch.to_pylist()] == [*range(10), *range(20, 30)]
    assert broker.asked == [(0, 9), (20, 29)]


def test_ranges_of_two_partitions_are_two_if_their_offsets_touch() -> None:
    """As one range, all of it would be read from the first partition."""
    log, bucket = log_and_tier(0, 1)
    broker = Broker(log)
    with session_of(bucket, broker, bucket) as session:
        (whole,) = planned(session)
        steps = [BrokerRange(whole.opened.partition, first, first + 4, "hole") for first in (0, 5)]
        rows = Scan(session, [replace(whole, steps=(step,)) for step in steps], COLUMNS).batches()
        assert sum(batch.num_rows for batch in rows) == 10
    assert broker.asked == [(0, 4), (5, 9)]


def test_rows_of_another_partition_are_nothing_to_compare_with() -> None:
    log, bucket = log_and_tier(2)
    broker = Broker(log)
    with session_of(bucket, broker, bucket) as session:
        (whole,) = planned(session)
        plans = [replace(whole, steps=whole.steps[:-1]), replace(whole, steps=whole.steps[-1:])]
        assert sum(batch.num_rows for batch in Scan(session, plans, COLUMNS).batches()) == 60
    assert broker.lineages == [UNKNOWN]


def test_the_rows_before_are_given_and_no_other_way_is_tried() -> None:
    log, bucket = log_and_tier(2)
    with session_of(bucket, Parted(log), bucket) as session:
        rows = Scan(session, planned(session), COLUMNS).batches()
        assert [row["offset"] for batch in islice(rows, 1) for row in batch.to_pylist()] == list(range(40))
        with pytest.raises(LogTruncated):
            next(rows)
        assert session.counters.report().fallbacks == {}


class BrokenFetcher(Bucket):
    """It has a defect, which shows at the second segment."""

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> memoryview:
        if metadata.start_offset == 20:
            raise KeyError("defect")
        return super().fetch_log_segment(metadata, start_position, end_position)


def test_a_defect_of_the_fetcher_is_no_reason_to_ask_the_broker() -> None:
    log, bucket = log_and_tier()
    broker = Broker(log)
    with session_of(BrokenFetcher(log.segments()), broker, bucket) as session:
        rows = Scan(session, planned(session), COLUMNS).batches()
        assert [row["offset"] for batch in islice(rows, 1) for row in batch.to_pylist()] == list(range(20))
        with pytest.raises(KeyError, match="defect"):
            next(rows)
        assert session.counters.report().fallbacks == {}
    assert broker.asked == []


class TestTasks:
    """Tasks of one plan are read apart. One of the broker alone has to know what the others take from the store."""

    @pytest.mark.parametrize(
        ("missing", "start", "first", "epoch"),
        [(2, "earliest", 40, 4), (1, "earliest", 20, 3), (2, 40, 40, None)],
        ids=["past the tier", "a hole", "nothing from the store"],
    )
    def test_one_of_the_broker_alone(self, missing: int, start: Any, first: int, epoch: int | None) -> None:
        """It gets the leader epoch of the record before, although another leader wrote those that it reads."""
        log = LogBuilder(leader_epoch=3)
        for following in (4, 5, 6):
            log.append_batch([Record(number) for number in range(20)])
            log.roll()
            log.new_leader_epoch(following)
        bucket = Bucket([one for number, one in enumerate(log.segments()) if number != missing])
        broker = Broker(log)
        with session_of(bucket, broker, bucket) as session:
            tasks = tasks_of(planned(session, start), session.locator.end_is_inferred, task_bytes=1 << 20)
            (part,) = tasks[-1].parts
            assert [type(step) for step in part.steps] == [BrokerRange]
            assert part.opened.timeline.segments == ()
            plans = [PartitionPlan(part.opened, part.steps, None)]
            assert sum(batch.num_rows for batch in Scan(session, plans, COLUMNS).batches()) == 20
        (lineage,) = broker.lineages
        assert broker.asked == [(first, first + 19)]
        assert lineage.epoch_for(first - 1) == epoch
