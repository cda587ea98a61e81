"""Work in other threads, ahead of its turn: large batches, a few at a time, from checksum to Arrow; runs of small ones.

Rules of the file: it changes when and where work is done, and nothing else: batches keep their order, and an error is
raised where it would have been without. What waits is bounded in number and in size; batches that are small, or
inflate beyond that size, are dealt with on the spot, and so are those among which one turns out to be damaged. Threads
start with the first large batch.
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

__all__ = ["Ahead", "Decoded", "Decoding", "Prepared", "RunOfBatches", "Wanted"]

_MIN_BATCH_BYTES = 256 << 10
"""Smaller ones go in runs."""
_ENOUGH_BYTES = 2 << 20
"""Batches that are so much together go to a thread as they are: for more of them the reader need not wait."""
_ARROW_BATCH_BYTES = 4 << 20
"""What becomes an Arrow batch here; to close one and hand it on costs as much as decoding some thousand records."""
_MIN_RUN_BYTES = 256 << 10
"""Below it the way to another thread and back is too much beside the work."""
_MAX_RUN_ARROW_BATCHES = 2
"""A run pauses after as many full Arrow batches, whatever its batches inflate to."""
_MAX_DECOMPRESSED_BYTES = 16 << 20
"""Most that what goes to a thread may inflate to ahead of its turn, all batches together, to be once more in columns; a
producer's have 1 MiB each at most by default."""
_MAX_THREADS = 4
_TIMEOUT_MS = 600_000
"""No batch takes that long; a wait has an end all the same."""
_CLOSE_WAIT_MS = 1000


class Wanted(NamedTuple):
    """What is wanted of a batch: the rows with offsets in [start_offset, stop_offset), as `builder` makes them."""

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
        """The rows from `start_offset` on, of batches that begin at `base_offset`; None where they are still to make.

        What is known of the start may have changed since the batches were begun with; that only matters inside them.
        """
        is_same = start_offset == self._start_offset or max(start_offset, self._start_offset) <= base_offset
        return self._call.wait(_TIMEOUT_MS) if is_same else None


class RunOfBatches(NamedTuple):
    """Batches [first, stop) of a table, at the places in `data` that it says; nobody else has the table."""

    data: memoryview
    table: memoryview[int]
    first: int
    stop: int


class Decoded(NamedTuple):
    """The first batch of a run that was not taken, and the rows of those before it.

    Not `is_sound`: that one cannot be taken. Else it is one too many for once, or the run is at its end.
    """

    stop: int
    rows: list[pa.RecordBatch]
    is_sound: bool


class Decoding:
    """A run that is being decoded."""

    def __init__(self, call: Call[Decoded]) -> None:
        self._call = call

    def result(self) -> Decoded:
        """What became of it."""
        return self._call.wait(_TIMEOUT_MS)


class Ahead:
    """Threads that prepare batches. `threads` None: one for each processor, for whoever draws the rows mostly waits;
    none where there is only one. Thread-safe.

    `max_bytes` is the most that one batch may inflate to, as for `Codecs`. `depth` is how many units of work to look
    ahead; 1 where there are no threads, for then it is of no use. `enough_bytes` is what makes batches a unit.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        threads: int | None = None,
        min_batch_bytes: int = _MIN_BATCH_BYTES,
        min_run_bytes: int = _MIN_RUN_BYTES,
        enough_bytes: int = _ENOUGH_BYTES,
    ) -> None:
        wanted = _threads(_processors()) if threads is None else threads
        self._max_bytes = min(max_bytes, _MAX_DECOMPRESSED_BYTES)
        self._min_batch_bytes = min_batch_bytes
        self.min_run_bytes = min_run_bytes
        self.enough_bytes = enough_bytes
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
        codecs, builder = self._codecs(), self._builder(wanted.builder)
        rows: list[pa.RecordBatch] = []
        decompressed_bytes = 0
        try:
            for batch, is_shown in zip(batches, are_shown, strict=True):
                check_crc(batch)
                if not is_shown:
                    continue
                records = codecs.decompress(batch.header.codec, batch.data[HEADER_BYTES:])
                decompressed_bytes += len(records)
                if decompressed_bytes > self._max_bytes:
                    self.enough_bytes = 1  # from now on each by itself
                    raise DecompressionLimit(f"more than {self._max_bytes} bytes")
                rows += builder.append(batch.header, records, wanted.start_offset, wanted.stop_offset)
        except RemoteFetchError:
            builder.drain()
            return None  # done again in its turn, and raised then if it has to be
        return rows + builder.drain()

    def decode(self, run: RunOfBatches, wanted: Wanted) -> Decoding:
        """Begin with a run; only where there are threads."""
        assert self._pool is not None
        return Decoding(self._pool.submit(partial(self._decode, run, wanted)))

    def _decode(self, run: RunOfBatches, wanted: Wanted) -> Decoded:
        builder, decompress = self._builder(wanted.builder), self._codecs().decompress
        window, done, is_sound = (wanted.start_offset, wanted.stop_offset), run.first, True
        rows: list[pa.RecordBatch] = []
        while is_sound and done < run.stop and len(rows) < _MAX_RUN_ARROW_BATCHES:
            stop, full = builder.append_run(run.data, run.table, done, run.stop, window, decompress)
            is_sound = stop > done or bool(full)
            rows += full
            done = stop
        return Decoded(done, rows + builder.drain(), is_sound)

    def _codecs(self) -> Codecs:
        """This thread's own: they are for one thread, and to make them anew costs a fraction of a batch."""
        if not hasattr(self._own, "codecs"):
            self._own.codecs = Codecs(max_bytes=self._max_bytes)
        codecs: Codecs = self._own.codecs
        return codecs

    def _builder(self, model: ColumnBuilder) -> ColumnBuilder:
        """This thread's own, that makes what `model` makes in larger batches: kept while it is asked for the same."""
        if getattr(self._own, "model", None) is not model:
            self._own.model = model
            self._own.builder = model.twin(target_bytes=_ARROW_BATCH_BYTES)
        builder: ColumnBuilder = self._own.builder
        return builder

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.close(_CLOSE_WAIT_MS)


def _threads(processors: int) -> int:
    return min(processors, _MAX_THREADS) if processors > 1 else 0


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
