"""The report of a command at its end, and the progress bar. Both go to stderr, because stdout holds the data.

Rules of the file:

- Nothing goes to stdout.
- Without a terminal there is no bar.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from remote_fetch.observe import Event, RangeFetched, Report, unusable_text
from remote_fetch.plan.prices import Prices

__all__ = ["CountedRecords", "Progress", "human_bytes", "report_lines"]

_SAID_EVERY_S = 60.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def human_bytes(size_bytes: float) -> str:
    """A size with a binary unit: 512 B, 1.5 MiB."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:.0f} {_UNITS[0]}" if unit == 0 else f"{size_bytes:.1f} {_UNITS[unit]}"


def report_lines(report: Report, elapsed_s: float, prices: Prices | None = None) -> list[str]:
    """The report at the end: records, remote bytes, GETs, speed, cost, and every retry, fallback and notice."""
    speed = report.remote_bytes / elapsed_s / 1e6 if elapsed_s > 0 else 0.0
    segments = (
        f"remote bytes: {human_bytes(report.remote_bytes)} in {report.remote_gets} GETs, "
        f"mean {human_bytes(report.mean_bytes_per_get)} per GET"
    )
    lines = [
        f"{report.records} records in {elapsed_s:.2f} s ({speed:.1f} MB/s of remote bytes)",
        f"{segments}; indexes: {human_bytes(report.index_bytes)} in {report.index_gets} GETs",
        f"fallbacks: {_by_reason(report.fallbacks)}",
    ]
    if report.broker_records:
        lines.insert(2, f"broker bytes: {human_bytes(report.broker_bytes)} in {report.broker_records} records")
    if prices is not None:
        gets, size_bytes = report.remote_gets + report.index_gets, report.remote_bytes + report.index_bytes
        lines.insert(2, f"cost: {prices.text(gets, size_bytes)}")
    for name, counts in (
        ("retries", report.retries),
        ("read twice", report.rereads),
        ("scans", report.scans),
        ("indexes of either entry size", report.ties),
        ("sizes asked for", report.sizes),
    ):
        if counts:
            lines.append(f"{name}: {_by_reason(counts)}")
    if report.saturated_timestamps:
        lines.append(f"timestamps beyond what microseconds hold: {report.saturated_timestamps}")
    unusable = unusable_text(report.orphan_updates, report.malformed_records)
    if unusable:
        lines.append(f"metadata: {unusable}")
    lines.extend(f"end: {end}" for end in report.ends.values())
    lines.extend(f"note: {notice}" for notice in report.notices)
    return lines


def _by_reason(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items())) or "none"


class CountedRecords:
    """A line a minute about how many records are done. `done` is the word for it, such as `restored`."""

    def __init__(self, done: str, *, enabled: bool) -> None:
        self._done = done
        self._is_enabled = enabled
        self._next_s = time.monotonic() + _SAID_EVERY_S

    def __call__(self, records: int) -> None:
        """Take the number of records so far."""
        if self._is_enabled and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _SAID_EVERY_S
            print(f"% {records} records {self._done}", file=sys.stderr, flush=True)


class Progress:
    """A bar of the remote bytes that came in. It is empty if stderr is not a terminal, or without `rich`.

    Use it as a context manager, and as the observer of the read. `total_bytes` is the plan's estimate.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._bar: Any = None
        self._task: Any = None
        if enabled and sys.stderr.isatty():
            self._bar = _rich_bar()

    def start(self, total_bytes: int | None) -> None:
        """Show the bar, and count bytes against `total_bytes` from now on. None: the total is not known."""
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("reading", total=total_bytes)

    def stop(self) -> None:
        """Remove the bar, so that later lines on stderr are not mixed with it."""
        if self._task is not None:
            self._bar.stop()
            self._task = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, event: Event) -> None:
        """Count the bytes of an event."""
        if self._task is not None and isinstance(event, RangeFetched) and event.index_type is None:
            self._bar.advance(self._task, event.size_bytes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _rich_bar() -> Any:
    try:
        from rich.console import Console  # noqa: PLC0415 - an extra, and only for a terminal
        from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn  # noqa: PLC0415
    except ImportError:
        return None
    console = Console(stderr=True)
    return Progress(
        BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), console=console, transient=True
    )
