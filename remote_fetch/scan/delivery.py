"""Turns the items of a slice into rows, in order: leader epoch, isolation level, decompression, decoding.

Rules of the file:

- Every record that the isolation level shows is delivered or causes an error.
- After an error, `resume_position` is the byte position from which the slice can be read again.
- A batch of a unit that ends a run early is read alone, so that its error has words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.errors import EpochMismatch, RemoteFetchError
from remote_fetch.formats.batches import BatchHeader, FramedBatch, check_crc
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.legacy import as_v2
from remote_fetch.locate.lineage import epoch_at
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.scan.rows import PartitionRows
from remote_fetch.scan.units import Unit, Units

__all__ = ["Delivery", "Single"]


@dataclass(frozen=True, slots=True)
class Single:
    """A batch that is read alone. `records`: those of a message of v0 or v1, whose header is as a v2 batch has it."""

    batch: FramedBatch
    records: memoryview | None = None
    is_confirmed: ClassVar[bool] = False

    @property
    def last_offset(self) -> int:
        """The last offset of the batch."""
        return self.batch.header.last_offset


class Delivery:
    """Delivers the items of one slice to `rows`. Its `units` have the decoder of a unit; None: there is no unit."""

    def __init__(
        self, piece: SegmentSlice, rows: PartitionRows, codecs: Codecs, units: Units | None, position: int
    ) -> None:
        self.resume_position = position
        self._piece = piece
        self._rows = rows
        self._codecs = codecs
        self._units = units

    def deliver(self, item: Unit | Single) -> Iterator[DecodedRows]:
        """Take the next item, and yield the rows that became full."""
        return self._unit(item) if isinstance(item, Unit) else self._single(item)

    def _unit(self, unit: Unit) -> Iterator[DecodedRows]:
        assert self._units is not None
        at, last_offset, column_bytes = unit.at, unit.start.last_offset, 0
        while at < unit.stop:
            for run in self._units.runs(unit, at, last_offset, self._rows.first_wanted(self._piece)):
                at, last_offset = run.position, run.last_offset
                column_bytes += run.rows.size_bytes
                self._rows.note(run, self._piece)
                self.resume_position = unit.position + at - unit.at
                yield from self._rows.add(run.rows)
            if at < unit.stop:
                batch = unit.batch_at(at)
                check_crc(batch)
                yield from self._single(Single(batch))
                at, last_offset = at + batch.header.size_bytes, batch.header.last_offset
        self._units.learn(unit, column_bytes)

    def _single(self, item: Single) -> Iterator[DecodedRows]:
        header, position = item.batch.header, item.batch.position
        self.resume_position = position
        if header.last_offset >= self._rows.first_wanted(self._piece):
            self._check_epoch(header, position)
            if header.is_control:
                self._rows.see_marker(item.batch, self._codecs)
            elif self._rows.shows(header):
                yield from self._records(item)
        elif header.is_control and self._units is None:
            self._rows.see_marker(item.batch, self._codecs)  # its transaction may have begun before passed offsets
        self._rows.read_to(header.last_offset, self._piece)
        self.resume_position = position + header.size_bytes

    def _records(self, item: Single) -> Iterator[DecodedRows]:
        header, records = item.batch.header, item.records
        try:
            if records is None:
                _, records = as_v2(item.batch, self._codecs)
            first, stop = self._rows.first_wanted(self._piece), self._piece.stop_offset
            full = self._rows.batches.append(header, records, first, stop)
        except RemoteFetchError as error:
            raise error.at(position=item.batch.position, offset=header.base_offset) from error.__cause__
        if full:
            yield from self._rows.gatherer.add(full)

    def _check_epoch(self, header: BatchHeader, position: int) -> None:
        segment = self._piece.segment
        if not self._rows.epoch_fits(segment, header.base_offset, header.leader_epoch):
            promised = epoch_at(segment.segment_leader_epochs, header.base_offset)
            known = self._rows.lineage.epoch_for(header.base_offset)
            raise EpochMismatch(
                f"batch of leader epoch {header.leader_epoch} where the log has epoch "
                f"{promised if known is None else known}",
                position=position,
                offset=header.base_offset,
            )
