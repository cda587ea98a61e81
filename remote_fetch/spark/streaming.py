"""The class that PySpark asks for a stream: `readStream.format("kafka_remote")`, PySpark 4.2 and later.

Rules of the file:

- No decision is made here.
- Spark plans with one instance on the driver and reads with other instances on executors.
- A partition carries all data that the executors need.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from remote_fetch.errors import RemoteFetchError
from remote_fetch.spark.batch import BatchReader, TaskPartition
from remote_fetch.spark.brief_errors import brief
from remote_fetch.spark.stream_driver import StreamDriver
from remote_fetch.spark.stream_limits import TriggerLimits, from_json, to_json

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RefusedStream", "StreamReader"]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver; executors read tasks as those of a batch (`batch` reads them)."""

    def __init__(self, driver: StreamDriver, batch: BatchReader, limits: TriggerLimits) -> None:
        self._driver = driver
        self._batch = batch
        self._limits = limits

    @brief
    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        return to_json(self._driver.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that the options name. Spark shows only one; if the options name several, all of them hold."""
        if self._limits.max_offsets is not None:
            return ReadMaxRows(self._limits.max_offsets)
        if self._limits.max_bytes is not None:
            return ReadMaxBytes(self._limits.max_bytes)
        return ReadAllAvailable() if self._limits.min_offsets is None else ReadMinRows(self._limits.min_offsets)

    @brief
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        return to_json(self._driver.next_stop(from_json(start), is_limited=is_limited))

    @brief
    def prepareForTriggerAvailableNow(self) -> None:
        """End the query at the current ends of the partitions."""
        self._driver.fix_target()

    @brief
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the log, for the query's progress."""
        ends = self._driver.latest()
        return None if ends is None else to_json(ends)

    @brief
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a micro-batch."""
        return [TaskPartition(task) for task in self._driver.tasks(from_json(start), from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return self._batch.read(partition)

    def stop(self) -> None:
        """End the query."""
        self._driver.close()


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a stream that cannot begin: each question of Spark raises the error.

    If `streamReader` raises, PySpark stops a reader that it does not have, and the query ends with the error of that.
    """

    def __init__(self, error: RemoteFetchError) -> None:
        self._error = error

    @brief
    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._error

    prepareForTriggerAvailableNow = getDefaultReadLimit = initialOffset = latestOffset = _refuse
    reportLatestOffset = partitions = read = _refuse

    def stop(self) -> None:
        """End the query."""
