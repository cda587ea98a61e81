"""Which offset of the old topic is which offset of the new one.

Rules of the file:

- Pure.
- Both offsets ascend. A run is a stretch in which both count up by one.
- An offset without a record, of a transaction marker or of a compacted record, stands for the next record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from remote_fetch.errors import ConfigError

__all__ = ["OffsetMap", "Run"]


class Run(NamedTuple):
    """`records` of them, from the offset `source` of the old partition on, from `target` of the new one on."""

    source: int
    target: int
    records: int


class OffsetMap:
    """The runs of one partition. `target_start` is the first offset of the new one."""

    def __init__(self, target_start: int = 0) -> None:
        self.target_start = target_start
        self._runs: list[Run] = []

    @property
    def source_next(self) -> int:
        """The offset of the old partition after the last record, -1 without records."""
        return self._runs[-1].source + self._runs[-1].records if self._runs else -1

    @property
    def target_next(self) -> int:
        """The offset of the new partition after the last record."""
        return self._runs[-1].target + self._runs[-1].records if self._runs else self.target_start

    @property
    def keeps_offsets(self) -> bool:
        """Whether every record has its old offset."""
        return all(run.source == run.target for run in self._runs)

    def runs(self) -> Iterator[Run]:
        """The runs, ascending."""
        return iter(self._runs)

    def add(self, source: int, count: int) -> Run:
        """Add records that follow: their offsets in the new partition are the next ones. Returns them as a run.

        Raises ValueError for offsets that the map has already.
        """
        if source < self.source_next or count < 1:
            raise ValueError(f"{count} records from offset {source} on, after offset {self.source_next - 1}")
        run = Run(source, self.target_next, count)
        last = self._runs[-1] if self._runs else None
        if last is not None and source == last.source + last.records:
            self._runs[-1] = last._replace(records=last.records + count)
        else:
            self._runs.append(run)
        return run

    def translate(self, source: int) -> int:
        """The offset of the new partition from which on a reader goes on that was at `source` of the old one.

        It is that of the first record at or after `source`, or the end. Raises ConfigError for an offset below 0.
        """
        if source < 0:
            raise ConfigError(f"offset {source}: give one from 0 on")
        at = bisect_right(self._runs, source, key=lambda run: run.source) - 1
        if at < 0:
            return self.target_start
        run = self._runs[at]
        return run.target + min(source - run.source, run.records)
