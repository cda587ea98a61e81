"""`format("kafka_remote")` and `backfill`, beside Spark's own Kafka source, over topics that are tiered.

Rules of the file:

- One real broker tiers the topics to a directory on the local disk, and deletes its own copy. Its JVM optimises as in
  production.
- All jobs use one Spark session, `local[2]`, with the settings of the how-to. Its JVM has run for a while, as in a
  cluster.
- Each job runs once on each topic before the clock starts. Its result is compared with the others': rows, offsets, all
  columns.
- Then all take turns, `--rounds` times. Each figure is the least of the rounds.
- `--write` puts the tables into docs/performance/.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from remote_fetch.spark import register
from remote_fetch.tables.parquet_files import COMPRESSIONS
from tests.benchmarks.bench_broker import Shape, add_shape_options, fill, large_batches
from tests.benchmarks.document import machine
from tests.benchmarks.on_a_broker import add_options, run
from tests.benchmarks.spark_jobs import (
    BACKFILL,
    DEFAULT,
    OURS,
    TUNED,
    TUNED_PARQUET,
    Contents,
    Cost,
    SparkJob,
    jobs_of,
    measure,
)
from tests.rig.metrics import topic_metrics
from tests.rig.rig import Rig
from tests.spark.session import session
from tests.stores.s3_server import s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AIMS: Mapping[str, tuple[float, float, float]] = MappingProxyType({"none": (2.5, 0.6, 4), "zstd": (2, 0.6, 4)})
"""By codec: speed to the tuned source's without a sink, its share of total CPU, and speed when Parquet is written."""
PARTITIONS = 2
MIN_SIZE_MB = 4
DRIVER_MEMORY = "3g"  # the source of the JVM keeps what it has fetched ahead, in every cached consumer
RATIO_HEAD = (
    "| value bytes | codec | kafka_remote / tuned | aim | / default | total CPU: ours / tuned's | aim "
    "| executors' CPU: ours / tuned's | backfill / tuned to Parquet | aim | total CPU: ours / tuned's "
    "| bytes of records that the broker sent: ours | tuned's |\n"
    f"|{'---|' * 13}"
)


@dataclass(frozen=True, slots=True)
class Best:
    """The least of one job's rounds on one topic, figure by figure, and how much it read in each."""

    rows: int
    value_bytes: int
    wall_s: float
    total_s: float
    executor_s: float
    jvm_s: float
    python_s: float
    broker_s: float
    sent_bytes: int

    @property
    def krows_per_s(self) -> float:
        """Thousands of records a second."""
        return self.rows / self.wall_s / 1e3


def best_of(rounds: Sequence[Cost], rows: int, value_bytes: int, sent_bytes: int) -> Best:
    """The least of each figure."""

    def least(figure: Callable[[Cost], float]) -> float:
        return min(map(figure, rounds))

    return Best(
        rows,
        value_bytes,
        wall_s=least(lambda one: one.wall_s),
        total_s=least(lambda one: one.total_s),
        executor_s=least(lambda one: one.executor_s),
        jvm_s=least(lambda one: one.jvm_s),
        python_s=least(lambda one: one.python_s),
        broker_s=least(lambda one: one.broker_s),
        sent_bytes=sent_bytes,
    )


@dataclass(frozen=True, slots=True)
class Bench:
    """The parts that the measurements of all topics share."""

    rig: Rig
    spark: SparkSession
    jobs: Sequence[SparkJob]
    rounds: int

    def measure(self, shape: Shape, size_mb: int) -> dict[str, Best]:
        """Every job on a topic of that shape and about `size_mb` of values. Raises ValueError where one reads else."""
        records = (size_mb << 20) // shape.value_bytes
        topic = f"{shape.value_bytes}-{shape.codec}-{size_mb}"
        fill(self.rig, topic, shape, records)
        contents, sent_bytes = self._checked(topic, records)
        costs: dict[str, list[Cost]] = {job.name: [] for job in self.jobs}
        for _ in range(self.rounds):
            for job in self.jobs:
                costs[job.name].append(measure(self.spark, self.rig, job, topic))
        value_bytes = contents.rows * shape.value_bytes
        return {name: best_of(costs[name], contents.rows, value_bytes, sent_bytes[name]) for name in costs}

    def _checked(self, topic: str, records: int) -> tuple[Contents, dict[str, int]]:
        """The rows that all jobs read, and by job the record bytes that the broker sends for it, by its own count."""
        found: dict[str, Contents] = {}
        sent_bytes: dict[str, int] = {}
        before = topic_metrics(self.rig, topic)
        for job in self.jobs:
            found[job.name] = job.contents(self.spark, topic)
            after = topic_metrics(self.rig, topic)
            sent_bytes[job.name], before = (after - before).bytes_out, after
        (first, *others) = set(found.values())
        if others or first.rows != records:
            raise ValueError(f"{topic}, which has {records} records: {found}")
        return first, sent_bytes


