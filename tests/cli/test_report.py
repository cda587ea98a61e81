"""The report at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remote_fetch.cli import export
from remote_fetch.cli.output import print_report
from remote_fetch.cli.report import report_lines
from remote_fetch.observe import Fallback, Observer, Report
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def test_a_report_of_a_read_that_went_straight() -> None:
    counts = Report(remote_bytes=4_000_000, remote_gets=4, index_bytes=100, index_gets=2, records=17)
    assert report_lines(counts, 2.0) == [
        "17 records in 2.00 s (2.0 MB/s of remote bytes)",
        "remote bytes: 3.8 MiB in 4 GETs, mean 976.6 KiB per GET; indexes: 100 B in 2 GETs",
        "fallbacks: none",
    ]


def test_a_report_lists_a_hundred_ends() -> None:
    lines = report_lines(Report(ends={f"t-{number}": f"t-{number} ends there" for number in range(10_000)}), 1.0)
    assert lines[-2:] == ["end: t-99 ends there", "end: 9900 partitions more; remote-fetch bounds lists all"]
    lines = report_lines(Report(ends={f"t-{number}": f"t-{number} ends there" for number in range(100)}), 1.0)
    assert lines[-1] == "end: t-99 ends there"


FALLBACKS = [Fallback(LogBuilder().topic_id_partition, first, first, "auth", f"refused {first}") for first in (0, 1)]
NOTE = "% note: fallback (auth): refused 0"


def test_the_cause_of_fallbacks(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Session.open({"remote.storage.url": bucket}) as session:
        for event in FALLBACKS:
            session.observe(event)
        print_report(session, 1.0, None, None)
    assert [line for line in capsys.readouterr().err.splitlines() if "note: fallback" in line] == [NOTE]


def test_the_cause_of_an_exports_fallbacks(run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def exported(*_: object, observer: Observer, **__: object) -> str:
        for event in FALLBACKS:
            observer(event)
        return "the report"

    monkeypatch.setattr(export, "export_topic", exported)
    words = ("export", "--url", bucket, "-t", "shop", "--to", "nowhere")
    assert run(*words).stderr.splitlines() == [NOTE]
    assert run(*words, "-q").stderr == ""


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
        "remote bytes: 0 B in 0 GETs; indexes: 0 B in 0 GETs",
        "fallbacks: not-found 1",
        "retries: throttled 2",
        "fetched twice, because the bytes broke a rule: corrupt 1",
        "scans: corrupt 1, missing 3",
        "end: t-0 ends there",
        "note: log start unknown",
    ]
