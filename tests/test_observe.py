"""The observers: what each event adds to or writes, and that none is lost when several threads count."""

from __future__ import annotations

import pytest

from remote_fetch.model import IndexType, TopicIdPartition, Uuid
from remote_fetch.observe import (
    MOST_NOTICES,
    Counters,
    Event,
    Fallback,
    IndexSettled,
    Notice,
    RangeFetched,
    RangeReread,
    RangeRetried,
    ReadEnds,
    ReadPlanned,
    RecordsRead,
    Report,
    SegmentScanned,
    SizeAsked,
    ignore,
)
from tests.at_once import at_once

PARTITION = TopicIdPartition(Uuid(bytes(16)), "t", 0)

EVENTS: list[tuple[Event, Report]] = [
    (RangeFetched(PARTITION, 10, 0.5), Report(remote_bytes=10, remote_gets=1, fetch_s=0.5)),
    (
        RangeFetched(PARTITION, 10, 0.5, IndexType.TRANSACTION),
        Report(index_bytes=10, index_gets=1, fetch_s=0.5),
    ),
    (RangeRetried(PARTITION, "throttled"), Report(retries={"throttled": 1})),
    (RangeReread(PARTITION, 7, "corrupt"), Report(rereads={"corrupt": 1})),
    (SegmentScanned(PARTITION, IndexType.OFFSET, "missing"), Report(scans={"missing": 1})),
    (IndexSettled(PARTITION, IndexType.OFFSET, "12-byte"), Report(ties={"12-byte": 1})),
    (SizeAsked(PARTITION, "learned"), Report(sizes={"learned": 1})),
    (Fallback(PARTITION, 1, 2, "not-found"), Report(fallbacks={"not-found": 1})),
    (ReadPlanned({PARTITION: (0, 100)}), Report()),
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


def test_a_consumer_of_years_keeps_its_last_notices() -> None:
    counters = Counters()
    for offset in range(MOST_NOTICES + 5):
        counters(Notice(f"t-0 is read from the broker from offset {offset} on"))
    notices = counters.report().notices
    assert len(notices) == MOST_NOTICES
    assert notices[0] == "t-0 is read from the broker from offset 5 on"


def test_the_cause_of_the_first_fallback_of_each_reason() -> None:
    counters = Counters()
    for reason, detail in (("auth", ""), ("auth", "who are you"), ("not-found", "gone"), ("auth", "who are you, b")):
        counters(Fallback(PARTITION, 0, 9, reason, detail))
    assert counters.causes() == ("fallback (auth): who are you", "fallback (not-found): gone")
    assert counters.report().notices == ()


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

    at_once([count] * 4)
    report = counters.report()
    assert (report.records, report.remote_bytes, report.remote_gets) == (2000, 4000, 2000)


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
