"""The runs whose memory, threads, files and GETs are measured: `python -m tests.scan.resource_runs NAME` prints JSON.

Rules of the file:

- Each run has its own process, because the peak of memory is that of a whole process.
- Before the memory is measured, all libraries are loaded and every codec is used once.
- A store answers after a few milliseconds, so that GETs overlap.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

import remote_fetch
from remote_fetch.config import Config
from remote_fetch.consumer.feed import Feed
from remote_fetch.consumer.feed_context import FeedContext
from remote_fetch.consumer.workers import Workers
from remote_fetch.decode.columns import DEFAULT_COLUMNS
from remote_fetch.errors import RemoteFetchError
from remote_fetch.model import IsolationLevel
from remote_fetch.prepare.job import plan_job
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Header, Record, encode_batch, encode_marker
from remote_fetch.testing.stores import write_kafka_local
from tests.eventually import eventually
from tests.scan.resources import DEADLINE_S, Meter, Repeated, RepeatingTier, open_files

MIB = 1 << 20
QUEUED_BYTES = 64 * MIB
LATENCY_S = 0.004
HEADERS: tuple[Header, ...] = (("trace", b"x" * 40),)


@dataclass(frozen=True, slots=True)
class Used:
    """The resources of a run.

    - Counts of threads and files are those before and after it.
    - `stored` and `inflated` are the sizes of its largest batch.
    - `configured` has the values of the two keys that bound the bytes under way.
    """

    rows: int
    grown_bytes: int
    gets: int
    returned_bytes: int
    most_in_flight: int
    most_threads: int
    stored_bytes: int = 0
    inflated_bytes: int = 0
    max_bytes: int = 0
    range_bytes: int = 0
    error: str = ""
    hint: str = ""
    files: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    closed: bool = False


def records(count: int, value_bytes: int, headers: tuple[Header, ...] = ()) -> list[Record]:
    """Records with values of that size, a different byte in each."""
    return [Record(n, n, b"key%d" % n, bytes([n % 251]) * value_bytes, headers) for n in range(count)]


def repeated(
    size_bytes: int, count: int, value_bytes: int, *, codec: int = 0, entry_bytes: Literal[8, 12] = 8
) -> Repeated:
    """A segment of about that size, of batches of `count` records."""
    batch = encode_batch(0, records(count, value_bytes, HEADERS), codec=codec)
    return Repeated(batch, count, max(1, size_bytes // len(batch)), entry_bytes)


def late(before: int) -> None:
    """How long a store takes."""
    time.sleep(LATENCY_S)


def _read(
    tier: RepeatingTier,
    config: Mapping[str, Any],
    start: Any = "earliest",
    end: Any = "latest",
    after: Callable[[int], None] = id,  # type: ignore[assignment]
) -> int:
    """The number of rows; `after` is called with the number so far after every Arrow batch."""
    rows = 0
    with Session(Config.parse(config), tier) as session:
        plans = plan_job(
            session, "topic", start=start, end=end, partitions=None, isolation=IsolationLevel.READ_COMMITTED
        )
        for batch in Scan(session, plans, DEFAULT_COLUMNS).batches():
            rows += batch.num_rows
            after(rows)
    return rows


def _measured(
    tier: RepeatingTier,
    config: Mapping[str, Any] | None = None,
    *,
    inflated_bytes: int = 0,
    read: Callable[..., int] = _read,
    **bounds: Any,
) -> Used:
    """Read a tier and report the resources. An error of ours ends the run and is part of the report."""
    given = {"fetch.remote.read.timeout.ms": 600_000, **(config or {})}
    for codec in range(5):
        _read(RepeatingTier(repeated(1000, 3, 20, codec=codec)), given)
    gc.collect()
    began = threading.active_count()
    meter = Meter()
    rows, error, hint = 0, "", ""
    try:
        rows = read(tier, given, **bounds)
    except RemoteFetchError as raised:
        error, hint = type(raised).__name__, raised.hint or ""
    assert eventually(lambda: threading.active_count() <= began, DEADLINE_S)
    settings = Config.parse(given).settings
    return Used(
        rows,
        meter.grown_bytes(),
        tier.gets,
        tier.returned_bytes,
        tier.most_in_flight,
        tier.most_threads,
        len(tier.segment.batch),
        inflated_bytes or len(tier.segment.batch),
        settings.max_bytes,
        settings.range_bytes,
        error,
        hint,
        threads=(began, threading.active_count()),
        closed=tier.closed,
    )


def gibibyte() -> Used:
    """Read a segment of 1 GiB with batches of 1 MiB."""
    return _measured(RepeatingTier(repeated(1 << 30, 64, 16 << 10), hold=late))


def gibibyte_in_little() -> Used:
    """As `gibibyte`, with a quarter of the memory."""
    config = {"fetch.remote.max.bytes": 16 * MIB, "fetch.remote.range.bytes": 2 * MIB}
    return _measured(RepeatingTier(repeated(1 << 30, 64, 16 << 10), hold=late), config)


def sparse() -> Used:
    """Some 128 MiB around byte 2^32 of a segment of 5 GiB (KIP-1333), of which nothing else is touched."""
    segment = repeated(5 << 30, 64, 16 << 10, entry_bytes=12)
    middle = (1 << 32) // len(segment.batch) * segment.offsets
    return _measured(
        RepeatingTier(segment, hold=late), start=middle - 64 * segment.offsets, end=middle + 64 * segment.offsets
    )


def partitions() -> Used:
    """200 partitions of 1 MiB each in one read, batches of 16 KB."""
    return _measured(RepeatingTier(repeated(MIB, 16, 1 << 10), 200, hold=late))


def large_batch() -> Used:
    """Batches of 64 MiB."""
    return _measured(RepeatingTier(repeated(192 * MIB, 64, MIB), hold=late))


def large_batch_compressed() -> Used:
    """Batches that inflate to 64 MiB, a thousandfold and more."""
    tier = RepeatingTier(repeated(20_000, 64, MIB, codec=4), hold=late)
    return _measured(tier, inflated_bytes=64 * MIB)


def feeds() -> Used:
    """The feeds of a consumer of 32 partitions, whose batches inflate to 1 MiB, and the application takes nothing."""
    tier = RepeatingTier(repeated(MIB, 64, 16 << 10, codec=4), 32, hold=late)
    return _measured(tier, read=partial(_fill, queued_bytes=QUEUED_BYTES), inflated_bytes=MIB)


def feed_of_small_runs() -> Used:
    """A feed of runs of one small record each, until its queue is full.

    Behind each record a transaction is aborted that has none. No index tells of it, so plain Python sees its marker.
    """
    record, marker = encode_batch(0, [Record(0, 0, None, b"v" * 10)]), encode_marker(1, 7, commit=False)
    both = Repeated(record + marker, 2, 40_000, begins=((0, 0), (len(record), 1)))
    return _measured(RepeatingTier(both), read=partial(_fill, queued_bytes=2 * MIB))


def _fill(tier: RepeatingTier, config: Mapping[str, Any], *, queued_bytes: int) -> int:
    """Let a feed for each partition read until all queues are full. Returns the number of rows in them."""
    with Session(Config.parse(config), tier) as session:
        context = FeedContext(session, IsolationLevel.READ_COMMITTED, session.config.settings.max_bytes, queued_bytes)
        context.share_among(len(tier.metadata))
        workers, coming = Workers(), [Feed(context, "topic", number, 0) for number in range(len(tier.metadata))]
        for feed in coming:
            workers.add(feed)
        assert eventually(lambda: all(feed.is_at_rest for feed in coming) and not tier.in_flight, DEADLINE_S)
        assert not any(feed.ending for feed in coming)
        rows = sum(chunk.num_rows for feed in coming for chunk in feed.chunks)
        workers.close(10.0)
        for feed in coming:
            feed.close()
    return rows


def _bomb(codec: int) -> Used:
    """A batch that inflates to 128 MiB where 32 MiB are allowed."""
    batch = encode_batch(0, [Record(0, 0, b"key", bytes(128 * MIB))], codec=codec)
    config = {"fetch.remote.max.decompressed.bytes": 32 * MIB}
    return _measured(RepeatingTier(Repeated(batch, 1, 2), hold=late), config, inflated_bytes=32 * MIB)


def slow_reader() -> Used:
    """The caller draws one Arrow batch, then none until the store has nothing to do any more, then a few more."""
    tier = RepeatingTier(repeated(1 << 30, 64, 16 << 10), hold=late)
    got: list[int] = []

    def idle(rows: int) -> None:
        if not got:
            assert eventually(lambda: tier.returned_bytes >= 15 * MIB and not tier.in_flight, DEADLINE_S)
            got.append(tier.returned_bytes)

    used = _measured(tier, end=64 * 512, after=idle)
    return Used(**{**asdict(used), "returned_bytes": got[0]})


def _tier_on_disk(directory: str) -> None:
    log = LogBuilder()
    for _ in range(8):
        for _ in range(32):
            log.append_batch(records(16, 1 << 10))
        log.roll()
    write_kafka_local(Path(directory), log.segments())


def _open_stream(directory: str) -> pa.RecordBatchReader:
    config = {"remote.storage.url": directory, "fetch.remote.range.bytes": 64 << 10}
    return remote_fetch.read_arrow("topic", config=config)


def stopping() -> Used:
    """A stream over files is given up in the middle: what it had open, how many threads there were, and after it."""
    with tempfile.TemporaryDirectory() as directory:
        _tier_on_disk(directory)
        sum(batch.num_rows for batch in _open_stream(directory))  # loads what is loaded once
        gc.collect()
        files, tasks = [open_files()], [threading.active_count()]
        stream = _open_stream(directory)
        rows = stream.read_next_batch().num_rows
        files.append(open_files())
        tasks.append(threading.active_count())
        del stream
        gc.collect()
        files.append(open_files())
        tasks.append(threading.active_count())
    return Used(rows, 0, 0, 0, 0, max(tasks), files=tuple(files), threads=tuple(tasks))


def stopping_while_the_store_hangs() -> Used:
    """A reader goes away although every GET but the first few hangs; when the store answers, the threads end."""
    released = threading.Event()
    tier = RepeatingTier(repeated(256 * MIB, 64, 16 << 10), hold=lambda before: before < 4 or released.wait())
    tasks = [threading.active_count()]
    session = Session(Config.parse({}), tier)
    plans = plan_job(
        session, "topic", start="earliest", end="latest", partitions=None, isolation=IsolationLevel.READ_UNCOMMITTED
    )
    batches = Scan(session, plans, DEFAULT_COLUMNS).batches()
    rows = next(batches).num_rows
    assert eventually(lambda: tier.in_flight > 0, DEADLINE_S)
    tasks.append(threading.active_count())
    batches.close()  # type: ignore[attr-defined]
    session.close()
    released.set()
    assert eventually(lambda: threading.active_count() == tasks[0], DEADLINE_S)
    tasks.append(threading.active_count())
    return Used(rows, 0, tier.gets, 0, tier.most_in_flight, max(tasks), threads=tuple(tasks), closed=tier.closed)


RUNS: Mapping[str, Callable[[], Used]] = {
    run.__name__: run
    for run in (
        gibibyte,
        gibibyte_in_little,
        sparse,
        partitions,
        feeds,
        feed_of_small_runs,
        large_batch,
        large_batch_compressed,
        slow_reader,
        stopping,
        stopping_while_the_store_hangs,
    )
} | {f"bomb_{name}": (lambda codec=codec: _bomb(codec)) for codec, name in ((1, "gzip"), (3, "lz4"), (4, "zstd"))}


if __name__ == "__main__":
    print(json.dumps(asdict(RUNS[sys.argv[1]]())))
