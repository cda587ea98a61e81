"""Typed keys and payloads as text: `-s value=avro` with the registry of `-r`, or a format of the configuration.

Rules of the file:

- A typed key or payload is printed as JSON, on one line. Text of the format `string` is printed as it is.
- JSON has no bytes and no times: bytes are text of ISO-8859-1, as in Avro's own JSON, and times are ISO 8601.
- NaN, infinity and decimals are text: JSON has no such numbers.
- A time before the year 1 or after 9999, which Python has not, is a number: of days or of microseconds since 1970.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remote_fetch.cli.printer import ROW_COLUMNS, Parsed
from remote_fetch.cli.unpack import fields_of
from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.prepare.subscribed import topic_name
from remote_fetch.typed.plan import plan_typed

if TYPE_CHECKING:
    import pyarrow as pa

    from remote_fetch.typed.columns import TypedColumns

__all__ = ["TypedRows", "add_typed_options", "packs_of", "refuse_packs", "typed_config", "typed_rows"]

_AVRO = "avro"


def add_typed_options(group: Any, formats: str) -> None:
    """Add `-s` and `-r`. `formats` is the help of `-s`: what a command takes."""
    group.add_argument("-s", dest="unpack", metavar="FORMAT", action="append", default=[], help=formats)
    group.add_argument("-r", dest="registry", metavar="URL", help="the schema registry (schema.registry.url)")


def refuse_packs(options: Sequence[str]) -> None:
    """Raise ConfigError for a format of `-s` other than Avro. For commands that cannot unpack numbers."""
    packs = packs_of(options)[1]
    if packs:
        raise ConfigError(
            f"-s {packs[0]}: avro, key=avro or value=avro expected",
            key="-s",
            hint="Name another format by its key: -X value.format=protobuf-confluent",
        )


def packs_of(options: Sequence[str]) -> tuple[Mapping[str, str], list[str]]:
    """The formats of `-s` that ask for Avro, as configuration keys, and the other values of `-s`."""
    typed: dict[str, str] = {}
    rest = []
    for option in options:
        fields, pack = fields_of(option)
        if pack == _AVRO:
            typed.update({f"{field}.format": "avro-confluent" for field in fields})
        else:
            rest.append(option)
            for field in fields:
                typed.pop(f"{field}.format", None)
    return typed, rest


def typed_config(arguments: argparse.Namespace, config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with `-s` and `-r`, which win."""
    more = dict(packs_of(arguments.unpack)[0])
    if arguments.registry is not None:
        more["schema.registry.url"] = arguments.registry
    return {**config, **more}


def typed_rows(
    config: Mapping[str, Any], topics: Sequence[str], columns: Sequence[str] = ROW_COLUMNS
) -> TypedRows | None:
    """The typed keys and payloads of topics, None for none. `columns` are those of the batches.

    Raises ConfigError and the errors of a registry.
    """
    parsed = Config.parse(config)
    names = [topic_name(topic) for topic in topics if not topic.startswith("^")]  # -G takes expressions
    plan = plan_typed(parsed, names if len(names) == len(topics) else None)
    if plan is None:
        return None
    from remote_fetch.typed.columns import TypedColumns  # noqa: PLC0415 - its libraries are needed here only

    formats = {each.name: each.format for each in plan.columns}
    return TypedRows(TypedColumns(plan, parsed, columns, is_portable=True), formats)


class TypedRows:
    """Batches whose typed keys and payloads are JSON: as bytes, and as values for the JSON of a whole record."""

    def __init__(self, columns: TypedColumns, formats: Mapping[str, str]) -> None:
        self.columns = columns
        self._formats = formats

    def of(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Parsed]:
        """A batch that has `columns`, with typed keys and payloads as bytes, and the same as values of JSON.

        Raises UndecodableValue.
        """
        import pyarrow as pa  # noqa: PLC0415 - heavy, and needed where batches are

        made = self.columns.apply(batch)
        parsed = {name: _as_json(made.column(name)) for name in self._formats}
        for name, values in parsed.items():
            at = batch.schema.get_field_index(name)
            data = pa.array((self._bytes(name, value) for value in values), pa.binary())
            batch = batch.set_column(at, batch.schema.field(at), data)
        return batch, parsed

    def _bytes(self, name: str, value: Any) -> bytes | None:
        if value is None:
            return None
        if self._formats[name] == "string":
            return str(value).encode("utf-8")
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _as_json(column: Any) -> list[Any]:
    try:
        values = column.to_pylist()
    except (OverflowError, ValueError):
        values = [_with_far_times(scalar) for scalar in column]
    return [_value(value, column.type) for value in values]


def _with_far_times(scalar: Any) -> Any:
    """A scalar of Arrow as `to_pylist` has it, but for the times that Python does not have."""
    from pyarrow import types  # noqa: PLC0415 - heavy, and needed where batches are

    if not scalar.is_valid:
        return None
    if types.is_struct(scalar.type):
        return {field.name: _with_far_times(scalar[field.name]) for field in scalar.type}
    if types.is_map(scalar.type):
        return [(pair["key"].as_py(), _with_far_times(pair["value"])) for pair in scalar.values]
    if types.is_list(scalar.type):
        return [_with_far_times(item) for item in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return scalar.value


def _value(value: Any, kind: Any) -> Any:
    """A value of a column as JSON has it. Maps of Arrow are lists of pairs, so the type has to tell."""
    from pyarrow import types  # noqa: PLC0415 - heavy, and needed where batches are

    if value is None:
        return None
    if types.is_struct(kind):
        return {field.name: _value(value[field.name], field.type) for field in kind}
    if types.is_map(kind):
        return {_name(key): _value(item, kind.item_type) for key, item in value}
    if types.is_list(kind):
        return [_value(item, kind.value_type) for item in value]
    return _leaf(value)


def _name(key: Any) -> str:
    """A key of a map as the name that JSON has for it."""
    return json.dumps(key) if isinstance(key, bool) else str(key)


def _leaf(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value
