"""A store with faults gives the same stream as a store without: each fault over HTTP, and random ones.

Rules of the file:

- A row of the matrix is one fault, the kind of its outcome, and whether a retry helps.
- The stream is compared with the oracle, never with another read.
- Asserts on time have very large bounds. The measured times are printed (`pytest -s`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from fetchers.http import HttpFetcher
from remote_fetch.config import Config
from remote_fetch.errors import ErrorKind
from remote_fetch.model import IsolationLevel
from remote_fetch.testing.faults import Fault as StoreFault
from remote_fetch.testing.faults import FaultKind as StoreFaultKind
from remote_fetch.testing.faults import FetchCall, seeded
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import kafka_local_files
from tests.scan.bucket import DENSE, Bucket, WatchedBucket, expected_rows, snapshot_config
from tests.stores.range_server import Asked, Fault, FaultKind, RangeServer, stalled_connect
from tests.stores.stand_in import Stream, read_with_broker

TIMEOUT_MS = 500
PATIENT_MS = 100_000
"""For faults that come at once: on a busy machine nothing else is late."""
GROSS_S = 90.0
"""No read of this file waits for half a second more than a few times."""
HTTP_CONFIG = {
    "fetch.remote.connect.timeout.ms": TIMEOUT_MS // 2,
    "fetch.remote.retry.backoff.ms": 5,
    "fetch.remote.range.bytes": 2048,
    "fetch.remote.max.bytes": 8192,
}


class Row(NamedTuple):
    """A fault, the reason it is counted under when it does not pass, and whether it passes by trying again."""

    fault: Fault
    reason: ErrorKind
    passes: bool


def status(code: int, reason: ErrorKind, *, passes: bool, retry_after: int | None = None) -> Row:
    return Row(Fault(FaultKind.STATUS, code, retry_after), reason, passes)


ROWS = [
    status(401, ErrorKind.AUTH, passes=True),  # by looking for credentials again
    status(403, ErrorKind.AUTH, passes=True),
    status(404, ErrorKind.NOT_FOUND, passes=False),
    status(412, ErrorKind.NOT_FOUND, passes=False),
    status(416, ErrorKind.CORRUPT, passes=True),  # by reading it again: the metadata says that there is more
    status(429, ErrorKind.THROTTLED, passes=True, retry_after=1),
    status(503, ErrorKind.THROTTLED, passes=True, retry_after=1),
    status(500, ErrorKind.UNAVAILABLE, passes=True),
    status(200, ErrorKind.UNAVAILABLE, passes=True),  # an empty answer of a proxy
    Row(Fault(FaultKind.STALL_ANSWER), ErrorKind.READ_TIMEOUT, False),
    Row(Fault(FaultKind.STALL_BODY), ErrorKind.READ_TIMEOUT, False),
    Row(Fault(FaultKind.DROP), ErrorKind.UNAVAILABLE, True),
    Row(Fault(FaultKind.RESET), ErrorKind.UNAVAILABLE, True),
    Row(Fault(FaultKind.TRUNCATE), ErrorKind.UNAVAILABLE, True),
    Row(Fault(FaultKind.SHORT_RANGE), ErrorKind.UNAVAILABLE, True),
    Row(Fault(FaultKind.WRONG_RANGE), ErrorKind.UNAVAILABLE, True),
    Row(Fault(FaultKind.UNNAMED_RANGE), ErrorKind.UNAVAILABLE, True),
    Row(Fault(FaultKind.WHOLE), ErrorKind.UNAVAILABLE, True),
    Row(Fault(FaultKind.CORRUPT), ErrorKind.CORRUPT, True),
    Row(Fault(FaultKind.REDIRECT, location="https://127.0.0.1/x"), ErrorKind.AUTH, True),
]
IDS = [f"{row.fault.kind}{row.fault.status if row.fault.kind is FaultKind.STATUS else ''}" for row in ROWS]


def small_log(seed: int) -> LogBuilder:
    """Three segments with transactions that are committed and aborted across them, decided at the end."""
    chosen = random.Random(seed)
    log = LogBuilder()
    opened: set[int] = set()
    for _ in range(3):
        for _ in range(chosen.randrange(3, 8)):
            producer = chosen.choice((-1, 1, 2))
            if producer > 0 and producer not in opened:
                log.begin(producer)
                opened.add(producer)
            size_bytes = chosen.randrange(1, 400)
            records = [Record(n, n, b"k%d" % n, chosen.randbytes(size_bytes)) for n in range(chosen.randrange(1, 6))]
            log.append_batch(records, producer_id=producer, codec=chosen.choice((0, 0, 4)))
            if opened and chosen.random() < 0.3:
                producer = opened.pop()
                (log.commit if chosen.random() < 0.5 else log.abort)(producer)
        log.roll()
    for producer in opened:
        log.abort(producer)
    log.append_batch([Record(0, 0, b"last", b"record")])
    log.roll()
    return log


LOG = small_log(1)
SEGMENTS = LOG.segments(DENSE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    with RangeServer() as server:
        for segment in SEGMENTS:
            server.files.update({f"tier/{name}": data for name, data in kafka_local_files(segment)})
        yield server


def read_over_http(
    server: RangeServer,
    directory: Path,
    isolation: IsolationLevel,
    *,
    timeout_ms: int = PATIENT_MS,
    url: str | None = None,
    query: str = "",
) -> Stream:
    config = {
        **HTTP_CONFIG,
        **snapshot_config([segment.metadata for segment in SEGMENTS], directory),
        "fetch.remote.read.timeout.ms": timeout_ms,
        "remote.storage.url": f"{url or server.url}/tier{query}",
    }
    fetcher = HttpFetcher()
    fetcher.configure(Config.parse(config).for_fetcher())
    stream = read_with_broker(fetcher, LOG, isolation, config)
    assert stream.rows == expected_rows(LOG.expected(isolation))
    print(f"{stream.duration_s * 1000:.0f} ms with a timeout of {timeout_ms} ms; {stream.report.fallbacks}")
    assert stream.duration_s < GROSS_S
    return stream


def is_log(asked: Asked, number: int | None = None) -> bool:
    """Whether a request is for the bytes of a segment: of this segment, or of any."""
    stems = [f"{segment.metadata.segment_id.id}.log" for segment in SEGMENTS]
    return asked.name.endswith(tuple(stems if number is None else stems[number : number + 1]))


@pytest.mark.parametrize("isolation", list(IsolationLevel))
def test_without_a_fault_the_broker_is_not_asked(
    server: RangeServer, tmp_path: Path, isolation: IsolationLevel
) -> None:
    stream = read_over_http(server, tmp_path, isolation)
    assert stream.from_broker == []
    assert stream.report.retries == stream.report.rereads == {}


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_what_goes_wrong_once(server: RangeServer, tmp_path: Path, row: Row) -> None:
    """The first GET of the first range of one segment fails."""
    server.plan = lambda asked: row.fault if is_log(asked, 1) and asked.start == 0 and asked.attempt == 0 else None
    timeout_ms = TIMEOUT_MS if row.reason is ErrorKind.READ_TIMEOUT else PATIENT_MS
    stream = read_over_http(server, tmp_path, IsolationLevel.READ_COMMITTED, timeout_ms=timeout_ms)
    if row.passes:
        assert stream.from_broker == []
        assert sum(stream.report.retries.values()) + sum(stream.report.rereads.values()) == 1
    else:
        assert stream.from_broker
        assert set(stream.report.fallbacks) == {row.reason}


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_what_goes_wrong_for_good(server: RangeServer, tmp_path: Path, row: Row) -> None:
    """Every GET of one segment fails: the broker gives the rest of it, and at most the segments after it."""
    server.plan = lambda asked: row.fault if is_log(asked, 1) else None
    waits = row.reason in (ErrorKind.READ_TIMEOUT, ErrorKind.THROTTLED, ErrorKind.UNAVAILABLE)
    timeout_ms = TIMEOUT_MS if waits else PATIENT_MS
    stream = read_over_http(server, tmp_path, IsolationLevel.READ_COMMITTED, timeout_ms=timeout_ms)
    late = {ErrorKind.READ_TIMEOUT} if waits else set()  # the deadline may be over first
    assert set(stream.report.fallbacks) <= {row.reason, *late}
    failed = SEGMENTS[1].metadata
    assert any(failed.start_offset <= last <= failed.end_offset for _, last in stream.from_broker)
    assert waits or stream.from_broker[0][0] >= failed.start_offset


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_what_goes_wrong_with_the_small_files(server: RangeServer, tmp_path: Path, row: Row) -> None:
    """No index can be had: nothing is taken for "nothing was aborted"."""
    server.plan = lambda asked: None if is_log(asked) else row.fault
    read_over_http(server, tmp_path, IsolationLevel.READ_COMMITTED, timeout_ms=TIMEOUT_MS)


def test_a_store_that_takes_no_connection(server: RangeServer, tmp_path: Path) -> None:
    with stalled_connect() as url:
        stream = read_over_http(server, tmp_path, IsolationLevel.READ_COMMITTED, timeout_ms=TIMEOUT_MS, url=url)
    late = {ErrorKind.READ_TIMEOUT}  # on a machine that is busy the deadline of the range may be over first
    assert stream.from_broker
    assert set(stream.report.fallbacks) <= {ErrorKind.CONNECT_TIMEOUT, *late}
    assert server.asked == []


def test_a_signed_url_that_expires_in_the_middle(server: RangeServer, tmp_path: Path) -> None:
    """The rest is the broker's, and the reason is that the store refused."""
    server.signature = "good"

    def expire(asked: Asked) -> None:
        if is_log(asked, 1):
            server.signature = "another"

    server.plan = expire
    stream = read_over_http(server, tmp_path, IsolationLevel.READ_COMMITTED, query="?sig=good")
    assert set(stream.report.fallbacks) == {ErrorKind.AUTH}
    assert stream.report.remote_bytes > 0


