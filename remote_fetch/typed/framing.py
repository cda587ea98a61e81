"""Which schema wrote a value: the framing of Confluent's serializers, in front of the value or in a header.

    in front of the value   0, the schema id in 4 bytes, big-endian
                            1, the schema's GUID in 16 bytes
    in a header             the same bytes as the header's value; the record's value has nothing in front then
    of Protobuf             after the id, in either place, the path to the message in its file: a count and as many
                            numbers, zigzag varints; a count of 0 stands for the path [0]

The headers are (as confluent_kafka.schema_registry writes them) `__value_schema_id` and `__key_schema_id`.

Rules of the file:

- Values are grouped by their framing. So the parts of a framing are looked at once for each schema.
- A framing that is none gives the reason, not an exception.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from remote_fetch.typed.arrays import Column, pa
from remote_fetch.typed.compute import numbered, pc
from remote_fetch.typed.schema_text import SchemaRef

__all__ = ["Group", "groups_of"]

_ID_BYTES, _GUID_BYTES = 5, 17
_GLUE, _GLUE_BYTES = 3, 18
"""The version of AWS Glue's framing. Behind it follow 5 for compression or 0 for none, and a UUID."""
_MOST_PATH = 64
"""The deepest path to a message that is believed."""
_REST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Group:
    """Values with the same framing: their rows, and the values without it. `ref` is a reason if there is no framing."""

    rows: Column
    ref: SchemaRef | str
    payloads: Column


def groups_of(values: Column, headers: Column | None, name: str, has_path: bool) -> Iterator[Group]:
    """The groups of the values that are not null.

    `headers` are the records' headers, and `name` is the header that may have the framing. `has_path`: the framing of
    Protobuf.
    """
    rows = numbered(len(values))
    framed = None if headers is None else _framings(headers, name)
    if framed is not None and framed.null_count < len(framed):
        yield from _of_headers(values, rows, framed, has_path)
        rest = framed.is_null()
        rows, values = rows.filter(rest), values.filter(rest)
    if values.null_count:
        present = values.is_valid()
        rows, values = rows.filter(present), values.filter(present)
    if len(values):
        yield from _of_payloads(values, rows, has_path)


def _framings(headers: Column, name: str) -> Column | None:
    """The value of the last header of that name, for each record. None: no record has one.

    Kafka Streams hands the headers of its input on, and a serializer adds its own behind them.
    """
    flat = headers.flatten()
    if not len(flat):
        return None
    places = pc.indices_nonzero(pc.fill_null(pc.equal(flat.field("key"), name), False))
    if not len(places):
        return None
    parents = pc.list_parent_indices(headers).take(places).to_pylist()
    found = dict(zip(parents, flat.field("value").take(places).to_pylist(), strict=True))
    return pa.array([found.get(row) for row in range(len(headers))], pa.binary())


def _of_headers(values: Column, rows: Column, framed: Column, has_path: bool) -> Iterator[Group]:
    present = pc.and_(framed.is_valid(), values.is_valid())
    rows, values = rows.filter(present), values.filter(present)
    for framing, chosen in _alike(framed.filter(present)):
        ref, _ = _parse(framing, has_path)
        yield Group(rows.take(chosen), ref, values.take(chosen))


def _of_payloads(values: Column, rows: Column, has_path: bool) -> Iterator[Group]:
    for start, chosen in _alike(pc.binary_slice(values, 0, _ID_BYTES + has_path)):
        alike, numbers = (values, rows) if len(chosen) == len(rows) else (values.take(chosen), rows.take(chosen))
        if start[:1] == b"\0" and (not has_path or start[_ID_BYTES:] == b"\0"):
            ref, length = _parse(start, has_path)
            yield Group(numbers, ref, pc.binary_slice(alike, length, _REST) if len(start) >= length else alike)
        else:
            yield from _one_by_one(alike, numbers, has_path)


def _one_by_one(values: Column, rows: Column, has_path: bool) -> Iterator[Group]:
    """The framings whose length differs from value to value."""
    found: dict[SchemaRef | str, tuple[list[int], list[bytes]]] = {}
    for row, value in zip(rows.to_pylist(), values.to_pylist(), strict=True):
        ref, length = _parse(value, has_path)
        numbers, payloads = found.setdefault(ref, ([], []))
        numbers.append(row)
        payloads.append(value[length:])
    for ref, (numbers, payloads) in found.items():
        yield Group(pa.array(numbers, pa.int64()), ref, pa.array(payloads, values.type))


def _alike(keys: Column) -> Iterator[tuple[bytes, Column]]:
    """Each distinct key with its positions."""
    if not len(keys):
        return
    first = keys[0].as_py()
    if pc.all(pc.equal(keys, first)).as_py():  # the usual case, at a third of the cost
        yield first, numbered(len(keys))
        return
    coded = keys.dictionary_encode()
    distinct = coded.dictionary.to_pylist()
    order = pc.sort_indices(coded.indices)
    counts = {each["values"]: each["counts"] for each in pc.value_counts(coded.indices).to_pylist()}
    start = 0
    for number, key in enumerate(distinct):
        # In the order of the rows, which sort_indices keeps among equal keys.
        yield key, order.slice(start, counts[number])
        start += counts[number]


def _parse(data: bytes, has_path: bool) -> tuple[SchemaRef | str, int]:
    """The schema that a framing names, and the length of the framing. A reason, if it is none."""
    if not data:
        return "empty, without the framing of a schema id", 0
    if data[0] == 0 and len(data) >= _ID_BYTES:
        ref, length = SchemaRef(id=int.from_bytes(data[1:_ID_BYTES], "big")), _ID_BYTES
    elif data[0] == 1 and len(data) >= _GUID_BYTES:
        ref, length = SchemaRef(guid=str(uuid.UUID(bytes=data[1:_GUID_BYTES]))), _GUID_BYTES
    elif data[0] in (0, 1):
        return "too short for the framing of a schema id", 0
    elif data[0] == _GLUE and data[1:2] in (b"\0", b"\5") and len(data) >= _GLUE_BYTES:
        return "the framing is that of AWS Glue's schema registry, which is not read", 0
    else:
        return f"the first byte is {data[0]}, so no schema id stands in front (it would be 0 or 1)", 0
    if not has_path:
        return ref, length
    numbers = _path(data, length)
    if numbers is None:
        return "the path to the Protobuf message is broken", 0
    path, length = numbers
    return SchemaRef(ref.id, ref.guid, path), length


def _path(data: bytes, at: int) -> tuple[tuple[int, ...], int] | None:
    count, at = _varint(data, at)
    if count == 0:
        return (0,), at
    if count is None or not 0 < count <= _MOST_PATH:
        return None
    path = []
    for _ in range(count):
        number, at = _varint(data, at)
        if number is None or number < 0:
            return None
        path.append(number)
    return tuple(path), at


def _varint(data: bytes, at: int) -> tuple[int | None, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    return None, at
