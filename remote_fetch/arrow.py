"""Bounded reads into Arrow: a topic's tiered records as a stream of record batches.

Rules of the file:

- The call plans the read, so it raises the errors of its arguments.
- Bytes are read while the stream is drawn, in bounded memory.
- A stream that is closed or dropped early closes its session.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from remote_fetch.config import Config
from remote_fetch.config.typed import with_formats
from remote_fetch.decode.columns import schema_for, wanted_columns
from remote_fetch.observe import Observer, ignore
from remote_fetch.prepare.arguments import check_observer, parse_isolation
from remote_fetch.prepare.job import plan_job
from remote_fetch.prepare.subscribed import topic_name
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.typed.plan import plan_typed

if TYPE_CHECKING:
    import pyarrow as pa

    from remote_fetch.prepare.bounds import UserBound
    from remote_fetch.prepare.view import PartitionPlan
    from remote_fetch.typed.columns import TypedColumns

__all__ = ["read_arrow"]


def read_arrow(
    topic: str,
    *,
    start: UserBound = "earliest",
    end: UserBound = "latest",
    partitions: Iterable[int] | None = None,
    isolation: str | None = None,
    columns: Sequence[str] | None = None,
    value_format: str | None = None,
    key_format: str | None = None,
    config: Mapping[str, Any] | None = None,
    log_start: int | Mapping[int, int] | None = None,
    observer: Observer = ignore,
) -> pa.RecordBatchReader:
    """The records of a topic's tiered segments, in order of partition and offset, as a stream of Arrow record batches.

    The columns are those of Spark's Kafka source: key binary, value binary, topic string, partition int32, offset
    int64, timestamp timestamp[us, UTC], timestampType int32 (0 CreateTime, 1 LogAppendTime, -1 none), headers
    list<struct<key string, value binary>>. On request: leaderEpoch int32, timestampMs int64. A batch is of one
    partition, and has 65,536 rows at most. Polars, DuckDB and every other reader of Arrow C streams accepts the result.

    Args:
        topic: A topic's name, or NAME:ID if the name stands for several topic ids.
        start: Where to begin (inclusive): an offset, "earliest", "latest", a datetime or ISO 8601 string (the first
            record not before it; UTC if it names no zone), or a mapping of these by partition.
        end: Where to stop (exclusive), in the same forms. "latest" is the end of the tier. Under read_committed it is
            the remote stable offset: the first offset whose transaction may still be open at the end of the tier.
        partitions: Which partitions. None: all that have tiered segments.
        isolation: "read_committed" or "read_uncommitted". None: isolation.level of `config`, or read_committed.
        columns: Which columns, in which order. None: all but leaderEpoch and timestampMs.
        value_format: How values are encoded, as the configuration key value.format tells it. All but "raw" make a typed
            column of the same name (docs/howto/typed-values.md).
        key_format: The same for keys, as key.format.
        config: Configuration keys (docs/reference/configuration.md), at least remote.storage.url.
        log_start: The log start offset, for all partitions or by partition, if you know it. A bucket does not tell it.
            Without it the read includes deleted records whose segment still exists.
        observer: Called with every GET, retry and fallback (remote_fetch.observe), from several threads.

    Raises:
        ConfigError: an argument or configuration key is wrong.
        UnknownTopic: the topic or a partition has no tiered segments, or its name stands for several topic ids.
        OffsetOutOfRange: a start offset lies outside the tier.
        Unlocatable: wanted offsets are not in the tier, or are not decided there. Drawing the stream raises it too,
            after the records before them.
        CorruptSegment, StorageDenied, UndecodableValue, ...: see remote_fetch.errors. Drawing raises them too.
    """
    check_observer(observer)
    wanted = wanted_columns(columns)
    schema_for(wanted)
    level = parse_isolation(isolation, config)
    settings = with_formats(config or {}, value_format, key_format)
    session = Session.open(settings, observer)
    try:
        plans = plan_job(
            session, topic, start=start, end=end, partitions=partitions, isolation=level, log_start=log_start
        )
        return _stream(session, plans, wanted, _typed_columns(topic, session.config, wanted))
    except BaseException:
        session.close()
        raise


def _stream(
    session: Session, plans: Sequence[PartitionPlan], wanted: Sequence[str], typed: TypedColumns | None
) -> pa.RecordBatchReader:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and needed here only

    batches = Scan(session, plans, wanted if typed is None else typed.raw_columns).batches()
    schema, shown = (schema_for(wanted), batches) if typed is None else (typed.schema, typed.of(batches))
    return pa.RecordBatchReader.from_batches(schema, _Batches(session, shown))


def _typed_columns(topic: str, config: Config, wanted: Sequence[str]) -> TypedColumns | None:
    """The typed columns that a configuration asks for. None: keys and values stay bytes."""
    plan = plan_typed(config, [topic_name(topic)])
    if plan is None:
        return None
    from remote_fetch.typed.columns import TypedColumns  # noqa: PLC0415 - its libraries are needed here only

    return TypedColumns(plan, config, wanted)


class _Batches:
    """The batches of a scan. The session is closed after the last batch, or when the stream is dropped."""

    def __init__(self, session: Session, batches: Iterator[pa.RecordBatch]) -> None:
        self._session = session
        self._batches = batches
        self._pid = os.getpid()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except BaseException:  # StopIteration, the end, also closes the session
            self._session.close()
            raise

    def __del__(self) -> None:
        if os.getpid() == self._pid:
            self._session.close()
        else:  # a forked child: the end of the reading would wait for threads that are not there, or for their locks
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._batches))  # nothing takes this back, see `kafka_clients`
