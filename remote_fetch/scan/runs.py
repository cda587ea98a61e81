"""Runs: many batches with nothing special about them, found in one step of compiled code and decoded in another.

Rules of the file: nothing is raised for what the bytes say; a run ends before the batch with which `slices` has to
deal, and where a batch of a run turns out to be damaged inside, it ends there. A step is small enough to stay in a
processor's cache from its checksum to its decoding, and large enough that the interpreter's lock changes hands rarely.
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

    `position` is where the next batch begins in the bytes, `last_offset` ends the batch before it, `batches` are the
    Arrow batches that became full. Not `is_sound`: the next batch is damaged inside.
    """

    position: int
    last_offset: int
    batches: list[pa.RecordBatch]
    is_sound: bool


class Runs:
    """Finds and decodes the runs of one slice. `find` tells whether there is one, `take` decodes it and what follows.

    Batches of more than `max_batch_bytes` are left alone: too large for a step, or larger than any may be.
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
        # The leader epoch that batches have from one offset to another.
        self._epoch = -1
        self._epoch_start = self._epoch_stop = 0

    def find(self, data: memoryview, at: int, last_offset: int) -> bool:
        """Look for a run from `data[at]` on, where the batch before it ended with `last_offset`."""
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
        """Decode the run that `find` found in the same bytes, in parts: one for each time that Arrow batches are full.

        The last part is the one that ends the run, or the one that is not sound.
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
        """Remember whose transactional records were shown."""
        for row in range(first * FIELDS, stop * FIELDS, FIELDS):
            producer = table[row + Field.PRODUCER_ID]
            if producer >= 0:
                self._rows.shown.setdefault(producer, table[row + Field.BASE_OFFSET])

    def _knows_epoch(self, data: memoryview, at: int) -> bool:
        """Whether the batch that begins here has the leader epoch that the log has there."""
        offset = int.from_bytes(data[at : at + 8], "big", signed=True)
        epoch = int.from_bytes(data[at + _EPOCH_AT : at + _HEADER_START_BYTES], "big", signed=True)
        if epoch == self._epoch and self._epoch_start <= offset < self._epoch_stop:
            return True
        promised, lineage = self._piece.segment.segment_leader_epochs, self._rows.lineage
        if epoch != -1 and epoch_at(promised, offset) not in (None, epoch):
            return False
        if not lineage.agrees(offset, epoch):
            return False
        # The answer is the same up to the next offset where either knows something new, or nothing any more.
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
