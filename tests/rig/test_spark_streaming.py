"""Spark streams and backfills give each record once, at any stop, and wherever a real broker has moved the record.

Rules of the file:

- The oracle is a plain consumer, which reads after the writers have stopped.
- A query writes by Spark's own file sink, which counts a batch only once.
- `--workload-seed` repeats a random stop.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from fetchers.local import LocalFetcher
from remote_fetch.errors import OffsetOutOfRange, StorageUnavailable, UnknownTopic
from remote_fetch.spark import backfill
from remote_fetch.spark.options import parse_options
from remote_fetch.spark.reader import read_task
from remote_fetch.spark.stream_driver import StreamDriver
from remote_fetch.spark.stream_limits import Positions, parse_trigger_limits
from tests.rig import topics
from tests.rig.rig import Rig
from tests.rig.test_read import mixed_topic, transaction
from tests.rig.test_spark import options_of
from tests.spark.buckets import COLUMNS, rows_of
from tests.spark.queries import DEADLINE_S, is_slow_start, run_to_end
from tests.spark.session import run_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., StreamDriver]

ROOT = Path(__file__).parents[2]
Record = tuple[int, int, bytes | None, bytes | None]


def records(rig: Rig, topic: str, partitions: int, isolation: str = "read_committed") -> list[Record]:
    """The records of a plain consumer, in order."""
    return [
        (one.partition, one.offset, one.key, one.value)
        for number in range(partitions)
        for one in topics.broker_records(rig, topic, number, isolation)
    ]


@contextlib.contextmanager
def live_producer(rig: Rig, topic: str, partitions: int) -> Iterator[None]:
    """Produce records until the block ends, some of them in transactions."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for seed in itertools.count():
                for number in range(partitions):
                    topics.produce(rig, topic, 20, partition=number, seed=1000 + seed)
                if seed % 5 == 4:
                    with transaction(rig, topic, 10, f"live-{seed}", seed=seed) as one:
                        one.abort_transaction(30) if seed % 2 else one.commit_transaction(30)
                if ended.wait(0.2 + seed / 100):  # it becomes slower, but never stops: a query may wait for records
                    return
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write, name="live-producer")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert failures == []


