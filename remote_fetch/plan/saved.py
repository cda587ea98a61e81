"""Plans as JSON text: to save, to send, to compare by eye.

Rules of the file:

- Pure, with a version.
- `load_plan` returns steps equal to those that `dump_plan` was given.
- A text of another version or shape is refused with a sentence.
- Custom metadata may hold a presigned URL. It is saved only because a worker needs it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.failures.file_errors import MISSHAPEN
from remote_fetch.formats.segment_checks import check_leader_epochs, check_segment_offsets
from remote_fetch.model import (
    MAX_OFFSET,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.plan.cost import StoredSize, untold
from remote_fetch.plan.ranges import BrokerRange, PlanStep, SegmentSlice

__all__ = ["dump_plan", "load_plan"]

_VERSION = 2


def dump_plan(steps: Iterable[PlanStep], stored_size: StoredSize = untold) -> str:
    """The steps as JSON, one step a line.

    `stored_size` gives the bytes of a segment's objects in the store, for the readers of the text: `load_plan` passes
    over them. None, as by default: the segment has no such field.
    """
    lines = ",\n  ".join(json.dumps(_dump_step(step, stored_size)) for step in steps)
    body = f"\n  {lines}\n" if lines else ""
    return f'{{"version": {_VERSION}, "steps": [{body}]}}\n'


def load_plan(text: str) -> tuple[PlanStep, ...]:
    """The steps that `dump_plan` wrote.

    Raises UnsupportedFormat for another version, and CorruptSegment for any other text.
    """
    try:
        saved = json.loads(text)
        version = saved["version"]
        if version != _VERSION:
            raise UnsupportedFormat(f"a saved plan of version {version!r}; version {_VERSION} is known")
        steps = tuple(_load_step(step) for step in saved["steps"])
        for before, after in pairwise(steps):
            _check_order(before, after)
        return steps
    except MISSHAPEN as error:
        raise CorruptSegment(f"not a saved plan: {type(error).__name__}: {error}") from None


def _dump_partition(partition: TopicIdPartition) -> list[Any]:
    return [str(partition.topic_id), partition.topic, partition.partition]


def _load_partition(saved: Any) -> TopicIdPartition:
    topic_id, topic, partition = saved
    return TopicIdPartition.parsed(Uuid.parse(_text(topic_id)), _text(topic), _number(partition))


def _dump_step(step: PlanStep, stored_size: StoredSize) -> dict[str, Any]:
    offsets = {"first_offset": step.first_offset, "last_offset": step.last_offset}
    if isinstance(step, BrokerRange):
        return {"broker": _dump_partition(step.partition), **offsets, "reason": str(step.reason)}
    stored_bytes = stored_size(step.segment)
    return {
        "segment": _dump_segment(step.segment) | ({} if stored_bytes is None else {"stored_bytes": stored_bytes}),
        **offsets,
        "positions": [step.start_position, step.end_position],
        "entries": [step.start_entry_offset, step.end_entry_offset],
        "is_cut": step.is_cut,
    }


def _load_step(saved: Any) -> PlanStep:
    first, last = _number(saved["first_offset"]), _number(saved["last_offset"])
    if not 0 <= first <= last <= MAX_OFFSET:
        raise ValueError(f"offsets {first} to {last}")
    if "broker" in saved:
        return BrokerRange(_load_partition(saved["broker"]), first, last, _text(saved["reason"]))
    start, end = map(_number, saved["positions"])
    start_entry, end_entry = map(_number, saved["entries"])
    step = SegmentSlice(
        _load_segment(saved["segment"]), first, last, start, end, start_entry, end_entry, saved["is_cut"] is True
    )
    _check_slice(step)
    return step


def _check_slice(step: SegmentSlice) -> None:
    """Raise ValueError for a slice that no planning makes. Wrong bounds would lose records without a trace."""
    segment = step.segment
    check_segment_offsets(segment.start_offset, segment.end_offset)
    check_leader_epochs(segment.segment_leader_epochs)
    if not segment.start_offset <= step.first_offset <= step.last_offset <= segment.end_offset:
        raise ValueError(f"offsets {step.first_offset} to {step.last_offset} of the segment {step}")
    if step.start_position < 0 or not (step.end_position == -1 or step.start_position < step.end_position):
        raise ValueError(f"positions {step.start_position} to {step.end_position} of the segment {step}")
    if step.start_position and not step.is_cut and not 0 <= step.start_entry_offset <= step.first_offset:
        raise ValueError(f"position {step.start_position} without the offset that stands there: {step}")


def _check_order(before: PlanStep, after: PlanStep) -> None:
    """Raise ValueError for steps of one partition that have offsets twice or in another order."""
    if before.partition != after.partition or before.last_offset < after.first_offset:
        return
    if not (isinstance(before, SegmentSlice) and isinstance(after, SegmentSlice) and before.is_cut and after.is_cut):
        raise ValueError(f"{after} follows {before}")


def _dump_segment(segment: RemoteLogSegmentMetadata) -> dict[str, Any]:
    custom = segment.custom_metadata
    return {
        "partition": _dump_partition(segment.topic_id_partition),
        "id": str(segment.segment_id.id),
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "size_bytes": segment.segment_size_in_bytes,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "event_timestamp_ms": segment.event_timestamp_ms,
        "broker_id": segment.broker_id,
        "leader_epochs": [[entry.epoch, entry.start_offset] for entry in segment.segment_leader_epochs],
        "custom_metadata": None if custom is None else base64.b64encode(custom).decode("ascii"),
        "state": int(segment.state),
        "txn_index_empty": segment.txn_index_empty,
    }


def _load_segment(saved: Any) -> RemoteLogSegmentMetadata:
    custom = saved["custom_metadata"]
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(_load_partition(saved["partition"]), Uuid.parse(_text(saved["id"]))),
        start_offset=_number(saved["start_offset"]),
        end_offset=_number(saved["end_offset"]),
        segment_size_in_bytes=_number(saved["size_bytes"]),
        max_timestamp_ms=_number(saved["max_timestamp_ms"]),
        event_timestamp_ms=_number(saved["event_timestamp_ms"]),
        broker_id=_number(saved["broker_id"]),
        segment_leader_epochs=tuple(LeaderEpoch(_number(epoch), _number(at)) for epoch, at in saved["leader_epochs"]),
        custom_metadata=None if custom is None else base64.b64decode(_text(custom), validate=True),
        state=RemoteLogSegmentState(_number(saved["state"])),
        txn_index_empty=saved["txn_index_empty"] is True,
    )


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"a whole number expected, not {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string expected, not {value!r}")
    return value
