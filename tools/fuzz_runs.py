"""Reads a log in runs, natively and in plain Python, beside the decoder that takes one batch at a time.

Rules of the file:

- Both run decoders end at the same place with the same status, and give the same columns and messages. Both cut the
  same units.
- A run takes the batches that the other decoder takes, with the same rows, and ends before those that it refuses.
- After a run that ended before a batch, reading goes on behind that batch, so that every batch is looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa

from remote_fetch.decode.columns import COLUMNS, schema_for
from remote_fetch.decode.decoded_rows import DecodedRows, arrow_of
from remote_fetch.decode.messages import MESSAGE_COLUMNS
from remote_fetch.decode.resources import ColumnMemory
from remote_fetch.decode.run_decoder import BatchReader, Bounds, DecodedRun, RunReader, Start
from remote_fetch.decode.run_status import RunStatus
from remote_fetch.errors import CorruptSegment, RemoteFetchError
from remote_fetch.formats.batches import HEADER_BYTES, BatchFramer, FramedBatch, check_crc, read_header
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.control import ControlType, control_type
from remote_fetch.model import AbortedTransaction
from remote_fetch.plan.visibility import AbortedIntervals
from remote_fetch.testing.records import Record, encode_batch, rewrite_crc
from tools.fuzz_reading import MAX_INFLATED_BYTES, check_checksums, check_messages, engines

__all__ = ["engines", "read_both", "read_log", "read_stream"]

_MAX_BATCH_BYTES = 8 << 20
_TARGET_BYTES = 256
_MAX_ROWS = 4
_CUT_BYTES = (1, 200, 1 << 20)
_EVERYTHING = 2**63 - 1
_END = encode_batch(2**62, [], last_offset_delta=0)
"""The batch that confirms the place of the last one of a log."""
_KEPT_BYTES = 4 << 20
_DAMAGED = frozenset(status for status in RunStatus if status >= RunStatus.BAD_CHECKSUM)


class _Both:
    """A reader for each run decoder."""

    def __init__(self, columns: Sequence[str], bounds: Bounds) -> None:
        memory = ColumnMemory(_KEPT_BYTES)
        self._readers = [RunReader("topic", 3, columns, bounds, memory=memory, engine=engine) for engine in engines()]
        self._has_messages = set(columns) >= set(MESSAGE_COLUMNS)

    def read(self, data: memoryview, at: int, start: Start) -> DecodedRun:
        """As `RunReader.read`. Raises AssertionError if the decoders differ, or give no valid Arrow."""
        for size_bytes in _CUT_BYTES:
            cuts = [reader.cut(data, at, start, size_bytes) for reader in self._readers]
            if any(cut != cuts[0] for cut in cuts):
                raise AssertionError(f"native: {cuts[-1]}, plain: {cuts[0]}, of {size_bytes} bytes")
        if self._has_messages:
            check_messages([reader.read(data, at, start).rows for reader in self._readers])
        runs = [reader.read(data, at, start) for reader in self._readers]
        for run in runs:
            for batch in run.rows.to_arrow():
                batch.validate(full=True)
            if _facts_of(run) != _facts_of(runs[0]):
                raise AssertionError(f"native: {run}, plain: {runs[0]}")
            batches, others = run.rows.to_arrow(), runs[0].rows.to_arrow()
            if len(batches) != len(others) or not all(map(pa.RecordBatch.equals, batches, others)):
                raise AssertionError(f"native: {rows_of(run)}, plain: {rows_of(runs[0])}")
        return runs[0]


def _facts_of(run: DecodedRun) -> tuple[Any, ...]:
    """All that a run says besides its rows."""
    rows = run.rows
    return (run._replace(rows=None), rows.num_rows, rows.size_bytes, rows.end_offset)  # type: ignore[arg-type]


def rows_of(run: DecodedRun) -> list[dict[str, Any]]:
    """The rows of a run as Python values."""
    return [row for batch in run.rows.to_arrow() for row in batch.to_pylist()]


def read_both(
    data: bytes,
    bounds: Bounds,
    *,
    columns: Sequence[str] = COLUMNS,
    first_offset: int = 0,
) -> Iterator[DecodedRun]:
    """Runs over the whole log. Raises AssertionError if a decoder differs from another."""
    both, codecs = _Both(columns, bounds), Codecs(max_bytes=bounds.max_decompressed_bytes)
    view, at, last_offset = memoryview(data + _END), 0, -1
    while len(view) - at > len(_END):
        run = both.read(view, at, _start(view, at, last_offset, first_offset))
        _check_rows(view[at : run.position], run, bounds, columns, first_offset, codecs)
        yield run
        if run.status is RunStatus.FULL:
            if run.position == at:
                raise AssertionError(f"a run that is full of nothing: {run}")
            at, last_offset = run.position, run.last_offset
            continue
        # The batch before which the run ended, alone, as if it were the first one.
        at, last_offset = run.position, -1
        if at >= len(data):
            break
        stop = at + max(12 + int.from_bytes(view[at + 8 : at + 12], "big", signed=True), 1)
        alone = memoryview(bytes(view[at : min(stop, len(data))]) + _END)
        run = both.read(alone, 0, _start(alone, 0, -1, first_offset))
        _check_rows(alone[: run.position], run, bounds, columns, first_offset, codecs)
        if run.status in _DAMAGED:
            _check_refused(alone, bounds, columns, codecs)
        yield run
        at = stop


def _start(data: memoryview, at: int, last_offset: int, first_offset: int) -> Start:
    """Where a run begins if the epoch of its first batch is right."""
    epoch = int.from_bytes(data[at + 12 : at + 16], "big", signed=True)
    return Start(last_offset, first_offset, epoch, _EVERYTHING)


def _shown(batch: FramedBatch, bounds: Bounds) -> bool:
    if bounds.aborted is None:
        return not batch.header.is_control
    return AbortedIntervals.of([AbortedTransaction(*one, one[2]) for one in bounds.aborted]).shows(batch.header)


def _ends_transaction(batch: FramedBatch, bounds: Bounds, first_offset: int, codecs: Codecs) -> bool:
    """Whether read_committed has to look at the batch because it is a marker. Raises for one that is malformed."""
    if bounds.aborted is None or not batch.header.is_control or batch.header.last_offset < first_offset:
        return False
    return control_type(batch, codecs) in (ControlType.ABORT, ControlType.COMMIT)


def _check_rows(
    data: memoryview, run: DecodedRun, bounds: Bounds, columns: Sequence[str], first_offset: int, codecs: Codecs
) -> None:
    """Check that the batches of a run have these rows one by one."""
    framer, reader = BatchFramer(0, max_batch_bytes=_MAX_BATCH_BYTES), BatchReader("topic", 3, columns)
    framer.feed(data)
    found: list[DecodedRows] = []
    ended: set[int] = set()
    taken = 0
    while (batch := framer.next_batch()) is not None:
        taken += 1
        check_crc(batch)
        if _ends_transaction(batch, bounds, first_offset, codecs):
            ended.add(batch.header.producer_id)
        if batch.header.record_count and batch.header.last_offset >= first_offset and _shown(batch, bounds):
            area = codecs.decompress(batch.header.codec, batch.data[HEADER_BYTES:])
            found += reader.append(batch.header, area, first_offset, bounds.stop_offset)
    framer.finish()
    found += reader.drain()
    wanted, got = (pa.Table.from_batches(arrow_of(rows), schema=schema_for(columns)) for rows in (found, [run.rows]))
    if ended != run.ended_producers:
        raise AssertionError(f"transactions that end in a run: {run.ended_producers}; one by one: {ended}")
    if taken != run.taken or not got.equals(wanted):
        raise AssertionError(f"in a run: {run.taken}, {got.to_pylist()}; one by one: {taken}, {wanted.to_pylist()}")


def _check_refused(data: memoryview, bounds: Bounds, columns: Sequence[str], codecs: Codecs) -> None:
    """Check that the batch before which a run ended is refused one by one too."""
    header = read_header(data, 0, position=0, max_batch_bytes=_MAX_BATCH_BYTES)
    assert not isinstance(header, int)
    batch = FramedBatch(header, 0, data[: header.size_bytes])
    try:
        check_crc(batch)
        area = codecs.decompress(header.codec, batch.data[HEADER_BYTES:])
        BatchReader("topic", 3, columns).read(header, area, 0, bounds.stop_offset)
    except RemoteFetchError:
        return
    raise AssertionError(f"only a run refuses {header}")


def read_log(data: bytes, refused: Collection[RunStatus] = _DAMAGED) -> list[DecodedRun]:
    """Runs over a log under both isolation levels, with tiny columns.

    Raises CorruptSegment if a run ended with a status of `refused`, and the errors of framing and of the checksum.
    """
    runs: list[DecodedRun] = []
    for aborted in (None, [(1, 0, 48), (5, 10, 60)]):
        bounds = Bounds(
            0, _EVERYTHING - 1, _EVERYTHING,
            aborted=aborted, max_batch_bytes=_MAX_BATCH_BYTES, max_decompressed_bytes=MAX_INFLATED_BYTES,
            target_bytes=_TARGET_BYTES, max_rows=_MAX_ROWS,
        )  # fmt: skip
        runs += read_both(data, bounds)
    for run in runs:
        if run.status in refused:
            raise CorruptSegment(run.status.name)
    check_checksums(data)
    return runs


def read_stream(data: bytes) -> list[DecodedRun]:
    """Decode a batch with a valid header and checksum, whose records are the compressed stream `data[1:]`.

    The codec is in the low three bits of `data[0]`. Raises CorruptSegment if `data` is empty, or if the stream cannot
    be decompressed. If the decompressed bytes are no records of the batch, no error is raised.
    """
    if not data:
        raise CorruptSegment("no codec")
    batch = bytearray(encode_batch(7, [Record(at) for at in range(120)])[:HEADER_BYTES] + data[1:])
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] = data[0] & 7
    return read_log(rewrite_crc(bytes(batch)), {RunStatus.BAD_STREAM})
