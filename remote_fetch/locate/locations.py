"""`Locations`, the port through which the broker locator asks leaders, and the answers that they give (KIP-1254).

Rules of the file:

- Pure.
- An answer is a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from remote_fetch.model import IsolationLevel, TopicIdPartition, Uuid

__all__ = ["Answer", "Location", "Locations", "LocationsUnsupported"]


class LocationsUnsupported(Exception):
    """The leader does not speak the version of Fetch that has locations. The text says what it speaks."""


@dataclass(frozen=True, slots=True)
class Location:
    """The remote segment that holds an offset, as a leader told it. None: it did not tell."""

    segment_id: Uuid
    custom_metadata: bytes | None
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A leader's answer for one offset of a partition.

    - `location` None: the leader would serve the offset itself, as in any Fetch; `has_records` if it has done so.
    - `aborted` are producer id and first offset of the aborted transactions that have an offset from the asked one to
      the end of the segment. Empty under read_uncommitted.
    - `last_stable_offset`, `log_start_offset`: as in any Fetch, -1 if unknown.
    """

    location: Location | None
    aborted: tuple[tuple[int, int], ...]
    last_stable_offset: int
    log_start_offset: int
    has_records: bool = False


class Locations(Protocol):
    """The questions of a locator to brokers. Not thread-safe."""

    def ask(self, partition: TopicIdPartition, offset: int, isolation: IsolationLevel) -> Answer:
        """Where the offset lies. Raises LocationsUnsupported, and Unlocatable if no leader answers."""

    def earliest_local(self, partition: TopicIdPartition) -> int | None:
        """The first offset on the leader's own disk (ListOffsets, EARLIEST_LOCAL). None: it does not tell.

        Raises Unlocatable if no leader answers.
        """

    def reconnect(self) -> None:
        """Use new connections from now on, because the credentials have changed."""

    def close(self) -> None:
        """Close the connections."""
