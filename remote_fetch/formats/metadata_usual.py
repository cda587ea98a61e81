"""A fast path for metadata records of the usual form, which brokers write day by day.

Rules of the file:

- Pure.
- `parse_metadata_record` is the reference. For a record of the usual form this module returns the same values. For
  another record it returns None, and the caller uses `parse_metadata_record`.

The usual form is a segment's record or update of version 0. Each length takes one byte. It has at least one leader
epoch, and no tagged field except TxnIndexEmpty. The head (frame and partition) has the same bytes in all records of one
kind and partition, so it is parsed once and then only compared.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeAlias

from remote_fetch.formats.segment_checks import leader_epochs
from remote_fetch.model import (
    MAX_OFFSET,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)

__all__ = ["SegmentChange", "build_usual_segment", "head_of", "is_usual_head", "read_usual"]

_ONE_BYTE = 128
"""A varint below this number takes one byte."""
_FRAMES = (b"\x01\x00\x00", b"\x01\x01\x00")
"""Frame version 1, the api key of a segment or of an update, version 0."""
_API_KEY_AT = 1
_NAME_AT = 3
_HEAD_WITHOUT_NAME_BYTES = 3 + 16 + 4 + 1
"""Frame, topic id, partition, tagged fields. The byte before the name counts the name and itself."""

_SEGMENT = Struct(">16sBqqiqqB")
_SIZE = Struct(">iB")
_EPOCH = Struct(">iqB")
_EPOCH_TAGS_AT = _EPOCH.size - 1
_SIGN_BIT = 0x80
_UPDATE = Struct(">16sBiqB")
_STATES = tuple(RemoteLogSegmentState)
_LAST_FIELDS = {b"\x00": False, b"\x01\x00\x01\x01": True}
"""The usual ends of a segment's record: no tagged fields, or tag 0 of one byte, TxnIndexEmpty."""


SegmentChange: TypeAlias = tuple[RemoteLogSegmentState, int, int, bytes | None]
"""The contents of an update: state, broker id, event timestamp in milliseconds, custom metadata (None: none from now
on). It is a plain tuple, because every segment has one."""

_Segment: TypeAlias = tuple[
    bytes, RemoteLogSegmentState, int, int, int, int, int, int, bytes | None, bool, tuple[int, int]
]
"""Raw id, state, start and end offset, size, largest timestamp, event timestamp, broker id, custom metadata, whether
the transaction index is empty, and the bounds of the leader epochs in the record."""


def head_of(value: bytes) -> bytes:
    """The bytes that are the head if `value` has the usual form. `is_usual_head` checks that."""
    return value[: value[_NAME_AT] + _HEAD_WITHOUT_NAME_BYTES] if len(value) > _NAME_AT else b""


def is_usual_head(head: bytes) -> bool:
    """Whether every record that begins with `head` has the same kind and partition.

    `head` comes from a record that `parse_metadata_record` could read, so its contents have been checked.
    """
    return head[:_NAME_AT] in _FRAMES and head[_NAME_AT] < _ONE_BYTE and head[-1] == 0


def read_usual(value: bytes, at: int) -> tuple[bytes, RemoteLogSegmentState, SegmentChange | bytes] | None:
    """The raw segment id, the state and the contents of a record whose usual head ends at byte `at`.

    The contents of an update are its change. The contents of a segment's record are the whole value, for
    `build_usual_segment`. None if the record does not have the usual form.
    """
    if value[_API_KEY_AT]:
        return _read_update(value, at)
    found = _read_segment(value, at)
    return None if found is None else (found[0], found[1], value)


def build_usual_segment(
    value: bytes, partition: TopicIdPartition, change: SegmentChange | None
) -> RemoteLogSegmentMetadata:
    """The segment of a record that `read_usual` could read, with the change of its last update.

    Raises ValueError for any other record.
    """
    found = _read_segment(value, len(head_of(value)))
    if found is None:
        raise ValueError("not a usual record of a segment")
    raw_id, state, start, end, size_bytes, max_timestamp_ms, event_timestamp_ms, broker_id, custom, is_empty, at = found
    if change is not None:
        state, broker_id, event_timestamp_ms, custom = change
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, Uuid(raw_id)), start, end, size_bytes, max_timestamp_ms, event_timestamp_ms,
        broker_id, _read_epochs(value, *at), custom, state, is_empty,
    )  # fmt: skip


def _read_update(value: bytes, at: int) -> tuple[bytes, RemoteLogSegmentState, SegmentChange] | None:
    if len(value) < at + _UPDATE.size:
        return None
    raw_id, tags, broker_id, event_timestamp_ms, length = _UPDATE.unpack_from(value, at)
    start = at + _UPDATE.size
    stop = start + length - 1 if length else start
    if tags or length >= _ONE_BYTE or len(value) != stop + 2 or value[stop] >= len(_STATES) or value[stop + 1]:
        return None
    state = _STATES[value[stop]]
    return raw_id, state, (state, broker_id, event_timestamp_ms, value[start:stop] if length else None)


def _read_segment(value: bytes, at: int) -> _Segment | None:
    if len(value) < at + _SEGMENT.size:
        return None
    raw_id, tags, start, end, broker_id, max_timestamp_ms, event_timestamp_ms, length = _SEGMENT.unpack_from(value, at)
    at += _SEGMENT.size
    stop = at + (length - 1) * _EPOCH.size
    if tags or not 0 <= start <= end <= MAX_OFFSET or not 1 < length < _ONE_BYTE or len(value) < stop + _SIZE.size:
        return None
    if any(value[at + _EPOCH_TAGS_AT : stop : _EPOCH.size]) or max(value[at : stop : _EPOCH.size]) & _SIGN_BIT:
        return None
    size_bytes, length = _SIZE.unpack_from(value, stop)
    custom_at = stop + _SIZE.size
    state_at = custom_at + length - 1 if length else custom_at
    is_empty = _LAST_FIELDS.get(value[state_at + 1 :])
    if length >= _ONE_BYTE or is_empty is None or value[state_at] >= len(_STATES):
        return None
    return (
        raw_id, _STATES[value[state_at]], start, end, size_bytes, max_timestamp_ms, event_timestamp_ms, broker_id,
        value[custom_at:state_at] if length else None, is_empty, (at, stop),
    )  # fmt: skip


def _read_epochs(value: bytes, at: int, stop: int) -> tuple[LeaderEpoch, ...]:
    if stop - at == _EPOCH.size:
        return (LeaderEpoch(*_EPOCH.unpack_from(value, at)[:2]),)
    return leader_epochs((epoch, start_offset) for epoch, start_offset, _ in _EPOCH.iter_unpack(value[at:stop]))
