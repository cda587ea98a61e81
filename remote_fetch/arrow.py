"""Bounded reads into Arrow: a topic's tiered records as a stream of record batches.

Rules of the file: planning happens in the call, so that what is wrong is raised there; bytes are read while the stream
is drawn, in bounded memory; a stream that is given up closes what it opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from remote_fetch.decode.columns import schema_for, wanted_columns
from remote_fetch.observe import Observer, ignore
from remote_fetch.read.job import parse_isolation, plan_job
from remote_fetch.read.scan import Scan
from remote_fetch.read.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

    from remote_fetch.read.bounds import UserBound

__all__ = ["read_arrow"]


def read_arrow(
    topic: str,
    *,
    start: UserBound = "earliest",
    end: UserBound = "latest",
    partitions: Iterable[int] | None = None,
    isolation: str = "read_committed",
    columns: Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
    log_start: int | Mapping[int, int] | None = None,
    observer: Observer = ignore,
) -> pa.RecordBatchReader:
    """The records of a topic's tiered segments, in order of partition and offset, as a stream of Arrow record batches.

    The columns are those of Spark's Kafka source: key binary, value binary, topic string, partition int32, offset
    int64, timestamp timestamp[us, UTC], timestampType int32 (0 CreateTime, 1 LogAppendTime, -1 none), headers
    list<struct<key string, value binary>>; leaderEpoch int32 on request. Polars, DuckDB and everything else that takes
    an Arrow C stream takes the result as it is.

    Args:
        topic: A topic's name; NAME:ID where one name stands for several topic ids.
        start: Where to begin (inclusive): an offset, "earliest", "latest", a datetime or ISO 8601 string (the first
            record not before it; UTC where it names no zone), or a mapping of these by partition.
        end: Where to stop (exclusive), given likewise. "latest" is the end of the tier, under read_committed the
            remote stable offset: the first offset whose transaction may still be open at the end of the tier.
        partitions: Which partitions; None: all that have tiered segments.
        isolation: "read_committed" or "read_uncommitted".
        columns: Which columns, in which order; None: all but leaderEpoch.
        config: Configuration keys (docs/reference/configuration.md), at least remote.storage.url.
        log_start: The log start offset, for all partitions or by partition, where it is known. A bucket does not tell
            it: without it records that were deleted, but whose segment still exists, are read too.
        observer: Hears of every GET, retry and fallback (remote_fetch.observe); may be called from several threads.

    Raises:
        ConfigError: an argument or configuration key is wrong.
        UnknownTopic: the topic or a partition has no tiered segments, or its name stands for several topic ids.
        OffsetOutOfRange: a start offset lies outside the tier.
        Unlocatable: wanted offsets are not in the tier, or are not decided there; drawing the stream raises it too,
            after what lies before.
        CorruptSegment, UnsupportedFormat, StorageDenied, StorageTimeout, ...: see remote_fetch.errors; drawing the
            stream raises them too.
    """
    wanted = wanted_columns(columns)
    schema = schema_for(wanted)
    level = parse_isolation(isolation)
    session = Session.open(config or {}, observer)
    try:
        plans = plan_job(
            session, topic, start=start, end=end, partitions=partitions, isolation=level, log_start=log_start
        )
        scan = Scan(session, plans, wanted)
    except BaseException:
        session.close()
        raise
    import pyarrow as pa  # noqa: PLC0415 - heavy, and needed here only

    return pa.RecordBatchReader.from_batches(schema, _Batches(session, scan))


class _Batches:
    """The scan's batches; the session ends with the last one, or when the stream is given up, begun or not."""

    def __init__(self, session: Session, scan: Scan) -> None:
        self._session = session
        self._batches = scan.batches()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except BaseException:  # the end is one too
            self._session.close()
            raise

    def __del__(self) -> None:
        self._session.close()
