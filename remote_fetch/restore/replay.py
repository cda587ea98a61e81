"""Writes a range of records into a topic once again, at a limited rate.

Rules of the file:

- The topic may have other records and other writers. So a replay that ends early cannot go on: its report says how far
  it came.
- The report counts only records that the brokers have acknowledged. Records behind them may be in the topic too.
- Records of one partition keep their order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remote_fetch.fetch.budget import Budget
from remote_fetch.restore.records import RESTORED_COLUMNS, records_of
from remote_fetch.restore.target import Target

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["REPLAYED_COLUMNS", "Pace", "Replayed", "replay"]

REPLAYED_COLUMNS = ("partition", *RESTORED_COLUMNS)
_RECORDS_AT_ONCE = 500
_NOTED_BYTES = 64 << 20
_NOTED_S = 2.0
"""After so many bytes or seconds a replay waits for the acknowledgements. If it ends early, a user begins again there,
and writes later records twice."""
_SETTLE_S = 10.0
"""How long a replay that ends early waits for the acknowledgements that are under way."""


@dataclass(frozen=True, slots=True)
class Pace:
    """At most so many records, and bytes of keys and values, a second. None: no limit."""

    records_per_second: float | None = None
    bytes_per_second: float | None = None


@dataclass
class Replayed:
    """How far a replay came: records, bytes of keys and values, the next offset of each partition that has begun."""

    records: int = 0
    size_bytes: int = 0
    next_offsets: dict[int, int] = field(default_factory=dict)

    def advance_to(self, reached: Replayed) -> None:
        """Take the numbers of `reached`, which is as far or further in each of its partitions."""
        self.records, self.size_bytes = reached.records, reached.size_bytes
        self.next_offsets.update(reached.next_offsets)


def replay(
    batches: Iterator[pa.RecordBatch],
    target: Target,
    done: Replayed,
    *,
    keeps_partitions: bool,
    keeps_timestamps: bool,
    pace: Pace,
    progressed: Callable[[Replayed], None] = lambda sent: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Write the records of `batches`, with the columns REPLAYED_COLUMNS, and count those acknowledged in `done`.

    `progressed` is called after each step with the records that the producer has, acknowledged or not.

    A batch has records of one partition. With `keeps_partitions` a record goes into the partition of its number, else
    where the producer's partitioner puts its key. Raises KafkaException, and the errors of reading. `done` is right
    then too.
    """
    budget = Budget(pace.bytes_per_second, pace.records_per_second, clock)
    sent, noted_s = Replayed(), clock()
    try:
        for batch in _slices(batches, pace):
            number, offsets = batch.column("partition")[0].as_py(), batch.column("offset")
            done.next_offsets.setdefault(number, offsets[0].as_py())
            size_bytes = _size_of(batch)
            place = budget.line_up(size_bytes)
            while (wait_s := place.wait_s()) > 0:
                sleep(wait_s)
            budget.charge(0, gets=batch.num_rows - 1)
            _write(batch, target, keeps_partitions=keeps_partitions, keeps_timestamps=keeps_timestamps)
            sent.records += batch.num_rows
            sent.size_bytes += size_bytes
            sent.next_offsets[number] = offsets[batch.num_rows - 1].as_py() + 1
            progressed(sent)
            if sent.size_bytes - done.size_bytes >= _NOTED_BYTES or clock() - noted_s >= _NOTED_S:
                target.flush()
                done.advance_to(sent)
                noted_s = clock()
        target.flush()
        done.advance_to(sent)
    except BaseException:
        if target.settle(_SETTLE_S):
            done.advance_to(sent)
        raise


def _slices(batches: Iterator[pa.RecordBatch], pace: Pace) -> Iterator[pa.RecordBatch]:
    """Slices of about a second at most, by the mean size of a batch's records: each is sent at once."""
    for whole in batches:
        at_once = min(_RECORDS_AT_ONCE, pace.records_per_second or _RECORDS_AT_ONCE)
        if pace.bytes_per_second is not None:
            at_once = min(at_once, pace.bytes_per_second * whole.num_rows / max(_size_of(whole), 1))
        count = max(int(at_once), 1)
        for start in range(0, whole.num_rows, count):
            yield whole.slice(start, count)


def _write(batch: pa.RecordBatch, target: Target, *, keeps_partitions: bool, keeps_timestamps: bool) -> None:
    # A batch is of one partition.
    number: int | None = batch.column("partition")[0].as_py() if keeps_partitions else None
    for key, value, headers, timestamp_ms in records_of(batch):
        target.write(number, key, value, headers, timestamp_ms if keeps_timestamps else 0)


def _size_of(batch: pa.RecordBatch) -> int:
    import pyarrow.compute as pc  # noqa: PLC0415 - a caller has loaded Arrow

    columns: list[Any] = [batch.column(name) for name in ("key", "value")]
    return sum(int(pc.sum(pc.binary_length(column)).as_py() or 0) for column in columns)
