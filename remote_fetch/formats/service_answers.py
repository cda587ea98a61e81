"""The answers of a service that vends access to segments (`remote-fetch serve`): JSON, checked field by field.

Rules of the file:

- Pure. An answer is foreign bytes: the caller bounds their number, and every field is checked here.
- A segment is held against the same rules as one of the metadata topic (`segment_checks`).
- A page belongs to the partition that was asked for.
- Which names and URLs are believed is decided where they are read: by the fetcher (`fetchers/vended.py`).
- Unknown fields are ignored, so that a newer service can have more of them.
- URLs are secrets. No message and no repr holds one.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard, TypeVar

from remote_fetch.amounts import one_line
from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.segment_checks import check_leader_epochs, check_segment_offsets, leader_epochs
from remote_fetch.model import (
    MAX_OFFSET,
    Buffer,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)

__all__ = ["Refusal", "SegmentsPage", "parse_locations", "parse_refusal", "parse_segments", "parse_storage"]

T = TypeVar("T")

_MAX_OBJECTS = 64
"""The most objects of one segment: a log, five indexes, and what a layout adds."""
_MAX_OPTIONS = 256
_SHOWN_CHARS = 300
_INT64 = 2**63


class Refusal(NamedTuple):
    """The reason of an answer that is no 200: Kafka's name of the error, and a text to show. Both may be empty."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class SegmentsPage:
    """Some of a partition's readable segments.

    - `finish_order` has a number for each segment. The segment with the larger number was finished later.
    - `upload_epochs` has the leader epoch of the broker that uploaded each segment (KIP-1266), -1 if it is unknown.
    - `next_offset` is where the next page begins; None: this is the last one.
    - A service that does not tell the order leaves the time of the segment's event.
    - `orphan_updates` and `malformed_records` are those of `Timeline`.
    """

    segments: tuple[RemoteLogSegmentMetadata, ...]
    finish_order: tuple[int, ...]
    upload_epochs: tuple[int, ...]
    next_offset: int | None = None
    orphan_updates: int = 0
    malformed_records: int = 0


def parse_storage(body: Buffer) -> tuple[str, Mapping[str, str]]:
    """The answer to `GET /v1/storage`: the layout's name, and its options. Raises CorruptSegment."""
    answer = _object(_parsed(body), "the answer")
    layout = _field(answer, "layout", str)
    options = _object(answer.get("layout_options", {}), "layout_options")
    if not layout.isprintable() or not layout:
        raise _wrong("layout")
    if len(options) > _MAX_OPTIONS or not all(isinstance(value, str) for value in options.values()):
        raise _wrong("layout_options")
    return layout, MappingProxyType(dict(options))


def parse_segments(body: Buffer, partition: TopicIdPartition, first_offset: int = 0) -> SegmentsPage:
    """One page of the segments of a partition, which begins at `first_offset`. Raises CorruptSegment."""
    answer = _of_partition(body, partition)
    next_offset = None if answer.get("next") is None else _integer(answer, "next")
    if next_offset is not None and not first_offset < next_offset <= MAX_OFFSET:
        raise CorruptSegment(f"the service gave a page from offset {first_offset} on that goes on at {next_offset}")
    entries = [_object(entry, "a segment") for entry in _field(answer, "segments", list)]
    segments = tuple(_segment(entry, partition) for entry in entries)
    return SegmentsPage(
        segments,
        tuple(
            _integer({"finish_order": segment.event_timestamp_ms, **entry}, "finish_order")
            for entry, segment in zip(entries, segments, strict=True)
        ),
        tuple(_integer({"upload_epoch": -1, **entry}, "upload_epoch") for entry in entries),
        next_offset,
        _count(answer, "orphan_updates"),
        _count(answer, "malformed_records"),
    )


def parse_locations(body: Buffer, segment: RemoteLogSegmentMetadata) -> Mapping[str, str] | None:
    """The URLs of a segment's objects by name; None if the answer does not have the segment. Raises CorruptSegment."""
    partition = segment.topic_id_partition
    answer = _of_partition(body, partition)
    for entry in _field(answer, "segments", list):
        found = _object(entry, "a segment")
        if found.get("id") == str(segment.segment_id.id):
            return MappingProxyType(_locations(_object(found.get("objects", {}), "objects")))
    return None


