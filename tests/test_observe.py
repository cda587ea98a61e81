"""The observers: what each event adds to or writes, and that none is lost when several threads count."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

import pytest

from remote_fetch.model import IndexType, TopicIdPartition, Uuid
from remote_fetch.observe import (
    Counters,
    Event,
    Fallback,
    LogObserver,
    MetadataUnusable,
    Notice,
    RangeFetched,
    RangeReread,
    RangeRetried,
    ReadEnds,
    RecordsRead,
    Report,
    SegmentScanned,
    TimestampsSaturated,
    ignore,
)

PARTITION = TopicIdPartition(Uuid(bytes(16)), "t", 0)
NAME = f"{PARTITION.topic}-{PARTITION.partition}"

EVENTS: list[tuple[Event, Report]] = [
    (RangeFetched(PARTITION, 10, 0.5), Report(remote_bytes=10, remote_gets=1, fetch_s=0.5)),
    (
        RangeFetched(PARTITION, 10, 0.5, IndexType.TRANSACTION),
        Report(index_bytes=10, index_gets=1, fetch_s=0.5),
    ),
    (RangeRetried(PARTITION, "throttled"), Report(retries={"throttled": 1})),
    (RangeReread(PARTITION, 7, "corrupt"), Report(rereads={"corrupt": 1})),
    (SegmentScanned(PARTITION, IndexType.OFFSET, "missing"), Report(scans={"missing": 1})),
    (Fallback(PARTITION, 1, 2, "not-found"), Report(fallbacks={"not-found": 1})),
    (RecordsRead(PARTITION, 5, 100), Report(records=5)),
    (
        ReadEnds(PARTITION, 5, 5, "not-tiered"),
        Report(ends={"t-0": "t-0 is read up to offset 5 (exclusive), where the tier ends (not-tiered)"}),
    ),
    (Notice("log start unknown"), Report(notices=("log start unknown",))),
]


@pytest.mark.parametrize(("event", "report"), EVENTS, ids=lambda value: type(value).__name__)
def test_each_event_is_counted_where_it_belongs(event: Event, report: Report) -> None:
    counters = Counters()
    counters(event)
    assert counters.report() == report


def test_sums() -> None:
    counters = Counters()
    for size_bytes in (10, 20, 60):
        counters(RangeFetched(PARTITION, size_bytes, 0.25))
    counters(RangeFetched(PARTITION, 1000, 0.25, IndexType.OFFSET))
    for reason in ("throttled", "unavailable", "throttled"):
        counters(RangeRetried(PARTITION, reason))
    for text in ("b", "a", "b"):
        counters(Notice(text))
    report = counters.report()
    assert (report.remote_bytes, report.remote_gets, report.mean_bytes_per_get) == (90, 3, 30.0)
    assert (report.index_bytes, report.index_gets, report.fetch_s) == (1000, 1, 1.0)
    assert report.retries == {"throttled": 2, "unavailable": 1}
    assert report.notices == ("b", "a")  # once each, in the order of their first time


def test_nothing_yet() -> None:
    assert Counters().report() == Report()
    assert Report().mean_bytes_per_get == 0.0


def test_a_report_stays_as_it_was() -> None:
    counters = Counters()
    counters(RangeRetried(PARTITION, "throttled"))
    report = counters.report()
    counters(RangeRetried(PARTITION, "throttled"))
    report.retries["throttled"] += 10
    assert counters.report().retries == {"throttled": 2}


def test_several_threads() -> None:
    counters = Counters()

    def count() -> None:
        for _ in range(500):
            counters(RecordsRead(PARTITION, 1, 0))
            counters(RangeFetched(PARTITION, 2, 0.0))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report = counters.report()
    assert (report.records, report.remote_bytes, report.remote_gets) == (2000, 4000, 2000)


LOGGED: list[tuple[Event, list[tuple[int, str]]]] = [
    (Notice("log start unknown"), [(logging.INFO, "log start unknown")]),
    (Notice("100 % full", is_warning=True), [(logging.WARNING, "100 % full")]),
    (
        Fallback(PARTITION, 1, 2, "not-found"),
        [(logging.WARNING, f"{NAME}: offsets 1 to 2 are read elsewhere (not-found)")],
    ),
    (
        Fallback(PARTITION, 1, 2, "format", "version 9"),
        [(logging.WARNING, f"{NAME}: offsets 1 to 2 are read elsewhere (format: version 9)")],
    ),
    (RangeReread(PARTITION, 7, "corrupt"), [(logging.WARNING, f"{NAME}: read again from position 7 (corrupt)")]),
    (
        SegmentScanned(PARTITION, IndexType.OFFSET, "missing"),
        [(logging.WARNING, f"{NAME}: read without its offset index (missing)")],
    ),
    (
        TimestampsSaturated(PARTITION, 3),
        [
            (
                logging.WARNING,
                f"{NAME}: timestamps beyond what microseconds hold: 3; the column timestampMs has them",
            )
        ],
    ),
    (
        MetadataUnusable(PARTITION, 0, 2),
        [(logging.WARNING, f"{NAME}: metadata records that cannot be read: 2")],
    ),
    (RangeFetched(PARTITION, 10, 0.5), []),
    (RangeRetried(PARTITION, "throttled"), []),
    (RecordsRead(PARTITION, 5, 100), []),
]


def lines_of(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "remote_fetch"]


@pytest.mark.parametrize(("event", "lines"), LOGGED, ids=lambda value: type(value).__name__)
def test_what_reaches_the_log(event: Event, lines: list[tuple[int, str]], caplog: pytest.LogCaptureFixture) -> None:
    observer = LogObserver()
    with caplog.at_level(logging.INFO, logger="remote_fetch"):
        observer(event)
        observer.close()
    assert lines_of(caplog) == lines
    assert {record.name for record in caplog.records} <= {"remote_fetch"}


def test_what_is_repeated_is_said_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    observer = LogObserver(quiet_s=60, clock=lambda: now_s)
    scanned = SegmentScanned(PARTITION, IndexType.LEADER_EPOCH, "missing")
    said = f"{NAME}: read without its leader-epoch index (missing)"
    other = replace(PARTITION, partition=PARTITION.partition + 1)
    with caplog.at_level(logging.DEBUG, logger="remote_fetch"):
        for _ in range(3):
            observer(scanned)
            observer(Notice("once"))
        observer(replace(scanned, partition=other))
        now_s = 60
        observer(scanned)
        observer(scanned)
        observer.close()
        observer.close()
    lines = lines_of(caplog)
    assert [line for level, line in lines if level > logging.DEBUG] == [
        said,
        "once",
        said.replace(NAME, f"{other.topic}-{other.partition}"),
        f"{said}; 2 more since the last such line",
        f"{said}: 1 more since the last such line",
    ]
    assert [line for level, line in lines if level == logging.DEBUG] == [
        f"{NAME}: topic id {PARTITION.topic_id}",
        *[said, "once"] * 2,
        f"{other.topic}-{other.partition}: topic id {other.topic_id}",
        said,
    ]


def test_the_observer_of_nobody() -> None:
    for event, _ in EVENTS:
        ignore(event)


def test_reports_add_up() -> None:
    one = Report(records=2, fetch_s=0.5, fallbacks={"auth": 1}, ends={"t-0": "at 5"}, notices=("a", "b"))
    other = Report(
        records=3,
        remote_bytes=7,
        fallbacks={"auth": 2, "hole": 1},
        ends={"t-0": "at 9", "t-1": "at 0"},
        notices=("b", "c"),
    )
    both = Report(
        records=5,
        remote_bytes=7,
        fetch_s=0.5,
        fallbacks={"auth": 3, "hole": 1},
        ends={"t-0": "at 9", "t-1": "at 0"},
        notices=("a", "b", "c"),
    )
    assert one + other == both
    assert sum([one, other], Report()) == both
