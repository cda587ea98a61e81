"""Reads a log as the product does, with the native and the plain decoder, which have to agree.

Rules of the file:

- Both decoders return the same rows, or raise the same error with the same text.
- A slice gives the same rows and the same error in one piece and in ranges, with units of any size and without units.
- Every Arrow batch is validated in full.
- Arrow batches are tiny, so that batches of a few records take every path.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import pyarrow as pa

from remote_fetch.decode import message_reference, run_reference
from remote_fetch.decode.columns import COLUMNS, schema_for
from remote_fetch.decode.gatherer import RowGatherer
from remote_fetch.decode.messages import MessageCursor
from remote_fetch.decode.run_decoder import BatchReader, is_native
from remote_fetch.errors import RemoteFetchError
from remote_fetch.formats.batches import BatchFramer, BatchHeader, check_crc
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.control import control_type
from remote_fetch.formats.legacy import as_v2
from remote_fetch.locate.lineage import Lineage
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.plan.visibility import AbortedIntervals
from remote_fetch.prepare.order import MisleadingIndex
from remote_fetch.scan.rows import PartitionRows
from remote_fetch.scan.slice_reader import SliceReader
from remote_fetch.session.decode_pool import DecodePool

__all__ = ["MAX_INFLATED_BYTES", "check_checksums", "engines", "read_batches", "read_slice"]

MAX_INFLATED_BYTES = 6 << 20
_MAX_BATCH_BYTES = 8 << 20
_LAST_OFFSET = 2**62
_TARGET_BYTES = 256
_MAX_ROWS = 4
_EVERYTHING = 1 << 30
_RANGE_BYTES = 97
"""A size at which most batches cross a border."""


class _Way(NamedTuple):
    """One way to read a slice: the size of its ranges and of the columns of a unit. None: no units."""

    range_bytes: int
    unit_bytes: int | None


_WAYS: Mapping[str, _Way] = MappingProxyType(
    {
        "in one piece": _Way(_EVERYTHING, 1 << 20),
        "in ranges": _Way(_RANGE_BYTES, 1 << 20),
        "in units of one batch": _Way(_EVERYTHING, 1),
        "batch by batch": _Way(_EVERYTHING, None),
    }
)


def engines() -> tuple[ModuleType, ...]:
    """The decoders that there are: the plain one, and the native one if it was built."""
    if not is_native():
        return (run_reference,)
    from remote_fetch.decode import _native

    return run_reference, _native


def _check_messages(batch: pa.RecordBatch) -> None:
    """Check that both engines make the same messages of the rows. Raises AssertionError."""
    made = [
        MessageCursor(batch, "topic", 0, lambda *fields: fields, engine=engine).take(batch.num_rows)
        for engine in (message_reference if engine is run_reference else engine for engine in engines())
    ]
    if len(made[0]) != batch.num_rows or made[0] != made[-1]:
        raise AssertionError(f"messages, plain: {made[0]}, native: {made[-1]}")


class _Both:
    """A reader of batches for each decoder. All get the same input."""

    def __init__(self, modules: tuple[ModuleType, ...]) -> None:
        self._readers = [
            BatchReader("topic", 0, COLUMNS, target_bytes=_TARGET_BYTES, max_rows=_MAX_ROWS, engine=module)
            for module in modules
        ]

    def append(
        self, header: BatchHeader, records: memoryview, start_offset: int, stop_offset: int
    ) -> list[pa.RecordBatch]:
        """As `BatchReader.append`. Raises AssertionError if the decoders differ."""
        outcomes = [self._appended(reader, header, records, start_offset, stop_offset) for reader in self._readers]
        return self._agreed(outcomes)

    @staticmethod
    def _appended(reader: BatchReader, *arguments: Any) -> tuple[list[pa.RecordBatch], RemoteFetchError | None]:
        try:
            return reader.append(*arguments), None
        except RemoteFetchError as error:
            return [], error

    @staticmethod
    def _agreed(outcomes: list[tuple[list[pa.RecordBatch], RemoteFetchError | None]]) -> list[pa.RecordBatch]:
        (rows, error), *others = outcomes
        for batch in rows:
            batch.validate(full=True)
            _check_messages(batch)
        for other_rows, other_error in others:
            for batch in other_rows:
                batch.validate(full=True)
            if (type(error), str(error)) != (type(other_error), str(other_error)):
                raise AssertionError(f"plain: {error!r}, native: {other_error!r}")
            if len(rows) != len(other_rows) or not all(map(pa.RecordBatch.equals, rows, other_rows)):
                raise AssertionError(f"plain: {rows}, native: {other_rows}")
        if error is not None:
            raise error
        return rows

    def drain(self) -> list[pa.RecordBatch]:
        """As `BatchReader.drain`. Raises AssertionError if the decoders differ."""
        return self._agreed([(reader.drain(), None) for reader in self._readers])


def check_checksums(data: bytes) -> None:
    """Frame every batch and check its checksum, the outer checks of a log."""
    framer = BatchFramer(0, max_batch_bytes=_MAX_BATCH_BYTES)
    framer.feed(memoryview(data))
    while (batch := framer.next_batch()) is not None:
        check_crc(batch)
    framer.finish()


def read_batches(data: bytes) -> list[pa.RecordBatch]:
    """Decode every batch of a log, in any order and of any visibility. Raises the errors of the product."""
    codecs = Codecs(max_bytes=MAX_INFLATED_BYTES)
    both = _Both(engines())
    framer = BatchFramer(0, max_batch_bytes=_MAX_BATCH_BYTES)
    framer.feed(memoryview(data))
    rows: list[pa.RecordBatch] = []
    while (batch := framer.next_batch()) is not None:
        check_crc(batch)
        if batch.header.is_control:
            control_type(batch, codecs)
        else:
            rows += both.append(*as_v2(batch, codecs), 0, batch.header.next_offset)
    framer.finish()
    return rows + both.drain()


def read_slice(data: bytes) -> pa.Table:
    """Read a log as one segment under read_committed, in all ways. All have to give the same."""
    outcomes = {name: _sliced(data, way) for name, way in _WAYS.items()}
    (first, (table, error)), *others = outcomes.items()
    for name, (other, other_error) in others:
        if not table.equals(other) or (type(error), str(error)) != (type(other_error), str(other_error)):
            raise AssertionError(f"{first}: {table}, {error!r}; {name}: {other}, {other_error!r}")
    if error is not None:
        raise error
    return table


def _sliced(data: bytes, way: _Way) -> tuple[pa.Table, RemoteFetchError | None]:
    partition = TopicIdPartition(Uuid(bytes(16)), "topic", 0)
    segment = RemoteLogSegmentMetadata(RemoteLogSegmentId(partition, Uuid(bytes(16))), 0, _LAST_OFFSET, len(data))
    gatherer = RowGatherer(target_bytes=_TARGET_BYTES, max_rows=_MAX_ROWS)
    rows = PartitionRows("topic", 0, COLUMNS, Lineage.unknown(), AbortedIntervals.of(()), 0, gatherer)
    piece = SegmentSlice(segment, 0, _LAST_OFFSET)
    codecs = Codecs(max_bytes=MAX_INFLATED_BYTES)
    pool = DecodePool(threads=0, unit_bytes=way.unit_bytes)
    reader = SliceReader(piece, rows, codecs, pool, position=0, max_batch_bytes=_MAX_BATCH_BYTES)
    if way.unit_bytes is None:
        reader._units = None
    read: list[pa.RecordBatch] = []
    failed: RemoteFetchError | None = None
    try:
        for start in range(0, len(data), way.range_bytes):
            read.extend(reader.feed(memoryview(data)[start : start + way.range_bytes]))
        read.extend(reader.finish())
    except RemoteFetchError as error:
        failed = error
    except MisleadingIndex:
        raise AssertionError("there is no index that could mislead") from None
    read += rows.flush()
    for batch in read:
        batch.validate(full=True)
    return pa.Table.from_batches(read, schema=schema_for(COLUMNS)), failed
