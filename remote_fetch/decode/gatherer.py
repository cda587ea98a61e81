"""Joins small Arrow batches, so that a partition in small pieces is not read in small Arrow batches.

Rules of the file:

- Rows keep their order.
- A batch of at least half the target size is handed on as it is. Only smaller ones are copied, once.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from remote_fetch.decode.run_decoder import MAX_ROWS, TARGET_BYTES

__all__ = ["RowGatherer"]


class RowGatherer:
    """Gathers the Arrow batches of one partition, in order, into batches of about `target_bytes`.

    A batch that is handed on has at most `max_rows` rows, unless it came with more.
    """

    def __init__(self, *, target_bytes: int = TARGET_BYTES, max_rows: int = MAX_ROWS) -> None:
        self._target_bytes = target_bytes
        self._max_rows = max_rows
        self._pending: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0

    @property
    def rows(self) -> int:
        """Rows taken and not yet handed on."""
        return self._rows

    def add(self, batches: Sequence[pa.RecordBatch], size_bytes: int | None = None) -> list[pa.RecordBatch]:
        """Take batches, and return those that became full. `size_bytes` is their size, if it is known."""
        full: list[pa.RecordBatch] = []
        known_bytes = size_bytes if len(batches) == 1 else None
        for batch in batches:
            size_bytes, rows = batch.nbytes if known_bytes is None else known_bytes, batch.num_rows
            is_large = 2 * size_bytes >= self._target_bytes or 2 * rows >= self._max_rows
            if is_large or self._bytes + size_bytes > self._target_bytes or self._rows + rows > self._max_rows:
                full += self.drain()
            if is_large:
                full.append(batch)
            else:
                self._pending.append(batch)
                self._bytes += size_bytes
                self._rows += rows
        return full

    def drain(self) -> list[pa.RecordBatch]:
        """Return the pending rows as one batch, or no batch."""
        pending, self._pending = self._pending, []
        self._bytes = self._rows = 0
        if len(pending) < 2:
            return pending
        return pa.Table.from_batches(pending).combine_chunks().to_batches()