def ratios(shape: Shape, best: Mapping[str, Best]) -> str:
    """The line of the first table."""
    ours, tuned, backfill, written = best[OURS], best[TUNED], best[BACKFILL], best[TUNED_PARQUET]
    speed, share, parquet_speed = AIMS[shape.codec]
    cells = [
        f"**{tuned.wall_s / ours.wall_s:.1f}**",
        f"{speed:g}",
        f"{best[DEFAULT].wall_s / ours.wall_s:.1f}",
        f"**{ours.total_s / tuned.total_s:.2f}**",
        f"{share:g}",
        f"{ours.executor_s / tuned.executor_s:.2f}",
        f"**{written.wall_s / backfill.wall_s:.1f}**",
        f"{parquet_speed:g}",
        f"{backfill.total_s / written.total_s:.2f}",
        f"{ours.sent_bytes + backfill.sent_bytes:,}",
        f"{tuned.sent_bytes + written.sent_bytes:,}",
    ]
    return f"| {shape.value_bytes:,} | {shape.codec} | {' | '.join(cells)} |"


def details(shape: Shape, found: Mapping[int, Mapping[str, Best]]) -> Iterator[str]:
    """The lines of the second table: each job's speed at each size and between them, and its CPU at the largest."""
    small, large = found[min(found)], found[max(found)]
    for name, one in large.items():
        grown_s = one.wall_s - small[name].wall_s
        slope = (one.rows - small[name].rows) / grown_s / 1e3 if grown_s > 0 else 0.0
        rival = large[TUNED_PARQUET if "Parquet" in name else TUNED]
        cells = [
            *(f"{found[size_mb][name].wall_s:.2f}" for size_mb in sorted(found)),
            f"{one.krows_per_s:,.0f}",
            f"{slope:,.0f}" if slope else "-",
            f"{one.value_bytes / one.wall_s / 1e6:,.0f}",
            f"{rival.wall_s / one.wall_s:.2f}",
            f"{one.total_s:.2f}",
            f"{one.jvm_s:.2f}",
            f"{one.python_s:.2f}",
            f"{one.broker_s:.2f}",
            f"{one.executor_s:.2f}",
        ]
        yield f"| {shape.value_bytes:,} | {shape.codec} | {name} | {' | '.join(cells)} |"


def report(bench: Bench, shapes: Sequence[Shape], sizes_mb: Sequence[int]) -> str:
    """The whole section: machine and both tables."""
    first: list[str] = []
    second: list[str] = []
    for shape in shapes:
        found = {size_mb: bench.measure(shape, size_mb) for size_mb in sizes_mb}
        first.append(ratios(shape, found[max(sizes_mb)]))
        second += details(shape, found)
        print(first[-1], flush=True)
    walls = " | ".join(f"s, {size_mb} MB" for size_mb in sizes_mb)
    head = (
        f"| value bytes | codec | job | {walls} | thousand rows/s | between the sizes | MB/s | tuned's time by it "
        f"| CPU s, total | JVM | Python | broker | executors |\n|{'---|' * (12 + len(sizes_mb))}"
    )
    versions = f"{machine('pyspark', 'pyarrow', 'confluent-kafka')} Kafka {bench.rig.version} on the same cores."
    return "\n".join([versions, "", RATIO_HEAD, *first, "", head, *second])


def measured(rig: Rig, arguments: argparse.Namespace) -> str:
    """The section, by a session that is started for it."""
    shapes = list(large_batches(arguments, [PARTITIONS]))
    with (
        tempfile.TemporaryDirectory(prefix="remote-fetch-bench-") as name,
        session("local[2]", Path(name), driver_memory=DRIVER_MEMORY, java_options=arguments.java_options) as spark,
    ):
        hints = register(spark).hints
        if hints:
            raise RuntimeError(f"the session is not set up as the product asks for: {hints}")
        with s3_server(Path(name) / "s3", rig.remote) if arguments.s3 else nullcontext() as server:
            s3 = server.configs() if server else {}
            jobs = jobs_of(rig, Path(name), s3, arguments.latency_ms, arguments.parquet)
            return report(Bench(rig, spark, jobs, arguments.rounds), shapes, sorted(arguments.sizes))


def main() -> int:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 192], metavar="MB", help="MB of values (64 192)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, the best of which counts (default: 3)")
    add_shape_options(parser)
    parser.add_argument("--s3", action="store_true", help="also ours out of an S3 server over the same directory")
    parser.add_argument(
        "--latency-ms", type=int, default=0, metavar="MS", help="also ours with so much more time for each GET"
    )
    parser.add_argument(
        "--parquet",
        choices=tuple(COMPRESSIONS),
        default="snappy",
        help="how both compress Parquet (Spark's own: snappy)",
    )
    parser.add_argument("--java-options", default="", metavar="OPTIONS", help="of the JVM that runs driver and tasks")
    add_options(parser)
    arguments = parser.parse_args()
    if min(arguments.sizes) < MIN_SIZE_MB:
        parser.error(f"--sizes: {PARTITIONS} partitions with full batches of 1 MB need {MIN_SIZE_MB} MB")
    return run("bench_spark", arguments, RATIO_HEAD, lambda rig: measured(rig, arguments))


if __name__ == "__main__":
    sys.exit(main())
