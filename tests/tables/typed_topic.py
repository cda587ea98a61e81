"""A topic `orders` of Avro values whose schema grows, beside a registry: what the tests of typed tables share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from remote_fetch import export_topic
from remote_fetch.tables.report import TableReport
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from tests.tables.tables import opened
from tests.typed.avro_cases import encode
from tests.typed.registry_double import RegistryDouble

__all__ = ["FIRST", "SECOND", "TypedTopic", "rows_of"]

_TO: dict[str, Any] = {
    "type": "record",
    "name": "To",
    "fields": [{"name": "town", "type": "string"}],
}
_MORE_TO: dict[str, Any] = {
    **_TO,
    "fields": [{"name": "zip", "type": ["null", "string"], "default": None}, *_TO["fields"]],
}
FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "to", "type": _TO},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
    ],
}
"""An order with a struct inside it and a map."""
SECOND: dict[str, Any] = {
    **FIRST,
    "fields": [
        {"name": "note", "type": ["null", "string"], "default": None},
        FIRST["fields"][0],
        {"name": "to", "type": _MORE_TO},
        FIRST["fields"][2],
    ],
}
"""The same with a new field in front, and one in the inner struct."""


class TypedTopic:
    """One partition in a directory, whose values a registry knows."""

    def __init__(self, directory: Path, registry: RegistryDouble) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.registry = registry
        self._log = LogBuilder("orders")
        self.config = {
            "remote.storage.url": str(directory),
            "value.format": "avro-confluent",
            "schema.registry.url": registry.url,
        }

    def register(self, schema: Any) -> int:
        """A new version of the schema; its id."""
        return self.registry.register("orders-value", schema)

    def write(self, number: int, schema: Any, rows: list[Any]) -> None:
        """A segment of these rows, by a schema that is registered under this id."""
        self.write_raw([b"\0" + number.to_bytes(4, "big") + encode(schema, row) for row in rows])

    def write_raw(self, values: list[bytes | None]) -> None:
        """A segment of these values."""
        self._log.append_batch([Record(at, 1_700_000_000_000, b"k", value) for at, value in enumerate(values)])
        self._log.roll()
        write_kafka_local(self.directory, self._log.segments())

    def export(self, where: Mapping[str, Any], **more: Any) -> TableReport:
        """Export it; `config` is beside its own."""
        config = {**self.config, **more.pop("config", {})}
        return export_topic("orders", config=config, **{**where, **more})


def rows_of(where: Mapping[str, Any], columns: list[str]) -> list[dict[str, Any]]:
    """A table's rows in order of the offset, as its own library reads them. Maps are lists of pairs."""
    inner: Any = opened(where)
    if where["format"] == "delta":
        found = pa.table(inner._table.to_pyarrow_table(columns=columns))
    else:
        found = inner._table.scan(selected_fields=tuple(columns)).to_arrow().select(columns)
    rows: list[dict[str, Any]] = found.sort_by("offset").to_pylist()
    return rows
