"""How fast the records of chosen steps come, from the store alone and through the broker alone.

Rules of the file:

- Each way reads the same offsets. Nothing is compared here, and nothing is kept.
- The time is that of this process on this machine. The first read of a way also pays for its connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remote_fetch.checks.verify import VERIFIED_COLUMNS, Choice, broker_rows, store_rows, stretches
from remote_fetch.session.broker import BrokerReader
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Rate", "broker_rate", "store_rate"]


@dataclass(frozen=True, slots=True)
class Rate:
    """Records, the bytes of their keys and values, and the time in which they came.

    `flowing_records` came in `flowing_s`, after the first batch of each choice. A long read has one beginning, where a
    sample of few records has several, and librdkafka may take half a second for each (`fetch.wait.max.ms`).
    """

    records: int
    size_bytes: int
    took_s: float
    flowing_records: int
    flowing_s: float

    def __str__(self) -> str:
        """All of it in one line."""
        return (
            f"{self.records} records in {self.took_s:.2f} s, {self.records / self.took_s:.0f} records/s, "
            f"{self.size_bytes / self.took_s / 1e6:.1f} MB/s of keys and values"
        )

    @property
    def flowing_per_s(self) -> float | None:
        """Records in a second, without the beginnings. None: no choice had a second batch."""
        return self.flowing_records / self.flowing_s if self.flowing_records else None


def store_rate(session: Session, choices: Iterable[Choice], columns: Sequence[str] = VERIFIED_COLUMNS) -> Rate:
    """The rate of the store alone. Raises the errors of the store."""
    return _rate(store_rows(session, each.plan, each.steps, columns) for each in choices)


def broker_rate(broker: BrokerReader, choices: Iterable[Choice], columns: Sequence[str] = VERIFIED_COLUMNS) -> Rate:
    """The rate of the broker alone. Raises KafkaException."""
    return _rate(_through(broker, each, columns) for each in choices)


def _through(broker: BrokerReader, choice: Choice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for stretch in stretches(choice.steps):
        first, last = stretch[0].first_offset, stretch[-1].last_offset
        yield from broker_rows(broker, choice.plan, first, last, columns=columns)


def _rate(choices: Iterable[Iterable[pa.RecordBatch]]) -> Rate:
    began, records, size_bytes, flowing_records, flowing_s = time.monotonic(), 0, 0, 0, 0.0
    for batches in choices:
        first_s: float | None = None
        for batch in batches:
            records += batch.num_rows
            size_bytes += batch.column("key").nbytes + batch.column("value").nbytes
            if first_s is None:
                first_s = time.monotonic()
            else:
                flowing_records += batch.num_rows
        flowing_s += 0.0 if first_s is None else time.monotonic() - first_s
    return Rate(records, size_bytes, max(time.monotonic() - began, 1e-9), flowing_records, max(flowing_s, 1e-9))
