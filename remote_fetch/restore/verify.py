"""Compares the new topic with the tier, record for record, after a restore.

Rules of the file:

- Offsets are compared by their order. Keys, values, headers and timestamps have to be equal.
- A timestamp that no producer can send (0 and below) is not compared.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from remote_fetch.model import IsolationLevel, TopicIdPartition
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.restore.job import RESTORED_COLUMNS
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Unlike", "first_unlike", "new_records", "old_records"]

_COMPARED = RESTORED_COLUMNS[1:]


@dataclass(frozen=True, slots=True)
class Unlike:
    """The first record that differs: its number in the partition, and both offsets; None: that side has ended."""

    number: int
    source_offset: int | None
    target_offset: int | None


Batches: TypeAlias = "Generator[pa.RecordBatch, None, None]"


def old_records(session: Session, plan: PartitionPlan) -> Batches:
    """The records of the tier. Close the generator before the session."""
    yield from Scan(session, [plan], RESTORED_COLUMNS).batches()


def new_records(session: Session, partition: TopicIdPartition, start: int, end: int) -> Batches:
    """The records of the new topic with offsets [start, end), through its brokers. Close it before the session."""
    assert session.fallback.reader is not None, "the session has the brokers of the target"
    if end > start:
        step = BrokerRange(partition, start, end - 1, "verify")
        yield from session.fallback.reader.read(step, IsolationLevel.READ_UNCOMMITTED, RESTORED_COLUMNS)


def first_unlike(old: Iterator[pa.RecordBatch], new: Iterator[pa.RecordBatch]) -> tuple[int, Unlike | None]:
    """How many records are alike, and the first one that is not."""
    alike = 0
    mine, theirs = next(old, None), next(new, None)
    while mine is not None and theirs is not None:
        count = min(mine.num_rows, theirs.num_rows)
        at = _first_difference(mine.slice(0, count), theirs.slice(0, count))
        if at is not None:
            return alike + at, Unlike(alike + at, _offset(mine, at), _offset(theirs, at))
        alike += count
        mine = mine.slice(count) if mine.num_rows > count else next(old, None)
        theirs = theirs.slice(count) if theirs.num_rows > count else next(new, None)
    has_ended = mine is None and theirs is None
    return alike, None if has_ended else Unlike(alike, _offset(mine, 0), _offset(theirs, 0))


def _offset(batch: pa.RecordBatch | None, at: int) -> int | None:
    return None if batch is None else int(batch.column("offset")[at].as_py())


def _first_difference(mine: pa.RecordBatch, theirs: pa.RecordBatch) -> int | None:
    if all(mine.column(name).equals(theirs.column(name)) for name in _COMPARED):
        return None
    rows: Sequence[tuple[object, object]] = list(zip(mine.to_pylist(), theirs.to_pylist(), strict=True))
    for at, (one, other) in enumerate(rows):
        if not _are_alike(one, other):  # type: ignore[arg-type]
            return at
    return None


def _are_alike(one: dict[str, object], other: dict[str, object]) -> bool:
    is_timed = int(str(one["timestampMs"])) > 0
    names = _COMPARED if is_timed else _COMPARED[:-1]
    return all(one[name] == other[name] for name in names)