class LiveQuery:
    """A stream into files, which can be stopped and started again. Each start goes on with the checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._checkpoint, self.files = directory / "checkpoint", directory / "files"
        self._options = {"startingOffsets": "earliest", **options}

    def start(self, more: dict[str, str], *, source: str = "kafka_remote", **trigger: Any) -> Any:
        stream = self._spark.readStream.format(source).options(**{**self._options, **more}).load()
        writer = stream.select("partition", "offset", "key", "value").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._checkpoint)).trigger(**trigger)
        return writer.start(str(self.files))

    def written(self) -> list[Record]:
        """The counts of the sink, in order."""
        found = self._spark.read.parquet(str(self.files)).collect()
        rows = [(*row[:2], *(None if one is None else bytes(one) for one in row[2:])) for row in found]
        return sorted(((*row[:3], topics.shortened(row[3])) for row in rows), key=lambda row: row[:2])

    def forget_last_commit(self) -> bool:
        """Remove the last commit, as if the driver had died after the last batch and before its commit.

        Spark repeats only the batch that began last. Returns False if that batch has no commit: it is repeated anyway.
        """
        commits = self._checkpoint / "commits"
        last = _last(commits)
        kept = self.files / "_spark_metadata" / str(last)
        if last is None or last != _last(self._checkpoint / "offsets") or not kept.exists():
            return False
        for name in (commits / str(last), kept):
            name.unlink()
            name.with_name(f".{name.name}.crc").unlink(missing_ok=True)
        return True


def _last(folder: Path) -> int | None:
    return max((int(one.name) for one in folder.glob("[0-9]*")), default=None) if folder.exists() else None


def until_batches(query: Any, count: int) -> None:
    """Wait for this number of batches with rows. If the query was too slow to start, treat it as stopped."""
    deadline_s = time.monotonic() + DEADLINE_S
    while sum(one.numInputRows > 0 for one in query.recentProgress) < count:
        error = query.exception()
        if is_slow_start(error):
            return
        assert error is None
        assert time.monotonic() < deadline_s, query.status
        time.sleep(0.05)


@pytest.mark.soak
@pytest.mark.scheduled
@pytest.mark.slow
def test_stopped_and_started_again_at_random(
    rig_43: Rig, new_topic: Callable[[str], str], spark: SparkSession, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    given = pytestconfig.getoption("workload_seed")
    seed = random.SystemRandom().randrange(10**9) if given is None else given
    dice = random.Random(seed)
    print(f"seed {seed}")
    topic = new_topic("spark-stream")
    topics.create_topic(rig_43, topic, partitions=2)
    topics.produce(rig_43, topic, 150)
    topics.produce(rig_43, topic, 100, partition=1, compression_type="zstd")
    topics.wait_tiered(rig_43, topic, range(2))
    spark.conf.set("spark.sql.streaming.stopTimeout", "120s")
    committed = {"kafka.isolation.level": "read_committed"}
    query = LiveQuery(spark, tmp_path, {**options_of(rig_43, topic), **committed})
    counts = {"at once": 0, "after batches": 0, "done again": 0}
    with live_producer(rig_43, topic, 2):
        for _ in range(pytestconfig.getoption("stream_restarts")):
            limits = {
                "maxOffsetsPerTrigger": dice.randrange(5, 80),
                "maxBytesPerTrigger": dice.randrange(2_000, 40_000),
            }
            some = dice.sample(sorted(limits), dice.randrange(3))
            running = query.start({name: str(limits[name]) for name in some}, processingTime="0 seconds")
            try:
                if dice.random() < 0.3:
                    counts["at once"] += 1
                    pause_s = dice.random() * 2
                    time.sleep(pause_s)  # the query is stopped at a random place
                else:
                    counts["after batches"] += 1
                    until_batches(running, dice.randrange(1, 4))
                error = running.exception()
                assert error is None or is_slow_start(error)
            finally:
                running.stop()
            if dice.random() < 0.4:
                counts["done again"] += query.forget_last_commit()
    run_to_end(lambda: query.start({}, availableNow=True))
    assert query.written() == sorted(records(rig_43, topic, 2), key=lambda row: row[:2]), f"seed {seed}"
    print(counts)


@pytest.mark.scheduled
def test_a_checkpoint_serves_spark_s_own_source_too(
    rig_43: Rig, new_topic: Callable[[str], str], spark: SparkSession, tmp_path: Path
) -> None:
    topic = new_topic("spark-stream")
    topics.create_topic(rig_43, topic, partitions=2)
    query = LiveQuery(spark, tmp_path, options_of(rig_43, topic))
    for seed, source in enumerate(("kafka", "kafka_remote", "kafka")):
        for number in range(2):
            topics.produce(rig_43, topic, 30, partition=number, seed=seed)
        limit = {"maxOffsetsPerTrigger": "45"}
        running = run_to_end(functools.partial(query.start, limit, source=source, availableNow=True))
        assert query.written() == records(rig_43, topic, 2)
        assert sum(one.numInputRows for one in running.recentProgress) == 60, source


@pytest.fixture
def driver() -> Iterator[Make]:
    """Makes the driver's side of streams, each with its own session, and closes them at the end."""
    with contextlib.ExitStack() as made:

        def make(options: dict[str, str], **more: str) -> StreamDriver:
            given = {"startingOffsets": "earliest", **options, **more}
            return made.enter_context(
                contextlib.closing(StreamDriver(parse_options(given), parse_trigger_limits(given)))
            )

        yield make


def batch(stream: StreamDriver, start: Positions, end: Positions) -> list[tuple[int, int]]:
    """The partitions and offsets of a micro-batch's records."""
    config = stream._options.config
    rows = [row for task in stream.tasks(start, end) for row in rows_of(read_task(task, config, COLUMNS))]
    return [(row[1], row[2]) for row in rows]


