"""Who reads an assigned partition, from where on, and what has to be done when that changes.

Rules of the file: pure; a state is a value, an event gives the next one and the actions that lead there, in order; time
is passed in. Nothing here calls a consumer. What an abandoned reading of the store still brings is dropped by dropping
its feed, so no generations are counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

__all__ = [
    "BEGINNING",
    "END",
    "STORED",
    "TAIL",
    "Action",
    "HandOver",
    "Mode",
    "PartitionState",
    "Quiet",
    "StartFeed",
    "StopFeed",
    "Wake",
]

END = -1
"""librdkafka's logical offset of the end."""
BEGINNING = -2
"""librdkafka's logical offset of the log start."""
STORED = -1000
"""librdkafka's logical offset of what was committed."""
TAIL = -2000
"""librdkafka's logical offsets from here down count back from the end."""


class Mode(StrEnum):
    """Who reads a partition."""

    LOCATING = "locating"
    """Nobody yet: it is being found out whether its offset lies in the tier."""
    REMOTE = "remote"
    """We do, from the store; librdkafka has it assigned and paused."""
    BROKER = "broker"
    """librdkafka does, as in any consumer."""


@dataclass(frozen=True, slots=True)
class StartFeed:
    """Begin to read the store from `offset`, which may be logical."""

    offset: int


@dataclass(frozen=True, slots=True)
class StopFeed:
    """Drop what is read or being read from the store."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """Keep librdkafka from fetching the partition."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Let librdkafka go on fetching where it was."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Let librdkafka fetch from `offset` on, which may be logical."""

    offset: int


Action: TypeAlias = StartFeed | StopFeed | Quiet | Wake | HandOver
Step: TypeAlias = tuple["PartitionState", tuple[Action, ...]]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One assigned partition.

    `offset` is where its present reader began. `is_paused`: by the application. `is_parked`: it is librdkafka's from
    `offset` on, but paused by the application before it could be handed over. `is_probing`: librdkafka reads it, and
    whether the store could is being tried. `retry_at_ms` is when a partition of librdkafka's is looked at again, None:
    never. `reason` says why it is librdkafka's.
    """

    mode: Mode
    offset: int
    is_paused: bool = False
    is_parked: bool = False
    is_probing: bool = False
    retry_at_ms: int | None = None
    reason: str = ""

    @property
    def is_fetched(self) -> bool:
        """Whether librdkafka's position is the partition's: of a parked one it is that of an earlier time."""
        return self.mode is Mode.BROKER and not self.is_parked

    @classmethod
    def start(cls, offset: int, *, is_paused: bool = False) -> Step:
        """An assigned or sought partition of which the store may have `offset`; librdkafka has it paused."""
        return cls(Mode.LOCATING, offset, is_paused), (Quiet(), StartFeed(offset))

    def sought(self, offset: int) -> Step:
        """The application, or a reset in its name, wants to go on elsewhere."""
        state, _ = self.start(offset, is_paused=self.is_paused)
        return state, (Quiet(), StopFeed(), StartFeed(offset))

    def at_broker(self, offset: int, reason: str, retry_at_ms: int | None) -> Step:
        """librdkafka goes on from `offset`; what the store had given before it has been delivered."""
        state = PartitionState(
            Mode.BROKER, offset, self.is_paused, is_parked=self.is_paused, retry_at_ms=retry_at_ms, reason=reason
        )
        return state, (StopFeed(), Quiet()) if self.is_paused else (StopFeed(), HandOver(offset))

    def found(self) -> Step:
        """The store has begun to give records."""
        return replace(self, mode=Mode.REMOTE), ()

    def paused(self) -> Step:
        """The application pauses the partition."""
        return replace(self, is_paused=True), (Quiet(),) if self.mode is Mode.BROKER else ()

    def resumed(self) -> Step:
        """The application resumes the partition."""
        state = replace(self, is_paused=False, is_parked=False)
        if self.mode is not Mode.BROKER:
            return state, ()
        return state, (HandOver(self.offset),) if self.is_parked else (Wake(),)

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time to look whether the store could read on."""
        waits = self.mode is Mode.BROKER and not self.is_probing and not self.is_paused
        return waits and self.retry_at_ms is not None and now_ms >= self.retry_at_ms

    def later(self, retry_at_ms: int) -> Step:
        """There is nothing to be gained now."""
        return replace(self, retry_at_ms=retry_at_ms), ()

    def probe(self, offset: int) -> Step:
        """Try the store from `offset` on, while librdkafka reads."""
        return replace(self, is_probing=True, retry_at_ms=None), (StartFeed(offset),)

    def probe_failed(self, reason: str, retry_at_ms: int | None) -> Step:
        """The store could not; librdkafka reads on."""
        return replace(self, is_probing=False, retry_at_ms=retry_at_ms, reason=reason), (StopFeed(),)

    def taken_over(self, offset: int) -> Step:
        """The store could: it reads on from `offset`, where librdkafka has stopped."""
        return PartitionState(Mode.REMOTE, offset, self.is_paused), ()
