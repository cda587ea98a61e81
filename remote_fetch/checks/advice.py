"""Advice about a tier: settings of topic, producers and plug-in that make reads slower or dearer than they need be.

Rules of the file:

- Pure.
- Advice is given only for what was seen. A topic of a few segments gets none about their size.
- Each limit has its reason beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from remote_fetch.amounts import human_bytes
from remote_fetch.checks.check import Check, State

__all__ = ["TierShape", "advice"]

_ENOUGH_SEGMENTS = 10
_SEGMENT_BYTES = 32 << 20
"""Each segment costs a few GETs of indexes and three records of the metadata topic. In 32 MiB they are a small part."""
_BATCH_BYTES = 4 << 10
"""Below this the headers, checksums and codec calls of batches take as long as their records."""
_INDEX_INTERVAL_BYTES = 256 << 10
"""Kafka's default is 4 KiB. A read that begins in the middle of a segment reads up to one interval too much."""
_CHUNK_BYTES = (1 << 20, 16 << 20)
"""A broker makes a GET for each chunk, so small ones are dear. So are large ones: one record costs a whole chunk."""
_AS_RETENTION = -2
"""`local.retention.*` with this value follow `retention.*`."""
_RAISE_BYTES = "Raise segment.bytes, or segment.ms if segments are closed before they are full"
_LARGE_ENOUGH = (
    "segment.bytes is large enough: raise segment.ms, or find out what else closes segments (segment.index.bytes, or "
    "other settings when they were written)"
)


class TierShape(NamedTuple):
    """Facts about the tier of one topic.

    - `segments` and `size_bytes`: of all partitions, as Kafka wrote them.
    - `batch_bytes` and `batch_records`: means over the first batches of one segment. None: unknown.
    - `chunk_bytes`: of one segment that the plug-in compressed or encrypted in pieces. None: it did not.
    """

    segments: int
    size_bytes: int
    batch_bytes: float | None = None
    batch_records: float | None = None
    chunk_bytes: int | None = None


def advice(settings: Mapping[str, str], shape: TierShape) -> Iterator[Check]:
    """The advice, one check for each piece. `settings` are those of the topic, empty if they are unknown."""
    yield from _of_segments(settings, shape)
    if shape.batch_bytes is not None and shape.batch_bytes < _BATCH_BYTES:
        yield _advice(
            "batches",
            f"record batches have {human_bytes(round(shape.batch_bytes))} and {shape.batch_records:.1f} records on "
            "average: every reader works for each batch",
            "Raise linger.ms (5 or more) and batch.size of the producers",
        )
    interval_bytes = int(settings.get("index.interval.bytes", 0))
    if interval_bytes > _INDEX_INTERVAL_BYTES:
        yield _advice(
            "index",
            f"index.interval.bytes={interval_bytes}: a read that begins inside of a segment reads up to "
            f"{human_bytes(interval_bytes)} too much",
            "Set index.interval.bytes to Kafka's default, 4096",
        )
    if _keeps_all(settings):
        yield _advice(
            "retention",
            "the brokers' disks keep all that is in the tier (local.retention.ms and local.retention.bytes are -2)",
            "Set local.retention.ms to the time for which consumers usually read",
        )
    least, most = _CHUNK_BYTES
    if shape.chunk_bytes is not None and not least <= shape.chunk_bytes <= most:
        yield _advice(
            "chunks",
            f"chunks have {human_bytes(shape.chunk_bytes)}: "
            + ("a broker makes a GET for each" if shape.chunk_bytes < least else "one record costs a whole chunk"),
            "Set chunk.size of the plug-in to 4194304",
        )


def _of_segments(settings: Mapping[str, str], shape: TierShape) -> Iterator[Check]:
    if shape.segments < _ENOUGH_SEGMENTS or shape.size_bytes >= _SEGMENT_BYTES * shape.segments:
        return
    mean_bytes = shape.size_bytes // shape.segments
    names = [name for name in ("segment.bytes", "segment.ms") if name in settings]
    now = ", ".join(f"{name}={settings[name]}" for name in names)
    yield _advice(
        "segments",
        f"segments have {human_bytes(mean_bytes)} on average{f' ({now})' if now else ''}: each one costs a few small "
        "GETs and three metadata records",
        _LARGE_ENOUGH if int(settings.get("segment.bytes", "0")) >= _SEGMENT_BYTES else _RAISE_BYTES,
    )


def _keeps_all(settings: Mapping[str, str]) -> bool:
    names = ("local.retention.ms", "local.retention.bytes")
    return all(name in settings and int(settings[name]) == _AS_RETENTION for name in names)


def _advice(name: str, text: str, hint: str) -> Check:
    return Check(name, State.ADVICE, text, hint)