# --------------------------------------------------------------------------------------------------- random schedules

KINDS = tuple(StoreFaultKind)
UNSEEN = (StoreFaultKind.FLIP_BYTE, StoreFaultKind.TRUNCATE)


def schedule_of(seed: int, rate: float) -> WatchedBucket:
    """A bucket with the log of that seed, and its faults.

    Index files have no checksum, and one that ends between two entries is whole: a damage that only a marker in the
    log contradicts, too late. That they arrive whole is what the fetchers have to see to, and what is left out here.
    """
    bucket = Bucket(small_log(seed).segments(DENSE))
    decide = seeded(seed, rate, KINDS, delay_ms=1)

    def schedule(call: FetchCall) -> StoreFault | None:
        fault = decide(call)
        if fault is not None and fault.kind in UNSEEN and call.index_type is not None:
            return replace(fault, kind=StoreFaultKind.SHORT_BODY)
        return fault

    return WatchedBucket(bucket, schedule)


@pytest.mark.soak
def test_random_faults(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """Every schedule of faults delivers what the log holds. `--fault-schedules N` runs more of them."""
    reasons: set[str] = set()
    count = pytestconfig.getoption("--fault-schedules")
    for seed in range(count):
        isolation = list(IsolationLevel)[seed % 2]
        log = small_log(seed)
        fetcher = schedule_of(seed, (0.02, 0.1, 0.3, 0.7)[seed % 4])
        config = {
            "fetch.remote.read.timeout.ms": 1000,
            "fetch.remote.retry.backoff.ms": 1,
            "fetch.remote.range.bytes": 1024 << (seed % 3),
            "fetch.remote.max.bytes": 8192,
            **snapshot_config([segment.metadata for segment in log.segments(DENSE)], tmp_path),
        }
        stream = read_with_broker(fetcher, log, isolation, config)
        assert stream.rows == expected_rows(log.expected(isolation)), f"seed {seed}: {stream.report}"
        reasons |= stream.report.fallbacks.keys() | stream.report.retries.keys() | stream.report.rereads.keys()
    wanted = {"auth", "not-found", "read-timeout", "throttled", "unavailable", "corrupt"}
    assert wanted <= reasons, f"{count} schedules never gave {wanted - reasons}"


def test_the_logs_are_worth_reading() -> None:
    """Both isolation levels differ, records cross segments, and the same seed is the same log."""
    logs = [small_log(seed) for seed in islice(range(1000), 20)]
    assert all(len(log.segments(DENSE)) == 4 for log in logs)
    assert any(
        log.expected(IsolationLevel.READ_COMMITTED) != log.expected(IsolationLevel.READ_UNCOMMITTED) for log in logs
    )
    assert small_log(3).records() == small_log(3).records()
