"""The batch reader that PySpark asks for: it plans on the driver and reads one task at a time on executors.

Rules of the file:

- No decision is made here: `planning` makes the tasks, `reader` reads them.
- Spark pickles the reader, with the user's options, to the executors, as it does with its own Kafka source.
- Partitions hold neither options nor credentials.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from remote_fetch.observe import Report
from remote_fetch.spark.brief_errors import brief, brief_each
from remote_fetch.spark.collector import freeze_gc
from remote_fetch.spark.limits import Restriction
from remote_fetch.spark.options import SourceOptions
from remote_fetch.tables.tasks import Task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql.datasource import Filter

    from remote_fetch.typed.plan import TypedPlan

__all__ = ["BatchReader", "PushingReader", "TaskPartition"]

_LOG = logging.getLogger("remote_fetch")


class TaskPartition(InputPartition):
    """One task, as Spark carries it."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)

    def __repr__(self) -> str:
        return f"TaskPartition({self.value})"


class BatchReader(DataSourceReader):
    """Plans on the driver, reads on executors."""

    def __init__(
        self,
        options: SourceOptions,
        columns: tuple[str, ...],
        typed: TypedPlan | None = None,
        totals: Accumulator[Report] | None = None,
    ) -> None:
        self._options = options
        self._columns = columns
        self._typed = typed
        self._totals = totals
        self._restriction = Restriction()

    @brief
    def partitions(self) -> list[InputPartition]:
        """One partition for each task. Raises the errors of `plan_batch`, and BrokerUnavailable after three minutes."""
        from remote_fetch.spark.patience import BATCH_AWAY_S, ask_patiently  # noqa: PLC0415 - executors do not need it
        from remote_fetch.spark.planning import plan_batch  # noqa: PLC0415 - as above

        plan = partial(plan_batch, self._options, restriction=self._restriction)
        planned = ask_patiently(plan, _LOG.warning, away_s=BATCH_AWAY_S)
        freeze_gc()
        return [TaskPartition(task) for task in planned.tasks]

    @brief_each
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, as Arrow batches."""
        from remote_fetch.spark.reader import read_task  # noqa: PLC0415 - the driver does not need it

        if partition is None or partition.value is None:  # PySpark 4.1 and later ask this of a plan without tasks
            return iter(())
        return read_task(partition.value, self._options.config, self._columns, self._typed, report=self._report)

    def _report(self, report: Report) -> None:
        freeze_gc()
        _LOG.info("task: %s", report)
        if self._totals is not None:
            self._totals.add(report)


class PushingReader(BatchReader):
    """Reader with filter pushdown. A separate class: Spark rejects `pushFilters` while pushdown is disabled."""

    @brief
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Apply the filters that narrow the read; returns those that Spark still has to apply."""
        from remote_fetch.spark.filters import restrict  # noqa: PLC0415 - only if pushdown is on

        self._restriction, left = restrict(filters)
        return left
