"""The report at the end."""

from __future__ import annotations

from remote_fetch.cli.report import report_lines
from remote_fetch.observe import Report


def test_a_report_of_a_read_that_went_straight() -> None:
    counts = Report(remote_bytes=4_000_000, remote_gets=4, index_bytes=100, index_gets=2, records=17)
    assert report_lines(counts, 2.0) == [
        "17 records in 2.00 s (2.0 MB/s of remote bytes)",
        "remote bytes: 3.8 MiB in 4 GETs, mean 976.6 KiB per GET; indexes: 100 B in 2 GETs",
        "fallbacks: none",
    ]


def test_a_report_of_a_read_that_did_not() -> None:
    counts = Report(
        retries={"throttled": 2},
        rereads={"corrupt": 1},
        scans={"missing": 3, "corrupt": 1},
        fallbacks={"not-found": 1},
        ends={"t-0": "t-0 ends there"},
        notices=("log start unknown",),
    )
    assert report_lines(counts, 0.0) == [
        "0 records in 0.00 s (0.0 MB/s of remote bytes)",
        "remote bytes: 0 B in 0 GETs, mean 0 B per GET; indexes: 0 B in 0 GETs",
        "fallbacks: not-found 1",
        "retries: throttled 2",
        "fetched twice, because the bytes broke a rule: corrupt 1",
        "scans: corrupt 1, missing 3",
        "end: t-0 ends there",
        "note: log start unknown",
    ]
