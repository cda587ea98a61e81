"""The records that `poll` returns, and the positions after them.

Rules of the file:

- Only the application's thread uses it, except for `next_in_block`.
- `flush` updates positions when they are needed, because an update for each record would take longer than the rest of
  `poll`.
- A handler of a signal may raise after each call, and the application may go on. See `StoreRecords`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import Message

from remote_fetch.consumer.assigned import AssignedPartition, Key
from remote_fetch.deadline import Clock

__all__ = ["PolledRecords"]

_BLOCK_BYTES = 640 << 10
"""A block is the records that are prepared for the next polls, of about so many bytes. More of them would leave the
processor's cache before they are polled."""


class PolledRecords:
    """The records of one consumer.

    - `partition` is that of the block, which has records of the store for the next polls. None: there is no block.
    - `live` has the offset of the last record of librdkafka that `poll` has returned, of each partition.
    """

    def __init__(self, assigned: Mapping[Key, AssignedPartition], clock: Clock) -> None:
        self._assigned = assigned
        self._clock = clock
        self.live: dict[tuple[str | None, int | None], int | None] = {}
        self.partition: AssignedPartition | None = None
        self._taken: list[Message] = []
        self._block: Iterator[Message] | None = None
        """Those of `_taken` that are not polled. None: the block has not begun, or there is none."""
        self._unpolled: list[Message] = []
        """The messages taken back from the block. They stay here if a handler of a signal ends `flush`."""
        self._ends_s = 0.0

    def next_in_block(self) -> Message | None:
        """The next record that was prepared for `poll`. None if no record is left, or if other work is due.

        Any thread may call this. It takes no lock, because a lock would take longer than the rest of the method. Each
        record of the iterator goes to one thread. After a step of `for`, unlike after a call, no handler of a signal
        runs.
        """
        if self._ends_s and self._clock() < self._ends_s:
            for message in self._block or ():
                return message
        return None

    def prepare(self, partition: AssignedPartition, most: int) -> None:
        """Take the next records of a partition, at most `most`. None of them is polled before `begin`."""
        count = min(most, partition.records.rows_in(_BLOCK_BYTES))
        self._taken, self.partition = partition.records.take(count), partition

    def begin(self, ends_s: float) -> Message | None:
        """The first record that was prepared, if there is one. `next_in_block` gives the others before `ends_s`."""
        self._block = iter(self._taken)
        for message in self._block:
            self._ends_s = ends_s
            return message
        return None

    def note_consumed(self, messages: Iterable[Message]) -> None:
        """Note the messages that a `consume` within another one returns.

        The positions are not taken from librdkafka before the outer one goes on.
        """
        for message in messages:
            if message.error() is None:
                self.live[message.topic(), message.partition()] = message.offset()

    def flush(self) -> None:
        """Update positions, and put back the records of the block that were not polled."""
        if self.live:
            self._follow_live()
        partition = self.partition
        if partition is None:
            return
        if self._block is None:
            self._block = iter(self._taken)
        self._unpolled.extend(self._block)  # in one call, see `StoreRecords`
        polled = len(self._taken) - len(self._unpolled)
        if polled:
            partition.position.deliver(self._taken[polled - 1])
        partition.records.put_back(self._taken[polled:])  # no handler of a signal runs between this and the next line
        self._taken, self._block, self._unpolled, self.partition, self._ends_s = [], None, [], None, 0.0

    def _follow_live(self) -> None:
        for (topic, number), offset in self.live.items():
            partition = self._assigned.get((topic or "", number or 0))
            after = (offset or 0) + 1
            if partition is not None and partition.position.next_offset < after:
                partition.position.follow(after, None)
        self.live.clear()
