"""Reads a log as the product does, with the native and the plain decoder, which have to agree.

Rules of the file:

- Both decoders return the same rows, or raise the same error with the same text.
- A slice gives the same rows and the same error in one piece and in ranges, with units of any size and without units.
- Every Arrow batch is validated in full.
- Arrow batches are tiny, so that batches of a few records take every path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import pyarrow as pa

from remote_fetch.decode import run_reference
from remote_fetch.decode.columns import COLUMNS, schema_for
from remote_fetch.decode.decoded_rows import DecodedRows, arrow_of
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

__all__ = ["MAX_INFLATED_BYTES", "check_checksums", "check_messages", "engines", "read_batches", "read_slice"]

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


def check_messages(of_engines: Sequence[DecodedRows]) -> None:
    """Check that the rows of every engine make the same messages. It takes the rows. Raises AssertionError."""
    made = [MessageCursor(rows, "topic", 0, lambda *fields: fields).take(rows.num_rows) for rows in of_engines]
    for rows, messages in zip(of_engines, made, strict=True):
        if len(messages) != rows.num_rows or messages != made[0]:
            raise AssertionError(f"messages, plain: {made[0]}, native: {messages}")
        if messages and messages[-1][2] != rows.end_offset - 1:
            raise AssertionError(f"the last offset is {messages[-1][2]}, and the end offset {rows.end_offset}")


_Outcome = tuple[list[DecodedRows], RemoteFetchError | None]


class _Both:
    """A reader of batches for each decoder. All get the same input."""

    def __init__(self, modules: tuple[ModuleType, ...]) -> None:
        self._readers, self._of_messages = (
            [
                BatchReader("topic", 0, COLUMNS, target_bytes=_TARGET_BYTES, max_rows=_MAX_ROWS, engine=module)
                for module in modules
            ]
            for _ in range(2)
        )

    def append(
        self, header: BatchHeader, records: memoryview, start_offset: int, stop_offset: int
    ) -> list[pa.RecordBatch]:
        """As `BatchReader.append`, with Arrow batches. Raises AssertionError if the decoders differ."""
        arguments = header, records, start_offset, stop_offset
        _check_all_messages([_appended(reader, *arguments) for reader in self._of_messages])
        return _agreed([_appended(reader, *arguments) for reader in self._readers])

    def drain(self) -> list[pa.RecordBatch]:
        """As `BatchReader.drain`, with Arrow batches. Raises AssertionError if the decoders differ."""
        _check_all_messages([(reader.drain(), None) for reader in self._of_messages])
        return _agreed([(reader.drain(), None) for reader in self._readers])


def _appended(reader: BatchReader, *arguments: Any) -> _Outcome:
    try:
        return reader.append(*arguments), None
    except RemoteFetchError as error:
        return [], error


def _check_all_messages(outcomes: list[_Outcome]) -> None:
    for of_engines in zip(*(rows for rows, _ in outcomes), strict=True):
        check_messages(of_engines)


def _agreed(outcomes: list[_Outcome]) -> list[pa.RecordBatch]:
    (rows, error), *others = [(_valid_arrow_of(rows), error) for rows, error in outcomes]
    for other_rows, other_error in others:
        if (type(error), str(error)) != (type(other_error), str(other_error)):
            raise AssertionError(f"plain: {error!r}, native: {other_error!r}")
        if len(rows) != len(other_rows) or not all(map(pa.RecordBatch.equals, rows, other_rows)):
            raise AssertionError(f"plain: {rows}, native: {other_rows}")
    if error is not None:
        raise error
    return rows


def _valid_arrow_of(rows: Iterable[DecodedRows]) -> list[pa.RecordBatch]:
    """The rows as valid Arrow batches."""
    batches = arrow_of(rows)
    for batch in batches:
        batch.validate(full=True)
    return batches


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
        reader._ahead._units = None
    read: list[DecodedRows] = []
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
    return pa.Table.from_batches(_valid_arrow_of(read), schema=schema_for(COLUMNS)), failed
