"""A partition leader in memory that tells locations (KIP-1254), over a log that was built, and a session that asks it.

Rules of the file:

- The answers are computed from the log alone: the segments of its tier, and the transaction indexes of the whole log.
- What the leader serves itself are the oracle's records, so a read that falls back gives the right rows too.
- The reader under test is the real one, from the session on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from remote_fetch.decode.columns import schema_for
from remote_fetch.formats.indexes import parse_transaction_index
from remote_fetch.locate.broker_locator import BrokerLocator
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.locations import Answer, Location, LocationsUnsupported
from remote_fetch.locate.locator import SharedStepwiseLocator
from remote_fetch.model import (
    AbortedTransaction,
    IsolationLevel,
    LogBounds,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from remote_fetch.observe import BrokerRead
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.oracle import LogRecord

__all__ = ["EVERYTHING", "Leader", "attach"]

COMMITTED = IsolationLevel.READ_COMMITTED
EVERYTHING = frozenset({"start_offset", "end_offset", "size_bytes"})
"""The fields of a location that the KIP does not have."""


def aborted_of(log: LogBuilder) -> list[AbortedTransaction]:
    """Every aborted transaction of a log, also those whose marker is in its last segment."""
    whole = log.fork(log.next_offset)
    if whole.cuts[-1] < whole.next_offset:
        whole.roll()
    indexes = (segment.transaction_index for segment in whole.segments())
    return [entry for index in indexes if index is not None for entry in parse_transaction_index(index)]


@dataclass
class Leader:
    """Leads one log whose tier has the segments `tiered`. Answers as `Locations` does.

    - `tells`: the fields beyond KIP-1254's that it tells.
    - `local_start`: from here on it serves offsets itself, though they are tiered. None: only what is not tiered.
    - `custom_metadata` of every segment.
    - `is_old`: it does not speak the version. `ignores`: it speaks the version, and gives records.
    - `asked` are the offsets of the questions.
    """

    log: LogBuilder
    tiered: list[RemoteLogSegmentMetadata]
    tells: frozenset[str] = EVERYTHING
    local_start: int | None = None
    log_start: int = -1
    custom_metadata: bytes | None = None
    is_old: bool = False
    ignores: bool = False
    asked: list[int] = field(default_factory=list)
    served: list[tuple[int, int]] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.aborted = aborted_of(self.log)
        self.log_start = self.log.start_offset if self.log_start < 0 else self.log_start

    @property
    def partition(self) -> TopicIdPartition:
        return self.log.topic_id_partition

    def covering(self, offset: int) -> RemoteLogSegmentMetadata | None:
        return next((each for each in self.tiered if each.start_offset <= offset <= each.end_offset), None)

    def ask(self, partition: TopicIdPartition, offset: int, isolation: IsolationLevel) -> Answer:
        self.asked.append(offset)
        if self.is_old:
            raise LocationsUnsupported("broker 1 speaks Fetch 4 to 18")
        log = self.log
        segment = None if self.ignores else self.covering(offset)
        if segment is None or (self.local_start is not None and offset >= self.local_start):
            return self.answer(None, (), has_records=self.log_start <= offset < log.next_offset)
        aborted = [
            (each.producer_id, each.first_offset)
            for each in self.aborted
            if each.last_offset >= offset and each.first_offset <= segment.end_offset
        ]
        told = {name: getattr(segment, _FIELDS[name]) if name in self.tells else None for name in EVERYTHING}
        location = Location(segment.segment_id.id, self.custom_metadata, **told)
        return self.answer(location, tuple(aborted) if isolation is COMMITTED else ())

    def answer(
        self, location: Location | None, aborted: tuple[tuple[int, int], ...], *, has_records: bool = False
    ) -> Answer:
        log = self.log
        return Answer(location, aborted, log.last_stable_offset, self.log_start, has_records)

    def earliest_local(self, partition: TopicIdPartition) -> int | None:
        tier_stop = max((segment.end_offset + 1 for segment in self.tiered), default=self.log_start)
        return tier_stop if self.local_start is None else self.local_start

    def reconnect(self) -> None:
        """Nothing is connected."""

    def close(self) -> None:
        """Nothing is open."""

    # ------------------------------------------------------------- the questions that every session asks its cluster

    def describe(self, name: str) -> Any:
        partitions = (self.partition.partition,)
        return SimpleNamespace(name=name, topic_id=self.partition.topic_id, partitions=partitions, may_read=True)

    def consumer(self, isolation: IsolationLevel) -> None:
        """Nothing to connect."""

    def answered(self) -> None:
        """Nothing to note."""

    answered_s = 0.0

    def still_holds(self, partition: TopicIdPartition, leader_epoch: int, end_offset: int) -> bool:
        return True

    def log_bounds(self, partition: TopicIdPartition, isolation: IsolationLevel) -> LogBounds:
        end = self.log.last_stable_offset if isolation is COMMITTED else self.log.next_offset
        return LogBounds(self.log_start, end)

    def offset_for_time(self, partition: TopicIdPartition, timestamp_ms: int, isolation: IsolationLevel) -> int | None:
        found = (record.offset for record in self.log.expected(isolation) if record.timestamp_ms >= timestamp_ms)
        return min(found, default=None)

    # --------------------------------------------------------------------------------------- the guard, and the reader

    def authorise(self, partition: TopicIdPartition) -> None:
        """READ is allowed."""

    def bounds(self, partition: TopicIdPartition, isolation: IsolationLevel) -> LogBounds:
        return self.log_bounds(partition, isolation)

    def check(self, partition: TopicIdPartition, isolation: IsolationLevel, next_offset: int) -> int:
        return max(next_offset, self.log_start)

    def read(
        self, step: BrokerRange, isolation: IsolationLevel, columns: Sequence[str], lineage: Lineage
    ) -> Iterator[pa.RecordBatch]:
        """The records that the leader serves itself."""
        self.served.append((step.first_offset, step.last_offset))
        records = self.log.expected(isolation, step.first_offset, step.last_offset + 1)
        self.observe(BrokerRead(step.partition, len(records), 0))
        if records:
            yield _rows(records, columns)

    observe: Any = field(default=lambda event: None)


_FIELDS = {"start_offset": "start_offset", "end_offset": "end_offset", "size_bytes": "segment_size_in_bytes"}


def _rows(records: Sequence[LogRecord], columns: Sequence[str]) -> pa.RecordBatch:
    schema = schema_for(columns)
    rows = [
        {
            "offset": record.offset,
            "timestamp": record.timestamp_ms * 1000,
            "timestampType": int(record.timestamp_type),
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
            "leaderEpoch": record.leader_epoch,
        }
        for record in records
    ]
    arrays = [pa.array([row[name] for row in rows], schema.field(name).type) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def attach(session: Session, leader: Leader) -> BrokerLocator:
    """Give a session that was opened without brokers this leader as its cluster, and the broker locator over it."""
    cluster = cast(Any, leader)
    locator = BrokerLocator(cluster, leader, say=session.configured_locator.turn_off)
    session.stepwise = SharedStepwiseLocator(locator)
    session.locator = session.stepwise
    session.brokers = cast(Any, SimpleNamespace(cluster=leader, guard=leader, reader=leader))
    session.fallback.reader = cluster
    leader.observe = session.observe
    return locator
