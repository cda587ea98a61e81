"""How far the application has been given the records of one partition, and how much of that is stored for commits.

Rules of the file:

- Only the application's thread comes here. The fields change through the methods alone.
- The position is the offset of the next record that the application has not been given.
- A stored position never goes back, except after a seek of the application.
"""

from __future__ import annotations

from confluent_kafka import Message, TopicPartition

from remote_fetch.consumer.offsets import INVALID

__all__ = ["Position"]


class Position:
    """The position of one partition; `next_offset` is INVALID before the first record.

    While a `consume` runs it may hold messages that the application does not have yet. `next_offset` is behind them
    already; `delivered` and what is stored are before the first of them.
    """

    def __init__(self, topic: str, number: int) -> None:
        self._topic, self._number = topic, number
        self.next_offset = INVALID
        self._leader_epoch: int | None = None
        self._next_offset_before = INVALID
        self._consume_start: int | None = None
        self._stored = INVALID

    @property
    def delivered(self) -> int:
        """The position before the messages that a running `consume` holds; `next_offset` if it holds none."""
        return self.limited(self.next_offset)

    def limited(self, offset: int) -> int:
        """`offset`, but not behind the first message that a running `consume` holds."""
        return offset if self._consume_start is None else min(offset, self._consume_start)

    @property
    def is_held(self) -> bool:
        """Whether a running `consume` holds messages of the partition."""
        return self._consume_start is not None

    @property
    def is_stored(self) -> bool:
        """Whether all that was delivered is stored."""
        return self.delivered <= self._stored

    # -------------------------------------------------------------------------------------------------- it moves on

    def deliver(self, last: Message) -> None:
        """Go behind `last`, which a poll returns or a running `consume` holds."""
        offset = last.offset()
        assert offset is not None
        self._next_offset_before = self.next_offset
        self.next_offset, self._leader_epoch = offset + 1, last.leader_epoch()

    def follow(self, offset: int, leader_epoch: int | None) -> None:
        """Take librdkafka's position, which is behind transaction markers too."""
        self.next_offset, self._leader_epoch = offset, leader_epoch

    def jump(self, offset: int) -> None:
        """Go to librdkafka's offset at a take-over. The leader epoch stays that of the last record."""
        self.next_offset = offset

    def skip_to(self, offset: int) -> None:
        """Go forward to `offset`, behind markers and aborted records. An unknown position stays unknown."""
        if offset > self.next_offset >= 0:
            self.next_offset = offset

    def forget(self) -> None:
        """The application goes on elsewhere: forget the position and the stored one."""
        self.next_offset = self._stored = INVALID

    # ----------------------------------------------------------------------------------------- a running `consume`

    def hold(self, first: Message) -> None:
        """A running `consume` holds messages from `first` on: remember the position before them.

        `next_offset` may be behind them: a record of the store moves it when it is taken.
        """
        offset = first.offset()
        assert offset is not None
        self._consume_start = self.next_offset if self.next_offset <= offset else self._next_offset_before

    def release(self) -> None:
        """`consume` holds no messages of the partition any more."""
        self._consume_start = None

    # -------------------------------------------------------------------------------------------- stored for commits

    def to_store(self) -> TopicPartition:
        """The delivered position, in the form of `Consumer.store_offsets`."""
        if self._leader_epoch is None or self._leader_epoch < 0:
            return TopicPartition(self._topic, self._number, self.delivered)
        return TopicPartition(self._topic, self._number, self.delivered, leader_epoch=self._leader_epoch)

    def mark_stored(self) -> None:
        """librdkafka has stored `to_store`."""
        self._stored = self.delivered

    def forget_stored(self) -> None:
        """librdkafka has forgotten the stored position, as it does with an assignment."""
        self._stored = INVALID
