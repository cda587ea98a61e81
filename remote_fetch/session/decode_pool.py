"""Work in other threads, ahead of its turn: large batches, a few at a time, from checksum to Arrow.

Rules of the file:

- The pool changes when and where work is done, and nothing else. Batches keep their order, and errors their place.
- The batches that wait are bounded in number and in size.
- The caller's thread decodes batches that are small, that inflate beyond that size, or of which one is damaged.
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
"""Smaller ones stay with the reader: the interpreter's lock would change hands for each, and that takes longer."""
_ENOUGH_BYTES = 7 << 19
"""Batches that inflate to so much together go to a thread as they are: for more of them the reader need not wait."""
_ROOM_BYTES, _ROOM_ROWS = 512 << 10, 1024
"""The room for an Arrow batch is a multiple of this, so that one builder serves units of about the same size."""
_MAX_DECOMPRESSED_BYTES = 16 << 20
"""Most that what goes to a thread may inflate to ahead of its turn, all batches together, to be once more in columns; a
producer's have 1 MiB each at most by default."""
_MAX_THREADS = 4
_TIMEOUT_MS = 600_000
"""No batch takes that long; a wait has an end all the same."""
_CLOSE_WAIT_MS = 1000


class Wanted(NamedTuple):
    """The wanted rows of a batch: those with offsets in [start_offset, stop_offset), as `builder` makes them."""

    builder: ColumnBuilder
    start_offset: int
    stop_offset: int


class Prepared:
    """Batches whose checksums are being checked, and which are decompressed and decoded where that was wanted."""

    def __init__(self, call: Call[list[pa.RecordBatch] | None], start_offset: int) -> None:
        self._call = call
        self._start_offset = start_offset

    @property
    def is_sound(self) -> bool:
        """Whether it could be done: if not, all of it is still to do. Waits for it."""
        return self._call.wait(_TIMEOUT_MS) is not None

    def rows(self, base_offset: int, start_offset: int) -> list[pa.RecordBatch] | None:
        """The rows from `start_offset` on, of batches that begin at `base_offset`; None if they have to be made yet.

        The start may have moved since the batches were prepared. That matters only if it lies inside them.
        """
        is_same = start_offset == self._start_offset or max(start_offset, self._start_offset) <= base_offset
        return self._call.wait(_TIMEOUT_MS) if is_same else None


class Ahead:
    """Threads that prepare batches. `threads` None: one for each processor, or none on a single one. Thread-safe.

    The thread that draws the rows mostly waits, so that each processor can have a thread of the pool.

    - `max_bytes` is the largest size that one batch may inflate to, as for `Codecs`.
    - `depth` is how many units of work to look ahead, 1 without threads.
    - `enough_bytes` is the stored size of a unit of batches: its decoded size, by how far the last ones inflated.
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
        """Size of the smallest batch that is worth it; more than any batch has where there are no threads."""
        return 1 << 31 if self._pool is None else self._min_batch_bytes

    def takes(self, header: BatchHeader) -> bool:
        """Whether the batch is one for `prepare`."""
        return (
            self._pool is not None
            and header.magic == 2
            and header.size_bytes >= self._min_batch_bytes
            and not header.is_control
        )

    def prepare(self, batches: Sequence[FramedBatch], are_shown: Sequence[bool], wanted: Wanted) -> Prepared:
        """Begin with batches that follow each other, all of which it `takes`. Where one is not shown, only its checksum
        counts.
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
                    self.enough_bytes = 1  # from now on each by itself
                    raise DecompressionLimit(f"more than {self._max_bytes} bytes")
                rows += builder.append(batch.header, records, wanted.start_offset, wanted.stop_offset)
        except RemoteFetchError:
            builder.drain()
            return None  # done again in its turn, and raised then if it has to be
        if stored_bytes:
            self._own.ratio = decompressed_bytes / stored_bytes
            if self.enough_bytes > 1:
                self.enough_bytes = int(self._enough_bytes / max(self._own.ratio, 1.0)) + 1
        return rows + builder.drain()

    def _codecs(self) -> Codecs:
        """The codecs of this thread. Codecs serve one thread; to make them costs a fraction of a batch."""
        if not hasattr(self._own, "codecs"):
            self._own.codecs = Codecs(max_bytes=self._max_bytes)
        codecs: Codecs = self._own.codecs
        return codecs

    def _builder(self, model: ColumnBuilder, batches: Sequence[FramedBatch]) -> ColumnBuilder:
        """The builder of this thread, for the columns of `model`, in Arrow batches with room for all of these batches.

        The room is no larger: a buffer that is filled goes to Arrow as it is, and another one is copied. Compressed
        batches are expected to inflate as the last ones did.
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
    """The next multiple, but one at least."""
    return max(-(-number // of), 1) * of


def _threads(processors: int) -> int:
    return min(processors, _MAX_THREADS) if processors > 1 else 0


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
