"""Checks a consumer group after its run: events of its members in, findings out.

Rules of the file:

- Pure. It knows no consumer, so every kind is judged by the same rules.
- Events of several threads and processes are ordered by their time on a shared clock.
- The visible offsets come from another reader of the log, not from the events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tests.rig.workload_oracle import Place

__all__ = ["Assigned", "Committed", "Delivered", "Event", "Paused", "Resumed", "Revoked", "Sought", "Told", "breaches"]


class Assigned(NamedTuple):
    """A member was assigned a partition.

    `offset` is the committed offset, or the reset policy's if none is committed.
    """

    at_ns: int
    member: str
    place: Place
    offset: int


class Revoked(NamedTuple):
    """A member no longer has a partition: it was revoked or lost, or the member has ended."""

    at_ns: int
    member: str
    place: Place


class Delivered(NamedTuple):
    """A member got a record."""

    at_ns: int
    member: str
    place: Place
    offset: int


class Sought(NamedTuple):
    """A member has sought an offset."""

    at_ns: int
    member: str
    place: Place
    offset: int


class Paused(NamedTuple):
    """A member has paused a partition. librdkafka keeps the pause if the partition is assigned again."""

    at_ns: int
    member: str
    place: Place


class Resumed(NamedTuple):
    """A member is about to resume a partition."""

    at_ns: int
    member: str
    place: Place


class Committed(NamedTuple):
    """A member committed `offset` itself, and the broker accepted it.

    `of_message`: the commit was made with the member's last message.
    """

    at_ns: int
    member: str
    place: Place
    offset: int
    of_message: bool = False


class Told(NamedTuple):
    """The group answered another client, which asked at `asked_ns`, that `offset` is committed."""

    at_ns: int
    place: Place
    offset: int
    asked_ns: int


Event: TypeAlias = Assigned | Revoked | Delivered | Sought | Paused | Resumed | Committed | Told


def breaches(events: Iterable[Event], visible: Mapping[Place, Sequence[int]]) -> list[str]:
    """The findings as texts, empty if there are none. `visible` has each partition's offsets in ascending order.

    - Every visible record is delivered, except records that a member has sought past.
    - After an assignment or a seek, each delivered record is the next visible one. No record is skipped, and none
      repeats below the committed offset.
    - A committed offset never decreases, with two exceptions: after a seek, and not below its target; and by a commit
      of a record after which no visible record was committed.
    - If a partition is assigned, all records below its committed offset have been delivered.
    - No record is delivered of a partition that the member does not have or has paused.
    """
    check = _Check({place: _Log(offsets) for place, offsets in visible.items()})
    for event in sorted(events, key=lambda event: event.at_ns):
        check.take(event)
    for place, log in check.logs.items():
        missing = log.missing_before(None)
        if missing:
            check.found.append(f"{place}: {len(missing)} records were never delivered: {missing[:10]}")
    return check.found


@dataclass(slots=True)
class _Log:
    """One partition: its visible offsets, its delivered offsets, its committed offset.

    - `committed` is the last known committed offset. It may go back to `sought`, the lowest offset sought since then.
    - `changed_ns` is the time of the last change of either, except by the answer to another client.
    """

    visible: Sequence[int]
    seen: set[int] = field(default_factory=set)
    solid: int = 0
    committed: int = 0
    sought: int | None = None
    changed_ns: int = 0

    @property
    def lowest(self) -> int:
        """The lowest offset that may be committed now."""
        return self.committed if self.sought is None else min(self.committed, self.sought)

    def next_visible(self, offset: int) -> int | None:
        """The first visible offset that is not below this one."""
        at = bisect_left(self.visible, offset)
        return self.visible[at] if at < len(self.visible) else None

    def between(self, first: int, stop: int | None) -> Sequence[int]:
        """The visible offsets of [first, stop)."""
        end = len(self.visible) if stop is None else bisect_left(self.visible, stop)
        return self.visible[bisect_left(self.visible, first) : end]

    def missing_before(self, stop: int | None) -> list[int]:
        """The visible offsets below `stop` that were not delivered."""
        while self.solid < len(self.visible) and self.visible[self.solid] in self.seen:
            self.solid += 1
        end = len(self.visible) if stop is None else bisect_left(self.visible, stop)
        return [offset for offset in self.visible[self.solid : end] if offset not in self.seen]

    def settle(self, offset: int, at_ns: int) -> None:
        """Note a committed offset that is certain."""
        self.committed, self.sought, self.changed_ns = offset, None, at_ns


class _Check:
    """Goes through the events. `_next` has, for each partition of each member, the offset that must come next."""

    def __init__(self, logs: dict[Place, _Log]) -> None:
        self.logs = logs
        self.found: list[str] = []
        self._next: dict[tuple[str, Place], int] = {}
        self._paused: defaultdict[str, set[Place]] = defaultdict(set)

    def take(self, event: Event) -> None:
        match event:
            case Delivered():
                self._delivered(event)
            case Assigned(at_ns, member, place, offset):
                self._commit_is(event, at_ns)
                missing = self.logs[place].missing_before(offset)
                if missing:
                    self._wrong(event, f"{len(missing)} committed records were not delivered: {missing[:10]}")
                self._next[member, place] = offset
            case Revoked(_, member, place):
                self._next.pop((member, place), None)
            case Sought():
                self._sought(event)
            case Paused(_, member, place):
                self._paused[member].add(place)
            case Resumed(_, member, place):
                self._paused[member].discard(place)
            case Committed():
                self._committed(event)
            case Told():
                self._told(event)

    def _delivered(self, event: Delivered) -> None:
        log, reading = self.logs[event.place], (event.member, event.place)
        if event.place in self._paused[event.member]:
            self._wrong(event, "it is paused")
        if reading not in self._next:
            self._wrong(event, "the member does not have the partition")
            return
        expected = self._next[reading]
        if event.offset < expected:
            self._wrong(event, f"{expected} or more had to come")
        elif log.next_visible(event.offset) != event.offset:
            self._wrong(event, "it is not visible")
        elif log.next_visible(expected) != event.offset:
            self._wrong(event, f"{log.next_visible(expected)} was skipped")
        log.seen.add(event.offset)
        self._next[reading] = event.offset + 1

    def _sought(self, event: Sought) -> None:
        log, reading = self.logs[event.place], (event.member, event.place)
        if event.offset > self._next.get(reading, event.offset):
            log.seen.update(log.between(self._next[reading], event.offset))
        self._next[reading] = event.offset
        log.sought = event.offset if log.sought is None else min(log.sought, event.offset)
        log.changed_ns = event.at_ns

    def _committed(self, event: Committed) -> None:
        log = self.logs[event.place]
        sought = log.sought
        self._commit_is(event, event.at_ns)
        if event.offset > self._next.get((event.member, event.place), event.offset):
            log.sought = sought  # this offset was stored before the seek; later commits may be lower

    def _commit_is(self, event: Assigned | Committed, at_ns: int) -> None:
        log = self.logs[event.place]
        of_message = isinstance(event, Committed) and event.of_message
        if event.offset < log.lowest and not (of_message and not log.between(event.offset, log.lowest)):
            self._wrong(event, f"the committed offset went back from {log.committed} (sought: {log.sought})")
        log.settle(event.offset, at_ns)

    def _told(self, event: Told) -> None:
        log = self.logs[event.place]
        if log.changed_ns >= event.asked_ns:
            return  # the answer may be older than the change
        if event.offset < log.lowest:
            self._wrong(event, f"the committed offset went back from {log.committed} (sought: {log.sought})")
        log.committed = max(log.committed, event.offset)

    def _wrong(self, event: Event, what: str) -> None:
        self.found.append(f"{event}: {what}")
