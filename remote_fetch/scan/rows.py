"""The state that the slices of one partition share while they are read in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from remote_fetch.decode.columns import ColumnBuilder
from remote_fetch.locate.lineage import Lineage
from remote_fetch.plan.visibility import AbortedIntervals, SequentialAborts

__all__ = ["PartitionRows"]


@dataclass(slots=True)
class PartitionRows:
    """The rows of one partition while they are read.

    - `next_offset` is the first offset that has not been read.
    - `aborted` has the aborted transactions. It is None under read_uncommitted. If a broker lists aborted transactions,
      it is replaced for each slice.
    - `shown` has, for each producer, the base offset of the first transactional batch delivered since its last marker.
    """

    builder: ColumnBuilder
    lineage: Lineage
    aborted: AbortedIntervals | SequentialAborts | None
    next_offset: int
    shown: dict[int, int] = field(default_factory=dict)
