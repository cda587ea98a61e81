"""Checksums and decompression of large batches in other threads, while the batch before is decoded.

Rules of the file: it changes when work is done and nothing else: batches keep their order, and an error is raised where
it would have been without. What waits is bounded in number and in size; a batch that is small, or inflates beyond that
size, is dealt with on the spot. Threads start with the first large batch.
"""

from __future__ import annotations

import os
import threading
from functools import partial

from remote_fetch.errors import RemoteFetchError
from remote_fetch.fetch.pool import Call, DaemonPool
from remote_fetch.formats.batches import HEADER_BYTES, FramedBatch, check_crc
from remote_fetch.formats.codecs import Codecs

__all__ = ["Ahead", "Prepared"]

_MIN_BATCH_BYTES = 64 << 10
"""Below it the way to another thread and back costs more than the work."""
_MAX_DECOMPRESSED_BYTES = 16 << 20
"""Most that one batch may inflate to ahead of its turn; a producer's batches have 1 MiB by default."""
_MAX_THREADS = 4
_TIMEOUT_MS = 600_000
"""No batch takes that long; a wait has an end all the same."""
_CLOSE_WAIT_MS = 1000


class Prepared:
    """One batch whose checksum is being checked, and which is decompressed if that was wanted."""

    def __init__(self, call: Call[memoryview | None]) -> None:
        self._call = call

    def result(self) -> memoryview | None:
        """The decompressed records, None where that is still to do. Raises CorruptSegment for a wrong checksum."""
        return self._call.wait(_TIMEOUT_MS)


class Ahead:
    """Threads that prepare batches. `threads` None: one for each processor but the first. Thread-safe.

    `max_bytes` is the most that one batch may inflate to, as for `Codecs`. `depth` is how many batches to look ahead; 1
    where there are no threads, for then it is of no use.
    """

    def __init__(self, *, max_bytes: int, threads: int | None = None, min_batch_bytes: int = _MIN_BATCH_BYTES) -> None:
        wanted = min(_processors() - 1, _MAX_THREADS) if threads is None else threads
        self._max_bytes = min(max_bytes, _MAX_DECOMPRESSED_BYTES)
        self._min_batch_bytes = min_batch_bytes
        self._own = threading.local()
        self._pool = DaemonPool(wanted, "remote-fetch-ahead") if wanted > 0 else None
        self.depth = wanted + 2 if wanted > 0 else 1

    @property
    def min_batch_bytes(self) -> int:
        """Size of the smallest batch that is worth it; more than any batch has where there are no threads."""
        return 1 << 31 if self._pool is None else self._min_batch_bytes

    def prepare(self, batch: FramedBatch, *, decompress: bool) -> Prepared | None:
        """Begin with a batch; None for one that is not worth it."""
        if self._pool is None or batch.header.magic != 2 or batch.header.size_bytes < self._min_batch_bytes:
            return None
        return Prepared(self._pool.submit(partial(self._prepare, batch, decompress)))

    def _prepare(self, batch: FramedBatch, decompress: bool) -> memoryview | None:
        check_crc(batch)
        if not decompress:
            return None
        try:
            return self._codecs().decompress(batch.header.codec, batch.data[HEADER_BYTES:])
        except RemoteFetchError:
            return None  # done again in its turn, and raised then if it has to be

    def _codecs(self) -> Codecs:
        """This thread's own: they are for one thread, and to make them anew costs a fraction of a batch."""
        if not hasattr(self._own, "codecs"):
            self._own.codecs = Codecs(max_bytes=self._max_bytes)
        codecs: Codecs = self._own.codecs
        return codecs

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.close(_CLOSE_WAIT_MS)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
