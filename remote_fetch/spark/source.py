"""The data source that PySpark asks for: the format's name, its schema, and its readers.

Rules of the file:

- Every method parses the options and passes them on. The version of PySpark and the options choose the reader's class.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from remote_fetch.errors import ConfigError, RemoteFetchError
from remote_fetch.spark.batch import BatchReader, PushingReader
from remote_fetch.spark.brief_errors import brief
from remote_fetch.spark.budgets import split_among
from remote_fetch.spark.options import SourceOptions, parse_options
from remote_fetch.spark.schema import columns_of, kind_of, source_columns, source_schema
from remote_fetch.spark.typed import as_planned, plan_of, spark_schema, typed_columns_of

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

    from remote_fetch.observe import Report
    from remote_fetch.typed.plan import TypedPlan

__all__ = ["KafkaRemoteDataSource"]

_LOG = logging.getLogger("remote_fetch")


class KafkaRemoteDataSource(DataSource):
    """`format("kafka_remote")`: the options and the schema of Spark's Kafka source (docs/howto/spark.md)."""

    totals: Accumulator[Report] | None = None
    """Where tasks add their reports; `register_source` sets it in a subclass made for one session."""

    tasks_at_once: int | None = None
    """How many tasks share a budget; `register_source` sets it too."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kafka_remote"

    @brief
    def schema(self) -> StructType:
        """The schema of Spark's Kafka source, by `includeHeaders`, with typed keys and values if options ask for them.

        Raises ConfigError for wrong options, and the errors of a schema registry.
        """
        options = parse_options(self.options)
        typed = plan_of(options, learns=False)
        if typed is not None:
            return spark_schema(typed, options)
        return StructType.fromJson(source_schema(source_columns(include_headers=options.include_headers)))

    @brief
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of these columns. Raises ConfigError for wrong options and for unknown columns."""
        options = self._options()
        if options.pushdown_hint is not None:
            _LOG.warning(options.pushdown_hint)
        kind = PushingReader if options.pushes_filters else BatchReader
        return kind(options, *_columns(options, schema), totals=self.totals)

    def _options(self) -> SourceOptions:
        """The options of a reader, with its tasks' part of a budget."""
        options = parse_options(self.options)
        return replace(options, config=split_among(options.config, lambda: self.tasks_at_once))

    @brief
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of micro-batches. It raises the errors of `reader`. Raises ConfigError for a PySpark below 4.2."""
        try:
            from remote_fetch.spark.streaming import RefusedStream  # noqa: PLC0415 - PySpark 4.1 has batches only
        except ImportError as error:
            if error.name is None or not error.name.startswith("pyspark"):
                raise
            raise ConfigError(
                f"kafka_remote streams with PySpark 4.2 or later, not {pyspark.__version__}", key="pyspark"
            ) from None
        try:
            return self._stream_reader(schema)
        except RemoteFetchError as error:
            return RefusedStream(error)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        from remote_fetch.spark.stream_driver import StreamDriver  # noqa: PLC0415 - PySpark 4.1 has batches only
        from remote_fetch.spark.stream_limits import parse_trigger_limits  # noqa: PLC0415 - as above
        from remote_fetch.spark.streaming import StreamReader  # noqa: PLC0415 - as above

        options = self._options()
        limits = parse_trigger_limits(self.options)
        reader = BatchReader(options, *_columns(options, schema), totals=self.totals)
        return StreamReader(StreamDriver(options, limits), reader, limits)

    @brief
    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Raises ConfigError: the source reads. PySpark's own error names no way to write."""
        raise _read_only("write")

    @brief
    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        """As `writer`."""
        raise _read_only("writeStream")


def _read_only(word: str) -> ConfigError:
    return ConfigError(
        "kafka_remote reads topics, and writes none",
        key="format",
        hint=f'Keep {word}.format("kafka"), with the options of Spark\'s own source',
    )


def _columns(options: SourceOptions, schema: StructType) -> tuple[tuple[str, ...], TypedPlan | None]:
    """The columns of a schema, and the plan of those that are typed."""
    typed = plan_of(options, learns=True)
    if typed is not None:
        typed = as_planned(typed, options, schema)
        return typed_columns_of(typed, options, schema), typed
    return columns_of((field.name, kind_of(field)) for field in schema.fields), None
