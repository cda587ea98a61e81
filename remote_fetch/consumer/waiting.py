"""Reports partitions that wait for records: for which side they wait, and how long.

Rules of the file:

- A partition waits if the application wants its records, and neither side has given one since it was assigned,
  sought or handed over. A partition at the end of its log does not wait.
- The first notice comes after some seconds, each further notice after twice the time. One notice tells that the wait
  has ended.
- The caller passes the time. Partitions are checked only once a second, because there may be thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from remote_fetch.consumer.assigned import AssignedPartition, Key
from remote_fetch.consumer.handover import Handover
from remote_fetch.consumer.states import Mode

__all__ = ["WaitLog"]

_INTERVAL_S = 1.0
_FIRST_NOTICE_S = 5.0


@dataclass(frozen=True, slots=True)
class _Wait:
    """The time since which a partition waits, and the seconds until the next notice."""

    since_s: float
    next_notice_s: float = _FIRST_NOTICE_S
    is_noticed: bool = False


class WaitLog:
    """The partitions of one consumer that wait.

    `notice` takes a partition and a sentence about it. `handover` tells whether librdkafka has given a record of a
    partition since the hand-over, and where the log ends.
    """

    def __init__(self, notice: Callable[[AssignedPartition, str], None], handover: Handover) -> None:
        self._notice = notice
        self._handover = handover
        self._waits: dict[Key, _Wait] = {}
        self._next_update_s = 0.0

    def update(self, partitions: Iterable[AssignedPartition], now_s: float) -> None:
        """Report partitions that have waited for long. It looks at them once a second, however often it is called."""
        if now_s < self._next_update_s:
            return
        self._next_update_s = now_s + _INTERVAL_S
        before, self._waits = self._waits, {}
        for partition in partitions:
            wait = before.get(partition.key)
            awaited = self._awaited(partition)
            if awaited is None:
                if wait is not None and wait.is_noticed:
                    self._notice(partition, f"goes on after {now_s - wait.since_s:.0f} s")
                continue
            wait = wait or _Wait(now_s)
            waited_s = now_s - wait.since_s
            if waited_s >= wait.next_notice_s:
                if partition.state.mode is Mode.BROKER and self._handover.position(partition) >= 0:
                    continue
                self._notice(partition, f"has waited {waited_s:.0f} s for {awaited}")
                wait = replace(wait, next_notice_s=2 * wait.next_notice_s, is_noticed=True)
            self._waits[partition.key] = wait

    def _awaited(self, partition: AssignedPartition) -> str | None:
        """The reason why a partition waits, None if it does not wait."""
        state = partition.state
        if state.is_paused or partition.records.are_ready:
            return None
        if state.mode is Mode.LOCATING:
            return "the brokers to tell, or the store to give, what lies at its offset"
        if state.awaits_librdkafka and 0 <= state.offset < self._handover.log_end(partition):
            return f"its broker to give offsets from {state.offset} on"
        return None
