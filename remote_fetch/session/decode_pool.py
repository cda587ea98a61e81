"""Decodes large batches in other threads, before the reader needs them: checksum, decompression, Arrow.

Rules of the file:

- The pool changes when and where work is done, and nothing else. Batches keep their order, and errors their place.
- The batches that wait are bounded in number and in size.
- The caller's thread decodes the rest: small batches, units that inflate to more than 16 MiB, and units with a damaged
  batch.
- Threads start with the first large batch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from remote_fetch.decode.columns import ColumnBuilder
from remote_fetch.errors import DecompressionLimit, RemoteFetchError
from remote_fetch.fetch.pool import Call, DaemonPool
from remote_fetch.formats.batches import HEADER_BYTES, BatchHeader, FramedBatch, check_crc
from remote_fetch.formats.codecs import Codecs

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Ahead", "Prepared", "Wanted"]

_MIN_BATCH_BYTES = 256 << 10
"""The reader decodes smaller batches. A thread would take the interpreter's lock for each, and that takes longer."""
_ENOUGH_BYTES = 7 << 19
"""The decompressed size at which a unit of batches goes to a thread. A larger unit makes the reader wait longer."""
_ROOM_BYTES, _ROOM_ROWS = 512 << 10, 1024
"""The room for an Arrow batch is a multiple of these. So one builder serves units of about the same size."""
_MAX_DECOMPRESSED_BYTES = 16 << 20
"""The largest decompressed size of one unit of work, for all its batches together. The columns take the same memory
again. By default a producer's batch has at most 1 MiB."""
_MAX_THREADS = 4
_TIMEOUT_MS = 600_000
"""No batch takes that long. The limit ends a wait for a thread that hangs."""
_CLOSE_WAIT_MS = 1000


class Wanted(NamedTuple):
    """The wanted rows of a batch have offsets in [start_offset, stop_offset). `builder` has their columns."""

    builder: ColumnBuilder
    start_offset: int
    stop_offset: int


class Prepared:
    """Batches that a thread checks, and decompresses and decodes if they are shown."""

    def __init__(self, call: Call[list[pa.RecordBatch] | None], start_offset: int) -> None:
        self._call = call
        self._start_offset = start_offset

    @property
    def is_sound(self) -> bool:
        """Wait for the thread, and return whether it decoded all batches. If not, the caller has to decode them."""
        return self._call.wait(_TIMEOUT_MS) is not None

    def rows(self, base_offset: int, start_offset: int) -> list[pa.RecordBatch] | None:
        """Wait for the rows from `start_offset` on. `base_offset` is the base offset of the first batch.

        Return None if the caller has to decode the batches: a batch was damaged or too large, or the start offset has
        changed since `prepare` and lies inside these batches.
        """
        is_same = start_offset == self._start_offset or max(start_offset, self._start_offset) <= base_offset
        return self._call.wait(_TIMEOUT_MS) if is_same else None


