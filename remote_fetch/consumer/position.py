"""The position of the application in one partition.

Rules of the file:

- Only the application's thread uses it. Only the methods change the fields.
- The position is the offset of the next record that the application has not got.
- A move of the position names the leader epoch of what is before it. A log without that epoch counts as truncated.
"""

from __future__ import annotations

from confluent_kafka import Message, TopicPartition

from remote_fetch.consumer.offsets import INVALID, partition_at

__all__ = ["Position"]


class Position:
    """The position of one partition. `next_offset` is INVALID before the first record. `leader_epoch` is that of the
    record or marker before it, None if it is not known.

    A running `consume` may hold messages that the application does not have yet. `next_offset` is already after them,
    and `delivered` is before the first of them.
    """

    def __init__(self, topic: str, number: int) -> None:
        self._topic, self._number = topic, number
        self.next_offset = self._next_offset_before = INVALID
        self.leader_epoch: int | None = None
        self._consume_start: int | None = None
        self._first_held = INVALID
        self._holds_over_reset = False
        self._before_reset = self.at(INVALID)

    def at(self, offset: int) -> TopicPartition:
        """The partition at `offset`, with the leader epoch of the record before it if that is known."""
        # The epoch of the last record may be newer than that of the one before those that a running `consume` holds.
        is_last = offset >= max(self.next_offset, 0)
        return partition_at(self._topic, self._number, offset, self.leader_epoch if is_last else None)

    @property
    def shown(self) -> TopicPartition:
        """The position that `Consumer.position` tells: after a reset the one before it, until a record comes."""
        delivered = self.delivered
        return self.at(delivered) if delivered >= 0 else self.limited_over_reset(self._before_reset)

    @property
    def delivered(self) -> int:
        """The position before the messages that a running `consume` holds; `next_offset` if it holds none.

        INVALID if the partition was reset since then, because the new position is of no message that was returned.
        """
        return INVALID if self._holds_over_reset else self._limited(self.next_offset)

    def _limited(self, offset: int) -> int:
        """`offset`, but at most the position before the messages that a running `consume` holds."""
        return offset if self._consume_start is None else min(offset, self._consume_start)

    def limited_over_reset(self, known: TopicPartition) -> TopicPartition:
        """A position from before the reset, limited if a running `consume` holds messages from before the reset.

        The leader epoch before those messages is not known.
        """
        offset = self._limited(known.offset) if self._holds_over_reset else known.offset
        return known if offset == known.offset else partition_at(self._topic, self._number, offset, None)

    @property
    def is_held(self) -> bool:
        """Whether a running `consume` holds messages of the partition."""
        return self._consume_start is not None

    # -------------------------------------------------------------------------------------------------- it moves on

    def deliver(self, last: Message) -> None:
        """Go to the offset after `last`, which a poll returns or a running `consume` holds."""
        offset = last.offset()
        assert offset is not None
        self._next_offset_before = self.next_offset
        self.next_offset, self.leader_epoch = offset + 1, last.leader_epoch()

    def follow(self, offset: int, leader_epoch: int | None) -> None:
        """Take librdkafka's position, which also passes transaction markers."""
        self.next_offset, self.leader_epoch = offset, leader_epoch

    def skip_to(self, offset: int, leader_epoch: int | None, begun_at: int) -> None:
        """Go forward to `offset`, past markers and aborted records. `leader_epoch` is that of the last one.

        An unknown position stays unknown if there are none after `begun_at`, where reading began.
        """
        if offset > max(self.next_offset, begun_at):
            self.next_offset, self.leader_epoch = offset, leader_epoch

    def forget(self) -> None:
        """Forget the position. `AssignedPartition.forget_position` also keeps it for commits."""
        self._before_reset = self.at(INVALID)
        # Not by `release`: a handler of a signal may run after a call, and the caller enters a state right after this.
        self.next_offset, self._consume_start, self._holds_over_reset = INVALID, None, False

    def reset(self) -> None:
        """Forget the position. `AssignedPartition.reset_position` also keeps it for commits.

        A running `consume` still returns the messages that it holds, and then the position before the reset is after
        them.
        """
        if self.next_offset >= 0:
            self._before_reset = self.at(self.next_offset)
        self.next_offset = INVALID
        self._holds_over_reset = self.is_held

    # ----------------------------------------------------------------------------------------- a running `consume`

    @property
    def first_held(self) -> int:
        """The offset of the first message that a running `consume` holds."""
        return self._first_held

    def hold(self, first: Message) -> None:
        """Remember the position before `first`, the first message that a running `consume` holds.

        `next_offset` may be after it, because taking a record of the store moves it.
        """
        offset = first.offset()
        assert offset is not None
        self._first_held = offset
        self._consume_start = self.next_offset if self.next_offset <= offset else self._next_offset_before

    def give_back(self) -> None:
        """Go back before the messages that a running `consume` holds.

        `AssignedPartition.enter_before_held` also gives them back for commits.
        """
        self._before_reset = self.limited_over_reset(self._before_reset)
        self.next_offset, self.leader_epoch = self.delivered, None
        self._consume_start, self._holds_over_reset = None, False  # as in `forget`

    def release(self) -> None:
        """Forget the position before the messages, because `consume` holds none of the partition any more."""
        self._consume_start, self._holds_over_reset = None, False