def parse_refusal(body: Buffer) -> Refusal:
    """The reason in the body of an error. A body that is none gives an empty reason: a proxy may have written it."""
    try:
        error = _object(_object(_parsed(body), "the answer").get("error", {}), "error")
    except CorruptSegment:
        return Refusal("", "")
    return Refusal(_shown(error.get("code")), _shown(error.get("message")))


def _parsed(body: Buffer) -> object:
    try:
        return json.loads(bytes(body), parse_constant=_no_constant)
    except (ValueError, RecursionError):  # a number of too many digits is a ValueError too
        raise CorruptSegment("the answer of the service is not JSON") from None


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _of_partition(body: Buffer, partition: TopicIdPartition) -> dict[str, Any]:
    answer = _object(_parsed(body), "the answer")
    named = (_field(answer, "topic", str), _field(answer, "topic_id", str), _integer(answer, "partition"))
    if named != (partition.topic, str(partition.topic_id), partition.partition):
        raise CorruptSegment(
            f"the service answered about another partition: {_shown(named[0])}-{named[2]} with the topic id "
            f"{_shown(named[1])}",
            **partition.place,
        )
    return answer


def _segment(entry: dict[str, Any], partition: TopicIdPartition) -> RemoteLogSegmentMetadata:
    start, end = _integer(entry, "start_offset"), _integer(entry, "end_offset")
    check_segment_offsets(start, end)
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, _uuid(entry, "id")),
        start,
        end,
        _integer(entry, "size_bytes"),
        max_timestamp_ms=_integer(entry, "max_timestamp_ms"),
        event_timestamp_ms=_integer(entry, "event_timestamp_ms"),
        broker_id=_integer(entry, "broker_id"),
        segment_leader_epochs=_epochs(entry),
        custom_metadata=_bytes(entry, "custom_metadata"),
        txn_index_empty=_field({"txn_index_empty": False, **entry}, "txn_index_empty", bool),
    )


def _epochs(entry: dict[str, Any]) -> tuple[LeaderEpoch, ...]:
    pairs = _field(entry, "leader_epochs", list)
    if not all(isinstance(pair, list) and len(pair) == 2 and all(map(_is_integer, pair)) for pair in pairs):
        raise _wrong("leader_epochs")
    epochs = leader_epochs(pairs)
    check_leader_epochs(epochs)
    return epochs


def _locations(objects: dict[str, Any]) -> dict[str, str]:
    if len(objects) > _MAX_OBJECTS or not all(isinstance(url, str) for url in objects.values()):
        raise _wrong("objects")
    return objects


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(what)
    return value


def _field(answer: dict[str, Any], name: str, kind: type[T]) -> T:
    value = answer.get(name)
    if not isinstance(value, kind):
        raise _wrong(name)
    return value


def _uuid(answer: dict[str, Any], name: str) -> Uuid:
    try:
        return Uuid.parse(_field(answer, name, str))
    except ValueError:
        raise _wrong(name) from None


def _integer(answer: dict[str, Any], name: str) -> int:
    value = answer.get(name)
    if not _is_integer(value):
        raise _wrong(name)
    return value


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64


def _count(answer: dict[str, Any], name: str) -> int:
    number = _integer({name: 0, **answer}, name)
    if number < 0:
        raise _wrong(name)
    return number


def _bytes(answer: dict[str, Any], name: str) -> bytes | None:
    if answer.get(name) is None:
        return None
    try:
        return base64.b64decode(_field(answer, name, str), validate=True)
    except (binascii.Error, ValueError):
        raise _wrong(name) from None


def _wrong(name: str) -> CorruptSegment:
    return CorruptSegment(f"the answer of the service is wrong in {name!r}")


def _shown(text: object) -> str:
    """A foreign text in a message: short, and of one line."""
    if not isinstance(text, str):
        return ""
    return one_line(text[:_SHOWN_CHARS], "?")
