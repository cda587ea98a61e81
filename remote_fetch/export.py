"""Topics into files and tables, without Spark.

Rules of the file: it hands the arguments on, and does nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from remote_fetch.observe import Observer, ignore
from remote_fetch.prepare.arguments import parse_isolation, parse_numbers
from remote_fetch.tables.export_job import Destination, TableForm, run_export
from remote_fetch.tables.export_plan import TIER, ExportBounds
from remote_fetch.tables.parquet_files import check_size

if TYPE_CHECKING:
    from remote_fetch.prepare.bounds import UserBound
    from remote_fetch.tables.report import TableReport
    from remote_fetch.tables.write_task import Transform

__all__ = ["export_topic"]


def export_topic(
    topic: str,
    *,
    to: str | PathLike[str],
    format: str = "parquet",  # noqa: A002 - as Spark calls it
    start: UserBound = "earliest",
    end: UserBound = TIER,
    partitions: Iterable[int] | None = None,
    isolation: str | None = None,
    columns: Sequence[str] | None = None,
    transform: Transform | None = None,
    partition_by: Sequence[str] = (),
    compression: str = "zstd",
    file_bytes: int = 128 << 20,
    row_group_bytes: int = 32 << 20,
    config: Mapping[str, Any] | None = None,
    to_options: Mapping[str, Any] | None = None,
    log_start: int | Mapping[int, int] | None = None,
    allow_lost: bool = False,
    observer: Observer = ignore,
) -> TableReport:
    """Write a topic's records to Parquet files or into a table, in order of partition and offset, all or nothing.

    The rows, and the arguments that are not named here, are those of `read_arrow`. The same call again goes on where a
    killed one ended, or plans again if what that had still to read is gone. If all is done it does nothing, or, for a
    table, it adds what came since.

    Args:
        topic: A topic's name; NAME:ID if several topic ids share the name.
        to: A directory, as text or Path, or a URL that fsspec knows. For "parquet" it belongs to one export, and is
            absent or empty when that begins. For "iceberg" NAMESPACE.TABLE.
        format: "parquet", "iceberg" or "delta". A table that is not there is made.
        end: As in `read_arrow`, or "tier": the end of what the tier decides, also if a broker has more.
        transform: A function from an Arrow RecordBatch to another one, or to a Table. It is called once with an empty
            batch: all its results must have the schema of that one.
        partition_by: One directory for each value of these columns, or of "day" and "hour" of `timestamp` in UTC.
        compression: "zstd", "snappy", "gzip", "lz4_raw", "uncompressed" or "none".
        file_bytes: A file ends with the row group that makes it so large. A task reads four times as much.
        row_group_bytes: The size of a row group as Arrow data, and the most that waits to be written.
        to_options: Arguments of the target's fsspec filesystem; for "delta" also deltalake's storage options with the
            prefix "delta."; for "iceberg" the properties of a pyiceberg catalog, or a directory as "warehouse" for a
            catalog in a SQLite file, or "catalog", its name in pyiceberg's configuration.
        allow_lost: Offsets that the target waits for and that were deleted: pass over them with a warning.

    Returns:
        The report of the export, also if there was nothing to do.

    Raises:
        ConfigError: an argument is wrong, or the target belongs to another export.
        MissingExtra: the library of the format is not installed.
        TableRefused: the table or its catalog did not take the commit. Nothing of it is in the table.
        StorageDenied, StorageUnavailable, ...: the target's store refuses, or cannot be reached. They name the object.
        RemoteFetchError: the errors of `read_arrow`.
        OSError: the target's disk fails.
    """
    check_size("file_bytes", file_bytes)
    numbers, level = parse_numbers(partitions), parse_isolation(isolation, config)
    bounds = ExportBounds(topic, start, end, numbers, level, log_start, allow_lost, file_bytes * 4, config or {})
    form = TableForm(columns, transform, partition_by, compression, file_bytes, row_group_bytes)
    return run_export(bounds, form, Destination(format, to, to_options), observer)
