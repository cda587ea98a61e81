"""A topic `orders` in a bucket on the disk, with given values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local

__all__ = ["write_bucket"]


def write_bucket(folder: Path, values: Sequence[bytes | None], *, batch: int = 10, codec: int = 0) -> None:
    """One partition, with the key `k` for each record. `batch` records lie in each record batch.

    `codec` is a number of Kafka's: 0 for none, 4 for zstd.
    """
    log = LogBuilder("orders")
    for start in range(0, len(values), batch):
        part = values[start : start + batch]
        log.append_batch([Record(at, value=value, key=b"k") for at, value in enumerate(part)], codec=codec)
    log.roll()
    write_kafka_local(folder, log.segments())
