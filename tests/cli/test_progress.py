"""The line of progress: where it is shown, and that stdout and other lines stay as they are."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable

import pytest

from remote_fetch.cli.progress import Progress
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.observe import Notice, RangeFetched, ReadPlanned, RecordsRead
from remote_fetch.progress import Position
from tests.clock import Clock

PARTITION = TopicIdPartition(Uuid(bytes(16)), "shop", 0)
PLANNED = ReadPlanned({PARTITION: (0, 100)})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Opened = Callable[..., tuple[Progress, io.StringIO, Clock]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Opens a Progress on a terminal or on a file, with or without rich."""

    def open_progress(
        *, terminal: bool, rich: bool = False, enabled: bool = True
    ) -> tuple[Progress, io.StringIO, Clock]:
        stderr, clock = Terminal() if terminal else io.StringIO(), Clock(0.0)
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setenv("TERM", "xterm")
        if not rich:
            monkeypatch.setitem(sys.modules, "rich.console", None)
        return Progress(enabled=enabled, clock=clock), stderr, clock

    return open_progress


def test_a_log_gets_a_line_a_minute(opened: Opened) -> None:
    progress, stderr, clock = opened(terminal=False)
    with progress:
        progress(PLANNED)
        for second in range(1, 100):
            clock.now_s = float(second)
            progress(RangeFetched(PARTITION, 1_000_000, 0.1))
            progress(RecordsRead(PARTITION, 1, second))
    assert stderr.getvalue() == "% offsets read: 60 of 100 (60%), 1 records/s, 1.0 MB/s, 0:40 left\n"


@pytest.mark.parametrize("enabled", [True, False])
def test_a_read_that_waits_says_why_at_once(opened: Opened, monkeypatch: pytest.MonkeyPatch, enabled: bool) -> None:
    """Its report may never come. Records that go to the terminal are no reason to be silent."""
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with Progress(enabled=enabled, waits=True) as progress:
        progress(Notice("the broker gives nothing", is_warning=True, is_wait=True))
        progress(Notice("another warning", is_warning=True))
    assert stderr.getvalue() == "% the broker gives nothing\n"
    progress, quiet, _ = opened(terminal=False, enabled=False)
    with progress:
        progress(Notice("the broker gives nothing", is_warning=True, is_wait=True))
    assert quiet.getvalue() == ""


def test_a_terminal_without_rich_has_a_line_that_changes(opened: Opened) -> None:
    progress, stderr, clock = opened(terminal=True)
    with progress:
        progress(PLANNED)
        clock.now_s = 0.1
        progress(RecordsRead(PARTITION, 10, 10))
        clock.now_s = 10.0
        progress(RecordsRead(PARTITION, 10, 20))
        progress.clear()
        progress.clear()
    first = "% offsets read: 0 of 100 (0%)"
    second = "% offsets read: 20 of 100 (20%), 2 records/s, 0.0 MB/s, 0:40 left"
    assert stderr.getvalue() == f"\r{first}\r{second}\r{' ' * len(second)}\r"


def test_a_long_line_is_cut_at_the_edge_of_the_terminal(opened: Opened) -> None:
    progress, stderr, _ = opened(terminal=True)
    with progress:
        progress.at(Position("things " * 40, 1))
    assert {len(line) for line in stderr.getvalue().split("\r") if line} == {79}


def test_a_bar_of_rich_leaves_stdout_alone(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its defaults rich sends to stderr what is printed while a bar is shown."""
    pytest.importorskip("rich")
    stdout = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stdout)
    progress, stderr, clock = opened(terminal=True, rich=True)
    with progress:
        progress(PLANNED)
        print("a record")
        clock.now_s = 10.0
        progress(RecordsRead(PARTITION, 10, 20))
        progress.clear()
        print("another")
    assert stdout.getvalue() == "a record\nanother\n"
    shown = stderr.getvalue()
    assert "offsets read: 20 of 100 (20%)" in shown
    assert "\x1b[?25h" in shown.rpartition("\x1b[?25l")[2], "the cursor is shown again"


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_is_shown_if_it_is_not_wanted(opened: Opened, terminal: bool) -> None:
    progress, stderr, clock = opened(terminal=terminal, enabled=False)
    with progress:
        progress(PLANNED)
        clock.now_s = 100.0
        progress(RecordsRead(PARTITION, 10, 20))
    assert stderr.getvalue() == ""


def test_another_thread_counts_and_does_not_draw(opened: Opened) -> None:
    progress, stderr, clock = opened(terminal=True)
    with progress:
        clock.now_s = 5.0
        thread = threading.Thread(target=progress, args=(PLANNED,))
        thread.start()
        thread.join()
        assert stderr.getvalue() == ""
        progress(RecordsRead(PARTITION, 10, 20))
        assert stderr.getvalue() == "\r% offsets read: 20 of 100 (20%)"


def test_nothing_is_shown_after_the_end(opened: Opened) -> None:
    progress, stderr, _ = opened(terminal=True)
    progress.stop()
    progress(PLANNED)
    progress.at(Position("objects listed", 1))
    assert stderr.getvalue() == ""
