"""`remote-fetch ls`: the segments of a topic, or of every topic, as the storage has them.

Rules of the file:

- One line for each segment, sorted by partition and offset.
- Nothing is read beyond the needs of a listing.
- A column has the bytes in the store, if the plug-in tells them in its custom metadata (KIP-917).
- A column counts the metadata without offsets of each partition (KIP-1266). A partition with only such metadata still
  has a line.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from remote_fetch.amounts import counted, human_bytes
from remote_fetch.cli.chart import chart_of
from remote_fetch.cli.chart_option import ON_TERMINAL, add_chart_option, check_chart_option, draw_chart
from remote_fetch.cli.options import (
    add_common_options,
    add_json_option,
    add_topics_option,
    check_distinct,
    config_from,
    partitions_from,
    topics_from,
)
from remote_fetch.cli.printer import iso_time
from remote_fetch.cli.report import Warnings
from remote_fetch.errors import ConfigError, UnknownTopic
from remote_fetch.failures.file_errors import file_fault
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata
from remote_fetch.observe import unusable_text
from remote_fetch.session.locator_kinds import save_snapshot
from remote_fetch.session.parallel import all_at_once
from remote_fetch.session.session import Session

__all__ = ["add_options", "print_segments", "print_table", "run"]

_HEADINGS = ("TOPIC", "PARTITION", "START", "END", "SIZE", "MAX TIMESTAMP", "SEGMENT ID")
_UNUSABLE, _STORED = "ORPHANS", "STORED"
_NUMBERS = frozenset({"PARTITION", "START", "END", "SIZE", _STORED})


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_topics_option(parser, required=False)
    parser.add_argument("-p", dest="partitions", metavar="PARTITION", action="append", help="only this partition")
    add_json_option(parser, "a segment")
    add_chart_option(parser)
    parser.add_argument("--save", metavar="FILE", help="save the segments' places, for remote.locator=snapshot")
    add_common_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    topics, partitions = topics_from(arguments), partitions_from(arguments)
    check_chart_option(arguments)
    warnings = Warnings()
    with Session.open(config_from(arguments), warnings) as session:
        chart, save = arguments.chart, arguments.save
        print_segments(session, topics, partitions, as_json=arguments.json, chart=chart, save=save)
    warnings.print()
    return 0


def print_segments(
    session: Session,
    topics: Sequence[str],
    partitions: list[int] | None,
    *,
    as_json: bool,
    chart: str | None = None,
    save: str | None = None,
) -> None:
    """Print the readable segments of topics (none: of all), by partition and offset, with the totals below.

    `chart` and `save` are the values of their options. Raises ConfigError for a topic that is given twice,
    UnknownTopic, and the errors of `ConfiguredLocator.check`.
    """
    session.configured_locator.check()  # without a storage the locator of all topics has no hint for the user
    found = [session.locator.partitions(topic, partitions) for topic in (topics or (None,))]
    if topics:
        check_distinct(topics, found)
    chosen = [one for of_topic in found for one in of_topic if partitions is None or one.partition in partitions]
    missing = sorted(set(partitions or ()) - {partition.partition for partition in chosen})
    if missing or not chosen:
        what = f"no partition {', '.join(map(str, missing))}" if missing else "no segments"
        raise UnknownTopic(f"{what} in the remote storage", hint="Check remote.storage.url and remote.storage.layout")
    timelines = all_at_once(session.locator.timeline, chosen)
    session.configured_locator.check()
    for timeline in timelines:
        session.note_unusable(timeline)
    _write_files(session, timelines, topics, chart, save)
    if as_json:
        for timeline in timelines:
            for segment in _lines(timeline):
                stored_bytes = None if segment is None else session.stored_size(segment)
                print(json.dumps(_as_json(timeline, segment, stored_bytes)))
        return
    orphans = sum(timeline.orphan_updates for timeline in timelines)
    segments = [segment for timeline in timelines for segment in timeline.segments]
    stored = {segment.segment_id: size for segment in segments if (size := session.stored_size(segment)) is not None}
    if chart != ON_TERMINAL:
        _print_rows(timelines, stored, orphans)
    known = [segment.segment_size_in_bytes for segment in segments if segment.size_known]
    unknown = f", {len(segments) - len(known)} of unknown size" if len(known) < len(segments) else ""
    in_store = f", {human_bytes(sum(stored.values()))} in the store" if stored else ""
    untold = f" ({len(segments) - len(stored)} do not tell it)" if in_store and len(stored) < len(segments) else ""
    print(f"{counted(len(segments), 'segment')}, {human_bytes(sum(known))}{unknown}{in_store}{untold}")
    unusable = unusable_text(orphans, max((timeline.malformed_records for timeline in timelines), default=0))
    if unusable:
        print(unusable)


def _write_files(
    session: Session, timelines: Sequence[Timeline], topics: Sequence[str], chart: str | None, save: str | None
) -> None:
    if chart is not None:
        title = f"Segments of {', '.join(topics) or 'all topics'}"
        draw_chart(chart, chart_of(timeline.segments for timeline in timelines), title)
    if save is not None:
        try:
            save_snapshot(save, timelines, session.locator)
        except OSError as error:
            raise ConfigError(f"--save {save}: {file_fault(error)}", key="--save") from None


def _print_rows(timelines: Sequence[Timeline], stored: Mapping[RemoteLogSegmentId, int], orphans: int) -> None:
    rows = [_HEADINGS, *(row for timeline in timelines for row in _rows(timeline))]
    if stored:
        sizes = [stored.get(one.segment_id) if one else None for timeline in timelines for one in _lines(timeline)]
        cells = [_STORED, *("-" if size is None else human_bytes(size) for size in sizes)]
        rows = [(*row[:5], cell, *row[5:]) for row, cell in zip(rows, cells, strict=True)]
    if orphans:
        counts = [_UNUSABLE]
        for timeline in timelines:
            counts += [str(timeline.orphan_updates)] * len(_lines(timeline))
        rows = [(*row, count) for row, count in zip(rows, counts, strict=True)]
    print_table(rows, _NUMBERS)


def _lines(timeline: Timeline) -> Sequence[RemoteLogSegmentMetadata | None]:
    """The segments that have a line; None for a partition that has only orphans."""
    return timeline.segments or [None] * bool(timeline.orphan_updates)


def _rows(timeline: Timeline) -> list[tuple[str, ...]]:
    place = timeline.partition.topic, str(timeline.partition.partition)
    return [
        (*place, *["-"] * (len(_HEADINGS) - 2)) if segment is None else _row(segment) for segment in _lines(timeline)
    ]


def _row(segment: RemoteLogSegmentMetadata) -> tuple[str, ...]:
    partition = segment.topic_id_partition
    size = human_bytes(segment.segment_size_in_bytes) if segment.size_known else "unknown"
    end, latest = str(segment.end_offset), iso_time(segment.max_timestamp_ms)
    start = str(segment.start_offset)
    return partition.topic, str(partition.partition), start, end, size, latest, str(segment.segment_id.id)


def print_table(rows: Sequence[tuple[str, ...]], numbers: Collection[str]) -> None:
    """Print rows under each other. The first has the headings. Columns whose heading is in `numbers` end at the right.

    All rows have as many cells as the first.
    """
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if heading in numbers else cell.ljust(width)
            for heading, cell, width in zip(rows[0], row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _as_json(timeline: Timeline, segment: RemoteLogSegmentMetadata | None, stored_bytes: int | None) -> dict[str, Any]:
    """A segment of the timeline, or the partition if it has only orphans."""
    fields: dict[str, Any] = {
        **timeline.partition.fields,
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
        "stored_bytes": stored_bytes,
        "max_timestamp_ms": segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else None,
        "leader_epochs": {str(entry.epoch): entry.start_offset for entry in segment.segment_leader_epochs},
    }
