"""The records of the store that are prepared for `poll`, and how many of them it has returned.

Rules of the file:

- Only the application's thread uses it, except for `next_in_block`.
- Positions are updated when they are needed, because an update for each record would take longer than the rest of
  `poll`.
- A handler of a signal may raise after each call, and the application may go on. See `StoreRecords`.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from confluent_kafka import Message

from remote_fetch.consumer.assigned import AssignedPartition
from remote_fetch.deadline import Clock

__all__ = ["PolledRecords"]

_BLOCK_BYTES = 640 << 10
"""A block is the records that are prepared for the next polls, of about so many bytes. More of them would leave the
processor's cache before they are polled."""


class PolledRecords:
    """The block of one consumer, in `block`. `partition` is the one that it is of. None: there is no block."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.block: deque[Message] = deque()
        self.partition: AssignedPartition | None = None
        self._taken: list[Message] = []
        self._unpolled: list[Message] = []
        """The messages taken back from the block. They stay here if a handler of a signal ends `flush`."""
        self._ends_s = 0.0

    def next_in_block(self) -> Message | None:
        """The next record that was prepared for `poll`. None if no record is left, or if other work is due.

        Any thread may call this. It takes no lock, because a lock would take longer than the rest of the method. This
        pops from the left end of the deque, and `flush` pops from the right end.
        """
        if self.block and self._clock() < self._ends_s:
            try:
                return self.block.popleft()
            except IndexError:
                pass  # another thread was faster
        return None

    def prepare(self, partition: AssignedPartition, most: int) -> None:
        """Take the next records of a partition, at most `most`. The first one is to be polled now: see `begin`."""
        count = min(most, partition.records.rows_in(_BLOCK_BYTES))
        self._taken, self.partition = partition.records.take(count), partition
        self.block.extend(self._taken[1:])

    def begin(self, ends_s: float) -> Message | None:
        """The first record that was prepared, if there is one. `next_in_block` gives the others before `ends_s`."""
        if not self._taken:
            return None
        self._ends_s = ends_s
        return self._taken[0]

    def flush(self) -> None:
        """Update the position of the partition, and put back the records that were not polled."""
        partition = self.partition
        if partition is None:
            return
        if self.block:
            with suppress(IndexError):  # the end of the block
                self._unpolled.extend(iter(self.block.pop, None))  # in one call, see `StoreRecords`
        polled = len(self._taken) - len(self._unpolled)
        if polled:
            partition.position.deliver(self._taken[polled - 1])
        partition.records.put_back(self._taken[polled:])  # no handler of a signal runs between this and the next line
        self._taken, self._unpolled, self.partition, self._ends_s = [], [], None, 0.0
