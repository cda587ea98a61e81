"""A task of a backfill whose memory is measured: `python -m tests.tables.write_task_run DIRECTORY` prints JSON.

A small one is run first, so that everything is loaded; files are partitioned, so that many are open.
"""

from __future__ import annotations

import gc
import json
import random
import sys
from pathlib import Path

import pyarrow as pa

from remote_fetch.decode.columns import DEFAULT_COLUMNS
from remote_fetch.spark.options import parse_options
from remote_fetch.spark.planning import plan_batch
from remote_fetch.tables.parquet_files import FileForm
from remote_fetch.tables.target import Target
from remote_fetch.tables.write_task import TaskWriter, schema_of
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from tests.scan.resources import Meter
from tests.spark.buckets import bucket_alone

RANGE_BYTES, MAX_BYTES, ROW_GROUP_BYTES = 1 << 20, 4 << 20, 4 << 20
VALUE_BYTES, RECORDS = 4096, 16


def log(batches: int) -> LogBuilder:
    """A segment of so many batches of 64 KiB that no codec makes smaller, over many hours."""
    dice, found = random.Random(1), LogBuilder()
    for at in range(batches):
        found.append_batch(
            [
                Record(number, 1_700_000_000_000 + (at % 20) * 3_600_000, None, dice.randbytes(VALUE_BYTES))
                for number in range(RECORDS)
            ]
        )
    found.roll()
    return found


def used(directory: Path, run: str, batches: int) -> dict[str, int]:
    """The output of a task over a segment, and the growth of its memory."""
    tier = directory / f"{run}.tier"
    tier.mkdir()
    write_kafka_local(tier, log(batches).segments())
    sizes = {"range": RANGE_BYTES, "max": MAX_BYTES, "task": 1 << 30}
    limits = {f"fetch.remote.{name}.bytes": str(size) for name, size in sizes.items()}
    parsed = parse_options({"subscribe": "topic", **bucket_alone(tier), **limits})
    (task,) = plan_batch(parsed).tasks
    target = Target(str(directory / run), "job")
    form = FileForm(schema_of(DEFAULT_COLUMNS, None), ("hour",), "zstd", ROW_GROUP_BYTES)
    writer = TaskWriter(target, parsed.config, DEFAULT_COLUMNS, None, form)
    gc.collect()
    meter = Meter()
    record = writer.run(0, task)
    return {
        "grown_bytes": meter.grown_bytes(),
        "rows": sum(one.rows for one in record.files),
        "size_bytes": sum(one.size_bytes for one in record.files),
        "files": len(record.files),
    }


if __name__ == "__main__":
    pa.set_cpu_count(1)
    used(Path(sys.argv[1]), "small", 40)
    print(json.dumps(used(Path(sys.argv[1]), "large", 1600)))
