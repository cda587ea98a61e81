"""Segments as JSON, in pages of bounded size.

Rules of the file:

- Pure. docs/reference/service-api.md is the format.
- Fields are what the metadata says. A clamped size stays clamped: the client knows what that means (KIP-1333).
- A page never ends between segments that begin at one offset, else the client would ask for the same page for ever.
- URLs are secrets. Nothing here prints them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from remote_fetch.model import MAX_OFFSET, AbortedTransaction, RemoteLogSegmentMetadata, TopicIdPartition

__all__ = ["Page", "Rank", "SegmentsOf", "as_bytes", "page_of", "segment_json", "segments_json"]

_MOST_TIMES = 8
"""How many times the limits of a page a crowd of segments that begin at one offset may take."""


class Rank(NamedTuple):
    """Two fields that decide between segments of the same offsets. `upload_epoch` is -1 if it is unknown."""

    finish_order: int
    upload_epoch: int = -1


class SegmentsOf(Protocol):
    """The part of a timeline that an answer is made of."""

    @property
    def partition(self) -> TopicIdPartition:
        """The partition."""

    @property
    def orphan_updates(self) -> int:
        """Finished segments whose offsets are unknown (KIP-1266)."""

    @property
    def malformed_records(self) -> int:
        """Metadata records that could not be read."""

    def found(
        self, first_offset: int = 0, last_offset: int = MAX_OFFSET
    ) -> Iterator[tuple[RemoteLogSegmentMetadata, int, int]]:
        """The readable segments with an offset in [first_offset, last_offset], by start offset.

        With each segment come the two fields of its Rank.
        """


@dataclass(frozen=True, slots=True, repr=False)
class Page:
    """The segments of one answer, encoded. `next_offset` None: there are no more. `is_crowded`: there is no page."""

    segments: tuple[bytes, ...]
    next_offset: int | None
    is_crowded: bool = False


def segment_json(segment: RemoteLogSegmentMetadata, rank: Rank, urls: Mapping[str, str] | None) -> dict[str, Any]:
    """One segment. `urls` None: the request asks for no objects."""
    custom = segment.custom_metadata
    fields: dict[str, Any] = {
        "id": str(segment.segment_id.id),
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "broker_id": segment.broker_id,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "event_timestamp_ms": segment.event_timestamp_ms,
        "leader_epochs": [[entry.epoch, entry.start_offset] for entry in segment.segment_leader_epochs],
        "size_bytes": segment.segment_size_in_bytes,
        "custom_metadata": None if custom is None else base64.b64encode(custom).decode("ascii"),
        "txn_index_empty": segment.txn_index_empty,
        "finish_order": rank.finish_order,
        "upload_epoch": rank.upload_epoch,
    }
    return fields if urls is None else fields | {"objects": dict(urls)}


def page_of(
    found: SegmentsOf,
    first_offset: int,
    encode: Callable[[RemoteLogSegmentMetadata, Rank], bytes],
    *,
    max_segments: int,
    max_bytes: int,
    last_offset: int = MAX_OFFSET,
) -> Page:
    """The first segments with an offset in [first_offset, last_offset], as far as the limits go.

    `encode` is called only for segments of the page.
    """
    encoded: list[bytes] = []
    size_bytes, reached = 0, first_offset
    for segment, finish_order, upload_epoch in found.found(first_offset, last_offset):
        is_full = len(encoded) >= max_segments or size_bytes >= max_bytes
        if is_full and segment.start_offset > reached:
            return Page(tuple(encoded), segment.start_offset)
        if len(encoded) >= _MOST_TIMES * max_segments or size_bytes >= _MOST_TIMES * max_bytes:
            return Page((), None, is_crowded=True)
        encoded.append(encode(segment, Rank(finish_order, upload_epoch)))
        size_bytes += len(encoded[-1])
        reached = max(reached, segment.start_offset)
    return Page(tuple(encoded), None)


def segments_json(
    found: SegmentsOf, page: Page, stable_offset: int | None, aborted: Sequence[AbortedTransaction]
) -> bytes:
    """The whole answer. `stable_offset` None: the request is read_uncommitted."""
    head = as_bytes({**found.partition.fields, "stable_offset": stable_offset, "next": page.next_offset})
    tail = as_bytes(
        {
            "aborted_transactions": [
                {"producer_id": one.producer_id, "first_offset": one.first_offset, "last_offset": one.last_offset}
                for one in aborted
            ],
            "orphan_updates": found.orphan_updates,
            "malformed_records": found.malformed_records,
        }
    )
    return b"".join((head[:-1], b',"segments":[', b",".join(page.segments), b"],", tail[1:]))


def as_bytes(value: Mapping[str, Any]) -> bytes:
    """A JSON object, compact, in ASCII."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")
