"""The memory and the threads that all decoders of a session share.

Rules of the file:

- Both belong to the installed decoder. A decoder of another engine, in tests, has neither.
- Both may be closed while decoders still use them.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from remote_fetch.decode import run_reference
from remote_fetch.decode.engine import installed

if TYPE_CHECKING:
    from remote_fetch.decode import _native

__all__ = ["ColumnMemory", "DecodeThreads"]

_ENGINE = installed(run_reference)


class ColumnMemory:
    """Keeps the memory of columns that are not needed any more, for the next ones: `max_bytes` at most. Thread-safe.

    It keeps the decompressors too, as many as were in use at once: some 1 MiB each.

    New memory costs page faults, which took up to a fifth of the time of a read (docs/design/0023).
    """

    def __init__(self, max_bytes: int) -> None:
        self._kept: _native.ColumnMemory = _ENGINE.ColumnMemory(max_bytes)

    def of(self, engine: ModuleType) -> _native.ColumnMemory | None:
        """The memory for a decoder of `engine`, None if that is not the installed one."""
        return self._kept if engine is _ENGINE else None

    def close(self) -> None:
        """Free it, and keep none from now on. Columns that are still in use stay whole."""
        self._kept.close()


class DecodeThreads:
    """Threads that decode runs ahead, without the interpreter's lock: at most `most`. Thread-safe.

    The first run that finds no idle thread starts one. In plain Python there is none, because it would wait for the
    reader's thread.
    """

    def __init__(self, most: int) -> None:
        self._own: _native.DecodeThreads = _ENGINE.DecodeThreads(most)

    @property
    def count(self) -> int:
        """How many there are now."""
        return self._own.count

    def of(self, engine: ModuleType) -> _native.DecodeThreads:
        """The threads for a decoder of `engine`. There are none if it is not the installed one."""
        return self._own if engine is _ENGINE else engine.DecodeThreads(0)

    def close(self, timeout_ms: int) -> int:
        """End them, and wait at most `timeout_ms`. Returns how many still run.

        A run that was not begun is decoded by the thread that waits for it.
        """
        return self._own.close(timeout_ms)
