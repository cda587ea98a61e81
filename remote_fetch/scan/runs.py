"""Reads runs: many ordinary batches, found in one step of compiled code and decoded in another.

Rules of the file:

- Damaged bytes raise no error here. A run ends before a batch that is damaged or needs special handling, and
  `slice_reader` reads that batch.
- A step is so small that its bytes stay in the processor's cache from the checksum to the decoding. It is so large that
  threads rarely wait for the interpreter's lock.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from remote_fetch.decode.batch_table import FIELDS, Field, new_table
from remote_fetch.decode.runs import Scanner
from remote_fetch.formats.codecs import Codecs
from remote_fetch.locate.lineage import epoch_at
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.plan.visibility import AbortedIntervals, SequentialAborts
from remote_fetch.scan.rows import PartitionRows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Runs", "Taken"]

STEP_BYTES = 256 << 10
STEP_BATCHES = 512

_EPOCH_AT = 12
_HEADER_START_BYTES = 16


class Taken(NamedTuple):
    """The result of a part of a run.

    - `position` is the start of the next batch in the bytes. `last_offset` is the last offset before that batch.
    - `batches` are the Arrow batches that became full.
    - `is_sound` is false if the next batch is damaged inside.
    """

    position: int
    last_offset: int
    batches: list[pa.RecordBatch]
    is_sound: bool


class Runs:
    """Finds and decodes the runs of one slice. `find` returns whether the next batches are a run. `take` decodes it.

    A batch of more than `max_batch_bytes` ends a run: it is too large for a step, or larger than a batch may be.
    """

    def __init__(
        self,
        piece: SegmentSlice,
        rows: PartitionRows,
        entry_offsets: tuple[int, int],
        max_batch_bytes: int,
    ) -> None:
        self._piece = piece
        self._rows = rows
        aborted, segment = rows.aborted, piece.segment
        assert not isinstance(aborted, SequentialAborts), "a run looks at many batches before their markers"
        self._scanner = Scanner(
            crc32c,
            max_batch_bytes,
            (segment.start_offset, segment.end_offset),
            piece.last_offset + 1,
            entry_offsets,
            None if aborted is None else _hidden(aborted),
        )
        self._table = new_table(STEP_BATCHES)
        # All batches from `_epoch_start` up to `_epoch_stop` (exclusive) must have this leader epoch.
        self._epoch = -1
        self._epoch_start = self._epoch_stop = 0

    def find(self, data: memoryview, at: int, last_offset: int) -> bool:
        """Return whether a run begins at `data[at]`. The batch before it ended with `last_offset`."""
        if len(data) - at < _HEADER_START_BYTES or not self._knows_epoch(data, at):
            return False
        taken = self._scanner.scan(
            data,
            at,
            STEP_BYTES,
            (last_offset, max(self._rows.next_offset, self._piece.first_offset)),
            (self._epoch, self._epoch_stop),
            self._table,
        )
        return taken > 0

    def take(self, data: memoryview, codecs: Codecs) -> Iterator[Taken]:
        """Decode the run that `find` found in the same bytes. A part ends whenever Arrow batches are full.

        The last part ends the run, or is not sound.
        """
        scanner, table, rows, piece = self._scanner, self._table, self._rows, self._piece
        window = max(rows.next_offset, piece.first_offset), piece.last_offset + 1
        first = 0
        while True:
            stop, batches = rows.builder.append_run(data, table, first, scanner.rows, window, codecs.decompress)
            if rows.aborted is not None:
                self._show(table, first, stop)
            if stop == scanner.rows:
                yield Taken(scanner.position, scanner.last_offset, batches, True)
                return
            row = stop * FIELDS
            is_sound = stop > first or bool(batches)
            yield Taken(table[row + Field.AT], table[row + Field.PREVIOUS_OFFSET], batches, is_sound)
            if not is_sound:
                return
            first = stop

    def _show(self, table: memoryview[int], first: int, stop: int) -> None:
        """Remember the producers whose transactional records were delivered."""
        for row in range(first * FIELDS, stop * FIELDS, FIELDS):
            producer = table[row + Field.PRODUCER_ID]
            if producer >= 0:
                self._rows.shown.setdefault(producer, table[row + Field.BASE_OFFSET])

    def _knows_epoch(self, data: memoryview, at: int) -> bool:
        """Whether the batch at `data[at]` has the leader epoch that the log has at its base offset."""
        offset = int.from_bytes(data[at : at + 8], "big", signed=True)
        epoch = int.from_bytes(data[at + _EPOCH_AT : at + _HEADER_START_BYTES], "big", signed=True)
        if epoch == self._epoch and self._epoch_start <= offset < self._epoch_stop:
            return True
        promised, lineage = self._piece.segment.segment_leader_epochs, self._rows.lineage
        if epoch != -1 and epoch_at(promised, offset) not in (None, epoch):
            return False
        if not lineage.agrees(offset, epoch):
            return False
        # The answer stays the same up to the next offset at which an entry begins or the lineage ends.
        stops = [entry.start_offset for entry in (*promised, *lineage.entries)]
        if lineage.end_offset is not None:
            stops.append(lineage.end_offset)
        self._epoch, self._epoch_start = epoch, offset
        self._epoch_stop = min((stop for stop in stops if stop > offset), default=2**63 - 1)
        return True


def _hidden(aborted: AbortedIntervals) -> tuple[array[int], array[int], array[int]]:
    """The aborted transactions as three rows of numbers, sorted by producer and first offset."""
    producers, firsts, lasts = array("q"), array("q"), array("q")
    for producer in sorted(aborted.by_producer):
        for transaction in aborted.by_producer[producer]:
            producers.append(producer)
            firsts.append(transaction.first_offset)
            lasts.append(transaction.last_offset)
    return producers, firsts, lasts
