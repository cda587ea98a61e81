"""Joins small runs, so that a partition in small pieces is not read in small Arrow batches.

Rules of the file:

- Rows keep their order.
- Rows of at least half the target size are handed on as they are. Only smaller ones are copied: once, or
  twice if they are very small.
"""

from __future__ import annotations

from collections.abc import Sequence

from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.decode.run_decoder import MAX_ROWS, TARGET_BYTES

__all__ = ["RowGatherer"]

_MOST_PARTS = 256
"""So many small runs are joined even if they have few rows. Each takes some 2 KiB besides its rows."""


class RowGatherer:
    """Gathers the decoded rows of one partition, in order, into groups of about `target_bytes`.

    A group that is handed on has at most `max_rows` rows, unless it came with more.
    """

    def __init__(self, *, target_bytes: int = TARGET_BYTES, max_rows: int = MAX_ROWS) -> None:
        self._target_bytes = target_bytes
        self._max_rows = max_rows
        self._pending: list[DecodedRows] = []
        self._last: list[DecodedRows] = []
        self._bytes = self._rows = 0

    @property
    def rows(self) -> int:
        """Rows taken and not yet handed on."""
        return self._rows

    def add(self, parts: Sequence[DecodedRows]) -> list[DecodedRows]:
        """Take rows, and return the groups that became full."""
        full: list[DecodedRows] = []
        for part in parts:
            size_bytes, rows = part.size_bytes, part.num_rows
            is_large = 2 * size_bytes >= self._target_bytes or 2 * rows >= self._max_rows
            if is_large or self._bytes + size_bytes > self._target_bytes or self._rows + rows > self._max_rows:
                full += self.drain()
            if is_large:
                full.append(part)
            elif rows:
                self._last.append(part)
                self._bytes += size_bytes
                self._rows += rows
                if len(self._last) == _MOST_PARTS:
                    self._join_last()
        return full

    def _join_last(self) -> None:
        last, self._last = self._last, []
        if last:
            self._pending.append(DecodedRows.joined(last))

    def drain(self) -> list[DecodedRows]:
        """Return the pending rows as one group, or no group."""
        self._join_last()
        pending, self._pending = self._pending, []
        self._bytes = self._rows = 0
        return [DecodedRows.joined(pending)] if pending else []
