"""Writes a range of records into a topic once again, at a limited rate.

Rules of the file:

- The topic may have other records and other writers. So a replay that ends early cannot go on: its report says how far
  it came.
- Records of one partition keep their order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remote_fetch.fetch.budget import Budget
from remote_fetch.restore.job import RESTORED_COLUMNS, records_of
from remote_fetch.restore.target import Target

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["REPLAYED_COLUMNS", "Pace", "Replayed", "replay"]

REPLAYED_COLUMNS = ("partition", *RESTORED_COLUMNS)
_RECORDS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Pace:
    """At most so many records, and bytes of keys and values, a second. None: no limit."""

    records_per_second: float | None = None
    bytes_per_second: float | None = None


@dataclass
class Replayed:
    """How far a replay came: records and bytes that were sent, and the next offset of each partition."""

    records: int = 0
    size_bytes: int = 0
    next_offsets: dict[int, int] | None = None


def replay(
    batches: Iterator[pa.RecordBatch],
    target: Target,
    done: Replayed,
    *,
    keeps_partitions: bool,
    keeps_timestamps: bool,
    pace: Pace,
    progressed: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Write the records of `batches`, with the columns REPLAYED_COLUMNS, and count them in `done`.

    `progressed` is called each time that `done` has changed.

    A batch has records of one partition. With `keeps_partitions` a record goes into the partition of its number, else
    where the producer's partitioner puts its key. Raises KafkaException, and the errors of reading.
    """
    budget = Budget(pace.bytes_per_second, pace.records_per_second, clock)
    done.next_offsets = {}
    for whole in batches:
        for start in range(0, whole.num_rows, _RECORDS_AT_ONCE):
            batch = whole.slice(start, _RECORDS_AT_ONCE)
            size_bytes = sum(_byte_count(batch.column(name)) for name in ("key", "value"))
            wait_s = budget.reserve(0) - clock()
            if wait_s > 0:
                sleep(wait_s)
            budget.charge(size_bytes, gets=batch.num_rows - 1)
            _write(batch, target, keeps_partitions=keeps_partitions, keeps_timestamps=keeps_timestamps)
            done.records += batch.num_rows
            done.size_bytes += size_bytes
            number = batch.column("partition")[0].as_py()
            done.next_offsets[number] = batch.column("offset")[batch.num_rows - 1].as_py() + 1
            progressed()
    target.flush()


def _write(batch: pa.RecordBatch, target: Target, *, keeps_partitions: bool, keeps_timestamps: bool) -> None:
    number: int | None = (
        batch.column("partition")[0].as_py() if keeps_partitions else None
    )  # a batch is of one partition
    for key, value, headers, timestamp_ms in records_of(batch):
        target.write(number, key, value, headers, timestamp_ms if keeps_timestamps else 0)


def _byte_count(column: Any) -> int:
    import pyarrow.compute as pc  # noqa: PLC0415 - a caller has loaded Arrow

    return int(pc.sum(pc.binary_length(column)).as_py() or 0)
