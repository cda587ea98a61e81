"""Where a bounded read begins and ends: what users write, and the offsets it comes to.

Rules of the file: ends are exclusive; a time means the first record, in offset order, whose timestamp is not before it,
as a broker's ListOffsets answers (control records count there too); times without a zone are UTC; nothing is clipped in
silence: an offset outside the log is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import takewhile
from typing import TypeAlias

from remote_fetch.decode.columns import ColumnBuilder
from remote_fetch.errors import (
    ConfigError,
    CorruptSegment,
    OffsetOutOfRange,
    RemoteFetchError,
    Unlocatable,
    UnsupportedFormat,
)
from remote_fetch.formats.batches import FramedBatch
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.indexes import TimeIndex
from remote_fetch.formats.legacy import as_v2
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from remote_fetch.observe import RangeReread, SegmentScanned
from remote_fetch.plan.ranges import PlanStep, SegmentSlice, plan_offsets
from remote_fetch.prepare.batch_walk import batches_of
from remote_fetch.prepare.order import MisleadingIndex, check_order
from remote_fetch.prepare.positions import narrow_slice
from remote_fetch.prepare.refusals import GAP_HINT, refuse_broker_ranges
from remote_fetch.prepare.segment_files import object_of
from remote_fetch.prepare.view import OpenPartition
from remote_fetch.session.session import Session

__all__ = ["Bound", "Edge", "Timestamp", "UserBound", "first_offset_at", "parse_bound", "resolve"]

UserBound: TypeAlias = "int | str | datetime | Mapping[int, int | str | datetime]"
"""A bound as users write it. A mapping has one for each partition."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_SPECIAL = {"earliest": -2, "beginning": -2, "latest": -1, "end": -1}


