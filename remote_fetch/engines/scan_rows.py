"""The rows of a scan under the names that an engine asks for: columns of a topic, and what typed ones add to them.

Rules of the file:

- A typed column stands where the bytes stood, under the same name.
- Rows without columns are counted, as Arrow's own are.
- A column in quarantine has two beside it. An engine may ask for one of the three, and then all of them are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from remote_fetch.config import Config
from remote_fetch.decode.columns import schema_for
from remote_fetch.tables.task_reader import typed_columns

if TYPE_CHECKING:
    from remote_fetch.typed.columns import TypedColumns
    from remote_fetch.typed.plan import TypedPlan

__all__ = ["ScanRows"]

_ADDED = ("_raw", "_error")
"""The endings that quarantine adds to the name of a typed column."""
_FOR_A_COUNT = ("offset",)
"""The column that is read for rows without columns."""


class ScanRows:
    """Turns the batches of a read into rows with the columns `names`.

    - `columns` are the topic's columns among them, and `raw_columns` those that a read has to give.
    - `schema` has the columns of the rows. If a column in quarantine is asked for, `schema` has the two beside it as
      well. `named` gives them only if they are asked for too.
    """

    def __init__(self, names: Sequence[str], typed: TypedPlan | None, config: Mapping[str, Any]) -> None:
        """Raises ConfigError for an unknown column."""
        self._names = list(names)
        self.columns = tuple(dict.fromkeys(_topic_column(name, typed) for name in names)) or _FOR_A_COUNT
        self._typed: TypedColumns | None = None
        self.schema: pa.Schema = schema_for(self.columns)
        self.raw_columns = self.columns
        if typed is not None:
            self._typed = typed_columns(typed, Config.parse(config), self.columns)
            self.schema, self.raw_columns = self._typed.schema, self._typed.raw_columns

    def decoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of `raw_columns` as batches of `schema`. Raises UndecodableValue."""
        return iter(batches) if self._typed is None else self._typed.of(batches)

    def named(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of `schema` with the columns that are asked for, in their order."""
        for batch in batches:
            yield batch.select(self._names)


def _topic_column(name: str, typed: TypedPlan | None) -> str:
    """The column of the topic that gives the column `name`."""
    for column in () if typed is None else typed.columns:
        if column.on_error == "quarantine" and name in (column.name + added for added in _ADDED):
            return column.name
    return name
