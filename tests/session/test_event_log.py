"""The log's observer: which events have a line, and how often."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from remote_fetch.model import IndexType, TopicIdPartition, Uuid
from remote_fetch.observe import (
    Event,
    Fallback,
    IndexSettled,
    MetadataUnusable,
    Notice,
    RangeFetched,
    RangeReread,
    RangeRetried,
    ReadPlanned,
    RecordsRead,
    SegmentScanned,
    SizeAsked,
    TimestampsSaturated,
)
from remote_fetch.session.event_log import LogObserver

PARTITION = TopicIdPartition(Uuid(bytes(16)), "t", 0)
NAME = f"{PARTITION.topic}-{PARTITION.partition}"

LOGGED: list[tuple[Event, list[tuple[int, str]]]] = [
    (Notice("log start unknown"), [(logging.INFO, "log start unknown")]),
    (Notice("100 % full", is_warning=True), [(logging.WARNING, "100 % full")]),
    (
        Fallback(PARTITION, 1, 2, "not-found"),
        [(logging.WARNING, f"{NAME}: offsets 1 to 2 are not read from the store (not-found)")],
    ),
    (
        Fallback(PARTITION, 0, -1, "unauthorized"),
        [(logging.WARNING, f"{NAME}: not read from the store (unauthorized)")],
    ),
    (
        Fallback(PARTITION, 1, 2, "format", "version 9"),
        [(logging.WARNING, f"{NAME}: offsets 1 to 2 are not read from the store (format: version 9)")],
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
    (
        SizeAsked(PARTITION, "auth"),
        [(logging.WARNING, f"{NAME}: the store did not give the size of a segment (auth)")],
    ),
    (SizeAsked(PARTITION, "learned"), []),
    (SizeAsked(PARTITION, "unknown"), []),
    (IndexSettled(PARTITION, IndexType.OFFSET, "8-byte"), []),
    (RangeFetched(PARTITION, 10, 0.5), []),
    (RangeRetried(PARTITION, "throttled"), []),
    (ReadPlanned({PARTITION: (0, 100)}), []),
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
    observer = LogObserver(clock=lambda: now_s)
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
