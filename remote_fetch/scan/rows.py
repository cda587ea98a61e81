"""The state that the slices of one partition share while they are read in order.

Rules of the file:

- One thread reads a partition, so nothing here is locked.
- Rows leave in the order in which they were taken, whichever reader decoded them.
- A marker that aborts delivered records is an error: `aborted` should have hidden them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.decode.gatherer import RowGatherer
from remote_fetch.decode.run_decoder import BatchReader, DecodedRun
from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.batches import BatchHeader, FramedBatch
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.control import ControlType, control_type
from remote_fetch.locate.lineage import Lineage, epoch_at
from remote_fetch.model import RemoteLogSegmentMetadata
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.plan.visibility import AbortedIntervals, SequentialAborts

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PartitionRows", "ReadRows", "end_of"]

ReadRows: TypeAlias = "Generator[DecodedRows | pa.RecordBatch]"
"""The rows of a read, in order. Those that the broker reads are Arrow batches."""

_FIRST_RATIO = 4.0


@dataclass(slots=True)
class PartitionRows:
    """The rows of one partition while they are read.

    - `next_offset` is the first offset that has not been read.
    - `aborted` has the aborted transactions. It is None under read_uncommitted. If a broker lists aborted transactions,
      it is replaced for each slice.
    - `shown` has, for each producer, the base offset of the first transactional batch delivered since its last marker.
    - `ratio` is how many bytes the columns of the last unit took for each byte of its batches.
    - `saturated` counts as in `DecodedRun`, of the runs since the last `take_saturated`.
    """

    topic: str
    partition: int
    columns: Sequence[str]
    lineage: Lineage
    aborted: AbortedIntervals | SequentialAborts | None
    next_offset: int
    gatherer: RowGatherer = field(default_factory=RowGatherer)
    shown: dict[int, int] = field(default_factory=dict)
    ratio: float = _FIRST_RATIO
    saturated: int = 0
    batches: BatchReader = field(init=False)

    def __post_init__(self) -> None:
        """Raises ConfigError for columns as `schema_for` does."""
        self.batches = BatchReader(self.topic, self.partition, self.columns)

    def begin_at(self, offset: int) -> None:
        """Go on at `offset`, if that is further on. The markers of the offsets that are left out will not be seen."""
        if offset > self.next_offset:
            self.next_offset = offset
            self.shown.clear()

    def first_wanted(self, piece: SegmentSlice) -> int:
        """The first offset of a slice that has not been read."""
        return max(piece.first_offset, self.next_offset)

    def read_to(self, last_offset: int, piece: SegmentSlice) -> None:
        """Note that all wanted offsets of a slice up to `last_offset` (inclusive) have been read."""
        self.next_offset = max(self.next_offset, min(last_offset, piece.last_offset) + 1)

    def epoch_fits(self, segment: RemoteLogSegmentMetadata, base_offset: int, leader_epoch: int) -> bool:
        """Whether a batch of `segment` with that partitionLeaderEpoch may be at `base_offset` in the log."""
        promised = epoch_at(segment.segment_leader_epochs, base_offset)
        is_promised = leader_epoch == -1 or promised in (None, leader_epoch)
        return is_promised and self.lineage.agrees(base_offset, leader_epoch)

    def shows(self, header: BatchHeader) -> bool:
        """Whether the isolation level shows records of a batch that holds no marker. Then they count as delivered."""
        is_shown = self.aborted is None or self.aborted.shows(header)
        if not is_shown or header.record_count == 0:  # the log cleaner keeps only the header of a batch without records
            return False
        if header.is_transactional:
            self.shown.setdefault(header.producer_id, header.base_offset)
        return True

    def see_marker(self, batch: FramedBatch, codecs: Codecs) -> None:
        """Take a marker into account.

        Raises CorruptSegment if records of an aborted transaction were delivered, and `aborted` does not tell that the
        transaction ends here.
        """
        if self.aborted is None:
            return
        header, kind = batch.header, control_type(batch, codecs)
        first_shown = self.shown.get(header.producer_id)
        if isinstance(self.aborted, SequentialAborts):
            self.aborted.shows(header, kind)
            is_told, source = False, "broker's list"  # else nothing of the transaction was shown
        else:
            is_told, source = self.aborted.ends_at(header.producer_id, header.base_offset), "transaction index"
        if kind is ControlType.ABORT and first_shown is not None and not is_told:
            raise CorruptSegment(
                f"the transaction of producer {header.producer_id} from offset {first_shown} was aborted at offset "
                f"{header.base_offset}, but no {source} says so",
                position=batch.position,
                offset=first_shown,
                hint=f"A {source} is lost or incomplete; the broker has to answer for these offsets",
            )
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            self.shown.pop(header.producer_id, None)

    def note(self, run: DecodedRun, piece: SegmentSlice) -> None:
        """Remember what a run delivered, which transactions ended in it, odd timestamps, and its last offset."""
        for producer_id in run.ended_producers:
            self.shown.pop(producer_id, None)
        for producer_id, base_offset in run.shown.items():
            self.shown.setdefault(producer_id, base_offset)
        self.saturated += run.saturated
        if run.taken:
            self.read_to(run.last_offset, piece)

    def add(self, rows: DecodedRows) -> list[DecodedRows]:
        """Take rows that follow those of `batches`, the reader of single batches. Return groups that became full."""
        return self._drained() + self.gatherer.add([rows])

    def take_saturated(self) -> int:
        """How many rows have a `timestamp` that is not their own, of those that were decoded since the last call."""
        count, self.saturated = self.saturated + self.batches.saturated, 0
        self.batches.saturated = 0
        return count

    def _drained(self) -> list[DecodedRows]:
        return self.gatherer.add(self.batches.drain())

    def flush(self) -> list[DecodedRows]:
        """Return all rows that were taken and not returned yet."""
        return self._drained() + self.gatherer.drain()


def end_of(batch: pa.RecordBatch, stop: int) -> int:
    """One past the last offset of a batch. `stop` if the batch has no column of offsets, or no rows."""
    if "offset" not in batch.schema.names or not batch.num_rows:
        return stop
    return int(batch.column("offset")[batch.num_rows - 1].as_py()) + 1
