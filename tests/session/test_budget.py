"""A budget over a minute: eight partitions that are read at the same time in one process."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from remote_fetch import read_arrow
from remote_fetch.observe import Event, RangeFetched
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local

PARTITIONS = 8
SECONDS = 60
WITHIN = 0.05


def write_topic(folder: Path, mebibytes: int, partitions: int = PARTITIONS) -> Path:
    """A topic of so many MiB a partition, in one segment each."""
    for number in range(partitions):
        log = LogBuilder("large", partition=number)
        for at in range(mebibytes):
            log.append_batch([Record(0, at, None, bytes([at % 251]) * ((1 << 20) - 100))])
        log.roll()
        write_kafka_local(folder, log.segments())
    return folder


class Totals:
    """The GETs and bytes of all readers, as events tell them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.gets = self.size_bytes = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RangeFetched):
            with self._lock:
                self.gets += 1
                self.size_bytes += event.size_bytes


@pytest.mark.scheduled
@pytest.mark.parametrize(
    ("key", "limit"), [("fetch.remote.max.bytes.per.second", 20_000_000), ("fetch.remote.max.gets.per.second", 50)]
)
def test_a_minute_of_eight_partitions(tmp_path: Path, key: str, limit: int) -> None:
    """Each is read again and again by a thread of its own, much faster than the budget if it could."""
    bucket, totals = write_topic(tmp_path / "tier", 16), Totals()
    config = {"remote.storage.url": str(bucket), key: limit, "fetch.remote.range.bytes": 1 << 20}
    began = time.monotonic()

    def read(number: int) -> None:
        while time.monotonic() - began < SECONDS:
            for _ in read_arrow("large", partitions=[number], columns=["offset"], config=config, observer=totals):
                if time.monotonic() - began >= SECONDS:
                    return

    with_open = read_arrow("large", partitions=[0], columns=["offset"], config=config)  # so that the budget is one
    threads = [threading.Thread(target=read, args=(number,)) for number in range(PARTITIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * SECONDS)
    took_s = time.monotonic() - began
    with_open.close()
    done = totals.size_bytes if "bytes" in key else totals.gets
    print(f"{done / took_s:.1f} a second, of {limit}")
    assert limit * (1 - WITHIN) <= done / took_s <= limit * (1 + WITHIN)
