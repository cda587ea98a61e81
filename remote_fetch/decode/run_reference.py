"""Runs of batches in plain Python: what the native decoder has to give, and what runs where it cannot be built.

Rules of the file:

- `native/src/run.rs` gives the same rows, the same position and the same status for the same bytes. Tests and fuzzers
  compare both.
- A run says nothing about what is wrong. It ends before that batch, with a status.
- A batch is taken only if its checksum is right, and if the next header confirms its place or the caller does. The
  batch of that header need not be complete.
- No record of a batch is kept unless all of them are well-formed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence

from remote_fetch.decode.record_reference import Ended, Row, Shape, records_of
from remote_fetch.decode.rows_reference import Run, joined
from remote_fetch.decode.run_status import RunStatus
from remote_fetch.errors import RemoteFetchError
from remote_fetch.formats.batches import HEADER_BYTES, BatchHeader, FramedBatch, check_crc, read_header
from remote_fetch.formats.codecs import CODEC_NAMES, Codecs
from remote_fetch.formats.control import ControlType, control_type

__all__ = [
    "MAX_COLUMN_BYTES",
    "Ahead",
    "BatchDecoder",
    "ColumnMemory",
    "DecodeThreads",
    "Run",
    "RunDecoder",
    "joined",
    "multiples",
]

_MAX_INT64 = 2**63 - 1
_MAGIC_AT = 16
# A header key that is no UTF-8 may grow threefold, and a column has at most 2 GiB.
MAX_COLUMN_BYTES = (2**31 - 1) // 3
_HEADER_ITEM_BYTES = 8
"""The end of a key, and that of a value."""


def multiples(step: int, count: int) -> bytes:
    """0, `step`, twice `step` and so on: `count` numbers of 32 bits in the order of this machine's bytes.

    Raises OverflowError if the last one has more than 32 bits.
    """
    return array("i", [at * step for at in range(count)]).tobytes()


class ColumnMemory:
    """Nothing: Python gives no memory to the columns of Arrow."""

    def __init__(self, max_bytes: int) -> None:
        pass

    def close(self) -> None:
        """Nothing to free."""


class DecodeThreads:
    """No threads: Python's would wait for each other."""

    count = 0

    def __init__(self, most: int) -> None:
        pass

    def close(self, timeout_ms: int) -> int:
        """Nothing to end."""
        return 0


class Ahead:
    """Runs that are decoded by the thread that waits for them."""

    def __init__(self, decode: Callable[[], list[Run]]) -> None:
        self._decode: Callable[[], list[Run]] | None = decode

    def wait(self, timeout_ms: int) -> list[Run]:
        """The runs, once."""
        decode, self._decode = self._decode, None
        if decode is None:
            raise RuntimeError("these runs were taken already")
        return decode()


