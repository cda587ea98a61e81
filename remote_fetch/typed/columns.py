"""Turns the batches of a read into batches with typed keys and values.

Rules of the file:

- A typed column stands where the bytes stood, under the same name. A null stays null.
- What else decoding needs is read and left out again: headers, topic, partition and offset.
- The first value that does not decode ends the read, unless it is to be null or kept beside its reason.
- One object serves one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from pyarrow import RecordBatch, Schema

from remote_fetch.config import Config
from remote_fetch.decode.columns import schema_for
from remote_fetch.errors import ConfigError, UndecodableValue
from remote_fetch.typed.arrays import Column, DataType, pa
from remote_fetch.typed.avro import AvroReader
from remote_fetch.typed.compute import numbered, pc
from remote_fetch.typed.framing import Group, groups_of
from remote_fetch.typed.json_values import JsonReader
from remote_fetch.typed.outcome import Decoder, Undecodable, decode_each
from remote_fetch.typed.plan import ColumnPlan, TypedPlan
from remote_fetch.typed.portable import as_portable, portable
from remote_fetch.typed.protobuf import ProtobufReader
from remote_fetch.typed.registry import Registry
from remote_fetch.typed.schema_text import SchemaRef, SchemaText
from remote_fetch.typed.strings import StringReader

__all__ = ["TypedColumns"]

_LOG = logging.getLogger("remote_fetch.typed")
_PLACE = ("topic", "partition", "offset")
_MAX_DECODERS = 10_000
"""How many decoders are kept, and reasons why there is none. Values name their schemas, so they have no bound."""


class ValueReader(Protocol):
    """Decodes values into columns of `arrow_type`."""

    arrow_type: DataType
    kept_as_bytes: tuple[str, ...]

    def decoder(self, writer: SchemaText | None = None, path: tuple[int, ...] = ()) -> Decoder:
        """A decoder of what `writer` wrote. Raises Undecodable if it does not fit."""


class TypedColumns:
    """The typed columns of a plan.

    - `schema` has `columns`. After a column in quarantine follow `value_raw` and `value_error`.
    - `raw_columns` are those that the read has to give.
    """

    def __init__(self, plan: TypedPlan, config: Config, columns: Sequence[str], *, is_portable: bool = False) -> None:
        """`is_portable`: give the types that `portable` has.

        Raises ConfigError for a schema that is none, for unknown columns, and MissingExtra.
        """
        wanted = [each for each in plan.columns if each.name in columns]
        self._columns = {each.name: _Column(each, plan, config, is_portable) for each in wanted}
        inner = list(columns)
        if wanted:
            inner += [name for name in _PLACE if name not in columns]
        if any(each.is_framed for each in wanted) and "headers" not in columns:
            inner.append("headers")
        self._wanted = tuple(columns)
        self.raw_columns: tuple[str, ...] = tuple(inner)
        self.schema = self._schema()

    def _schema(self) -> Schema:
        fields: list[Any] = []
        for field in schema_for(self._wanted):
            column = self._columns.get(field.name)
            fields += [field] if column is None else column.fields
        schema: Schema = pa.schema(fields)
        return schema

    def of(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """The batches with typed columns. Raises UndecodableValue, after the batches before the value."""
        for batch in batches:
            yield self.apply(batch)

    def apply(self, batch: RecordBatch) -> RecordBatch:
        """One batch, which has `raw_columns`. Raises UndecodableValue, RegistryDenied and RegistryUnavailable."""
        arrays: list[Column] = []
        for name in self._wanted:
            column = self._columns.get(name)
            arrays += [batch.column(name)] if column is None else column.decode(batch)
        return RecordBatch.from_arrays(arrays, schema=self.schema)


class _Column:
    """One typed column. Decoders are made once for each schema of a writer."""

    def __init__(self, plan: ColumnPlan, typed: TypedPlan, config: Config, is_portable: bool) -> None:
        self._plan = plan
        self._reader = _reader(plan)
        self._type = portable(self._reader.arrow_type) if is_portable else self._reader.arrow_type
        self._registry: Registry | None = None
        if plan.is_framed:
            wait_s = config.settings.broker_timeout_ms / 1000
            self._registry = Registry(config.registry, wait_s, dict(typed.known))
        self._decoders: dict[SchemaRef | None, Decoder | str] = {}
        if self._reader.kept_as_bytes:
            names = ", ".join(self._reader.kept_as_bytes)
            _LOG.warning("%s: %s contains itself; the inner ones are columns of bytes", plan.name, names)

    @property
    def fields(self) -> list[Any]:
        name = self._plan.name
        fields = [pa.field(name, self._type)]
        if self._plan.on_error == "quarantine":
            fields += [pa.field(f"{name}_raw", pa.binary()), pa.field(f"{name}_error", pa.string())]
        return fields

    def decode(self, batch: RecordBatch) -> list[Column]:
        raw = batch.column(self._plan.name)
        reasons: dict[int, str] = {}
        refs: dict[int, SchemaRef | str] = {}
        parts: list[tuple[Column, Column]] = []
        for group in self._groups(raw, batch):
            values, broken = self._decoded(group)
            if broken:
                numbers = group.rows.to_pylist()
                reasons.update({numbers[at]: reason for at, reason in broken.items()})
                refs.update({numbers[at]: group.ref for at in broken})
            parts.append((group.rows, values))
        if reasons and self._plan.on_error == "fail":
            first = min(reasons)
            self._fail(batch, first, reasons[first], refs[first])
        typed = _assembled(parts, len(raw), self._type)
        if self._plan.on_error != "quarantine":
            return [typed]
        if not reasons:
            return [typed, pa.nulls(len(raw), pa.binary()), pa.nulls(len(raw), pa.string())]
        bad = sorted(reasons)
        kept = raw.take(pa.array(bad, pa.int64()))
        # A name in a schema may have half a surrogate pair, which no column of text has.
        said = pa.array([reasons[row].encode(errors="backslashreplace").decode() for row in bad], pa.string())
        rows = pa.array(bad, pa.int64())
        return [
            typed,
            _assembled([(rows, kept)], len(raw), pa.binary()),
            _assembled([(rows, said)], len(raw), pa.string()),
        ]

    def _groups(self, raw: Column, batch: RecordBatch) -> Iterator[Group]:
        if self._plan.is_framed:
            has_path = self._plan.format == "protobuf-confluent"
            yield from groups_of(raw, batch.column("headers"), f"__{self._plan.name}_schema_id", has_path)
            return
        rows = numbered(len(raw))
        if raw.null_count:
            present = raw.is_valid()
            rows, raw = rows.filter(present), raw.filter(present)
        if len(raw):
            yield Group(rows, _NO_REF, raw)

    def _decoded(self, group: Group) -> tuple[Column, Mapping[int, str]]:
        decode = group.ref if isinstance(group.ref, str) else self._decoder(group.ref)
        if isinstance(decode, str):
            return pa.nulls(len(group.rows), self._type), dict.fromkeys(range(len(group.rows)), decode)
        decoded = decode_each(lambda values: as_portable(decode(values), self._type), group.payloads, self._type)
        return decoded.values, decoded.reasons

    def _decoder(self, ref: SchemaRef) -> Decoder | str:
        """The decoder of a writer's schema, or why there is none."""
        if ref not in self._decoders:
            if len(self._decoders) >= _MAX_DECODERS:
                self._decoders.clear()
            try:
                writer = None if self._registry is None else self._registry.written(ref, self._plan.subject)
                self._decoders[ref] = self._decoder_of(writer, ref)
            except Undecodable as error:
                self._decoders[ref] = str(error)
            finally:
                if self._registry is not None:
                    self._registry.close()  # another schema comes seldom
        return self._decoders[ref]

    def _decoder_of(self, writer: SchemaText | None, ref: SchemaRef) -> Decoder:
        """Raises Undecodable also for a writer's schema that is none: only its own values do not decode."""
        if writer is not None and writer.is_encoded:
            raise Undecodable("a rule of the registry has encoded the bytes, or encrypted them, and no rule is run")
        try:
            return self._reader.decoder(writer, ref.path)
        except ConfigError as error:
            raise Undecodable(f"the writer's schema cannot be used: {error.message}") from error

    def _fail(self, batch: RecordBatch, row: int, reason: str, ref: SchemaRef | str) -> None:
        schema = None if isinstance(ref, str) or ref == _NO_REF else str(ref)
        name = self._plan.name
        by = "" if schema is None else f", which the schema with {schema} wrote,"
        raise UndecodableValue(
            f"the {name}{by} does not decode as {self._plan.format}: {reason}",
            column=name,
            schema=schema,
            reason=reason,
            topic=batch.column("topic")[row].as_py(),
            partition=batch.column("partition")[row].as_py(),
            offset=batch.column("offset")[row].as_py(),
            hint=f"{name}.on.error=null or quarantine reads on",
        )