class Edge(Enum):
    """The ends of what can be read, numbered as Kafka's ListOffsets numbers them."""

    EARLIEST = -2
    LATEST = -1


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The first record at or after this moment, in milliseconds since 1970 (UTC)."""

    timestamp_ms: int


Bound: TypeAlias = "int | Edge | Timestamp"


def parse_bound(value: object, name: str) -> Bound:
    """One bound as a user wrote it: an offset, `earliest`, `latest`, a datetime, or an ISO 8601 string.

    -2 and -1 stand for earliest and latest, as in Kafka. `name` is the argument, for the message of a ConfigError.
    """
    if isinstance(value, str):
        value = _parse_text(value.strip(), name)
    if isinstance(value, datetime):
        aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return Timestamp(-((_EPOCH - aware) // _MILLISECOND))  # rounded up, and exact, which timestamp() is not
    if isinstance(value, int) and not isinstance(value, bool) and value >= -2:
        return Edge(value) if value < 0 else value
    raise ConfigError(
        f"{name}={value!r} is no bound",
        key=name,
        hint="Give an offset, 'earliest', 'latest', a datetime, an ISO 8601 string, or a dict of these by partition",
    )


def _parse_text(text: str, name: str) -> int | datetime:
    if text.lower() in _SPECIAL:
        return _SPECIAL[text.lower()]
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{name}={text!r} is neither 'earliest', 'latest', an offset nor an ISO 8601 time", key=name
        ) from None


def resolve(session: Session, opened: OpenPartition, start: Bound, end: Bound) -> tuple[int, int]:
    """The offsets [start, stop) that two bounds come to in one partition; equal when there is nothing to read.

    Raises OffsetOutOfRange for a start outside what the tier holds, ConfigError for a start after the end, and the
    errors of reading where a time has to be looked up.
    """
    if isinstance(start, Timestamp) and isinstance(end, Timestamp) and end.timestamp_ms < start.timestamp_ms:
        raise ConfigError(
            f"start={start.timestamp_ms} lies after end={end.timestamp_ms} (milliseconds since 1970)", key="start"
        )
    first = _resolve_one(session, opened, start)
    stop = _resolve_one(session, opened, end)
    if isinstance(start, int):
        if isinstance(end, int) and end < start:
            raise ConfigError(f"start={start} lies after end={end}", key="start")
        if not opened.first_offset <= first <= opened.last_start:
            where = "tier" if opened.log.end_offset is None else "log"
            raise OffsetOutOfRange(
                f"start={start} lies outside offsets {opened.first_offset} to {opened.last_start} of the {where}",
                topic=opened.partition.topic,
                partition=opened.partition.partition,
                offset=first,
                hint="Where partitions differ, give a start for each of them: a mapping by partition, or -p",
            )
    return first, max(first, stop)


def _resolve_one(session: Session, opened: OpenPartition, bound: Bound) -> int:
    if isinstance(bound, Edge):
        return opened.first_offset if bound is Edge.EARLIEST else opened.end_offset
    if isinstance(bound, int):
        return bound
    found = first_offset_at(session, opened, bound.timestamp_ms)
    return opened.end_offset if found is None else min(found, opened.end_offset)


def first_offset_at(session: Session, opened: OpenPartition, timestamp_ms: int) -> int | None:
    """The first offset whose record is not before `timestamp_ms`, None if there is none.

    The broker is asked for what the tier does not hold, or the store does not give. Raises the errors of reading.
    """
    steps = plan_offsets(opened.partition, opened, opened.first_offset, opened.last_start)
    cluster = session.cluster
    if cluster is None:
        refuse_broker_ranges(opened.timeline, steps)
    pieces = [step for step in takewhile(_is_slice, steps) if isinstance(step, SegmentSlice)]
    try:
        found = _first_in_tier(session, pieces, timestamp_ms)
        if found is not None or len(pieces) == len(steps) or cluster is None:
            return found
    except RemoteFetchError as error:
        session.fallback.after(error, opened.partition, pieces[0].first_offset, pieces[-1].last_offset)
    assert cluster is not None, "only a session with a broker falls back"
    # The broker knows the whole log; what it names lies here or later, as nothing before is late enough.
    return cluster.offset_for_time(opened.partition, timestamp_ms, opened.isolation)


def _is_slice(step: PlanStep) -> bool:
    return isinstance(step, SegmentSlice)


def _first_in_tier(session: Session, pieces: Iterable[SegmentSlice], timestamp_ms: int) -> int | None:
    before: SegmentSlice | None = None
    for piece in pieces:
        found = _first_in_slice(session, piece, timestamp_ms)
        if found is not None:
            _check_joined(session, before, piece)
            return found
        before = piece
    return None


def _check_joined(session: Session, before: SegmentSlice | None, piece: SegmentSlice) -> None:
    """Raise Unlocatable if an object is missing right before a slice: the time looked for may lie there."""
    if before is None or not session.locator.end_is_inferred(before.segment):
        return
    partition = piece.segment.topic_id_partition
    session.locator.measure(partition, before.segment)
    last = max(
        (
            segment.end_offset
            for segment in session.locator.timeline(partition).segments
            if segment.start_offset < piece.first_offset
        ),
        default=-1,
    )
    if last < piece.first_offset - 1:
        raise Unlocatable(
            f"no object holds offsets {last + 1} to {piece.first_offset - 1}, where the time may be",
            first=last + 1,
            last=piece.first_offset - 1,
            topic=partition.topic,
            partition=partition.partition,
            hint=GAP_HINT,
        )


def _first_in_slice(session: Session, piece: SegmentSlice, timestamp_ms: int) -> int | None:
    segment = piece.segment
    if 0 <= segment.max_timestamp_ms < timestamp_ms:
        return None
    narrowed, likely_end = piece, -1
    index = _time_index(session, segment)
    if index is not None:
        if segment.max_timestamp_ms < 0 and index.max_timestamp_ms < timestamp_ms:
            return None
        first = max(piece.first_offset, index.start_offset(timestamp_ms))
        if first > piece.last_offset:
            return None
        reached = index.reached_offset(timestamp_ms)
        last = piece.last_offset if reached is None else min(max(first, reached), piece.last_offset)
        found = narrow_slice(session, replace(piece, first_offset=first, last_offset=last))
        narrowed = replace(piece, start_position=found.start_position, start_entry_offset=found.start_entry_offset)
        likely_end = found.end_position  # a hint: no index is believed so far as to leave the rest out
    try:
        try:
            return _search(session, narrowed, timestamp_ms, likely_end)
        except (MisleadingIndex, CorruptSegment, UnsupportedFormat) as error:
            _observe_second_try(session, narrowed, error)
        return _search(session, piece, timestamp_ms, -1)
    except RemoteFetchError as error:
        partition = segment.topic_id_partition
        raise error.at(
            topic=partition.topic, partition=partition.partition, object_name=object_of(segment)
        ) from error.__cause__


def _observe_second_try(session: Session, piece: SegmentSlice, error: MisleadingIndex | RemoteFetchError) -> None:
    """Say why the segment is searched again, from its first byte: it may be the index, or damage that passes."""
    partition = piece.segment.topic_id_partition
    if piece.start_position > 0 or isinstance(error, MisleadingIndex):
        session.observe(SegmentScanned(partition, IndexType.OFFSET, "misleading"))
    else:
        session.observe(RangeReread(partition, 0, error.kind))


def _search(session: Session, piece: SegmentSlice, timestamp_ms: int, likely_end: int) -> int | None:
    last_offset = -1
    for batch in batches_of(session, piece, likely_end):
        header = batch.header
        check_order(batch, last_offset, (piece.start_entry_offset,))
        last_offset = header.last_offset
        found = _first_in_batch(session, batch, piece, timestamp_ms)
        if found is not None:
            return found
    if last_offset < piece.last_offset and session.locator.end_is_inferred(piece.segment):
        raise Unlocatable(
            f"no object holds offsets {last_offset + 1} to {piece.last_offset}, where the time may be",
            first=last_offset + 1,
            last=piece.last_offset,
            hint=GAP_HINT,
        )
    return None


def _time_index(session: Session, segment: RemoteLogSegmentMetadata) -> TimeIndex | None:
    """The time index, None where it is missing, damaged or empty: then the segment is searched from its first byte."""
    data = session.reader.read_index(segment, IndexType.TIMESTAMP)
    try:
        index = None if data is None else TimeIndex.parse(data, segment.start_offset, end_offset=segment.end_offset)
    except CorruptSegment:
        session.observe(SegmentScanned(segment.topic_id_partition, IndexType.TIMESTAMP, "corrupt"))
        return None
    if index is None:
        session.observe(SegmentScanned(segment.topic_id_partition, IndexType.TIMESTAMP, "missing"))
    return index or None


def _first_in_batch(session: Session, batch: FramedBatch, piece: SegmentSlice, timestamp_ms: int) -> int | None:
    header = batch.header
    if header.last_offset < piece.first_offset or (header.magic == 2 and header.max_timestamp_ms < timestamp_ms):
        return None
    if header.record_count == 0:
        return None
    # Several partitions are asked at once, and the session's own is for one thread.
    codecs = Codecs(max_bytes=session.config.settings.max_decompressed_bytes)
    header, records = as_v2(batch, codecs)
    partition = piece.segment.topic_id_partition
    builder = ColumnBuilder(partition.topic, partition.partition, ("offset", "timestampMs"))
    decoded = builder.append(header, records, piece.first_offset, piece.last_offset + 1)
    last = builder.flush()
    for rows in [*decoded, *([] if last is None else [last])]:
        for offset, row_ms in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            if row_ms >= timestamp_ms:
                return int(offset)
    return None