class RunDecoder:
    """Decodes the runs of one slice. `run_decoder.py` describes the arguments."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        segment_offsets: tuple[int, int],
        stop_offset: int,
        entries: tuple[int, int],
        aborted: Sequence[tuple[int, int, int]] | None,
        max_batch_bytes: int,
        max_decompressed_bytes: int,
        target_bytes: int,
        max_rows: int,
        memory: ColumnMemory | None = None,
    ) -> None:
        self._columns = columns
        self._segment_offsets = segment_offsets
        self._stop_offset = stop_offset
        self._entries = entries
        self._aborted = None if aborted is None else sorted(aborted)
        self._max_batch_bytes = max_batch_bytes
        self._codecs = Codecs(max_bytes=max_decompressed_bytes)
        self._target_bytes = target_bytes
        self._max_rows = max_rows

    def cut(
        self, data: memoryview, at: int, size_bytes: int, *, last_offset: int, epoch: int, epoch_stop: int
    ) -> tuple[int, int, int, bool]:
        """Where the batches end that a run takes, as far as headers tell: position, last offset, number.

        The last item is whether a header follows that fits. A last batch that none confirms is left out, unless it is
        the only one.
        """
        position, taken, records = at, 0, 0
        before = found = position, last_offset, taken
        while True:
            try:
                header = self._header(data, position, last_offset)
            except Ended:
                return (*before, True) if taken > 1 else (*found, False)
            is_full = position - at >= size_bytes or records >= self._max_rows or _is_cut_off(data, position, header)
            try:
                self._check_plain(header, epoch, epoch_stop)
            except Ended:
                is_full = True
            if is_full:
                return (*found, True)
            taken += 1
            position, last_offset = position + header.size_bytes, header.last_offset
            records += header.record_count
            before, found = found, (position, last_offset, taken)

    def decode(
        self,
        data: memoryview,
        at: int,
        *,
        last_offset: int,
        first_offset: int,
        epoch: int,
        epoch_stop: int,
        stop: int | None = None,
    ) -> Run:
        """The run that begins at `data[at]`."""
        run, rows, sizes = Run(at, last_offset), list[Row](), _Sizes(self._columns)
        try:
            header = self._header(data, at, last_offset)
            while True:
                if _is_cut_off(data, run.position, header):
                    raise Ended(RunStatus.END)
                if len(rows) >= self._max_rows or sizes.largest >= self._target_bytes:
                    raise Ended(RunStatus.FULL)
                end = run.position + header.size_bytes
                is_confirmed = end == stop
                following = header if is_confirmed else self._header(data, end, header.last_offset)
                self._check_plain(header, epoch, epoch_stop)
                batch = FramedBatch(header, run.position, data[run.position : end])
                for row in self._rows(batch, first_offset, rows, sizes.largest):
                    rows.append(row)
                    sizes.add(row)
                if self._aborted is not None and header.last_offset >= first_offset:
                    self._follow_transaction(batch, run)
                run.taken += 1
                run.position, run.last_offset = end, header.last_offset
                if is_confirmed:
                    raise Ended(RunStatus.END)
                header = following
        except Ended as ended:
            run.status = ended.status
        return run.close(rows, self._columns)

    def decode_ahead(
        self,
        data: memoryview,
        at: int,
        *,
        last_offset: int,
        threads: DecodeThreads,
        most_bytes: int,
        **more: int,
    ) -> Ahead:
        """Runs from `data[at]` on, one after the other. `more` are the other arguments of `decode`.

        They end if one ends for another reason than its size, or if they have `most_bytes`.
        """

        def decode() -> list[Run]:
            runs, position, last = list[Run](), at, last_offset
            while sum(run.size_bytes for run in runs) < most_bytes:
                run = self.decode(data, position, last_offset=last, **more)
                runs.append(run)
                if run.status is not RunStatus.FULL or not run.taken:
                    break
                position, last = run.position, run.last_offset
            return runs

        return Ahead(decode)

    def _header(self, data: memoryview, at: int, previous: int) -> BatchHeader:
        """The header of the batch at `at`, if that batch may follow offset `previous`. It need not be complete."""
        if len(data) - at < HEADER_BYTES:
            raise Ended(RunStatus.END)
        if data[at + _MAGIC_AT] != 2:
            raise Ended(RunStatus.SPECIAL)
        try:
            header = read_header(data, at, position=at, max_batch_bytes=self._max_batch_bytes, whole=False)
        except RemoteFetchError:
            raise Ended(RunStatus.MISPLACED) from None
        assert not isinstance(header, int), "its 61 bytes are there"
        start, end = self._segment_offsets
        first, last = header.base_offset, header.last_offset
        is_outside = first < start or last > end or last >= _MAX_INT64
        if is_outside or first <= previous or any(previous < entry < last for entry in self._entries):
            raise Ended(RunStatus.MISPLACED)
        return header

    def _check_plain(self, header: BatchHeader, epoch: int, epoch_stop: int) -> None:
        """End the run if plain Python has to decide something about the batch."""
        fits = header.base_offset < min(self._stop_offset, epoch_stop) and header.leader_epoch == epoch
        if not fits or header.codec not in CODEC_NAMES:
            raise Ended(RunStatus.SPECIAL)
        # A transaction has a producer, and no broker compresses a marker.
        has_transaction = header.is_control or header.is_transactional
        is_odd = (header.is_control and header.codec != 0) or (has_transaction and header.producer_id < 0)
        if self._aborted is not None and is_odd:
            raise Ended(RunStatus.SPECIAL)

    def _is_shown(self, header: BatchHeader, first_offset: int) -> bool:
        """Whether the isolation level and the first wanted offset show any record of the batch."""
        if header.last_offset < first_offset or header.is_control or header.record_count == 0:
            return False
        if not header.is_transactional:
            return True
        last = self._end_of_last_begun(header)
        return last is None or last < header.base_offset

    def _end_of_last_begun(self, header: BatchHeader) -> int | None:
        """The end of the producer's last aborted transaction that begins at the batch or before it."""
        aborted = self._aborted or []
        at = bisect_right(aborted, (header.producer_id, header.base_offset, _MAX_INT64)) - 1
        return aborted[at][2] if at >= 0 and aborted[at][0] == header.producer_id else None

    def _follow_transaction(self, batch: FramedBatch, run: Run) -> None:
        """Remember that records of a transaction were shown, or that it ended.

        Plain Python decides about an abort that is not among the known ones.
        """
        header = batch.header
        if not header.is_control:
            if header.is_transactional and self._is_shown(header, 0):
                run.shown.setdefault(header.producer_id, header.base_offset)
            return
        try:
            kind = control_type(batch, self._codecs)
        except RemoteFetchError:
            raise Ended(RunStatus.SPECIAL) from None
        if kind is ControlType.ABORT and self._end_of_last_begun(header) != header.base_offset:
            raise Ended(RunStatus.SPECIAL)
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            run.shown.pop(header.producer_id, None)
            run.ended_producers.add(header.producer_id)

    def _rows(self, batch: FramedBatch, first_offset: int, before: Sequence[Row], before_bytes: int) -> list[Row]:
        header = batch.header
        try:
            check_crc(batch)
        except RemoteFetchError:
            raise Ended(RunStatus.BAD_CHECKSUM) from None
        if not self._is_shown(header, first_offset):
            return []
        try:
            area = self._codecs.decompress(header.codec, batch.data[HEADER_BYTES:])
        except RemoteFetchError:
            raise Ended(RunStatus.BAD_STREAM) from None
        if before_bytes + len(area) > MAX_COLUMN_BYTES:
            raise Ended(RunStatus.FULL if before else RunStatus.TOO_LARGE)
        return [row for row in records_of(area, Shape.of(header)) if first_offset <= row.offset < self._stop_offset]


