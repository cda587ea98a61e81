"""The classes that PySpark asks for: a data source, its batch reader, and how a session learns of them.

Rules of the file: beside `streaming` the only module that imports PySpark; no decision is made here. What Spark pickles
to executors is the reader, with the user's options, as Spark's own source does; partitions hold neither options nor
credentials.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from remote_fetch.errors import ConfigError
from remote_fetch.observe import Report
from remote_fetch.spark.collector import spare_the_collector
from remote_fetch.spark.limits import Restriction
from remote_fetch.spark.options import SourceOptions, parse_options
from remote_fetch.spark.schema import columns_of, source_schema
from remote_fetch.spark.settings import hints
from remote_fetch.spark.tasks import Task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

__all__ = ["BatchReader", "KafkaRemoteDataSource", "PushingReader", "Registered", "TaskPartition", "register_source"]

_LOG = logging.getLogger("remote_fetch")
_OLDEST = (4, 1)


class KafkaRemoteDataSource(DataSource):
    """`format("kafka_remote")`: the options and the schema of Spark's Kafka source (docs/howto/spark.md)."""

    totals: Accumulator[Report] | None = None
    """Where tasks add their reports; a session that registers the source by itself sets it in a class of its own."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kafka_remote"

    def schema(self) -> str:
        """The schema of Spark's Kafka source, by `includeHeaders`. Raises ConfigError for options that are wrong."""
        return source_schema(include_headers=parse_options(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of these columns. Raises ConfigError for options that are wrong, and columns that are not there."""
        options = parse_options(self.options)
        columns = columns_of((one.name, one.dataType.simpleString()) for one in schema.fields)
        kind = PushingReader if options.pushes_filters else BatchReader
        return kind(options, columns, self.totals)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of micro-batches. Raises as `reader`, and ConfigError for a PySpark older than 4.2."""
        try:
            from remote_fetch.spark.streaming import StreamReader  # noqa: PLC0415 - PySpark 4.1 has batches only
        except ImportError as error:
            if error.name is None or not error.name.startswith("pyspark"):
                raise
            raise ConfigError(
                f"kafka_remote streams with PySpark 4.2 or later, not {pyspark.__version__}", key="pyspark"
            ) from None
        from remote_fetch.spark.stream_driver import StreamDriver  # noqa: PLC0415 - as above
        from remote_fetch.spark.stream_limits import parse_trigger_limits  # noqa: PLC0415 - as above

        options = parse_options(self.options)
        columns = columns_of((one.name, one.dataType.simpleString()) for one in schema.fields)
        limits = parse_trigger_limits(self.options)
        return StreamReader(StreamDriver(options, limits), BatchReader(options, columns, self.totals), limits)


class TaskPartition(InputPartition):
    """One task, as Spark carries it."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)

    def __repr__(self) -> str:
        return f"TaskPartition({self.value})"


class BatchReader(DataSourceReader):
    """Plans on the driver, reads on executors."""

    def __init__(
        self, options: SourceOptions, columns: tuple[str, ...], totals: Accumulator[Report] | None = None
    ) -> None:
        self._options = options
        self._columns = columns
        self._totals = totals
        self._restriction = Restriction()

    def partitions(self) -> list[InputPartition]:
        """The tasks, each a partition. Raises what planning finds wrong."""
        from remote_fetch.spark.planning import plan_batch  # noqa: PLC0415 - executors do not need it

        planned = plan_batch(self._options, restriction=self._restriction)
        spare_the_collector()
        return [TaskPartition(task) for task in planned.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, as Arrow batches."""
        from remote_fetch.spark.reader import read_task  # noqa: PLC0415 - the driver does not need it

        if partition is None or partition.value is None:  # a plan without any task, in PySpark 4.1 and in later ones
            return iter(())
        return read_task(partition.value, self._options.config, self._columns, report=self._report)

    def _report(self, report: Report) -> None:
        spare_the_collector()
        _LOG.info("task: %s", report)
        if self._totals is not None:
            self._totals.add(report)


class PushingReader(BatchReader):
    """A reader that takes filters; Spark refuses one that could while it is not allowed to offer any."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take over what can be; returns what Spark still has to apply."""
        from remote_fetch.spark.filters import restrict  # noqa: PLC0415 - only where it is switched on

        self._restriction, left = restrict(filters)
        return left


class _Sum(AccumulatorParam[Report]):
    """Adds reports up."""

    def zero(self, value: Report) -> Report:
        return Report()

    def addInPlace(self, value1: Report, value2: Report) -> Report:
        return value1 + value2


class Registered:
    """What became of registering the source with a session: `hints` on its settings, and the `report` so far."""

    def __init__(self, totals: Accumulator[Report] | None, found: tuple[str, ...]) -> None:
        self._totals = totals
        self.hints = found

    @property
    def report(self) -> Report:
        """What the tasks that have ended have cost; empty over Spark Connect."""
        return Report() if self._totals is None else self._totals.value


def register_source(spark: SparkSession) -> Registered:
    """As `remote_fetch.spark.register`."""
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < _OLDEST:
        raise ConfigError(f"kafka_remote needs PySpark 4.1 or later, not {pyspark.__version__}", key="pyspark")

    def setting(name: str) -> str | None:
        value: Any = spark.conf.get(name, None)
        return None if value is None else str(value)

    found = tuple(hints(setting))
    for hint in found:
        warnings.warn(hint, stacklevel=3)
    accumulator = _accumulator(spark)

    class RegisteredSource(KafkaRemoteDataSource):
        """The source of one session: a class made here is pickled with what it holds."""

        totals = accumulator

    spark.dataSource.register(RegisteredSource)
    return Registered(accumulator, found)


def _accumulator(spark: SparkSession) -> Accumulator[Report] | None:
    """Where tasks add their reports up; None over Spark Connect, which has no such thing."""
    try:
        context = spark.sparkContext
    except Exception:  # of PySpark's own kind, which differs between its versions
        return None
    return context.accumulator(Report(), _Sum())