def test_from_the_tier_to_the_broker_in_mid_stream(rig_43: Rig, new_topic: Callable[[str], str], driver: Make) -> None:
    topic = new_topic("spark-stream")
    mixed_topic(rig_43, topic)
    topics.set_config(rig_43, topic, local_retention_ms=-2)
    stream = driver(
        options_of(rig_43, topic), maxBytesPerTrigger="20000", **{"kafka.isolation.level": "read_committed"}
    )
    at, found, kinds = stream.initial(), [], []
    for _ in range(2):  # the first time, the tier's last records may come with the broker's: sizes of batches differ
        topics.produce(rig_43, topic, 20, sizes=(0, 24))  # too few to fill a segment, which would be tiered
        while (end := stream.next_stop(at, is_limited=True)) != at:
            tasks = stream.tasks(at, end)
            kinds.append({type(step).__name__ for task in tasks for step in task.steps})
            found += batch(stream, at, end)
            at = end
    assert found == [row[:2] for row in records(rig_43, topic, 1)]
    assert kinds[0] == {"SegmentSlice"}
    assert kinds[-1] == {"BrokerRange"}


def test_a_store_that_cannot_be_listed_in_some_batches(
    rig_43: Rig, new_topic: Callable[[str], str], driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic("spark-stream")
    mixed_topic(rig_43, topic)
    options = options_of(rig_43, topic, **{"remote.locator": "listing", "fetch.remote.when": "always"})
    stream = driver(options, maxOffsetsPerTrigger="60", **{"kafka.isolation.level": "read_committed"})
    list_segments, is_away = LocalFetcher.list_segments, True

    def listed(fetcher: LocalFetcher, of: str | None = None) -> Any:
        if is_away:
            raise StorageUnavailable("the store could not be reached")
        return list_segments(fetcher, of)

    monkeypatch.setattr(LocalFetcher, "list_segments", listed)
    at, found, kinds = stream.initial(), [], []
    while (end := stream.next_stop(at, is_limited=True)) != at:
        kinds.append({type(step).__name__ for task in stream.tasks(at, end) for step in task.steps})
        found += batch(stream, at, end)
        at, is_away = end, len(kinds) % 2 == 0
    assert found == [row[:2] for row in records(rig_43, topic, 1)]
    assert kinds[:4] == [{"BrokerRange"}, {"SegmentSlice"}] * 2


def test_partitions_that_are_new(rig_43: Rig, new_topic: Callable[[str], str], driver: Make) -> None:
    topic = new_topic("spark-stream")
    topics.create_topic(rig_43, topic)
    topics.produce(rig_43, topic, 10)
    stream = driver(options_of(rig_43, topic), startingOffsets="latest")
    at = stream.initial()
    assert at == {(topic, 0): 10}
    topics.add_partitions(rig_43, topic, 2)
    topics.produce(rig_43, topic, 5, partition=1)
    rig_43.until("the new partition", lambda: (topic, 1) in stream.next_stop(at, is_limited=False))
    end = stream.next_stop(at, is_limited=False)
    assert end == {(topic, 0): 10, (topic, 1): 5}
    assert batch(stream, at, end) == [(1, offset) for offset in range(5)]


@pytest.mark.scheduled
def test_a_topic_that_is_made_anew(
    rig_43: Rig, new_topic: Callable[[str], str], caplog: pytest.LogCaptureFixture, driver: Make
) -> None:
    topic = new_topic("spark-stream")
    topics.create_topic(rig_43, topic)
    topics.produce(rig_43, topic, 30)
    strict, lenient = driver(options_of(rig_43, topic)), driver(options_of(rig_43, topic), failOnDataLoss="false")
    at = {(topic, 0): 20}
    for stream in (strict, lenient):
        assert stream.next_stop(at, is_limited=False) == {(topic, 0): 30}
    topics.delete_topic(rig_43, topic)
    topics.create_topic(rig_43, topic)
    topics.produce(rig_43, topic, 25)
    with pytest.raises(OffsetOutOfRange, match="the topic was deleted and made again"):
        strict.next_stop(at, is_limited=False)
    with pytest.raises(OffsetOutOfRange, match="offset was changed from 30 to 25"):
        driver(options_of(rig_43, topic)).next_stop({(topic, 0): 30}, is_limited=False)
    end = lenient.next_stop(at, is_limited=False)
    assert "the topic was deleted and made again, some data may have been missed" in caplog.text
    assert batch(lenient, at, end) == [(0, offset) for offset in range(20, 25)]


@pytest.mark.parametrize("subscription", ["subscribe", "subscribePattern"])
def test_a_topic_that_is_deleted_while_it_is_looked_at(
    rig_43: Rig,
    new_topic: Callable[[str], str],
    caplog: pytest.LogCaptureFixture,
    driver: Make,
    monkeypatch: pytest.MonkeyPatch,
    subscription: str,
) -> None:
    """Between the survey of the topics and the questions about each of them."""
    kept, gone = new_topic("spark-stream-kept"), new_topic("spark-stream-gone")
    by = {"subscribe": f"{kept},{gone}", "subscribePattern": f"^({kept}|{gone})$"}[subscription]
    options = {**options_of(rig_43, kept), subscription: by}
    if subscription != "subscribe":
        del options["subscribe"]
    topics.create_topic(rig_43, kept)
    topics.produce(rig_43, kept, 10)
    survey, start = StreamDriver._survey, {(kept, 0): 0, (gone, 0): 0}
    both, left = {(kept, 0): 10, (gone, 0): 5}, {(kept, 0): 10}
    for fails, asks_for_tasks in itertools.product(("false", "true"), (False, True)):
        topics.create_topic(rig_43, gone)
        topics.produce(rig_43, gone, 5)
        stream, doomed = driver(options, failOnDataLoss=fails), [gone]
        assert stream.next_stop(start, is_limited=False) == both

        def surveyed(driver: StreamDriver, doomed: list[str] = doomed) -> Any:
            found = survey(driver)
            if doomed:
                topics.delete_topic(rig_43, doomed.pop())
            return found

        with monkeypatch.context() as patched:
            patched.setattr(StreamDriver, "_survey", surveyed)
            caplog.clear()
            lost = pytest.raises((OffsetOutOfRange, UnknownTopic), match=gone)
            with contextlib.nullcontext() if fails == "false" else lost:
                if asks_for_tasks:
                    assert batch(stream, start, both) == [(0, offset) for offset in range(10)]
                else:
                    assert stream.next_stop(start, is_limited=False) == left
            assert not doomed
            told = f"Partition {gone}-0: the partition is gone, or no option names it any more, some data may"
            assert fails == "true" or told in caplog.text


def test_records_deleted_before_they_were_read(rig_43: Rig, new_topic: Callable[[str], str], driver: Make) -> None:
    topic = new_topic("spark-stream")
    topics.create_topic(rig_43, topic)
    topics.produce(rig_43, topic, 60)
    at, end = {(topic, 0): 10}, {(topic, 0): 60}
    topics.delete_records(rig_43, topic, 0, 40)
    with pytest.raises(OffsetOutOfRange, match="offsets 10 to 39 are gone"):
        driver(options_of(rig_43, topic)).tasks(at, end)
    stream = driver(options_of(rig_43, topic), failOnDataLoss="false")
    assert batch(stream, at, end) == [(0, offset) for offset in range(40, 60)]


def test_a_backfill_with_the_brokers_part(
    rig_43: Rig, new_topic: Callable[[str], str], spark: SparkSession, tmp_path: Path
) -> None:
    topic = new_topic("spark-backfill")
    mixed_topic(rig_43, topic)
    topics.set_config(rig_43, topic, local_retention_ms=-2)
    topics.produce(rig_43, topic, 40)
    options = {**options_of(rig_43, topic), "kafka.isolation.level": "read_committed", "minPartitions": "3"}
    del options["subscribe"]
    done = backfill(spark, topic, to=str(tmp_path / "out"), options=options)
    table = ds.dataset(tmp_path / "out").to_table().sort_by("offset")
    expected = topics.broker_records(rig_43, topic, 0, "read_committed")
    assert table.column("offset").to_pylist() == [one.offset for one in expected]
    assert [topics.shortened(one) for one in table.column("value").to_pylist()] == [one.value for one in expected]
    assert 0 < done.cost.broker_records < done.rows == len(expected)
    assert done.cost.remote_gets > 0


@pytest.mark.scheduled
@pytest.mark.parametrize(
    ("name", "said"),
    [("06_spark_backfill.py", "rows in "), ("07_spark_available_now.py", "records in ")],
)
def test_an_example(
    rig_43: Rig,
    new_topic: Callable[[str], str],
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    said: str,
) -> None:
    topic = new_topic("spark-example")
    mixed_topic(rig_43, topic)
    run_script(spark, ROOT / "examples" / name, rig_43.bootstrap, str(rig_43.remote), topic, str(tmp_path / "out"))
    assert f"{len(records(rig_43, topic, 1))} {said}" in capsys.readouterr().out
