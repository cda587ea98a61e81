"""Streaming queries by a real Spark over golden buckets: everything once, whatever the limits, stops and restarts.

Rules of the file:

- A query writes Parquet files, by Spark's own sink, which counts a batch only once.
- Their rows are compared with `read_arrow`.
- A bucket that grows is a copy to which segments are added.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remote_fetch import read_arrow
from tests.cases import of_a_change
from tests.golden.conftest import SETS, Tier
from tests.scan.bucket import plain_log
from tests.spark.buckets import bucket_alone, tier
from tests.spark.queries import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Place = tuple[str, int, int]


class Stream:
    """One query, of which each run goes on with the checkpoint and the files of the one before."""

    def __init__(self, spark: SparkSession, directory: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._checkpoint, self._files = directory / "checkpoint", directory / "files"
        self._options = {"startingOffsets": "earliest", **options}

    def run(self, **more: str) -> list[int]:
        """Read what is there now, and stop; returns the rows of each batch."""
        stream = self._spark.readStream.format("kafka_remote").options(**{**self._options, **more}).load()
        writer = (
            stream.select("topic", "partition", "offset", "value")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
        )
        query = run_to_end(lambda: writer.start(str(self._files)))
        return [one.numInputRows for one in query.recentProgress if one.numInputRows]

    def places(self) -> list[Place]:
        """Where the rows came from that have been written, in order."""
        found = self._spark.read.parquet(str(self._files)).select("topic", "partition", "offset").collect()
        return sorted(tuple(row) for row in found)

    def offsets(self) -> list[Any]:
        """The end of each batch, as the checkpoint has it."""
        files = sorted((one for one in (self._checkpoint / "offsets").glob("[0-9]*")), key=lambda one: int(one.name))
        return [json.loads(one.read_text(encoding="utf-8").splitlines()[-1]) for one in files]


def places_in(config: dict[str, str], topics: list[str], isolation: str = "read_uncommitted") -> list[Place]:
    found: list[Place] = []
    for topic in topics:
        table = read_arrow(topic, isolation=isolation, config=config, columns=["partition", "offset"]).read_all()
        found += [(topic, row["partition"], row["offset"]) for row in table.to_pylist()]
    return sorted(found)


@pytest.mark.parametrize("isolation", of_a_change(["read_committed", "read_uncommitted"]))
def test_available_now_drains(spark: SparkSession, tmp_path: Path, isolation: str) -> None:
    golden = Tier(SETS[0])
    topics = ["codecs", "tx"]
    options = {"subscribe": ",".join(topics), **bucket_alone(golden.url), "kafka.isolation.level": isolation}
    stream = Stream(spark, tmp_path, options)
    expected = places_in({"remote.storage.url": golden.url}, topics, isolation)
    assert stream.run() == [len(expected)]
    assert stream.places() == expected
    assert stream.run() == [], "there is nothing new"
    ends: dict[str, dict[str, int]] = {}
    for topic in topics:
        numbers = sorted({number for name, number, _ in expected if name == topic})
        ends[topic] = {str(number): stream.offsets()[-1][topic][str(number)] for number in numbers}
    assert json.dumps(stream.offsets()[-1]) == json.dumps(ends), "in the one order"


def test_limits_and_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """The batches have different limits. A batch that was not committed is repeated, and counted once."""
    golden = Tier(SETS[1])
    stream = Stream(spark, tmp_path, {"subscribe": "codecs", **bucket_alone(golden.url)})
    expected = places_in({"remote.storage.url": golden.url}, ["codecs"])
    bounds = {str(number): 20 for number in range(5)}
    first = stream.run(maxOffsetsPerTrigger=str(len(expected) // 3))
    assert len(first) >= 3
    assert max(first) <= len(expected) // 3 + len(bounds)
    assert stream.places() == expected
    # The driver dies before the last two batches are committed, and the sink has lost the last one.
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda one: int(one.name))
    last = commits[-1].name
    for folder in (commits[-1].parent, tmp_path / "files" / "_spark_metadata"):
        (folder / last).unlink()
        (folder / f".{last}.crc").unlink()
    assert len(stream.places()) == len(expected) - first[-1]
    assert stream.run(maxBytesPerTrigger="3000") == first[-1:]
    assert stream.places() == expected


def test_a_bucket_that_grows(spark: SparkSession, tmp_path: Path) -> None:
    log = plain_log()
    built = log.segments()
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    stream = Stream(spark, tmp_path, {})
    counts = []
    for number in (1, len(built) - 1, len(built)):
        options = tier(bucket, built[:number])
        counts.append(sum(stream.run(**options, maxBytesPerTrigger="100000")))
    assert all(counts)
    assert stream.places() == [("topic", 0, one.offset) for one in log.records()]


def test_an_end_is_for_batches(spark: SparkSession, tmp_path: Path) -> None:
    options = {"subscribe": "codecs", **bucket_alone(Tier(SETS[0]).url)}
    with pytest.raises(Exception, match="ending offset not valid in streaming queries") as refused:
        Stream(spark, tmp_path, options).run(endingOffsets="latest")
    assert "UnboundLocalError" not in str(refused.value), "PySpark's own, about a reader that it does not have"
