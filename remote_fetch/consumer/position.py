"""The position of the application in one partition, and the position that is stored for commits.

Rules of the file:

- Only the application's thread uses it. Only the methods change the fields.
- The position is the offset of the next record that the application has not got.
- A stored position never goes back, except after a seek of the application.
- An offset is withheld, and not stored, if the group has committed it or a later one. That ends when the partition is
  taken away. librdkafka does the same, but it does not know the committed offsets that this package has asked for.
- A move of the position names the leader epoch of what is before it. A log without that epoch counts as truncated.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message, TopicPartition

from remote_fetch.consumer.offsets import INVALID

__all__ = ["Position", "partition_at"]


def partition_at(
    topic: str, number: int, offset: int, leader_epoch: int | None, metadata: str | None = None
) -> TopicPartition:
    """A partition at an offset, as confluent_kafka's type. The constructor of that type takes no None."""
    more: dict[str, Any] = {} if metadata is None else {"metadata": metadata}
    if leader_epoch is not None and leader_epoch >= 0:
        more["leader_epoch"] = leader_epoch
    return TopicPartition(topic, number, offset, **more)


class Position:
    """The position of one partition. `next_offset` is INVALID before the first record. `leader_epoch` is that of the
    record or marker before it, None if it is not known.

    A running `consume` may hold messages that the application does not have yet. `next_offset` is already after them.
    `delivered` and the stored position are before the first of them.

    If `stores_offsets` is false, only the application stores positions for commits. `keeps_all`: no offset is withheld.
    """

    def __init__(self, topic: str, number: int, *, stores_offsets: bool = True) -> None:
        self._topic, self._number = topic, number
        self._stores_offsets = stores_offsets
        self.next_offset = INVALID
        self.leader_epoch: int | None = None
        self._next_offset_before = INVALID
        self._consume_start: int | None = None
        self._holds_over_reset = False
        self._stored = self._floor = INVALID
        self.keeps_all = False
        self._before_reset = partition_at(topic, number, INVALID, None)
        self._kept: TopicPartition | None = None
        self._is_lost = False

    @property
    def shown(self) -> TopicPartition:
        """The position that `Consumer.position` tells: after a reset the one before it, until a record comes."""
        delivered = self.delivered
        return self._partition_at(delivered) if delivered >= 0 else self._limited_over_reset(self._before_reset)

    @property
    def delivered(self) -> int:
        """The position before the messages that a running `consume` holds; `next_offset` if it holds none.

        INVALID if the partition was reset since then, because the new position is of no message that was returned.
        """
        return INVALID if self._holds_over_reset else self._limited(self.next_offset)

    def _limited(self, offset: int) -> int:
        """`offset`, but at most the position before the messages that a running `consume` holds."""
        return offset if self._consume_start is None else min(offset, self._consume_start)

    def _limited_over_reset(self, known: TopicPartition) -> TopicPartition:
        """A position from before the reset, limited if a running `consume` holds messages from before the reset.

        The leader epoch before those messages is not known.
        """
        offset = self._limited(known.offset) if self._holds_over_reset else known.offset
        return known if offset == known.offset else partition_at(self._topic, self._number, offset, None)

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
        """Forget the position, because the application goes on elsewhere. librdkafka keeps what is stored."""
        if self._holds_over_reset and self._is_lost:  # `consume` drops the messages that it holds
            self._kept = self.lost
        self._leave(self.delivered)
        self._before_reset = partition_at(self._topic, self._number, INVALID, None)

    def reset(self) -> None:
        """Forget the position, because it is not in the log any more.

        A running `consume` still returns the messages that it holds, and then the position before the reset is after
        them.
        """
        if self.next_offset >= 0:
            self._before_reset = self._partition_at(self.next_offset)
        self._leave(self.next_offset)
        self._holds_over_reset = self.is_held

    def _leave(self, offset: int) -> None:
        """Keep `offset` for commits, and go on at an offset that is not known yet."""
        if self._stores_offsets and offset >= 0:
            self._kept, self._is_lost = self._partition_at(offset), offset > self._stored
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
        self._consume_start, self._holds_over_reset = None, False

    # -------------------------------------------------------------------------------------------- stored for commits

    def keep_above(self, floor: int) -> None:
        """Store only offsets after `floor`, which the group has committed. It changes nothing after `keep_all`."""
        if not self.keeps_all:
            self._floor = floor

    def keep_all(self) -> None:
        """Store each offset from now on."""
        if self._stored <= self._floor:
            self._stored = INVALID
        self._floor, self.keeps_all = INVALID, True

    def withholds(self, offset: int) -> bool:
        """Whether an offset is not to be stored, because the group has committed it or a later one."""
        return offset <= self._floor

    def to_store(self) -> TopicPartition:
        """The delivered position, in the form of `Consumer.store_offsets`. INVALID, which stores none, if withheld."""
        return self._partition_at(INVALID if self.withholds(self.delivered) else self.delivered)

    def _partition_at(self, offset: int) -> TopicPartition:
        # The epoch of the last record may be newer than that of the one before those that a running `consume` holds.
        is_last = offset >= max(self.next_offset, 0)
        return partition_at(self._topic, self._number, offset, self.leader_epoch if is_last else None)

    @property
    def last_stored(self) -> int:
        """The offset that was stored last, also if it is withheld or lost. INVALID: none."""
        return max(self._stored, INVALID if self._kept is None else self._kept.offset)

    def mark_stored(self) -> None:
        """Note that librdkafka has stored `to_store`."""
        self._stored = self.delivered
        if self._kept is not None and self._kept.offset != self._stored:
            self._kept, self._is_lost = None, False

    def note_stored(self, kept: TopicPartition) -> None:
        """Note the offset that the application has stored itself."""
        self._kept, self._is_lost = kept, self.withholds(kept.offset)

    def forget_stored(self) -> None:
        """Note that librdkafka forgets the stored position, because of an assignment: at once, or a little later."""
        if self._stores_offsets and self.delivered >= 0:
            self._kept = self._partition_at(self.delivered)
        self._stored = INVALID
        self._is_lost = self._kept is not None

    @property
    def lost(self) -> TopicPartition | None:
        """An offset that librdkafka may have forgotten, until another one is stored."""
        if not self._is_lost or self._kept is None:
            return None
        limited = self._limited_over_reset(self._kept) if self._stores_offsets else self._kept
        return limited if limited.offset >= 0 and not self.withholds(limited.offset) else None
