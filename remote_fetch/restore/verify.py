"""Compares the new topic with the tier, record for record, after a restore.

Rules of the file:

- Offsets are compared by their order. Keys, values, headers and timestamps have to be equal.
- A timestamp that no producer can send (0 and below) is not compared.
- Retention may delete records of the old topic before they are compared, or while they are. Then the comparison goes on
  with the first record that is left, and its result says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remote_fetch.errors import OffsetOutOfRange
from remote_fetch.model import IsolationLevel, TopicIdPartition
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.restore.offset_map import OffsetMap
from remote_fetch.restore.records import RESTORED_COLUMNS, Batches
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Compared", "Unlike", "compare", "first_unlike", "log_start_of", "new_records"]

_COMPARED = RESTORED_COLUMNS[1:]


@dataclass(frozen=True, slots=True)
class Unlike:
    """The first record that differs: both offsets. None: that side has ended."""

    source_offset: int | None
    target_offset: int | None


@dataclass(frozen=True, slots=True)
class Compared:
    """The first difference of a partition, None if there is none.

    `deleted_before`: the old topic no longer has the records before this offset, and not all of them were compared.
    None: all records were compared.
    """

    unlike: Unlike | None
    deleted_before: int | None = None


def new_records(session: Session, partition: TopicIdPartition, start: int, end: int) -> Batches:
    """The records of the new topic with offsets [start, end), through its brokers. Close it before the session."""
    assert session.fallback.reader is not None, "the session has the brokers of the target"
    if end > start:
        step = BrokerRange(partition, start, end - 1, "verify")
        yield from session.fallback.reader.read(step, IsolationLevel.READ_UNCOMMITTED, RESTORED_COLUMNS)


def log_start_of(session: Session, plan: PartitionPlan) -> int | None:
    """The log start offset of the old partition now. None without a broker. Raises the errors of the guard."""
    if session.brokers is None:
        return None
    return session.brokers.guard.bounds(plan.opened.partition, plan.opened.isolation).log_start_offset


def compare(
    plan: PartitionPlan,
    known: OffsetMap,
    old: Callable[[int], Batches],
    new: Callable[[int], Batches],
    log_start: Callable[[], int | None],
) -> Compared:
    """Compare a partition. `old` and `new` give the records of their side from an offset on.

    `log_start` gives the log start offset of the old side now. Raises the errors of reading, but none for records that
    the old side has deleted.
    """
    first = plan.steps[0].first_offset if plan.steps else plan.opened.first_offset
    while True:
        begins, gone, unlike = known.translate(first), None, None
        with closing(old(first)) as old_batches, closing(new(begins)) as new_batches:
            try:
                unlike = first_unlike(old_batches, new_batches)[1]
            except OffsetOutOfRange as error:
                gone = error
        is_uncertain = gone is not None or (unlike is not None and _lacks_old_records(unlike, known))
        now = (log_start() or 0) if is_uncertain else 0
        if now <= first or (unlike is not None and known.translate(now) <= (unlike.target_offset or 0)):
            if gone is not None:
                raise gone
            return Compared(unlike, first if begins > known.target_start else None)
        first = now


def _lacks_old_records(unlike: Unlike, known: OffsetMap) -> bool:
    """Whether the old side went on behind the record that the new side has here. It may have been deleted."""
    if unlike.target_offset is None:
        return False
    return unlike.source_offset is None or known.translate(unlike.source_offset) > unlike.target_offset


def first_unlike(old: Iterator[pa.RecordBatch], new: Iterator[pa.RecordBatch]) -> tuple[int, Unlike | None]:
    """How many records are alike, and the first one that is not."""
    alike = 0
    old_rows, new_rows = next(old, None), next(new, None)
    while old_rows is not None and new_rows is not None:
        count = min(old_rows.num_rows, new_rows.num_rows)
        at = _first_difference(old_rows.slice(0, count), new_rows.slice(0, count))
        if at is not None:
            return alike + at, Unlike(_offset(old_rows, at), _offset(new_rows, at))
        alike += count
        old_rows = old_rows.slice(count) if old_rows.num_rows > count else next(old, None)
        new_rows = new_rows.slice(count) if new_rows.num_rows > count else next(new, None)
    has_ended = old_rows is None and new_rows is None
    return alike, None if has_ended else Unlike(_offset(old_rows, 0), _offset(new_rows, 0))


def _offset(batch: pa.RecordBatch | None, at: int) -> int | None:
    return None if batch is None else int(batch.column("offset")[at].as_py())


def _first_difference(old_rows: pa.RecordBatch, new_rows: pa.RecordBatch) -> int | None:
    if all(old_rows.column(name).equals(new_rows.column(name)) for name in _COMPARED):
        return None
    for at, (old, new) in enumerate(zip(old_rows.to_pylist(), new_rows.to_pylist(), strict=True)):
        if not _are_alike(old, new):
            return at
    return None


def _are_alike(one: dict[str, object], other: dict[str, object]) -> bool:
    is_timed = int(str(one["timestampMs"])) > 0
    names = _COMPARED if is_timed else _COMPARED[:-1]
    return all(one[name] == other[name] for name in names)
