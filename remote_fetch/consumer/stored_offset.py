"""The offset of one partition that librdkafka has stored for commits, and the one that it may have forgotten.

Rules of the file:

- Only the application's thread uses it. Only the methods change the fields.
- A stored offset never goes back, except after a seek of the application.
- An offset is withheld, and not stored, if the group has committed it or a later one. That ends when the partition is
  taken away. librdkafka does the same, but it does not know the committed offsets that this package has asked for.
"""

from __future__ import annotations

from confluent_kafka import TopicPartition

from remote_fetch.consumer.offsets import INVALID
from remote_fetch.consumer.position import Position

__all__ = ["StoredOffset"]


class StoredOffset:
    """The stored offset of a partition. `position` is that of the application. `keeps_all`: no offset is withheld.

    If `is_automatic` is false, only the application stores offsets.
    """

    def __init__(self, position: Position, *, is_automatic: bool) -> None:
        self._position = position
        self._is_automatic = is_automatic
        self._stored = self._floor = INVALID
        self.keeps_all = False
        self._kept, self._is_lost = position.at(INVALID), False

    @property
    def is_current(self) -> bool:
        """Whether the delivered position is stored."""
        return self._position.delivered <= self._stored

    @property
    def last(self) -> int:
        """The offset that was stored last, also if it is withheld or lost. INVALID: none."""
        return max(self._stored, self._kept.offset)

    @property
    def lost(self) -> TopicPartition | None:
        """An offset that librdkafka may have forgotten, until another one is stored."""
        kept = self._limited_kept
        return kept if self._is_lost and kept.offset >= 0 and not self.withholds(kept.offset) else None

    @property
    def _limited_kept(self) -> TopicPartition:
        return self._position.limited_over_reset(self._kept) if self._is_automatic else self._kept

    # ------------------------------------------------------------------------------------------- librdkafka stores it

    def to_store(self) -> TopicPartition:
        """The delivered position, in the form of `Consumer.store_offsets`. INVALID, which stores none, if withheld."""
        delivered = self._position.delivered
        return self._position.at(INVALID if self.withholds(delivered) else delivered)

    def mark(self) -> None:
        """Note that librdkafka has stored `to_store`."""
        self._stored = self._position.delivered
        if self._kept.offset != self._stored:
            self._kept, self._is_lost = self._position.at(INVALID), False

    def mark_own(self, kept: TopicPartition) -> None:
        """Note the offset that the application has stored itself."""
        self._kept, self._is_lost = kept, self.withholds(kept.offset)

    # ---------------------------------------------------------------------------------------------- and may forget it

    def lose(self) -> None:
        """Note that librdkafka forgets the stored offset, because of an assignment: at once, or a little later."""
        if self._is_automatic and self._position.delivered >= 0:
            self._kept = self._position.at(self._position.delivered)
        self._stored, self._is_lost = INVALID, True

    def keep(self, offset: int) -> None:
        """Keep `offset` for commits, because the position goes on at another one, which is not known yet."""
        if self._is_automatic and offset >= 0:
            self._kept, self._is_lost = self._position.at(offset), offset > self._stored
        self._stored = INVALID

    def keep_delivered(self) -> None:
        """As `keep`, of what the application has got, because `consume` drops the messages that it holds."""
        if self._is_lost:
            self._kept = self._limited_kept
        self.keep(self._position.delivered)

    # ------------------------------------------------------------------------------------- what the group has committed

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
