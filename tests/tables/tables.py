"""Topics that grow, and tables of both formats that hold them: what the tests of table jobs share."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from remote_fetch import export_topic, read_arrow
from remote_fetch.model import Uuid
from remote_fetch.tables.formats import open_table
from remote_fetch.tables.report import TableReport
from remote_fetch.tables.table import Table
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local

FORMATS = ("delta", "iceberg")
FIRST_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
COLUMNS = ["partition", "offset", "timestamp", "value"]


class Topic:
    """A topic of two partitions in a directory, which grows by a segment of ten records in each."""

    def __init__(self, directory: Path, topic_id: Uuid | None = None, name: str = "topic") -> None:
        self.directory, self.name = directory, name
        directory.mkdir(parents=True, exist_ok=True)
        self._dice = random.Random(1)
        id_ = topic_id or Uuid(b"0123456789abcdef")
        self._logs = [LogBuilder(name, id_, number) for number in (0, 1)]
        self.segments = 0

    @property
    def config(self) -> dict[str, str]:
        """The configuration that reads it."""
        return {"remote.storage.url": str(self.directory)}

    def grow(self, segments: int = 1) -> Topic:
        """Append so many segments to each partition, an hour later each."""
        for _ in range(segments):
            for log in self._logs:
                for _batch in range(2):
                    at_ms = FIRST_MS + self.segments * HOUR_MS
                    log.append_batch([Record(one, at_ms, b"k", self._dice.randbytes(20)) for one in range(5)])
                log.roll()
            self.segments += 1
        for log in self._logs:
            write_kafka_local(self.directory, log.segments())
        return self

    def rows(self, columns: list[str] = COLUMNS) -> pa.Table:
        """All its records."""
        return read_arrow(self.name, config=self.config, columns=columns).read_all().combine_chunks()


def target(format_: str, directory: Path) -> dict[str, Any]:
    """The arguments of `export_topic` for a table in a directory."""
    if format_ == "delta":
        return {"format": "delta", "to": str(directory / "table")}
    return {"format": "iceberg", "to": "lake.topic", "to_options": {"warehouse": str(directory)}}


def opened(where: Mapping[str, Any]) -> Table:
    """The table, at its newest version. Its catalog is closed: reading what was seen needs none."""
    with closing(open_table(where["format"], where["to"], where.get("to_options"))) as table:
        assert table.refresh()
    return table


def held(where: Mapping[str, Any], columns: list[str] = COLUMNS) -> pa.Table:
    """The rows that a table has, as the library of its format reads them."""
    inner: Any = opened(where)
    if where["format"] == "delta":
        found = pa.table(inner._table.to_pyarrow_table(columns=columns))
    else:
        found = inner._table.scan(selected_fields=tuple(columns)).to_arrow().select(columns)
    order: Any = [("partition", "ascending"), ("offset", "ascending")]
    return found.sort_by(order).combine_chunks()


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Whether both have the same rows, whatever the widths of their strings."""
    return bool(found.cast(expected.schema).equals(expected))


def export(topic: Topic, where: Mapping[str, Any], **more: Any) -> TableReport:
    """Export a topic in small tasks."""
    small = {"file_bytes": 400, "row_group_bytes": 300}
    return export_topic(topic.name, config=topic.config, **{**small, **where, **more})


def files_below(where: Mapping[str, Any]) -> set[str]:
    """The data files that lie in the table's location, by their paths below it."""
    folder: Any = opened(where).folder()
    names = folder._fs.find(f"{folder._root}/data") if folder._fs.exists(f"{folder._root}/data") else []
    return {name[len(folder._root) + 1 :] for name in names}


def files_of(where: Mapping[str, Any]) -> set[str]:
    """The data files that the table's newest version has, by their paths below its location."""
    inner: Any = opened(where)
    if where["format"] == "delta":
        actions: Any = pa.table(inner._table.get_add_actions(flatten=True))
        return {unquote(path) for path in actions.column("path").to_pylist()}  # paths are URIs there
    location = inner._table.location()
    if inner._table.current_snapshot() is None:
        return set()
    return {path[len(location) + 1 :] for path in inner._table.inspect.data_files().column("file_path").to_pylist()}
