"""A topic as an Arrow dataset. DuckDB, and others that know datasets, hand their columns and filters to `scanner`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from remote_fetch.engines.topic_scan import TopicScan

__all__ = ["TopicDataset"]


class TopicDataset(ds.Dataset):
    """As `pyarrow.dataset.Dataset`, of which engines use `schema` and `scanner`."""

    def __init__(self, scan: TopicScan) -> None:
        self._scan = scan

    @property
    def schema(self) -> pa.Schema:
        """The columns of the topic."""
        return self._scan.schema

    def scanner(  # type: ignore[override]
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - as Arrow calls it
        **_: Any,
    ) -> ds.Scanner:
        """A scanner of the rows that the filter leaves, whose plan is made now. Raises the errors of `read_arrow`."""
        wanted = list(self._scan.columns if columns is None else columns)
        schema = pa.schema([self.schema.field(name) for name in wanted])
        reader = pa.RecordBatchReader.from_batches(schema, self._scan.batches(wanted, filter))
        return ds.Scanner.from_batches(reader)
