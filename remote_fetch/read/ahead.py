"""Work in other threads, ahead of its turn: large batches from checksum to Arrow, and runs of small ones.

Rules of the file: it changes when and where work is done, and nothing else: batches keep their order, and an error is
raised where it would have been without. What waits is bounded in number and in size; a batch that is small, or inflates
beyond that size, is dealt with on the spot, and so is one that turns out to be damaged. Threads start with the first
large batch.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from remote_fetch.decode.columns import ColumnBuilder
from remote_fetch.errors import RemoteFetchError
from remote_fetch.fetch.pool import Call, DaemonPool
from remote_fetch.formats.batches import HEADER_BYTES, FramedBatch, check_crc
from remote_fetch.formats.codecs import Codecs

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Ahead", "Decoded", "Decoding", "Prepared", "RunOfBatches", "Wanted"]

_MIN_BATCH_BYTES = 256 << 10
"""Smaller ones go in runs: each of these becomes an Arrow batch of its own, or several."""
_MIN_RUN_BYTES = 256 << 10
"""Below it the way to another thread and back is too much beside the work."""
_MAX_RUN_ARROW_BATCHES = 8
"""A run pauses after as many full Arrow batches, of about 1 MiB each, whatever its batches inflate to."""
_MAX_DECOMPRESSED_BYTES = 8 << 20
"""Most that one batch may inflate to ahead of its turn, and be once more in columns; a producer's have 1 MiB at most by
default."""
_MAX_THREADS = 4
_TIMEOUT_MS = 600_000
"""No batch takes that long; a wait has an end all the same."""
_CLOSE_WAIT_MS = 1000


class Wanted(NamedTuple):
    """What is wanted of a batch: the rows with offsets in [start_offset, stop_offset), as `builder` makes them."""

    builder: ColumnBuilder
    start_offset: int
    stop_offset: int


class Ready(NamedTuple):
    """What became of a batch with the right checksum: its rows, or its records, or neither: the rest is still to do."""

    records: memoryview | None = None
    rows: list[pa.RecordBatch] | None = None


class Prepared:
    """One batch whose checksum is being checked, and which is decompressed and decoded if that was wanted."""

    def __init__(self, call: Call[Ready], wanted: Wanted | None) -> None:
        self._call = call
        self._start_offset = -1 if wanted is None else wanted.start_offset

    def result(self) -> Ready:
        """What became of it. Raises CorruptSegment for a wrong checksum."""
        return self._call.wait(_TIMEOUT_MS)

    def rows(self, base_offset: int, start_offset: int) -> list[pa.RecordBatch] | None:
        """The rows from `start_offset` on, of a batch that begins at `base_offset`; None where they are still to make.

        What is known of the start may have changed since the batch was begun with; that only matters inside it.
        """
        is_same = start_offset == self._start_offset or max(start_offset, self._start_offset) <= base_offset
        return self.result().rows if is_same else None


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

    `max_bytes` is the most that one batch may inflate to, as for `Codecs`. `depth` is how many batches to look ahead; 1
    where there are no threads, for then it is of no use.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        threads: int | None = None,
        min_batch_bytes: int = _MIN_BATCH_BYTES,
        min_run_bytes: int = _MIN_RUN_BYTES,
    ) -> None:
        wanted = _threads(_processors()) if threads is None else threads
        self._max_bytes = min(max_bytes, _MAX_DECOMPRESSED_BYTES)
        self._min_batch_bytes = min_batch_bytes
        self.min_run_bytes = min_run_bytes
        self._own = threading.local()
        self._pool = DaemonPool(wanted, "remote-fetch-ahead") if wanted > 0 else None
        self.depth = wanted + 2 if wanted > 0 else 1

    @property
    def min_batch_bytes(self) -> int:
        """Size of the smallest batch that is worth it; more than any batch has where there are no threads."""
        return 1 << 31 if self._pool is None else self._min_batch_bytes

    def prepare(self, batch: FramedBatch, wanted: Wanted | None) -> Prepared | None:
        """Begin with a batch, of which only the checksum counts where nothing is wanted; None if it is not worth it."""
        if self._pool is None or batch.header.magic != 2 or batch.header.size_bytes < self._min_batch_bytes:
            return None
        return Prepared(self._pool.submit(partial(self._prepare, batch, wanted)), wanted)

    def _prepare(self, batch: FramedBatch, wanted: Wanted | None) -> Ready:
        check_crc(batch)
        if wanted is None:
            return Ready()
        records: memoryview | None = None
        try:
            records = self._codecs().decompress(batch.header.codec, batch.data[HEADER_BYTES:])
            if len(records) > self._max_bytes:
                return Ready(records)
            builder = self._builder(wanted.builder)
            rows = builder.append(batch.header, records, wanted.start_offset, wanted.stop_offset)
            return Ready(rows=rows + builder.drain())
        except RemoteFetchError:
            return Ready(records)  # done again in its turn, and raised then if it has to be

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
        """This thread's own, that makes what `model` makes: kept as long as it is asked for the same."""
        if getattr(self._own, "model", None) is not model:
            self._own.model, self._own.builder = model, model.twin()
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
