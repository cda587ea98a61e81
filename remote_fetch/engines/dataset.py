"""A topic as an Arrow dataset. DuckDB, and others that know datasets, hand their columns and filters to `scanner`.

Rules of the file:

- Arrow's own methods that go around `scanner` would read memory that this class does not have. They are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds

from remote_fetch.engines.topic_scan import TopicScan

__all__ = ["TopicDataset"]


class TopicDataset(ds.Dataset):
    """As `pyarrow.dataset.Dataset`, of which engines use `schema` and `scanner`. `to_table` calls `scanner`, too."""

    def __init__(self, scan: TopicScan) -> None:
        self._scan = scan

    @property
    def schema(self) -> pa.Schema:
        """The columns of the topic."""
        return self._scan.schema

    def scanner(  # type: ignore[override]
        self,
        columns: Sequence[str] | Mapping[str, Any] | None = None,
        filter: Any = None,  # noqa: A002 - as Arrow calls it
        **options: Any,
    ) -> ds.Scanner:
        """A scanner of the rows that the filter leaves. Raises KeyError for an unknown column.

        Nothing is planned before its first row is read. That raises the errors of `read_arrow`.

        `columns` may have expressions by name. `options` are those of `pyarrow.dataset.Scanner.from_batches`.
        """
        made = dict(columns) if isinstance(columns, Mapping) else None
        wanted = list(self.schema.names if columns is None or made is not None else columns)
        schema = pa.schema([self.schema.field(name) for name in wanted])
        reader = pa.RecordBatchReader.from_batches(schema, self._scan.batches(wanted, filter))
        return ds.Scanner.from_batches(reader, columns=made, **options)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(
            "a topic's dataset has schema, scanner, to_table, to_batches, head, take and count_rows only; for anything "
            "else, read it with to_table() first"
        )

    filter = get_fragments = join = join_asof = replace_schema = sort_by = _refuse
    partition_expression = property(_refuse)