class BatchDecoder:
    """Gathers the records of single batches, already decompressed. `run_decoder.py` describes the arguments."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Row] = []
        self._sizes = _Sizes(self._columns)

    def append(
        self,
        records: memoryview,
        *,
        offsets: tuple[int, int],
        window: tuple[int, int],
        record_count: int,
        base_ms: int,
        timestamp_type: int,
        leader_epoch: int,
    ) -> tuple[int, int, int]:
        """The status, and then the rows and the bytes of the largest column that are not yet taken."""
        status, shape = RunStatus.END, Shape(*offsets, record_count, base_ms, timestamp_type, leader_epoch)
        if self._sizes.largest + len(records) > MAX_COLUMN_BYTES:
            status = RunStatus.FULL if self._rows else RunStatus.TOO_LARGE
        else:
            try:
                rows = [row for row in records_of(records, shape) if window[0] <= row.offset < window[1]]
            except Ended as ended:
                status, rows = ended.status, []
            for row in rows:
                self._rows.append(row)
                self._sizes.add(row)
        return status, len(self._rows), self._sizes.largest

    def take(self) -> Run:
        """The rows so far. The decoder is empty afterwards."""
        run = Run(0, -1).close(self._rows, self._columns)
        self._clear()
        return run


class _Sizes:
    """The bytes that rows have in each byte column, and in the offsets of the headers' items.

    `max_rows` bounds the offsets of all other columns. A row may have any number of headers, and all may be empty.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._wanted = {"header" if name == "headers" else name for name in columns}
        self._sizes = dict.fromkeys(("key", "value", "header key", "header value", "header items"), 0)

    @property
    def largest(self) -> int:
        """The bytes of the largest column that is wanted."""
        return max((size for name, size in self._sizes.items() if name.split()[0] in self._wanted), default=0)

    def add(self, row: Row) -> None:
        self._sizes["key"] += len(row.key or b"")
        self._sizes["value"] += len(row.value or b"")
        self._sizes["header items"] += _HEADER_ITEM_BYTES * len(row.headers)
        for key, value in row.headers:
            self._sizes["header key"] += len(key)
            self._sizes["header value"] += len(value or b"")


def _is_cut_off(data: memoryview, at: int, header: BatchHeader) -> bool:
    return header.size_bytes > len(data) - at