_NO_REF = SchemaRef()
_READERS: Mapping[str, Callable[[SchemaText], ValueReader]] = {
    "avro": AvroReader, "avro-confluent": AvroReader, "json": JsonReader, "json-confluent": JsonReader,
}  # fmt: skip


def _reader(plan: ColumnPlan) -> ValueReader:
    if plan.schema is None:
        return StringReader()
    try:
        if plan.format == "protobuf-confluent":
            return ProtobufReader(plan.schema, plan.message)
        return _READERS[plan.format](plan.schema)
    except ConfigError as error:
        where = f"the reader's schema of the {plan.name}" if plan.is_framed else f"{plan.name}.schema.file"
        key = f"{plan.name}.{error.key or 'schema.file'}"
        raise ConfigError(f"{where}: {error.message}", key=key, hint=error.hint) from error


def _assembled(parts: Sequence[tuple[Column, Column]], rows: int, kind: DataType) -> Column:
    """One column of parts that have their rows beside them. Rows without a part are null."""
    if not parts:
        return pa.nulls(rows, kind)
    if len(parts) == 1 and len(parts[0][0]) == rows:
        return parts[0][1]
    numbers = pa.concat_arrays([each for each, _ in parts])
    values = pa.concat_arrays([each for _, each in parts])
    if len(numbers) < rows:
        every = numbered(rows)
        missing = every.filter(pc.invert(pc.is_in(every, numbers)))
        numbers = pa.concat_arrays([numbers, missing])
        values = pa.concat_arrays([values, pa.nulls(len(missing), kind)])
    return values.take(pc.sort_indices(numbers))
