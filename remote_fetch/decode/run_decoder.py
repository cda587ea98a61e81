"""From the bytes of whole batches to Arrow record batches with one call: native if it was built, else plain Python.

Rules of the file:

- The decoder decides nothing. A batch that is not ordinary ends a run, with a position and a status.
- Both decoders get the same arguments and give the same answer. `Bounds`, `Start` and `DecodedRun` describe them.
- Columns that are the same in every row, topic and partition, are made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from remote_fetch.decode import run_reference
from remote_fetch.decode.arrays import Array
from remote_fetch.decode.columns import schema_for
from remote_fetch.decode.constant_columns import CONSTANT_COLUMNS, ConstantColumns
from remote_fetch.decode.run_status import RunStatus

if TYPE_CHECKING:
    from remote_fetch.decode import _native

try:
    from remote_fetch.decode._native import RunDecoder as _Native
except ModuleNotFoundError:  # it was not built; one that was built and cannot be loaded is an error
    _IS_NATIVE = False
else:
    _IS_NATIVE = True

__all__ = ["Bounds", "DecodedRun", "Engine", "RunReader", "Start", "is_native"]


Engine: TypeAlias = "type[_native.RunDecoder] | type[run_reference.RunDecoder]"
"""A run decoder: the native one or the plain one."""


class Bounds(NamedTuple):
    """The bounds of all runs of one slice.

    - Offsets of batches lie in [segment_start, segment_end].
    - `entries` are offsets of the offset index, -1 for none. Such an offset is the last offset of a batch, never an
      earlier one.
    - Records before `stop_offset` are wanted. A run ends before a batch whose base offset is that or more.
    - `aborted` None: read_uncommitted. Else producer id, first and last offset of each aborted transaction.
    - One batch has at most `max_batch_bytes`, and inflates to at most `max_decompressed_bytes`.
    - A run ends after a batch with which a byte column has `target_bytes`, or with which there are `max_rows` rows.
    """

    segment_start: int
    segment_end: int
    stop_offset: int
    entries: tuple[int, int] = (-1, -1)
    aborted: Sequence[tuple[int, int, int]] | None = None
    max_batch_bytes: int = 128 << 20
    max_decompressed_bytes: int = 256 << 20
    target_bytes: int = 1 << 20
    max_rows: int = 65_536


class Start(NamedTuple):
    """Where a run begins.

    - The batch before it ended with `last_offset`; -1 at the beginning of a slice.
    - Records from `first_offset` on are wanted.
    - Batches have leader epoch `epoch`, up to base offset `epoch_stop`, exclusive.
    """

    last_offset: int
    first_offset: int
    epoch: int
    epoch_stop: int


class _Run(Protocol):
    """The answer of both decoders: the fields of `DecodedRun`, and the columns by the Arrow PyCapsule interface."""

    @property
    def position(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def taken(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def shown(self) -> Mapping[int, int]: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]: ...


class DecodedRun(NamedTuple):
    """The result of one run.

    - `taken` batches were walked over, and the last of them ended with `last_offset`.
    - The next batch begins at `position`. `status` says why it was not taken.
    - `shown` holds, under read_committed, the producers of the transactional batches that were shown, and the base
      offset of the first of each.
    - `batches` have the rows; there is none without rows.
    """

    position: int
    last_offset: int
    taken: int
    status: RunStatus
    shown: Mapping[int, int]
    batches: list[pa.RecordBatch]


def is_native() -> bool:
    """Whether runs are decoded natively. In plain Python, decoding takes about 100 times as long."""
    return _IS_NATIVE


class RunReader:
    """Reads the runs of one slice. For one thread at a time.

    `engine` is the decoder to use, for tests. Raises ConfigError for columns as `schema_for` does.
    """

    def __init__(
        self, topic: str, partition: int, columns: Sequence[str], bounds: Bounds, *, engine: Engine | None = None
    ) -> None:
        self.schema = schema_for(columns)
        self._max_rows = bounds.max_rows
        self._constants = ConstantColumns(topic, partition, bounds.max_rows)
        if engine is None:
            engine = _Native if _IS_NATIVE else run_reference.RunDecoder
        self._decoder = engine(
            [name for name in self.schema.names if name not in CONSTANT_COLUMNS],
            segment_offsets=(bounds.segment_start, bounds.segment_end),
            stop_offset=bounds.stop_offset,
            entries=bounds.entries,
            aborted=bounds.aborted,
            max_batch_bytes=bounds.max_batch_bytes,
            max_decompressed_bytes=bounds.max_decompressed_bytes,
            target_bytes=bounds.target_bytes,
            max_rows=bounds.max_rows,
        )

    def read(self, data: memoryview, at: int, start: Start) -> DecodedRun:
        """The run that begins at `data[at]`. `data` is read only. The interpreter's lock is released meantime."""
        run: _Run = self._decoder.decode(data, at, **start._asdict())
        batches = self._batches(run) if run.rows else []
        return DecodedRun(run.position, run.last_offset, run.taken, RunStatus(run.status), run.shown, batches)

    def _batches(self, run: _Run) -> list[pa.RecordBatch]:
        """The rows as Arrow batches of at most `max_rows` rows: only a large batch of Kafka's has more."""
        columns: pa.RecordBatch = pa.record_batch(run)  # by its __arrow_c_array__
        pieces = [columns.slice(start, self._max_rows) for start in range(0, run.rows, self._max_rows)]
        return [self._with_constants(piece) for piece in pieces]

    def _with_constants(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        arrays: dict[str, Array] = dict(zip(piece.schema.names, piece.columns, strict=True))
        arrays |= self._constants.of(piece.num_rows)
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)
