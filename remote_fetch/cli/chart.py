"""Draws the segments of partitions over time: lines of block characters for a terminal, or an SVG file.

Rules of the file:

- Pure. Segments go in, and text comes out.
- A segment lies between the largest timestamp of the segment before it and its own. The first one's begin is a guess.
- If a segment has no timestamp, as in a listing of a bucket, the axis has offsets in place of times.
- A height or a shade stands for bytes as Kafka wrote them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from remote_fetch.amounts import human_bytes
from remote_fetch.cli.printer import iso_time
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata

__all__ = ["Chart", "Lane", "Piece", "chart_of", "svg_chart", "text_chart"]

_LEVELS = " ▁▂▃▄▅▆▇█"
_ASCII_LEVELS = " .:-=+*%@#"
_WIDTH, _LABEL_WIDTH, _LANE_HEIGHT, _TOP = 960, 190, 26, 52
_STYLE = (
    "<style>text{font:12px sans-serif;fill:#333}.back{fill:#fff}.read{fill:#1f6f8b;stroke:#fff}"
    ".kept{fill:#c9ced4;stroke:#fff}@media(prefers-color-scheme:dark){text{fill:#ddd}.back{fill:#1b1e22}"
    ".read{fill:#4fb3d4;stroke:#1b1e22}.kept{fill:#4a5058;stroke:#1b1e22}}</style>"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment on the axis: [start, stop) in milliseconds or offsets, its bytes, and whether it is read."""

    start: int
    stop: int
    size_bytes: int
    is_read: bool = True
    title: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """The pieces of a partition."""

    label: str
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lanes on one axis, from `first` to `stop`. `in_time`: the axis has times, else offsets."""

    lanes: Sequence[Lane]
    in_time: bool
    first: int
    stop: int


def chart_of(
    partitions: Iterable[Sequence[RemoteLogSegmentMetadata]], read: Collection[RemoteLogSegmentId] | None = None
) -> Chart:
    """The chart of partitions, each given by its segments in order of offset. `read` None: all are read."""
    known = [segments for segments in partitions if segments]
    in_time = all(segment.max_timestamp_ms >= 0 for segments in known for segment in segments)
    lanes = [_lane(segments, read, in_time=in_time) for segments in known]
    pieces = [piece for lane in lanes for piece in lane.pieces]
    first = min((piece.start for piece in pieces), default=0)
    return Chart(lanes, in_time, first, max(max((piece.stop for piece in pieces), default=0), first + 1))


def _lane(
    segments: Sequence[RemoteLogSegmentMetadata], read: Collection[RemoteLogSegmentId] | None, *, in_time: bool
) -> Lane:
    place = segments[0].topic_id_partition
    stops = [segment.max_timestamp_ms if in_time else segment.end_offset + 1 for segment in segments]
    first = segments[0].start_offset
    if in_time:  # nothing tells when the first segment began: it may have taken as long as the others
        first = stops[0] - (max(stops) - stops[0]) // max(len(stops) - 1, 1)
    pieces, start = [], first
    for segment, stop in zip(segments, stops, strict=True):
        is_read = read is None or segment.segment_id in read
        size_bytes = segment.known_size_bytes or 0
        title = f"offsets {segment.start_offset} to {segment.end_offset}, {human_bytes(size_bytes)}"
        pieces.append(Piece(min(start, stop), max(stop, start), size_bytes, is_read, title))
        start = max(start, stop)
    return Lane(place.topic_partition, pieces)


def text_chart(chart: Chart, columns: int, *, unicode: bool = True) -> list[str]:
    """Lines of at most `columns` characters: one for each lane, with the axis and the scale below.

    A dot stands for a time whose segments are not read.
    """
    label_width = min(max((len(lane.label) for lane in chart.lanes), default=0), max(columns // 3, 8))
    width = max(columns - label_width - 2, 10)
    spread = [(_cells(chart, lane.pieces, width), _cells(chart, _kept(lane), width)) for lane in chart.lanes]
    most = max((size for read, _ in spread for size in read), default=0.0)
    levels = _LEVELS if unicode else _ASCII_LEVELS
    lines = []
    for lane, (read, kept) in zip(chart.lanes, spread, strict=True):
        dots = [("·" if unicode else "_") if hidden else " " for hidden in kept]
        drawn = "".join(
            levels[_level(size, most, len(levels) - 1)] if size else dot for size, dot in zip(read, dots, strict=True)
        )
        lines.append(f"{lane.label[:label_width]:{label_width}}  {drawn}".rstrip())
    begin, end = _begin(chart), _shown(chart, chart.stop)
    lines.append(f"{'':{label_width}}  {begin}{end:>{max(width - len(begin), len(end) + 1)}}")
    lines.append(f"{'':{label_width}}  {levels[-1]} {human_bytes(most)} of segments in a column")
    return lines


def _kept(lane: Lane) -> list[Piece]:
    return [Piece(piece.start, piece.stop, max(piece.size_bytes, 1)) for piece in lane.pieces if not piece.is_read]


def _cells(chart: Chart, pieces: Iterable[Piece], width: int) -> list[float]:
    """The bytes of the read pieces in each of `width` columns. A piece is spread evenly over its own."""
    cells, first, stop = [0.0] * width, chart.first, chart.stop
    for piece in pieces:
        if not piece.is_read:
            continue
        begin = (piece.start - first) * width / (stop - first)
        end = max((piece.stop - first) * width / (stop - first), begin)
        at, last = min(int(begin), width - 1), min(int(end), width - 1)
        if at == last:
            cells[at] += piece.size_bytes
            continue
        for column in range(at, last + 1):
            inside = min(end, column + 1) - max(begin, column)
            cells[column] += piece.size_bytes * inside / (end - begin)
    return cells


def _level(size: float, most: float, top: int) -> int:
    """A level from 1 to `top`: also a few bytes are seen."""
    return max(1, min(top, round(size / most * top))) if most else 0


def _begin(chart: Chart) -> str:
    """The begin of the axis. In time it is a guess, and the text says so."""
    return f"about {_shown(chart, chart.first)}" if chart.in_time else _shown(chart, chart.first)


def _shown(chart: Chart, at: int) -> str:
    return iso_time(at)[:16] if chart.in_time else f"offset {at}"


def svg_chart(chart: Chart, title: str) -> str:
    """An SVG file of the lanes, with a rectangle for each segment. It is light or dark as its reader is."""
    scale = (_WIDTH - _LABEL_WIDTH - 20) / (chart.stop - chart.first)
    most = max((piece.size_bytes for lane in chart.lanes for piece in lane.pieces), default=0) or 1
    body = [_text(12, 22, title)]
    y = _TOP
    for lane in chart.lanes:
        body.append(_text(_LABEL_WIDTH - 8, y + 14, lane.label, anchor="end"))
        for piece in lane.pieces:
            height = max(2.0, (_LANE_HEIGHT - 6) * piece.size_bytes / most)
            x, width = _LABEL_WIDTH + (piece.start - chart.first) * scale, max((piece.stop - piece.start) * scale, 1.0)
            kind = "read" if piece.is_read else "kept"
            body.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{y + _LANE_HEIGHT - 6 - height:.1f}" width="{width:.1f}" '
                f'height="{height:.1f}" stroke-width="0.5"><title>{escape(piece.title)}</title></rect>'
            )
        y += _LANE_HEIGHT
    body.append(_text(_LABEL_WIDTH, y + 14, _begin(chart)))
    body.append(_text(_WIDTH - 20, y + 14, _shown(chart, chart.stop), anchor="end"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 28}">\n{_STYLE}\n'
        f'<rect class="back" width="{_WIDTH}" height="{y + 28}"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
