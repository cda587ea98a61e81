"""A stand-in of a broker for reads that fall back, and a function that reads a log by a fetcher with this broker.

Rules of the file:

- The broker answers from the oracle, which has never seen a byte of a segment.
- The session and all parts above it are real.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from remote_fetch.config import Config
from remote_fetch.decode.columns import schema_for
from remote_fetch.errors import Unlocatable
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.locator import KnownTimelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition
from remote_fetch.observe import Report
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.prepare.job import plan_job
from remote_fetch.scan.scan import Scan
from remote_fetch.session.brokers import Brokers
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from tests.scan.bucket import COLUMNS, Row, rows_of

__all__ = ["Broker", "Stream", "Unlocated", "give_broker", "read_with_broker", "sessions_without_segments"]


class Broker:
    """Takes the place of a cluster for a session. Keeps the stretches that it read, by first and last offset.

    Of each stretch it keeps the lineage of the store's rows too.

    Its log does not change during a read, and every read is permitted.
    """

    def __init__(self, log: LogBuilder) -> None:
        self._log = log
        self.asked: list[tuple[int, int]] = []
        self.lineages: list[Lineage] = []

    def consumer(self, isolation: IsolationLevel) -> None:
        """As `Cluster.consumer`. The consumer is never used."""

    def bounds(self, partition: TopicIdPartition, isolation: IsolationLevel) -> LogBounds:
        """As `LogGuard.bounds`."""
        return LogBounds(self._log.start_offset, self._log.next_offset)

    def still_holds(self, partition: TopicIdPartition, epoch: int, end_offset: int) -> bool:
        """As `Cluster.still_holds`."""
        return True

    def authorise(self, partition: TopicIdPartition, **_: object) -> None:
        """As `LogGuard.authorise`."""

    def check(self, partition: TopicIdPartition, isolation: IsolationLevel, next_offset: int) -> int:
        """As `LogGuard.check`."""
        return next_offset

    def close(self) -> None:
        """As `Cluster.close`."""

    def read(
        self, step: BrokerRange, isolation: IsolationLevel, columns: Sequence[str], lineage: Lineage
    ) -> Iterator[pa.RecordBatch]:
        """As `BrokerReader.read`."""
        self.asked.append((step.first_offset, step.last_offset))
        self.lineages.append(lineage)
        records = self._log.expected(isolation, step.first_offset, step.last_offset + 1)
        values: dict[str, list[Any]] = {
            "offset": [record.offset for record in records],
            "timestamp": [record.timestamp_ms * 1000 for record in records],
            "timestampType": [int(record.timestamp_type) for record in records],
            "key": [record.key for record in records],
            "value": [record.value for record in records],
            "headers": [[{"key": key, "value": value} for key, value in record.headers] for record in records],
            "leaderEpoch": [record.leader_epoch for record in records],
        }
        schema = schema_for(columns)
        yield pa.record_batch([pa.array(values[field.name], field.type) for field in schema], schema=schema)


@dataclass(frozen=True, slots=True)
class Stream:
    """The records of a read, its counts, the stretches of the broker, and its duration."""

    rows: list[Row]
    report: Report
    from_broker: list[tuple[int, int]]
    duration_s: float


class Unlocated(KnownTimelines):
    """Names partitions, and locates none of their segments."""

    def timeline(self, partition: TopicIdPartition) -> NoReturn:
        """As `Locator.timeline`."""
        raise Unlocatable("the service does not know what was asked for (404)")

    def reach(self, *_: Any, **__: Any) -> NoReturn:
        """As `StepwiseLocator.reach`."""
        raise Unlocatable("the leader gives no location")


def give_broker(session: Session, log: LogBuilder) -> Broker:
    """Let a session read beside the stand-in of a broker, which has `log`."""
    broker = Broker(log)
    session.brokers = Brokers(broker, broker, broker)  # type: ignore[arg-type]
    session.fallback.reader = session.brokers.reader
    return broker


@contextmanager
def sessions_without_segments(log: LogBuilder, *, is_stepwise: bool = False) -> Iterator[None]:
    """Let all sessions that are opened know the partition of `log`, have a broker, and locate no segment."""
    open_session, known = Session.open, Unlocated([Timeline(log.topic_id_partition, (), ())])

    def opened(*given: Any) -> Session:
        session = open_session(*given)
        give_broker(session, log)
        session.locator, session.stepwise = known, known if is_stepwise else None  # type: ignore[assignment]
        return session

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "open", opened)
        yield


def read_with_broker(fetcher: Any, log: LogBuilder, isolation: IsolationLevel, config: Mapping[str, Any]) -> Stream:
    """All of the log's tier, read through `fetcher`; the log itself stands in for the broker."""
    rows: list[Row] = []
    began = time.monotonic()
    with Session(Config.parse({**config, "fetch.remote.when": "always"}), fetcher) as session:
        broker = give_broker(session, log)
        plans = plan_job(
            session, log.topic_id_partition.topic, start="earliest", end="latest", partitions=None,
            isolation=isolation, log_start=None,
        )  # fmt: skip
        for batch in Scan(session, plans, COLUMNS).batches():
            rows += rows_of(batch)
        return Stream(rows, session.counters.report(), broker.asked, time.monotonic() - began)
