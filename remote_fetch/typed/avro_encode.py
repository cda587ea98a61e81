"""Avro's binary encoding, for records inside themselves: of columns, and of values as the decoder has them.

Rules of the file:

- fastavro's writer is not used: it chooses the branch of a union by the value, and two branches may have the same
  values. Here the branch is the one whose member has the value.
- A column is encoded with all its rows. A row that is null because the column above it is has any bytes: they are not
  used.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from remote_fetch.typed.arrays import Column, DataType, pa
from remote_fetch.typed.avro_nodes import Array, Back, Enum, Fixed, Map, Node, Record, Scalar, Union
from remote_fetch.typed.avro_schema import AvroSchema
from remote_fetch.typed.compute import pc

__all__ = ["encoded", "record_encoder"]

_Encode = Callable[[Any], bytes]


def encoded(node: Node, column: Column) -> list[bytes]:
    """The rows of a column of `node.arrow`, each in the encoding of the node's schema."""
    if isinstance(node, Union):
        return _union(node, column)
    if isinstance(node, Record):
        fields = [encoded(field.node, each) for field, each in zip(node.fields, column.flatten(), strict=True)]
        return [b"".join(row) for row in zip(*fields, strict=True)] if fields else [b""] * len(column)
    if isinstance(node, Array):
        return _blocks(column, encoded(node.items, column.values))
    if isinstance(node, Map):
        keys, values = _leaves(_STRING, column.keys), encoded(node.values, column.items)
        return _blocks(column, [key + value for key, value in zip(keys, values, strict=True)])
    if isinstance(node, Back):
        return [value or b"" for value in column.to_pylist()]
    assert isinstance(node, (Scalar, Fixed, Enum))
    return _leaves(node, column)


def _union(node: Union, column: Column) -> list[bytes]:
    null_at = len(node.branches) if node.null_at is None else node.null_at
    members = [column] * len(node.branches) if len(node.branches) < 2 else column.flatten()
    rows = [_long(null_at)] * len(column)
    for number, (branch, member) in enumerate(zip(node.branches, members, strict=True)):
        places = pc.indices_nonzero(member.is_valid())
        front = _long(number + (number >= null_at))
        for place, value in zip(places.to_pylist(), encoded(branch, member.take(places)), strict=True):
            rows[place] = front + value
    return rows


def _blocks(column: Column, items: list[bytes]) -> list[bytes]:
    offsets = column.offsets.to_pylist()
    return [_block(items[start:stop]) for start, stop in pairwise(offsets)]


def _block(items: list[bytes]) -> bytes:
    """The items of an array or a map."""
    return _long(len(items)) + b"".join(items) + b"\0" if items else b"\0"


def _leaves(node: Scalar | Fixed | Enum, column: Column) -> list[bytes]:
    encode = _leaf(node)
    return [b"" if value is None else encode(value) for value in _plain(column).to_pylist()]


def _plain(column: Column) -> Column:
    """The numbers of times; all else as it is."""
    kind = column.type
    if not pa.types.is_temporal(kind):
        return column
    return column.view(pa.int32() if kind.bit_width == 32 else pa.int64())


def record_encoder(schema: AvroSchema, name: str) -> _Encode:
    """The encoding of a record of the schema, as fastavro reads it by `AvroSchema.physical`. Raises ValueError."""
    known: dict[str, _Encode] = {}

    def again(name: str) -> _Encode:
        return lambda value: known[name](value)  # noqa: PLW0108 - it is not known yet

    def encoder(node: Node) -> _Encode:
        if isinstance(node, Back):
            return again(node.name)
        if isinstance(node, Record):
            fields = [(field.name, encoder(field.node)) for field in node.fields]
            known[node.name] = encode = lambda value: b"".join([field(value[name]) for name, field in fields])
            return encode
        if isinstance(node, Union):
            return _choice(node, [encoder(branch) for branch in node.branches])
        if isinstance(node, Array):
            items = encoder(node.items)
            return lambda value: _block([items(item) for item in value])
        if isinstance(node, Map):
            values = encoder(node.values)
            return lambda value: _block([_sized(key.encode()) + values(item) for key, item in value.items()])
        assert isinstance(node, (Scalar, Fixed, Enum))
        return _plain_leaf(node)

    return encoder(schema.below(name).node)


def _choice(node: Union, branches: list[_Encode]) -> _Encode:
    null_at = len(branches) if node.null_at is None else node.null_at
    fronts = [_long(number + (number >= null_at)) for number in range(len(branches))]
    null = _long(null_at)
    if len(branches) == 1:
        return lambda value: null if value is None else fronts[0] + branches[0](value)
    members = {f"member{number}": each for number, each in enumerate(zip(fronts, branches, strict=True))}

    def encode(value: Any) -> bytes:
        if value is None:
            return null
        ((name, inner),) = value.items()
        front, branch = members[name]
        return front + branch(inner)

    return encode


def _leaf(node: Scalar | Fixed | Enum) -> _Encode:
    """The encoding of a value of a column, which is not None."""
    if pa.types.is_decimal(node.arrow):
        return _decimal(node, node.arrow)
    if isinstance(node, Fixed) and pa.types.is_string(node.arrow):
        return lambda text: uuid.UUID(text).bytes
    return _plain_leaf(node)


def _plain_leaf(node: Scalar | Fixed | Enum) -> _Encode:
    """The encoding of a value without its logical type."""
    if isinstance(node, Enum):
        numbers = {symbol: _long(number) for number, symbol in enumerate(node.symbols)}
        return lambda symbol: numbers[symbol]
    return bytes if isinstance(node, Fixed) else _SCALARS[node.kind]


def _decimal(node: Scalar | Fixed | Enum, kind: DataType) -> _Encode:
    def encode(value: Any) -> bytes:
        sign, digits, exponent = value.as_tuple()
        unscaled: int = int("".join(map(str, digits))) * 10 ** (exponent + kind.scale) * (-1 if sign else 1)
        if isinstance(node, Fixed):
            return unscaled.to_bytes(node.size_bytes, "big", signed=True)
        return _sized(unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True))

    return encode


def _long(number: int) -> bytes:
    """Zigzag, and 7 bits to a byte."""
    rest = (number << 1) ^ (number >> 63)
    made = bytearray()
    while rest > 0x7F:
        made.append((rest & 0x7F) | 0x80)
        rest >>= 7
    made.append(rest)
    return bytes(made)


def _whole(kind: str, bits: int) -> _Encode:
    """An int or a long. The decoder gives each number that the bytes have."""
    limit = 1 << (bits - 1)

    def encode(number: int) -> bytes:
        if not -limit <= number < limit:
            raise ValueError(f"{kind} of more than {bits} bits")
        return _long(number)

    return encode


def _sized(value: bytes) -> bytes:
    return _long(len(value)) + value


_STRING = Scalar("string", pa.string())
_SCALARS: Mapping[str, _Encode] = {
    "null": lambda value: b"",
    "boolean": lambda value: b"\1" if value else b"\0",
    "int": _whole("an int", 32),
    "long": _whole("a long", 64),
    "float": struct.Struct("<f").pack,
    "double": struct.Struct("<d").pack,
    "bytes": _sized,
    "string": lambda value: _sized(value.encode()),
}
