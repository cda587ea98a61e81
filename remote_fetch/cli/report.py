"""The report and the warnings of a command at its end. They go to stderr, because stdout holds the data.

Rules of the file:

- Warnings come behind the output of the command, so that neither is in the middle of the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from remote_fetch.amounts import counted, human_bytes, per_get
from remote_fetch.observe import Event, Notice, Report, unusable_text
from remote_fetch.plan.prices import Prices
from remote_fetch.session.session import IN_PLAIN_PYTHON

__all__ = ["Warnings", "report_lines", "resumable"]

_MOST_ENDS = 100
"""Lines on the ends of partitions. A topic may have thousands of partitions."""


class Warnings:
    """An observer that keeps the warnings of a command that decodes nothing, and prints each once after its output."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def __call__(self, event: Event) -> None:
        """Keep the text of a warning, unless it is about the decoder."""
        if isinstance(event, Notice) and event.is_warning and event.text != IN_PLAIN_PYTHON:
            self._texts.append(event.text)

    def print(self) -> None:
        """Print the warnings to stderr, behind all that was printed to stdout."""
        sys.stdout.flush()
        for text in dict.fromkeys(self._texts):
            print(f"% note: {text}", file=sys.stderr)


@contextmanager
def resumable(*, is_quiet: bool) -> Iterator[None]:
    """Print, after Ctrl-C or SIGTERM, how to go on with a job that may be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        if not is_quiet:
            print("% interrupted: the same command again goes on where this one ended", file=sys.stderr)
        raise


def report_lines(report: Report, elapsed_s: float, prices: Prices | None = None) -> list[str]:
    """The report at the end: records, remote bytes, GETs, speed, cost, and every retry, fallback and notice."""
    speed = report.remote_bytes / elapsed_s / 1e6 if elapsed_s > 0 else 0.0
    segments = (
        f"remote bytes: {human_bytes(report.remote_bytes)} in {counted(report.remote_gets, 'GET')}"
        f"{per_get(report.mean_bytes_per_get)}"
    )
    lines = [
        f"{counted(report.records, 'record')} in {elapsed_s:.2f} s ({speed:.1f} MB/s of remote bytes)",
        f"{segments}; indexes: {human_bytes(report.index_bytes)} in {counted(report.index_gets, 'GET')}",
        f"fallbacks: {_by_reason(report.fallbacks)}",
    ]
    if report.broker_records:
        records = counted(report.broker_records, "record")
        lines.insert(2, f"broker bytes: {human_bytes(report.broker_bytes)} in {records}")
    if prices is not None:
        gets, size_bytes = report.remote_gets + report.index_gets, report.remote_bytes + report.index_bytes
        lines.insert(2, f"cost: {prices.text(gets, size_bytes)}")
    for name, counts in (
        ("retries", report.retries),
        ("fetched twice, because the bytes broke a rule", report.rereads),
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
    ends = list(report.ends.values())
    lines.extend(f"end: {end}" for end in ends[:_MOST_ENDS])
    if len(ends) > _MOST_ENDS:
        lines.append(f"end: {counted(len(ends) - _MOST_ENDS, 'partition')} more; remote-fetch bounds lists all")
    lines.extend(f"note: {notice}" for notice in report.notices)
    return lines


def _by_reason(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items())) or "none"
