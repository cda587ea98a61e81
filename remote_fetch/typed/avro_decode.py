"""Decodes Avro values of one schema into Arrow columns: pyruhvro for what it can do, fastavro for all else.

Rules of the file:

- Both give the same columns: the plain types of the schema's tree, without logical types.
- pyruhvro aborts the call of a schema that it does not know, so it is given only what `_is_quick` allows.
- pyruhvro cuts an int of more than 32 bits to 32, and writers do write such ones. It reads each int as a long, which
  has the same encoding.
- pyruhvro keeps both entries of a map that has a key twice, and fastavro and Java the last one. So fastavro reads a
  batch that has such a map.
- Bytes that no writer writes are not always told alike: a boolean above 1 and the number -1 of a branch or a symbol are
  refused by pyruhvro, and read by fastavro, as by Confluent's deserializer for Python.
- fastavro's compiled reader follows a value as deep as its bytes say, and the process dies of it. Schemas that contain
  themselves are read by its Python reader, which ends at Python's limit.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from remote_fetch.errors import MissingExtra
from remote_fetch.typed.arrays import Column, pa
from remote_fetch.typed.avro_encode import record_encoder
from remote_fetch.typed.avro_nodes import Array, Back, Enum, Map, Node, Record, Scalar, Union, walk
from remote_fetch.typed.avro_schema import AvroSchema
from remote_fetch.typed.compute import pc
from remote_fetch.typed.map_keys import has_maps, has_twins
from remote_fetch.typed.outcome import Decoder, Undecodable

__all__ = ["plain_decoder"]

_QUICK_KINDS = ("boolean", "int", "long", "float", "double", "string")
_BROKEN = (EOFError, ValueError, LookupError, TypeError, OverflowError, MemoryError)
"""fastavro raises these for bytes that are none of the schema's."""
_Convert = Callable[[Any], Any]


def plain_decoder(schema: AvroSchema) -> Decoder:
    """A decoder of values that were written by `schema`, into its plain type. Raises MissingExtra."""
    return (_quick(schema) if _is_quick(schema.node) else None) or _slow(schema)


def _plain_value(node: Node, encoder: Callable[[str], _Convert]) -> _Convert | None:
    """A function from a value of fastavro's to what Arrow takes for the node's plain type. None: they are the same.

    `encoder` gives the encoding of a record inside itself, by its name.
    """
    if isinstance(node, Record):
        return _record_value(node, encoder)
    if isinstance(node, Union):
        return _union_value(node, encoder)
    if isinstance(node, Back):
        return encoder(node.name)
    if isinstance(node, Array):
        items = _plain_value(node.items, encoder)
        return None if items is None else lambda value: [items(item) for item in value]
    if isinstance(node, Map):
        values = _plain_value(node.values, encoder)
        if values is None:
            return lambda value: list(value.items())
        return lambda value: [(key, values(item)) for key, item in value.items()]
    return None


def _quick(schema: AvroSchema) -> Decoder | None:
    """None: pyruhvro refuses the schema, for its names or its depth. Java's parser and fastavro read such schemas."""
    try:
        import pyruhvro  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtra("Avro needs pyruhvro", extra="avro") from None
    text, plain = json.dumps(_with_longs(schema.physical)), schema.node.plain
    try:
        pyruhvro.deserialize_array([], text)
    except ValueError:
        return None
    slow = _slow(schema) if has_maps(plain) else None

    def decode(payloads: Column) -> Column:
        try:
            batch = pyruhvro.deserialize_array(payloads.to_pylist(), text)
        except ValueError as error:  # UnicodeDecodeError is one too
            raise Undecodable(str(error)) from error
        rows = pa.StructArray.from_arrays(batch.columns, names=batch.schema.names)
        try:
            rows.validate(full=True)  # pyruhvro takes the bytes of a string as they are
        except pa.ArrowInvalid:
            raise Undecodable("a string is not in UTF-8") from None
        if slow is not None and has_twins(rows):
            return slow(payloads)
        try:
            return pc.cast(rows, plain)
        except pa.ArrowInvalid:
            raise Undecodable("an int of more than 32 bits") from None

    return decode


def _with_longs(schema: Any) -> Any:
    """A schema with long in the place of int."""
    if isinstance(schema, list):
        return [_with_longs(each) for each in schema]
    if not isinstance(schema, dict):
        return "long" if schema == "int" else schema
    changed = {name: _with_longs(schema[name]) for name in ("type", "items", "values") if name in schema}
    if "fields" in schema:
        changed["fields"] = [_with_longs(field) for field in schema["fields"]]
    return {**schema, **changed}


def _slow(schema: AvroSchema) -> Decoder:
    read = _reader(schema)
    encoder = cache(partial(record_encoder, schema))  # a record is met inside itself any number of times
    convert, plain = _plain_value(schema.node, encoder), schema.node.plain

    def decode(payloads: Column) -> Column:
        try:
            values = [read(payload) for payload in payloads.to_pylist()]
            if convert is not None:
                values = [convert(value) for value in values]
            return pa.array(values, plain)
        except RecursionError:
            raise Undecodable("nested too deeply") from None
        except (*_BROKEN, pa.ArrowException) as error:
            raise Undecodable(_said(error)) from error

    return decode


def _reader(schema: AvroSchema) -> Callable[[bytes], Any]:
    """A function that reads one value with fastavro."""
    from fastavro import parse_schema, schemaless_reader  # noqa: PLC0415 - an extra

    read, parsed = schemaless_reader, parse_schema(schema.physical)
    if schema.is_recursive:
        from fastavro._read_py import schemaless_reader as read  # noqa: PLC0415 - an extra
    return lambda payload: read(io.BytesIO(payload), parsed, None)


def _is_quick(node: Node) -> bool:
    return isinstance(node, Record) and all(_quick_node(each) for each in walk(node))


def _quick_node(node: Node) -> bool:
    if isinstance(node, Scalar):
        return node.kind in _QUICK_KINDS
    if isinstance(node, Record):
        return bool(node.fields)
    if isinstance(node, Union):
        return node.has_null and len(node.branches) == 1
    return isinstance(node, (Array, Map, Enum))


def _record_value(node: Record, encoder: Callable[[str], _Convert]) -> _Convert | None:
    converts = [(field.name, _plain_value(field.node, encoder)) for field in node.fields]
    wanted = [(name, convert) for name, convert in converts if convert is not None]
    if not wanted:
        return None

    def convert_record(value: dict[str, Any]) -> dict[str, Any]:
        return {**value, **{name: convert(value[name]) for name, convert in wanted}}

    return convert_record


def _union_value(node: Union, encoder: Callable[[str], _Convert]) -> _Convert | None:
    if len(node.branches) == 1:
        convert = _plain_value(node.branches[0], encoder)
        return None if convert is None else lambda value: None if value is None else convert(value)
    members = {f"member{number}": _plain_value(branch, encoder) for number, branch in enumerate(node.branches)}
    if not any(members.values()):
        return None

    def convert_member(value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        ((name, inner),) = value.items()
        convert = members[name]
        return {name: inner if convert is None else convert(inner)}

    return convert_member


def _said(error: BaseException) -> str:
    text = str(error).partition("\n")[0][:200]
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__} {text}".strip()
