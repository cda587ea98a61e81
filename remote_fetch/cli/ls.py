"""`remote-fetch ls`: the segments of a topic, or of every topic, as the storage has them.

Rules of the file:

- One line for each segment, sorted by partition and offset.
- Nothing is read beyond the needs of a listing.
- A column counts the metadata without offsets of each partition (KIP-1266). A partition with only such metadata still
  has a line.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from remote_fetch.cli.options import Once, about, add_common_options, config_from, partitions_from
from remote_fetch.cli.printer import iso_time
from remote_fetch.cli.report import human_bytes
from remote_fetch.errors import UnknownTopic
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import RemoteLogSegmentMetadata
from remote_fetch.observe import unusable_text
from remote_fetch.session.session import Session

__all__ = ["add_parser", "print_segments"]

_HEADINGS = ("TOPIC", "PARTITION", "START", "END", "SIZE", "MAX TIMESTAMP", "SEGMENT ID")
_UNUSABLE = "ORPHANS"


def add_parser(commands: Any, summary: str) -> None:
    """Add this command to `commands`, with `summary` as its short help."""
    parser = commands.add_parser("ls", help=summary, description=about(__doc__))
    parser.set_defaults(run=_run)
    parser.add_argument(
        "-t", dest="topic", metavar="TOPIC", action=Once, help="only this topic; NAME:ID for one topic id"
    )
    parser.add_argument("-p", dest="partitions", metavar="PARTITION", action="append", help="only this partition")
    parser.add_argument("-J", dest="json", action="store_true", help="print one JSON object a segment")
    add_common_options(parser)


def _run(arguments: argparse.Namespace) -> int:
    with Session.open(config_from(arguments)) as session:
        print_segments(session, arguments.topic, partitions_from(arguments), as_json=arguments.json)
    return 0


def print_segments(session: Session, topic: str | None, partitions: list[int] | None, *, as_json: bool) -> None:
    """Print the readable segments, by partition and offset, with the totals below."""
    found = session.locator.partitions(topic, partitions)
    chosen = [partition for partition in found if partitions is None or partition.partition in partitions]
    missing = sorted(set(partitions or ()) - {partition.partition for partition in chosen})
    if missing or not chosen:
        what = f"no partition {', '.join(map(str, missing))}" if missing else "no segments"
        raise UnknownTopic(f"{what} in the remote storage", hint="Check remote.storage.url and remote.storage.layout")
    timelines = [session.locator.timeline(partition) for partition in chosen]
    for timeline in timelines:
        session.note_unusable(timeline)
    if as_json:
        for timeline in timelines:
            for segment in timeline.segments or [None] * bool(timeline.orphan_updates):
                print(json.dumps(_as_json(timeline, segment)))
        return
    orphans = sum(timeline.orphan_updates for timeline in timelines)
    rows = [_HEADINGS, *(row for timeline in timelines for row in _rows(timeline))]
    if orphans:
        counts = [_UNUSABLE]
        for timeline in timelines:
            counts += [str(timeline.orphan_updates)] * len(_rows(timeline))
        rows = [(*row, count) for row, count in zip(rows, counts, strict=True)]
    _print_table(rows)
    segments = [segment for timeline in timelines for segment in timeline.segments]
    known = [segment.segment_size_in_bytes for segment in segments if segment.size_known]
    unknown = f", {len(segments) - len(known)} of unknown size" if len(known) < len(segments) else ""
    print(f"{len(segments)} segments, {human_bytes(sum(known))}{unknown}")
    unusable = unusable_text(orphans, max((timeline.malformed_records for timeline in timelines), default=0))
    if unusable:
        print(unusable)


def _rows(timeline: Timeline) -> list[tuple[str, ...]]:
    if timeline.segments or not timeline.orphan_updates:
        return [_row(segment) for segment in timeline.segments]
    return [(timeline.partition.topic, str(timeline.partition.partition), *["-"] * (len(_HEADINGS) - 2))]


def _row(segment: RemoteLogSegmentMetadata) -> tuple[str, ...]:
    partition = segment.topic_id_partition
    size = human_bytes(segment.segment_size_in_bytes) if segment.size_known else "unknown"
    end, latest = str(segment.end_offset), iso_time(segment.max_timestamp_ms)
    start = str(segment.start_offset)
    return partition.topic, str(partition.partition), start, end, size, latest, str(segment.segment_id.id)


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if 1 <= at <= 4 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def _as_json(timeline: Timeline, segment: RemoteLogSegmentMetadata | None) -> dict[str, Any]:
    """A segment of the timeline, or the partition if it has only orphans."""
    partition = timeline.partition
    fields: dict[str, Any] = {
        "topic": partition.topic,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "orphan_updates": timeline.orphan_updates,
        "malformed_records": timeline.malformed_records,
    }
    if segment is None:
        return fields
    return fields | {
        "segment_id": str(segment.segment_id.id),
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "size_bytes": segment.segment_size_in_bytes if segment.size_known else None,
        "max_timestamp_ms": segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else None,
        "leader_epochs": {str(entry.epoch): entry.start_offset for entry in segment.segment_leader_epochs},
    }
