"""The position of the application in one partition, and the position that is stored for commits.

Rules of the file:

- Only the application's thread uses it. Only the methods change the fields.
- The position is the offset of the next record that the application has not got.
- A stored position never goes back, except after a seek of the application.
"""

from __future__ import annotations

from confluent_kafka import Message, TopicPartition

from remote_fetch.consumer.offsets import INVALID

__all__ = ["Position"]


class Position:
    """The position of one partition. `next_offset` is INVALID before the first record.

    A running `consume` may hold messages that the application does not have yet. `next_offset` is already after them.
    `delivered` and the stored position are before the first of them.
    """

    def __init__(self, topic: str, number: int) -> None:
        self._topic, self._number = topic, number
        self.next_offset = INVALID
        self._leader_epoch: int | None = None
        self._next_offset_before = INVALID
        self._consume_start: int | None = None
        self._stored = INVALID
        self._given: TopicPartition | None = None
        self._is_lost = False

    @property
    def delivered(self) -> int:
        """The position before the messages that a running `consume` holds; `next_offset` if it holds none."""
        return self.limited(self.next_offset)

    def limited(self, offset: int) -> int:
        """`offset`, but at most the offset of the first message that a running `consume` holds."""
        return offset if self._consume_start is None else min(offset, self._consume_start)

    @property
    def is_held(self) -> bool:
        """Whether a running `consume` holds messages of the partition."""
        return self._consume_start is not None

    @property
    def is_stored(self) -> bool:
        """Whether the delivered position is stored."""
        return self.delivered <= self._stored

    # -------------------------------------------------------------------------------------------------- it moves on

    def deliver(self, last: Message) -> None:
        """Go to the offset after `last`, which a poll returns or a running `consume` holds."""
        offset = last.offset()
        assert offset is not None
        self._next_offset_before = self.next_offset
        self.next_offset, self._leader_epoch = offset + 1, last.leader_epoch()

    def follow(self, offset: int, leader_epoch: int | None) -> None:
        """Take librdkafka's position, which also passes transaction markers."""
        self.next_offset, self._leader_epoch = offset, leader_epoch

    def jump(self, offset: int) -> None:
        """Go to librdkafka's offset at a take-over. The leader epoch of the last record stays."""
        self.next_offset = offset

    def skip_to(self, offset: int) -> None:
        """Go forward to `offset`, past markers and aborted records. An unknown position stays unknown."""
        if offset > self.next_offset >= 0:
            self.next_offset = offset

    def forget(self) -> None:
        """Forget the position and the stored position, because the application goes on elsewhere."""
        self.next_offset = self._stored = INVALID

    # ----------------------------------------------------------------------------------------- a running `consume`

    def hold(self, first: Message) -> None:
        """Remember the position before `first`, the first message that a running `consume` holds.

        `next_offset` may be after it, because taking a record of the store moves it.
        """
        offset = first.offset()
        assert offset is not None
        self._consume_start = self.next_offset if self.next_offset <= offset else self._next_offset_before

    def release(self) -> None:
        """Forget the position before the messages, because `consume` holds none of the partition any more."""
        self._consume_start = None

    # -------------------------------------------------------------------------------------------- stored for commits

    def to_store(self) -> TopicPartition:
        """The delivered position, in the form of `Consumer.store_offsets`."""
        if self._leader_epoch is None or self._leader_epoch < 0:
            return TopicPartition(self._topic, self._number, self.delivered)
        return TopicPartition(self._topic, self._number, self.delivered, leader_epoch=self._leader_epoch)

    def mark_stored(self) -> None:
        """Note that librdkafka has stored `to_store`."""
        self._stored = self.delivered

    def forget_stored(self) -> None:
        """Note that librdkafka has forgotten the stored position. An assignment makes it forget."""
        self._stored = INVALID
        self._is_lost = self._given is not None

    def note_stored(self, given: TopicPartition) -> None:
        """Note the offset that the application has stored itself."""
        self._given, self._is_lost = given, False

    def take_lost(self) -> TopicPartition | None:
        """The offset that the application has stored itself and librdkafka has forgotten, once."""
        lost, self._is_lost = self._is_lost, False
        return self._given if lost else None
