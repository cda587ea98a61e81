"""The report at the end, and the bar before it."""

from __future__ import annotations

import io
import sys

import pytest

from remote_fetch.cli import report
from remote_fetch.cli.report import Progress, human_bytes, report_lines
from remote_fetch.model import IndexType, TopicIdPartition, Uuid
from remote_fetch.observe import Notice, RangeFetched, Report

PARTITION = TopicIdPartition(Uuid(bytes(16)), "shop", 0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Bar:
    """Stands in for rich's Progress."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def start(self) -> None:
        self.calls.append(("start",))

    def stop(self) -> None:
        self.calls.append(("stop",))

    def add_task(self, text: str, *, total: int) -> int:
        self.calls.append(("task", text, total))
        return 5

    def advance(self, task: int, size_bytes: int) -> None:
        self.calls.append(("advance", task, size_bytes))


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (8 << 20, "8.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (1 << 40, "1.0 TiB"),
        (1 << 50, "1.0 PiB"),
        (1 << 62, "4096.0 PiB"),
        (0.4, "0 B"),
    ],
)
def test_human_bytes(size_bytes: float, shown: str) -> None:
    assert human_bytes(size_bytes) == shown


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
        "read twice: corrupt 1",
        "scans: corrupt 1, missing 3",
        "end: t-0 ends there",
        "note: log start unknown",
    ]


def test_the_bar_counts_remote_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = Bar()
    monkeypatch.setattr(report, "_rich_bar", lambda: bar)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress(enabled=True) as progress:
        progress(RangeFetched(PARTITION, 1, 0.1))
        progress.start(100)
        progress(RangeFetched(PARTITION, 60, 0.1))
        progress(RangeFetched(PARTITION, 7, 0.1, IndexType.OFFSET))
        progress(Notice("hello"))
    assert bar.calls == [("start",), ("task", "reading", 100), ("advance", 5, 60), ("stop",)]


@pytest.mark.parametrize(("terminal", "enabled"), [(True, False), (False, True)])
def test_no_bar_without_a_terminal(monkeypatch: pytest.MonkeyPatch, terminal: bool, enabled: bool) -> None:
    monkeypatch.setattr(report, "_rich_bar", pytest.fail)
    monkeypatch.setattr(sys, "stderr", Terminal() if terminal else io.StringIO())
    with Progress(enabled=enabled) as progress:
        progress.start(100)
        progress(RangeFetched(PARTITION, 60, 0.1))


def test_no_bar_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with Progress(enabled=True) as progress:
        progress.start(100)
    assert terminal.getvalue() == ""


def test_a_bar_with_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress(enabled=True) as progress:
        progress.start(100)
        progress(RangeFetched(PARTITION, 60, 0.1))
    assert terminal.getvalue() != ""
