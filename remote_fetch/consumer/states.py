"""The state of an assigned partition: which side reads it, from which offset on, and the actions of each change.

Rules of the file:

- Pure. The caller passes the time, in seconds of the consumer's clock. No consumer is called here.
- A state is a value. A method for an event returns the next state, and the actions that lead to it, in order.
- A stopped feed is dropped together with its records. So a state needs no generation number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from remote_fetch.consumer.offsets import END, STORED, is_looked_up

__all__ = ["Action", "HandOver", "Mode", "PartitionState", "Pause", "Resume", "StartFeed", "Step", "StopFeed"]

_QUICK_REPETITIONS = 2
"""A hand-over that librdkafka has missed is made good by the first repetition."""
_SLOW_FACTOR = 10
"""How many times longer each later repetition waits."""
_BUSY_FACTOR = 20
"""How many times longer a hand-over may take while librdkafka gives records of other partitions."""


class Mode(StrEnum):
    """Which side reads a partition."""

    LOCATING = "locating"
    """No side reads it yet. A feed finds out whether the tier has its offset."""
    REMOTE = "remote"
    """A feed reads it from the store. librdkafka has it assigned and paused."""
    BROKER = "broker"
    """librdkafka reads it, as in any consumer."""


@dataclass(frozen=True, slots=True)
class StartFeed:
    """Begin to read the store from `offset`, which may be logical. A feed that runs is stopped before.

    - `confirms_topic`: the topic may be another one of the same name by now.
    - `leader_epoch`: that of the record before, if the application names it. The tier may have another one by now.
    """

    offset: int
    confirms_topic: bool = False
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class StopFeed:
    """Stop reading the store, and drop the records that the feed has brought."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause the partition in librdkafka."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume the partition in librdkafka, at its own position."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Let librdkafka fetch from `offset` on, which may be logical. If the partition is paused, only look it up.

    With `leader_epoch` librdkafka first compares it with the log (KIP-320).
    """

    offset: int
    leader_epoch: int | None = None


Action: TypeAlias = StartFeed | StopFeed | Pause | Resume | HandOver
Step: TypeAlias = tuple["PartitionState", tuple[Action, ...]]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of one assigned partition.

    - `offset`: where the side that reads it has begun.
    - `is_paused`: the application has paused it.
    - `is_parked`: librdkafka shall read it from `offset` on, but the application paused it before the hand-over.
    - `is_probing`: librdkafka reads it, and a feed tries to read it from the store.
    - `retry_at_s`: when to try the store again while librdkafka reads. None: never.
    - `reason`: why librdkafka reads it.
    - `handed_over_at_s`: the time of a hand-over after which librdkafka has given no record yet. None: no such one.
    - `handover_retries`: how often that hand-over was repeated.
    - `leader_epoch`: the leader epoch of the record before `offset`, if the store has given that record, or if the
      application named it with `offset`.
    """

    mode: Mode
    offset: int
    is_paused: bool = False
    is_parked: bool = False
    is_probing: bool = False
    retry_at_s: float | None = None
    reason: str = ""
    handed_over_at_s: float | None = None
    handover_retries: int = 0
    leader_epoch: int | None = None

    @property
    def is_fetched(self) -> bool:
        """Whether librdkafka's position is the partition's. For a parked partition it is out of date."""
        return self.mode is Mode.BROKER and not self.is_parked

    @property
    def is_fetching(self) -> bool:
        """Whether librdkafka fetches it now: librdkafka reads it, and it is not paused there."""
        return self.mode is Mode.BROKER and not self.is_paused

    @property
    def is_readable(self) -> bool:
        """Whether records of the store may be delivered to the application."""
        return not self.is_paused and self.mode is not Mode.BROKER

    @property
    def awaits_librdkafka(self) -> bool:
        """Whether librdkafka has given no record since the hand-over."""
        return self.mode is Mode.BROKER and self.handed_over_at_s is not None

    # ------------------------------------------------------------------------------------------- where it begins

    @classmethod
    def assigned(
        cls, offset: int, *, is_paused: bool, retry_at_s: float, leader_epoch: int | None = None
    ) -> PartitionState:
        """The state of a new assignment. If the store cannot have `offset`, librdkafka reads it at once."""
        if is_looked_up(offset):
            return cls(Mode.LOCATING, offset, is_paused, leader_epoch=leader_epoch)
        return cls(Mode.BROKER, offset, is_paused, retry_at_s=retry_at_s)

    def sought(self, offset: int, *, confirms_topic: bool = False, leader_epoch: int | None = None) -> Step:
        """Go on at `offset`, which the store may have: where it is assigned, or was sought, reset or truncated."""
        state = PartitionState(Mode.LOCATING, offset, self.is_paused, leader_epoch=leader_epoch)
        return state, (Pause(), StartFeed(offset, confirms_topic, leader_epoch))

    def unanswered(self, retry_at_s: float) -> Step:
        """Go on if the group has not told its committed offset. librdkafka asks for it at a new assignment."""
        state, _ = self.at_broker(STORED, "committed", retry_at_s)
        return state, ()

    def asked_again(self) -> Step:
        """Wait for the group's answer once more, because librdkafka has not got the committed offset."""
        return PartitionState(Mode.LOCATING, STORED, self.is_paused), ()

    # ------------------------------------------------------------------------------------- the application's pauses

    def paused(self) -> Step:
        """The application pauses the partition."""
        return replace(self, is_paused=True), (Pause(),) if self.mode is Mode.BROKER else ()

    def resumed(self) -> Step:
        """The application resumes the partition."""
        state = replace(self, is_paused=False, is_parked=False)
        if self.mode is not Mode.BROKER:
            return state, ()
        return state, (HandOver(self.offset, self.leader_epoch),) if self.is_parked else (Resume(),)

    # -------------------------------------------------------------------------------------------------- librdkafka

    def at_broker(self, offset: int, reason: str, retry_at_s: float | None, leader_epoch: int | None = None) -> Step:
        """Let librdkafka go on from `offset`. The records of the store before it have been delivered.

        Also while the application pauses the partition, librdkafka looks up at once:

        - the end of the log, because the records that are written during the pause come after it
        - the committed offset, because the error for a missing one does not wait for the pause to end
        """
        is_parked = self.is_paused and offset not in (END, STORED)
        state = PartitionState(
            Mode.BROKER,
            offset,
            self.is_paused,
            is_parked=is_parked,
            retry_at_s=retry_at_s,
            reason=reason,
            leader_epoch=leader_epoch,
        )
        return state, (StopFeed(), Pause()) if is_parked else (StopFeed(), HandOver(offset, leader_epoch))

    def handed_over(self, now_s: float) -> Step:
        """Note that librdkafka now fetches from `offset` on."""
        return replace(self, handed_over_at_s=now_s), ()

    def assigned_again(self, offset: int, leader_epoch: int | None = None) -> Step:
        """Note that the partition was assigned in librdkafka again, at `offset`.

        librdkafka has forgotten its position.
        """
        return (replace(self, offset=offset, leader_epoch=leader_epoch) if self.mode is Mode.BROKER else self), ()

    def taken_back(self, offset: int, leader_epoch: int | None) -> Step:
        """Let librdkafka give the records from `offset` on once more, because the application did not get them."""
        state = replace(self, offset=offset, leader_epoch=leader_epoch, handover_retries=0)
        return state, (HandOver(offset, leader_epoch),)

    def doubted(self, offset: int, leader_epoch: int | None, now_s: float) -> Step:
        """Note that librdkafka may have stopped at `offset`, with an error that the application did not get.

        If no record comes, the hand-over is repeated there. A further doubt does not put that off.
        """
        state = replace(self, offset=offset, leader_epoch=leader_epoch)
        if self.handed_over_at_s is None:
            state = replace(state, handed_over_at_s=now_s, handover_retries=0)
        return state, ()

    def is_overdue(self, now_s: float, empty_poll_at_s: float, watchdog_s: float) -> bool:
        """Whether librdkafka should have given a record since the hand-over. The limit doubles with each repetition.

        A repetition drops the records that librdkafka has fetched. So a hand-over is overdue only after a poll of
        librdkafka that gave no record, the last at `empty_poll_at_s`. If librdkafka gives records of other partitions,
        the limit is much longer. It has no bound, and is long after two repetitions: librdkafka may need minutes to
        pass aborted records, gives none of them, and begins again with each repetition.
        """
        if self.mode is not Mode.BROKER or self.handed_over_at_s is None:
            return False
        longest_s = watchdog_s * (1 << self.handover_retries)
        if self.handover_retries >= _QUICK_REPETITIONS:
            longest_s *= _SLOW_FACTOR
        is_silent = empty_poll_at_s - self.handed_over_at_s > longest_s
        return is_silent or now_s - self.handed_over_at_s > longest_s * _BUSY_FACTOR

    def overdue(self, position: int, end_offset: int) -> Step:
        """Repeat a hand-over after which no record came. `position` is librdkafka's.

        If the log is known to end at `offset`, the hand-over is repeated only once. So is one at the committed offset,
        which may be the end.
        """
        state = replace(self, handed_over_at_s=None)
        has_offset = self.offset >= 0 or self.offset == STORED
        has_brought_nothing = has_offset and not self.is_paused and position <= self.offset
        is_at_end = self.offset == STORED or 0 <= end_offset <= self.offset
        if has_brought_nothing and not (is_at_end and self.handover_retries):
            again = HandOver(self.offset, self.leader_epoch)
            return replace(state, handover_retries=self.handover_retries + 1), (again,)
        return state, ()

    def repeated(self, now_s: float) -> Step:
        """Note that the hand-over was repeated together with that of another partition."""
        return replace(self, handed_over_at_s=now_s, handover_retries=self.handover_retries + 1), ()

    def at_end(self, end_offset: int) -> Step:
        """Note that librdkafka gave the application the event of the partition's end.

        The hand-over is not repeated, because the application would get the same event again.
        """
        is_answer = self.mode is Mode.BROKER and end_offset >= self.offset
        return (replace(self, handed_over_at_s=None) if is_answer else self), ()

    def stopped(self) -> Step:
        """Note that librdkafka gave the application an error, and has stopped: the offset is out of the log.

        The hand-over is not repeated, because the application would get the same error again.
        """
        return (replace(self, retry_at_s=None, handed_over_at_s=None) if self.mode is Mode.BROKER else self), ()

    # --------------------------------------------------------------------------------------------------- the store

    def found(self) -> Step:
        """Note that the store has begun to give records."""
        return replace(self, mode=Mode.REMOTE), ()

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to try the store again."""
        may_probe = self.is_fetching and not self.is_probing
        return may_probe and self.retry_at_s is not None and now_s >= self.retry_at_s

    def postponed(self, retry_at_s: float) -> Step:
        """Try the store again at `retry_at_s`, because it has no records now."""
        return replace(self, retry_at_s=retry_at_s), ()

    def probe(self, offset: int) -> Step:
        """Try the store from `offset` on, while librdkafka reads."""
        return replace(self, is_probing=True, retry_at_s=None), (StartFeed(offset),)

    def probe_failed(self, reason: str, retry_at_s: float | None) -> Step:
        """Let librdkafka go on, because the store cannot."""
        return replace(self, is_probing=False, retry_at_s=retry_at_s, reason=reason), (StopFeed(),)

    def taken_over(self, offset: int) -> Step:
        """Let the store go on from `offset`, where librdkafka has stopped."""
        return PartitionState(Mode.REMOTE, offset, self.is_paused), ()
