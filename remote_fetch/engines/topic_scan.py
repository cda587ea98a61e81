"""A lazy read of a topic: an engine asks for columns and rows, and the plan has what may hold them.

Rules of the file:

- Nothing is asked of a store or a broker before an engine asks for rows.
- A filter makes the plan smaller, and is applied to each batch as well: the plan may hold more than what matches.
- A session is closed when the rows end, or when the iterator over them is dropped.
- Typed keys and values are planned when the scan is made, for an engine asks for their types first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from remote_fetch.config import Config
from remote_fetch.config.typed import with_formats
from remote_fetch.decode.columns import schema_for, wanted_columns
from remote_fetch.engines.pruning import Box, Filter
from remote_fetch.engines.scan_rows import ScanRows
from remote_fetch.errors import MissingExtra
from remote_fetch.model import IsolationLevel
from remote_fetch.observe import Observer, ignore
from remote_fetch.plan.ranges import PlanStep, SegmentSlice
from remote_fetch.prepare.arguments import (
    check_bounds,
    check_observer,
    check_topic,
    parse_isolation,
    parse_numbers,
)
from remote_fetch.prepare.job import Wanted, find_partitions, plan_wanted, planned_read
from remote_fetch.prepare.planner import Planner
from remote_fetch.prepare.refusals import refuse_broker_ranges
from remote_fetch.prepare.subscribed import topic_name
from remote_fetch.prepare.time_lookup import TimeLookup
from remote_fetch.prepare.view import OpenPartition, PartitionPlan
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.tables.planning import tasks_of
from remote_fetch.tables.task_reader import read_rows
from remote_fetch.tables.tasks import Task
from remote_fetch.typed.plan import TypedPlan, plan_typed

if TYPE_CHECKING:
    import duckdb
    import polars as pl

    from remote_fetch.prepare.bounds import UserBound

__all__ = ["TopicScan", "scan_topic"]

_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicScan:
    """A topic that was not read yet: see `scan_topic`. Pickles, with its configuration, if the observer does.

    `schema` is the Arrow schema of its rows.
    """

    topic: str
    start: UserBound
    end: UserBound
    partitions: tuple[int, ...] | None
    isolation: IsolationLevel
    columns: tuple[str, ...]
    config: Mapping[str, Any] = field(repr=False)
    log_start: int | Mapping[int, int] | None
    timestamps_ascend: bool
    typed: TypedPlan | None
    schema: pa.Schema
    observer: Observer

    def batches(self, columns: Sequence[str] | None = None, filter: Any = None) -> Iterator[pa.RecordBatch]:  # noqa: A002 - as Arrow calls it
        """The rows of the columns that the Arrow expression `filter` leaves, in order of partition and offset.

        Raises the errors of `read_arrow`.
        """
        wanted = self._names(columns)
        if filter is None:
            yield from self.planned(wanted, None)
            return
        for batch in self.planned((*wanted, *_also_read(wanted, self.schema, filter)), filter):
            left = batch.filter(filter)
            if left.num_rows:
                yield left.select(list(wanted))

    def dataset(self) -> ds.Dataset:
        """The topic as an Arrow dataset, for engines that hand columns and filters to `Dataset.scanner`, as DuckDB."""
        from remote_fetch.engines.dataset import TopicDataset  # noqa: PLC0415 - it imports this module

        return TopicDataset(self)

    def duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The topic as a relation of a DuckDB connection; None: of the default one. Raises MissingExtra."""
        try:
            import duckdb  # noqa: PLC0415 - the caller has it or not
        except ModuleNotFoundError:
            raise MissingExtra("DuckDB is not installed", hint="pip install duckdb") from None
        return (duckdb.default_connection() if connection is None else connection).from_arrow(self.dataset())

    def polars(self) -> pl.LazyFrame:
        """The topic as a LazyFrame of Polars, 1.22 or later. Raises MissingExtra."""
        try:
            from remote_fetch.engines.polars_source import lazy_frame  # noqa: PLC0415 - the caller has Polars or not
        except ModuleNotFoundError:
            raise MissingExtra("Polars is not installed", hint='pip install "polars>=1.22"') from None
        return lazy_frame(self)

    def tasks(self, task_bytes: int = 64 << 20, filter: Any = None) -> tuple[Task, ...]:  # noqa: A002 - as above
        """The plan in tasks of about so many bytes of segments, for engines with workers. A task pickles small.

        A task may be handed to `read` in another process. `filter` makes the plan smaller, as in `batches`. Raises the
        errors of planning, as `read_arrow`.
        """
        with Session.open(self.config, self.observer) as session:
            plans = _Plans(self, session, Filter(filter, self.schema)).of_all(is_outlined=True)
            if session.fallback.reader is None:
                for plan in plans:
                    refuse_broker_ranges(plan.opened.timeline, plan.steps)
            return tasks_of(plans, session.locator.end_is_inferred, task_bytes=task_bytes)

    def read(self, task: Task, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one of the `tasks`. Raises the errors of reading."""
        rows = self._rows(self._names(columns))
        return rows.named(read_rows(task, self.config, rows.columns, self.typed, observer=self.observer))

    def planned(self, columns: Sequence[str], filter: Any) -> Iterator[pa.RecordBatch]:  # noqa: A002 - as above
        """As `batches`, but with all rows that the plan brings, also such as do not match."""
        with Session.open(self.config, self.observer) as session:
            plans = _Plans(self, session, Filter(filter, self.schema)).of_all(is_outlined=False)
            session.observe(planned_read(plans))
            rows = self._rows(columns)
            yield from rows.named(rows.decoded(Scan(session, plans, rows.raw_columns).batches()))

    def _names(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        return tuple(self.schema.names) if columns is None else wanted_columns(columns)

    def _rows(self, names: Sequence[str]) -> ScanRows:
        return ScanRows(names, self.typed, self.config)


def scan_topic(
    topic: str,
    *,
    start: UserBound = "earliest",
    end: UserBound = "latest",
    partitions: Iterable[int] | None = None,
    isolation: str | None = None,
    columns: Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
    log_start: int | Mapping[int, int] | None = None,
    value_format: str | None = None,
    key_format: str | None = None,
    timestamps_ascend: bool = False,
    observer: Observer = ignore,
) -> TopicScan:
    """A topic for engines that ask for columns and rows: `.polars()`, `.duckdb(connection)`, `.dataset()`, `.tasks()`.

    Filters on partition, offset and timestamp make the plan smaller before anything is fetched. The other arguments are
    those of `read_arrow`, and nothing is read before an engine runs. Typed columns have the types of an export's files.

    Args:
        timestamps_ascend: The records of each partition stand in order of their timestamps, as with LogAppendTime. Then
            a filter on the latest time ends the read. Else it cannot: a later record may be an earlier one in time.

    Raises:
        ConfigError: an argument or configuration key is wrong.
        UnknownSchema, RegistryDenied, RegistryUnavailable: of the schema registry, which is asked for typed columns.
    """
    check_topic(topic)
    check_observer(observer)
    numbers = parse_numbers(partitions)
    check_bounds(start, end, log_start, numbers)
    wanted = wanted_columns(columns)
    schema_for(wanted)
    settings = with_formats(config or {}, value_format, key_format)
    typed = plan_typed(Config.parse(settings), [topic_name(topic)], learns=True)
    return TopicScan(
        topic,
        start,
        end,
        None if numbers is None else tuple(numbers),
        parse_isolation(isolation, settings),
        wanted,
        dict(settings),
        log_start,
        timestamps_ascend,
        typed,
        ScanRows(wanted, typed, settings).schema,
        observer,
    )


def _also_read(wanted: Sequence[str], schema: pa.Schema, filter: Any) -> Iterator[str]:  # noqa: A002 - as above
    """The columns beside the wanted ones without which the filter cannot be applied."""
    for name in schema.names:
        if name in wanted:
            continue
        try:
            pa.schema([field for field in schema if field.name != name]).empty_table().filter(filter)
        except pa.ArrowInvalid:
            yield name


class _Plans:
    """The plans of a scan under a filter."""

    def __init__(self, scan: TopicScan, session: Session, wanted: Filter) -> None:
        self._scan, self._session, self._filter = scan, session, wanted
        self._planner = Planner(session, scan.isolation)
        # A marker has its broker's clock. It may be later than the wanted records behind it.
        self._records = TimeLookup(session, passes_markers=True)
        self._times_us = wanted.times_us()

    def of_all(self, *, is_outlined: bool) -> tuple[PartitionPlan, ...]:
        """The plan of each partition in which a row may match."""
        scan, session = self._scan, self._session
        wanted = Wanted.of(find_partitions(session, scan.topic, scan.partitions), scan.start, scan.end, scan.log_start)
        may = self._filter.may_match([Box(partition.partition) for partition in wanted.partitions])
        chosen = [partition for partition, is_kept in zip(wanted.partitions, may, strict=True) if is_kept]
        plan = self._planner.outline if is_outlined else self._planner.plan

        def matching(opened: OpenPartition, first: int, stop: int) -> PartitionPlan:
            made = plan(opened, *self._narrowed(opened, first, stop))
            return replace(made, steps=self._matching(opened.partition.partition, made.steps))

        return plan_wanted(self._planner, wanted, chosen, matching)

    def _narrowed(self, opened: OpenPartition, first: int, stop: int) -> tuple[int, int]:
        """The part of the offsets [first, stop) in which a row may match."""
        number = opened.partition.partition
        offsets = self._filter.offsets(number, first, min(stop - 1, _MAX_INT64))
        if offsets is None:
            return first, first
        first, stop = offsets[0], offsets[1] + 1
        if self._times_us is None:
            return first, first
        earliest_us, latest_us = self._times_us
        if earliest_us > 0:
            first = min(max(first, self._planner.times.least_offset_at(opened, earliest_us // 1000)), stop)
        if self._scan.timestamps_ascend and latest_us < _MAX_INT64:
            found = self._records.first_offset_at(opened, latest_us // 1000 + 1, (first, stop))
            stop = stop if found is None else max(min(stop, found), first)
        return first, stop

    def _matching(self, number: int, steps: Sequence[PlanStep]) -> tuple[PlanStep, ...]:
        """The steps in which a row may match. Of a segment the latest time is known, if its metadata tells it."""
        may = self._filter.may_match([_box(number, step) for step in steps])
        return tuple(step for step, is_kept in zip(steps, may, strict=True) if is_kept)


def _box(number: int, step: PlanStep) -> Box:
    latest_ms = step.segment.max_timestamp_ms if isinstance(step, SegmentSlice) else -1
    last_us = latest_ms * 1000 + 999 if 0 <= latest_ms < _MAX_INT64 // 1000 else _MAX_INT64
    return Box(number, step.first_offset, step.last_offset, last_us=last_us)