class Ahead:
    """Threads that decode batches. Thread-safe.

    - `threads` None: one thread for each processor, or none on a single processor. The reader mostly waits.
    - `max_bytes` is the largest size that one batch may inflate to, as for `Codecs`.
    - `depth` is how many units of work to prepare ahead; 1 without threads.
    - `enough_bytes` is the stored size of a unit of batches. It follows the compression ratio of the last units.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        threads: int | None = None,
        min_batch_bytes: int = _MIN_BATCH_BYTES,
        enough_bytes: int = _ENOUGH_BYTES,
    ) -> None:
        wanted = _threads(_processors()) if threads is None else threads
        self._max_bytes = min(max_bytes, _MAX_DECOMPRESSED_BYTES)
        self._min_batch_bytes = min_batch_bytes
        self._enough_bytes = self.enough_bytes = enough_bytes
        self._own = threading.local()
        self._pool = DaemonPool(wanted, "remote-fetch-ahead") if wanted > 0 else None
        self.depth = wanted + 2 if wanted > 0 else 1

    @property
    def min_batch_bytes(self) -> int:
        """Size of the smallest batch that a thread of the pool decodes. Without threads: larger than any batch."""
        return 1 << 31 if self._pool is None else self._min_batch_bytes

    def takes(self, header: BatchHeader) -> bool:
        """Whether `prepare` accepts the batch."""
        return (
            self._pool is not None
            and header.magic == 2
            and header.size_bytes >= self._min_batch_bytes
            and not header.is_control
        )

    def prepare(self, batches: Sequence[FramedBatch], are_shown: Sequence[bool], wanted: Wanted) -> Prepared:
        """Start to decode consecutive batches in a thread. `takes` has to be true for each of them.

        The thread only checks the checksum of a batch whose `are_shown` is false.
        """
        assert self._pool is not None
        call = self._pool.submit(partial(self._prepare, batches, are_shown, wanted))
        return Prepared(call, wanted.start_offset)

    def _prepare(
        self, batches: Sequence[FramedBatch], are_shown: Sequence[bool], wanted: Wanted
    ) -> list[pa.RecordBatch] | None:
        codecs, builder = self._codecs(), self._builder(wanted.builder, batches)
        rows: list[pa.RecordBatch] = []
        stored_bytes = decompressed_bytes = 0
        try:
            for batch, is_shown in zip(batches, are_shown, strict=True):
                check_crc(batch)
                if not is_shown:
                    continue
                records = codecs.decompress(batch.header.codec, batch.data[HEADER_BYTES:])
                stored_bytes += batch.header.size_bytes
                decompressed_bytes += len(records)
                if decompressed_bytes > self._max_bytes:
                    self.enough_bytes = 1  # from now on a unit is one batch
                    raise DecompressionLimit(f"more than {self._max_bytes} bytes")
                rows += builder.append(batch.header, records, wanted.start_offset, wanted.stop_offset)
        except RemoteFetchError:
            builder.drain()
            return None  # the caller decodes the batches again, and raises the error if it needs them
        if stored_bytes:
            self._own.ratio = decompressed_bytes / stored_bytes
            if self.enough_bytes > 1:
                self.enough_bytes = int(self._enough_bytes / max(self._own.ratio, 1.0)) + 1
        return rows + builder.drain()

    def _codecs(self) -> Codecs:
        """The codecs of this thread. Two threads must not share codecs."""
        if not hasattr(self._own, "codecs"):
            self._own.codecs = Codecs(max_bytes=self._max_bytes)
        codecs: Codecs = self._own.codecs
        return codecs

    def _builder(self, model: ColumnBuilder, batches: Sequence[FramedBatch]) -> ColumnBuilder:
        """The builder of this thread, for the columns of `model`, with room for the rows of these batches.

        The room is no larger than that: Arrow takes over a full buffer, and copies out of one that is not full. The
        size after decompression is estimated from the compression ratio of the last unit.
        """
        ratio: float = getattr(self._own, "ratio", 1.0)
        size_bytes = min(int(sum(batch.header.size_bytes for batch in batches) * ratio), _MAX_DECOMPRESSED_BYTES)
        records = sum(batch.header.record_count for batch in batches)
        room = _multiple(size_bytes, _ROOM_BYTES), _multiple(records, _ROOM_ROWS)
        if getattr(self._own, "made_for", None) != (model, room):
            self._own.made_for = model, room
            self._own.builder = model.twin(target_bytes=room[0], max_rows=room[1])
        builder: ColumnBuilder = self._own.builder
        return builder

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.close(_CLOSE_WAIT_MS)


def _multiple(number: int, of: int) -> int:
    """Round `number` up to a multiple of `of`. The result is at least `of`."""
    return max(-(-number // of), 1) * of


def _threads(processors: int) -> int:
    return min(processors, _MAX_THREADS) if processors > 1 else 0


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
