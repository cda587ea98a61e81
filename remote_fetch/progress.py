"""How far a long command is: positions in, and a line with share, rates and time left out.

Rules of the file:

- Pure. The caller passes the time of its clock, in seconds.
- A rate is that of the last half minute, so that a change of speed shows soon.
- All commands and jobs use this module, so that a line means the same everywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from remote_fetch.amounts import human_bytes, human_time
from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import BrokerRead, Event, RangeFetched, ReadPlanned, RecordsRead

__all__ = ["LINE_EVERY_S", "Meter", "Position", "Progressed", "ReadPosition"]

LINE_EVERY_S = 60.0
"""The time between two lines in a log."""
_WINDOW_S = 30.0
_MIN_SAMPLE_S = 0.5


@dataclass(frozen=True, slots=True)
class Position:
    """How far a step is: `done` of `total` (None: unknown) of the things that `step` names, such as `offsets read`.

    - `is_bytes`: `done` and `total` are bytes.
    - `records` and `size_bytes` came in during the step. None: the step does not count them.
    """

    step: str
    done: int
    total: int | None = None
    is_bytes: bool = False
    records: int | None = None
    size_bytes: int | None = None

    @property
    def share(self) -> float | None:
        """The share that is done, from 0 to 1. None if the total is unknown."""
        return min(self.done / self.total, 1.0) if self.total else None


Progressed: TypeAlias = Callable[[Position], None]
"""Takes the positions of a long job."""


class Meter:
    """Tells when a line is due, and makes it. `every_s` is the time between two lines."""

    def __init__(self, every_s: float, now_s: float, *, wait_s: float = 0.0) -> None:
        self._every_s = every_s
        self._next_s = now_s + wait_s
        self._samples: deque[tuple[float, Position]] = deque()

    def is_due(self, now_s: float) -> bool:
        """Whether a line is due now. The next one is due `every_s` later."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True

    def take(self, position: Position, now_s: float) -> None:
        """Remember a position for the rates. The first position of a step is the one that rates count from."""
        samples = self._samples
        if samples and (samples[-1][1].step != position.step or samples[-1][1].done > position.done):
            samples.clear()
        if not samples or now_s - samples[-1][0] >= _MIN_SAMPLE_S:
            samples.append((now_s, position))
        while len(samples) > 2 and samples[1][0] <= now_s - _WINDOW_S:
            samples.popleft()

    def line(self, position: Position, now_s: float) -> str:
        """The line of a position: `offsets read: 10 of 40 (25%), 5 records/s, 0.1 MB/s, 0:06 left`."""
        self.take(position, now_s)
        began_s, first = self._samples[0]
        took_s = now_s - began_s
        show = human_bytes if position.is_bytes else str
        total = "" if position.total is None else f" of {show(position.total)}"
        share = "" if position.share is None else f" ({position.share:.0%})"
        parts = [f"{position.step}: {show(position.done)}{total}{share}"]
        if took_s <= 0:
            return parts[0]
        speed = (position.done - first.done) / took_s
        parts += _rates(first, position, took_s)
        if position.total is not None and speed > 0:
            parts.append(f"{human_time(max(position.total - position.done, 0) / speed)} left")
        return ", ".join(parts)


def _rates(first: Position, last: Position, took_s: float) -> list[str]:
    """Records and megabytes a second. If the step counts neither, its own things a second."""
    found = []
    if last.records is not None:
        found.append(f"{(last.records - (first.records or 0)) / took_s:.0f} records/s")
    size_bytes, before = (last.done, first.done) if last.is_bytes else (last.size_bytes, first.size_bytes)
    if size_bytes is not None:
        found.append(f"{(size_bytes - (before or 0)) / took_s / 1e6:.1f} MB/s")
    return found or [f"{(last.done - first.done) / took_s:.0f}/s"]


class ReadPosition:
    """The position of a read, from its events. An observer, for one thread at a time.

    `step` names what is done with the offsets. A read that stops after `most` records is at its end then.
    """

    def __init__(self, step: str, most: int | None = None) -> None:
        self.step = step
        self._most = most
        self._ranges: Mapping[TopicIdPartition, tuple[int, int]] = {}
        self._next: dict[TopicIdPartition, int] = {}
        self._records = self._size_bytes = 0

    def __call__(self, event: Event) -> None:
        """Take one event."""
        match event:
            case ReadPlanned():
                self._ranges, self._next = event.ranges, {}
                self._records = self._size_bytes = 0
            case RangeFetched() if event.index_type is None:
                self._size_bytes += event.size_bytes
            case BrokerRead():
                self._size_bytes += event.size_bytes
            case RecordsRead():
                self._records += event.records
                self._next[event.partition] = event.next_offset
            case _:
                pass

    @property
    def is_planned(self) -> bool:
        """Whether the read has a plan, so that its end is known."""
        return bool(self._ranges)

    def position(self) -> Position:
        """How far the read is."""
        total = sum(stop - first for first, stop in self._ranges.values())
        if self._most is not None and self._most < total:
            done = min(self._records, self._most)
            return Position("records read", done, self._most, records=self._records, size_bytes=self._size_bytes)
        done = 0
        for partition, (first, stop) in self._ranges.items():
            done += min(max(self._next.get(partition, first), first), stop) - first
        return Position(self.step, done, total, records=self._records, size_bytes=self._size_bytes)
