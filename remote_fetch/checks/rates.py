"""How fast the records of chosen steps come, from the store alone and through the broker alone.

Rules of the file:

- Each way reads the same offsets. Nothing is compared here, and nothing is kept.
- The time is that of this process on this machine. The first read of a way also pays for its connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remote_fetch.checks.verify import Choice, broker_rows, store_rows, stretches
from remote_fetch.session.broker import BrokerReader
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Rate", "broker_rate", "store_rate"]


@dataclass(frozen=True, slots=True)
class Rate:
    """Records, the bytes of their keys and values, and the time in which they came."""

    records: int
    size_bytes: int
    took_s: float

    def __str__(self) -> str:
        """All of it in one line."""
        return (
            f"{self.records} records in {self.took_s:.2f} s, {self.records_per_s:.0f} records/s, "
            f"{self.size_bytes / self.took_s / 1e6:.1f} MB/s of keys and values"
        )

    @property
    def records_per_s(self) -> float:
        """Records in a second."""
        return self.records / self.took_s


def store_rate(session: Session, choices: Iterable[Choice]) -> Rate:
    """The rate of the store alone. Raises the errors of the store."""
    return _rate(batch for each in choices for batch in store_rows(session, each.plan, each.steps))


def broker_rate(broker: BrokerReader, choices: Iterable[Choice]) -> Rate:
    """The rate of the broker alone. Raises KafkaException."""
    return _rate(_through(broker, choices))


def _through(broker: BrokerReader, choices: Iterable[Choice]) -> Iterator[pa.RecordBatch]:
    for each in choices:
        for stretch in stretches(each.steps):
            yield from broker_rows(broker, each.plan, stretch[0].first_offset, stretch[-1].last_offset)


def _rate(batches: Iterable[pa.RecordBatch]) -> Rate:
    began, records, size_bytes = time.monotonic(), 0, 0
    for batch in batches:
        records += batch.num_rows
        size_bytes += batch.column("key").nbytes + batch.column("value").nbytes
    return Rate(records, size_bytes, max(time.monotonic() - began, 1e-9))
