"""The records of the old topic: as batches of columns, as a producer takes them, and as stretches of their offsets.

Rules of the file:

- All that is written and compared is in RESTORED_COLUMNS.
- A stretch is (first offset, how many offsets follow each other).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "RESTORED_COLUMNS",
    "Batches",
    "Stretches",
    "count_of",
    "first_stretches",
    "old_records",
    "records_of",
    "stretches_of",
]

Batches: TypeAlias = "Generator[pa.RecordBatch, None, None]"
SentRecord: TypeAlias = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
Stretches: TypeAlias = list[tuple[int, int]]

RESTORED_COLUMNS = ("offset", "key", "value", "headers", "timestampMs")


def old_records(session: Session, plan: PartitionPlan, first: int) -> Batches:
    """The records of a plan from the offset `first` on. Close the generator before the session."""
    steps = [
        replace(step, first_offset=max(step.first_offset, first)) for step in plan.steps if step.last_offset >= first
    ]
    yield from Scan(session, [replace(plan, steps=tuple(steps))], RESTORED_COLUMNS).batches()


def records_of(batch: pa.RecordBatch) -> Iterator[SentRecord]:
    """Key, value, headers and timestamp of each row of a batch with RESTORED_COLUMNS."""
    columns = (batch.column(name).to_pylist() for name in RESTORED_COLUMNS[1:])
    for key, value, headers, timestamp_ms in zip(*columns, strict=True):
        yield key, value, [(header["key"], header["value"]) for header in headers or ()], timestamp_ms


def stretches_of(batch: pa.RecordBatch) -> Stretches:
    """The offsets of a batch."""
    found = []
    offsets: Sequence[int] = batch.column("offset").to_pylist()  # type: ignore[assignment]
    for _, group in groupby(enumerate(offsets), lambda pair: pair[1] - pair[0]):
        members = list(group)
        found.append((members[0][1], len(members)))
    return found


def first_stretches(batches: Iterator[pa.RecordBatch], count: int) -> Stretches:
    """The offsets of the first `count` records. There may be fewer."""
    found: Stretches = []
    while count > 0 and (batch := next(batches, None)) is not None:
        found += stretches_of(batch.slice(0, count))
        count -= batch.num_rows
    return found


def count_of(stretches: Stretches) -> int:
    """The number of offsets."""
    return sum(count for _, count in stretches)
