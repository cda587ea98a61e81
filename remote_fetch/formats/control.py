"""Control batches and control records: what a transaction marker in the log says.

Rules of the file:

- Pure. `control_type` reads the first record's key alone: a control batch holds one record, and its key carries the
  type (KIP-98).
- An unknown type is UNKNOWN, as in Kafka, and no error.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from remote_fetch.errors import CorruptSegment, FallsBackError
from remote_fetch.formats.batches import HEADER_BYTES, FramedBatch
from remote_fetch.formats.codecs import Codecs
from remote_fetch.model import Buffer

__all__ = ["ControlRecord", "ControlType", "control_record", "control_type"]

_KEY = Struct(">hh")
_END_MARKER = Struct(">hi")
_MAX_VARINT_BYTES = 5
_MAX_VARLONG_BYTES = 10


class ControlType(IntEnum):
    """Kafka's ControlRecordType. ABORT and COMMIT end a transaction. The remaining types belong to KRaft."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1

    @classmethod
    def _missing_(cls, value: object) -> ControlType:
        return cls.UNKNOWN


def control_type(batch: FramedBatch, codecs: Codecs) -> ControlType | None:
    """The type of the first record of a v2 control batch, None if the log cleaner has emptied the batch.

    Raises CorruptSegment for a record that is cut, or whose key has less than four bytes (version and type). Raises the
    errors of `codecs`. All have the batch's position and base offset.
    """
    header = batch.header
    if header.record_count == 0:
        return None
    try:
        type_id = _type_id(_first_key(codecs.decompress(header.codec, batch.data[HEADER_BYTES:])))
    except FallsBackError as error:
        raise error.at(position=batch.position, offset=header.base_offset) from error.__cause__
    return ControlType(type_id)


class ControlRecord(NamedTuple):
    """The content of a control record. `coordinator_epoch` is that of a transaction marker, None for other types."""

    type: ControlType
    type_id: int
    coordinator_epoch: int | None


def control_record(key: Buffer | None, value: Buffer | None) -> ControlRecord:
    """The control record of this key and value. Raises CorruptSegment if one of them is too short for its type."""
    type_id = _type_id(b"" if key is None else key)
    found = ControlType(type_id)
    if found not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(found, type_id, None)
    if value is None or len(value) < _END_MARKER.size:
        raise CorruptSegment(f"transaction marker with a value of {len(value or b'')} bytes, not {_END_MARKER.size}")
    return ControlRecord(found, type_id, _END_MARKER.unpack_from(value)[1])


def _type_id(key: Buffer) -> int:
    if len(key) < _KEY.size:
        raise CorruptSegment(f"control record with a key of {len(key)} bytes, not {_KEY.size} at least")
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptSegment(f"control record key with version {version}")
    number: int = type_id
    return number


def _first_key(records: memoryview) -> memoryview:
    """The key of the first record: length, attributes, timestamp delta, offset delta, key length, key (KIP-98)."""
    length, at = _varint(records, 0)
    if not 0 < length <= len(records) - at:
        raise CorruptSegment(f"control record of {length} bytes where {len(records) - at} are left")
    record = records[at : at + length]
    _, at = _varint(record, 1, max_bytes=_MAX_VARLONG_BYTES)
    _, at = _varint(record, at)
    length, at = _varint(record, at)
    if not 0 <= length <= len(record) - at:
        raise CorruptSegment(f"control record with a key of {length} bytes where {len(record) - at} are left")
    return record[at : at + length]


def _varint(data: memoryview, at: int, *, max_bytes: int = _MAX_VARINT_BYTES) -> tuple[int, int]:
    """The zigzag number at `data[at]`, and the index of the next field."""
    value = 0
    for shift, byte in enumerate(data[at : at + max_bytes]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at + shift + 1
    raise CorruptSegment("control record ends inside a number, or has a number that is too long")
