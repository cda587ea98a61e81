"""Says which partitions give nothing, what they wait for, and since when.

Rules of the file:

- A partition that waits is one that the application wants records of, and of which nobody has given any since it was
  assigned, sought or handed over. A partition at the end of its log does not wait.
- The first line comes after some seconds, the next ones after twice as long each time. One line says that it goes on.
- The clock is passed in. Entries are looked at once a second, for there may be thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from remote_fetch.consumer.entries import Entry
from remote_fetch.consumer.states import Mode

__all__ = ["Waits"]

_LOOK_S = 1.0
_FIRST_LINE_S = 5.0


@dataclass(slots=True)
class _Wait:
    """Since when a partition waits, and after how many seconds it is named next."""

    since_s: float
    next_line_s: float = _FIRST_LINE_S
    is_said: bool = False


class Waits:
    """The partitions of one consumer that wait.

    `say` takes an entry and a sentence about it. `gives` tells whether librdkafka has given records of an entry since
    it was handed over; it is asked before a line is written.
    """

    def __init__(self, say: Callable[[Entry, str], None], gives: Callable[[Entry], bool]) -> None:
        self._say = say
        self._gives = gives
        self._waits: dict[tuple[str, int], _Wait] = {}
        self._next_look_s = 0.0

    def look(self, entries: Iterable[Entry], now_s: float) -> None:
        """Name those that have waited for long, at most once a second."""
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + _LOOK_S
        before, self._waits = self._waits, {}
        for entry in entries:
            awaited = _awaited(entry)
            wait = before.get(entry.key)
            if awaited is None:
                if wait is not None and wait.is_said:
                    self._say(entry, f"goes on after {now_s - wait.since_s:.0f} s")
                continue
            wait = self._waits[entry.key] = wait or _Wait(now_s)
            if now_s - wait.since_s >= wait.next_line_s:
                if entry.state.mode is Mode.BROKER and self._gives(entry):
                    del self._waits[entry.key]
                    continue
                self._say(entry, f"has waited {now_s - wait.since_s:.0f} s for {awaited}")
                wait.next_line_s *= 2
                wait.is_said = True


def _awaited(entry: Entry) -> str | None:
    """What a partition waits for, None if it does not."""
    state = entry.state
    if state.is_paused or entry.has_records:
        return None
    if state.mode is Mode.LOCATING:
        return "the brokers to tell, or the store to give, what lies at its offset"
    is_behind = 0 <= state.offset < entry.end_offset
    if state.mode is Mode.BROKER and entry.handed_over_at_s is not None and is_behind:
        return f"its broker to give offsets from {state.offset} on"
    return None
