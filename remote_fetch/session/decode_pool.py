"""The threads that decode ahead of the reader, shared by all reads of a session.

Rules of the file:

- Threads start with the first unit that is large enough.
- The pool decides nothing. `scan/units.py` says what a thread does, and uses its results in order.
"""

from __future__ import annotations

import copy
import os

from remote_fetch.decode.resources import ColumnMemory, DecodeThreads

__all__ = ["DecodePool"]

_MIN_BYTES = 64 << 10
"""The stored size of the smallest unit that goes to a thread. To hand over a smaller one takes longer."""
_UNIT_BYTES, _OWN_UNIT_BYTES = 7 << 19, 1 << 20
"""The size of the columns of a unit, for threads and for a reader without threads. A larger unit makes the reader wait
longer, and one of a thread has to be worth handing over."""
_MAX_THREADS = 4
_CLOSE_WAIT_MS = 1000


class DecodePool:
    """Threads that decode. Thread-safe.

    - `threads` None: one thread for each processor, or none on a single processor. The reader mostly waits.
    - `min_bytes` is the stored size of the smallest unit that a thread decodes.
    - `unit_bytes` is the size that the columns of a unit are to have.
    - `depth` is how many units to find ahead; 1 without threads.
    - `memory` is for the columns of units, and `threads` decode them.
    """

    def __init__(
        self, *, threads: int | None = None, min_bytes: int = _MIN_BYTES, unit_bytes: int | None = None
    ) -> None:
        wanted = _threads(_processors()) if threads is None else threads
        self._min_bytes = min_bytes
        self._has_threads = wanted > 0
        self.threads = DecodeThreads(wanted)
        self.depth = wanted + 2 if wanted > 0 else 1
        self.unit_bytes = unit_bytes or (_UNIT_BYTES if wanted > 0 else _OWN_UNIT_BYTES)
        self.memory = ColumnMemory(self.depth * self.unit_bytes)

    def within(self, max_bytes: int) -> DecodePool:
        """The same threads and memory, for one of several readers: units ahead of it have about `max_bytes` together.

        One unit may always be ahead, and none is cut below 1 MiB, because each costs the reader the same time.
        """
        share = copy.copy(self)
        share.unit_bytes = min(self.unit_bytes, max(max_bytes, _OWN_UNIT_BYTES))
        share.depth = min(self.depth, max(max_bytes // share.unit_bytes, 1))
        return share

    def takes(self, size_bytes: int) -> bool:
        """Whether a thread decodes a unit of that stored size."""
        return self._has_threads and size_bytes >= self._min_bytes

    def close(self) -> None:
        """End the threads, and free the memory that is kept."""
        self.threads.close(_CLOSE_WAIT_MS)
        self.memory.close()


def _threads(processors: int) -> int:
    return min(processors, _MAX_THREADS) if processors > 1 else 0


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
