"""Reads a log as the product does, with the compiled and the interpreted decoder, which have to agree.

Rules of the file:

- Both variants return the same rows, or raise the same error with the same text.
- Every Arrow batch is validated in full.
- Buffers are tiny, so that batches of a few records take every path through the builder.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

import pyarrow as pa

from remote_fetch.decode import _columns, _messages
from remote_fetch.decode.columns import COLUMNS, ColumnBuilder
from remote_fetch.decode.messages import MessageCursor
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
from tools.interpreted_decoder import INNER_LOOPS

__all__ = ["MAX_INFLATED_BYTES", "check_checksums", "interpreted_kernel", "read_batches", "read_slice"]

MAX_INFLATED_BYTES = 6 << 20
_MAX_BATCH_BYTES = 8 << 20
_LAST_OFFSET = 2**62
_TARGET_BYTES = 256
_MAX_ROWS = 4
_RANGE_BYTES = 97
"""A size at which most batches cross a border."""


def interpreted_kernel(compiled: ModuleType = _columns) -> ModuleType:
    """The source of an inner loop as plain Python, or the module if it is not compiled."""
    if not compiled.COMPILED:
        return compiled
    source = INNER_LOOPS[compiled.__name__]
    loader = SourceFileLoader(f"{compiled.__name__}_interpreted", str(source))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@cache
def _kernels() -> tuple[ModuleType, ...]:
    return (_columns, interpreted_kernel()) if _columns.COMPILED else (_columns,)


@cache
def _message_kernels() -> tuple[ModuleType, ...]:
    return (_messages, interpreted_kernel(_messages)) if _messages.COMPILED else (_messages,)


def _check_messages(batch: pa.RecordBatch) -> None:
    """Check that both variants make the same messages of the rows. Raises AssertionError."""
    made = [
        MessageCursor(batch, "topic", 0, lambda *fields: fields, kernel=kernel).take(batch.num_rows)
        for kernel in _message_kernels()
    ]
    if len(made[0]) != batch.num_rows or made[0] != made[-1]:
        raise AssertionError(f"messages, compiled: {made[0]}, interpreted: {made[-1]}")


class _Both:
    """A builder for each variant of the decoder. Both get the same input."""

    def __init__(self, kernels: tuple[ModuleType, ...]) -> None:
        self._builders = [
            ColumnBuilder("topic", 0, COLUMNS, target_bytes=_TARGET_BYTES, max_rows=_MAX_ROWS, kernel=kernel)
            for kernel in kernels
        ]

    def append(
        self, header: BatchHeader, records: memoryview, start_offset: int, stop_offset: int
    ) -> list[pa.RecordBatch]:
        """As `ColumnBuilder.append`. Raises AssertionError if the variants differ."""
        outcomes = [self._appended(builder, header, records, start_offset, stop_offset) for builder in self._builders]
        return self._agreed(outcomes)

    @staticmethod
    def _appended(builder: ColumnBuilder, *arguments: Any) -> tuple[list[pa.RecordBatch], RemoteFetchError | None]:
        try:
            return builder.append(*arguments), None
        except RemoteFetchError as error:
            return [], error

    @staticmethod
    def _agreed(outcomes: list[tuple[list[pa.RecordBatch], RemoteFetchError | None]]) -> list[pa.RecordBatch]:
        (rows, error), *others = outcomes
        for batch in rows:
            batch.validate(full=True)
            _check_messages(batch)
        for other_rows, other_error in others:
            if (type(error), str(error)) != (type(other_error), str(other_error)):
                raise AssertionError(f"compiled: {error!r}, interpreted: {other_error!r}")
            if len(rows) != len(other_rows) or not all(map(pa.RecordBatch.equals, rows, other_rows)):
                raise AssertionError(f"compiled: {rows}, interpreted: {other_rows}")
        if error is not None:
            raise error
        return rows

    def flush(self) -> pa.RecordBatch | None:
        """As `ColumnBuilder.flush`. Raises AssertionError if the variants differ."""
        flushed = [builder.flush() for builder in self._builders]
        rows = self._agreed([([] if batch is None else [batch], None) for batch in flushed])
        return rows[0] if rows else None


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
    builder = _Both(_kernels())
    framer = BatchFramer(0, max_batch_bytes=_MAX_BATCH_BYTES)
    framer.feed(memoryview(data))
    rows: list[pa.RecordBatch] = []
    while (batch := framer.next_batch()) is not None:
        check_crc(batch)
        if batch.header.is_control:
            control_type(batch, codecs)
        else:
            rows += builder.append(*as_v2(batch, codecs), 0, batch.header.next_offset)
    framer.finish()
    last = builder.flush()
    return rows if last is None else [*rows, last]


def read_slice(data: bytes) -> pa.Table:
    """Read a log as one segment under read_committed, whole and in many ranges. Both have to give the same."""
    (whole, error), (cut, cut_error) = _sliced(data, len(data) + 1), _sliced(data, _RANGE_BYTES)
    if not whole.equals(cut) or (type(error), str(error)) != (type(cut_error), str(cut_error)):
        raise AssertionError(
            f"in one piece: {whole}, {error!r}; in ranges of {_RANGE_BYTES} bytes: {cut}, {cut_error!r}"
        )
    if error is not None:
        raise error
    return whole


def _sliced(data: bytes, range_bytes: int) -> tuple[pa.Table, RemoteFetchError | None]:
    partition = TopicIdPartition(Uuid(bytes(16)), "topic", 0)
    segment = RemoteLogSegmentMetadata(RemoteLogSegmentId(partition, Uuid(bytes(16))), 0, _LAST_OFFSET, len(data))
    builder = ColumnBuilder("topic", 0, COLUMNS, target_bytes=_TARGET_BYTES, max_rows=_MAX_ROWS)
    rows = PartitionRows(builder, Lineage.unknown(), AbortedIntervals.of(()), 0)
    piece = SegmentSlice(segment, 0, _LAST_OFFSET)
    codecs = Codecs(max_bytes=MAX_INFLATED_BYTES)
    reader = SliceReader(piece, rows, codecs, position=0, max_batch_bytes=_MAX_BATCH_BYTES)
    read: list[pa.RecordBatch] = []
    failed: RemoteFetchError | None = None
    try:
        for start in range(0, len(data), range_bytes):
            read.extend(reader.feed(memoryview(data)[start : start + range_bytes]))
        read.extend(reader.finish())
    except RemoteFetchError as error:
        failed = error
    except MisleadingIndex:
        raise AssertionError("there is no index that could mislead") from None
    last = builder.flush()
    return pa.Table.from_batches([*read, *([] if last is None else [last])], schema=builder.schema), failed
