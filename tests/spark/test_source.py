"""The source inside a real Spark: rows, schema, filters, SQL, errors, and a worker that dies."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.functions import udf
from pyspark.sql.types import StructType

from remote_fetch import read_arrow
from remote_fetch.errors import ConfigError
from remote_fetch.spark import register
from remote_fetch.spark.batch import BatchReader, PushingReader
from remote_fetch.spark.options import parse_options
from remote_fetch.spark.registration import _can_import
from remote_fetch.spark.settings import settings_advice, worker_advice
from remote_fetch.spark.source import KafkaRemoteDataSource
from tests.cases import of_a_change
from tests.golden.conftest import SETS, Tier
from tests.scan.bucket import UNCOMMITTED, plain_log
from tests.scan.sparse import SparseTier
from tests.spark.buckets import bucket_alone, expected, tier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

ROOT = Path(__file__).parents[2]
HEADER = {"type": "struct", "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "binary"}]}


def load(spark: SparkSession, options: dict[str, str], **more: str) -> DataFrame:
    return spark.read.format("kafka_remote").options(**{**options, **more}).load()


def plain(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Rows of all columns as tuples of plain values, sorted by topic, partition and offset."""
    found = [
        (
            *(None if one is None else bytes(one) for one in row[:2]),
            *row[2:5],
            round(row[5].timestamp() * 1000),
            row[6],
            None if row[7] is None else tuple((key, None if value is None else bytes(value)) for key, value in row[7]),
        )
        for row in rows
    ]
    return sorted(found, key=lambda row: row[2:5])


@pytest.mark.parametrize("isolation", of_a_change(["read_committed", "read_uncommitted"]))
@pytest.mark.parametrize("name", of_a_change(SETS))
def test_everything_that_real_brokers_wrote(spark: SparkSession, name: str, isolation: str) -> None:
    """As `read_arrow` reads it, which is compared with the brokers' own reading elsewhere."""
    golden = Tier(name)
    topics = sorted({place.topic for place in golden.places})
    options = {"subscribe": ",".join(topics), **bucket_alone(golden.url), "includeHeaders": "true"}
    frame = load(spark, options, **{"kafka.isolation.level": isolation, "fetch.remote.task.bytes": "50000"})
    assert frame.rdd.getNumPartitions() > 4
    wanted = [
        (
            *(row[column] for column in ("key", "value", "topic", "partition", "offset")),
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            tuple((one["key"], one["value"]) for one in row["headers"]) or None,
        )
        for topic in topics
        for row in read_arrow(topic, isolation=isolation, config={"remote.storage.url": golden.url})
        .read_all()
        .to_pylist()
    ]
    assert plain(frame.collect()) == wanted


def test_records_behind_4_gib(spark: SparkSession, tmp_path: Path) -> None:
    """Of a segment whose size metadata cannot hold (KIP-1333)."""
    sparse = SparseTier(tmp_path, 8 << 30)
    options = {"subscribe": "topic", **bucket_alone(tmp_path), **sparse.clamped(tmp_path)}
    rows = load(spark, options, startingOffsets='{"topic": {"0": 1503}}').select("offset", "value").collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == [(1503 + n, b"last%d" % n) for n in range(3)]


def test_fewer_columns(spark: SparkSession, tmp_path: Path) -> None:
    log = plain_log()
    options = tier(tmp_path, log.segments())
    frame = spark.read.format("kafka_remote").options(**options).schema("offset long, value binary").load()
    assert [(row.offset, bytes(row.value)) for row in frame.collect()] == [
        (one.offset, one.value) for one in log.records()
    ]
    assert load(spark, options).columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    assert load(spark, options).count() == 60


@pytest.mark.parametrize(
    ("setting", "value"),
    [("spark.sql.timestampType", "TIMESTAMP_NTZ"), ("spark.sql.ansi.enforceReservedKeywords", "true")],
)
def test_the_schema_whatever_the_session_makes_of_ddl(
    spark: SparkSession, tmp_path: Path, setting: str, value: str
) -> None:
    options = {**tier(tmp_path, plain_log().segments()), "includeHeaders": "true"}
    expected = load(spark, options).toArrow()
    spark.conf.set(setting, value)
    try:
        found = load(spark, options).toArrow()
    finally:
        spark.conf.unset(setting)
    assert found.num_rows
    assert found == expected


def test_nothing_to_read(spark: SparkSession, tmp_path: Path) -> None:
    """Spark makes a task of a plan that has none."""
    options = tier(tmp_path, plain_log().segments())
    frame = load(spark, options, startingOffsets='{"topic":{"0":60}}')
    assert (frame.count(), frame.collect()) == (0, [])


@pytest.mark.parametrize("partition", [None, InputPartition(None)])
def test_what_spark_makes_of_a_plan_without_tasks(partition: Any) -> None:
    """PySpark 4.1 passes None, and later versions pass a partition of None."""
    options = parse_options({"subscribe": "topic", **bucket_alone("memory://nowhere")})
    assert list(BatchReader(options, ("value",)).read(partition)) == []


def test_filters_that_are_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    """One load for each query, in which it stands once."""
    registered = register(spark)
    options = tier(tmp_path, plain_log().segments())

    def pushed() -> DataFrame:
        return load(spark, options, **{"fetch.remote.pushdown": "one-query"})

    narrowed = pushed().where("partition = 0 and offset between 25 and 34")
    assert [row.offset for row in narrowed.collect()] == list(range(25, 35))
    assert "Filter (" not in plan_of(narrowed)
    bytes_pushed = registered.report.remote_bytes
    assert load(spark, options).where("offset between 25 and 34").count() == 10
    assert 0 < 2 * bytes_pushed < registered.report.remote_bytes - bytes_pushed
    later = pushed().where("partition = 0 and offset between 25 and 34 and timestamp >= '2000-01-01'")
    assert later.count() == 10
    assert "Filter (timestamp" in plan_of(later)
    assert pushed().where("partition in (1, 2)").count() == 0
    assert "Filter (" in plan_of(load(spark, options).where("offset = 1"))


@pytest.mark.parametrize("value", of_a_change(["true", "True", "false"]))
def test_queries_that_share_a_data_frame(spark: SparkSession, tmp_path: Path, value: str) -> None:
    """Spark keeps one plan for a load (docs/design/0037-filters-of-spark.md). No filter of a query may be in it."""
    options = tier(tmp_path, plain_log().segments()) | {"fetch.remote.pushdown": value}
    shared = load(spark, options)
    shared.createOrReplaceTempView("shared")
    for frame in (shared, spark.table("shared")):
        first, last = frame.where("offset < 10"), frame.where("offset >= 58")
        assert [one.count() for one in (first, frame, last, frame)] == [10, 60, 2, 60]
        assert frame.where("partition = 1").count() == 0
        both = first.select("offset").union(last.select("offset"))
        assert sorted(row.offset for row in both.collect()) == [*range(10), 58, 59]


def test_a_value_that_pushed_filters_before(caplog: pytest.LogCaptureFixture) -> None:
    for value in ("false", "one-query", "true"):
        source = KafkaRemoteDataSource({"subscribe": "t", **bucket_alone("/tier"), "fetch.remote.pushdown": value})
        with caplog.at_level(logging.WARNING, "remote_fetch"):
            assert isinstance(source.reader(source.schema()), PushingReader) == (value == "one-query")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    said = record.getMessage()
    assert said.startswith("fetch.remote.pushdown=true pushes no filters: Spark keeps one plan for each load()")
    assert "Write fetch.remote.pushdown=one-query if" in said


def plan_of(frame: DataFrame) -> str:
    """The physical plan, as Spark prints it."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_sql_and_tables(spark: SparkSession, tmp_path: Path) -> None:
    options = tier(tmp_path, plain_log().segments())
    listed = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW records USING kafka_remote OPTIONS ({listed})")
    assert spark.sql("SELECT count(*), max(offset) FROM records").collect()[0] == (60, 59)


def test_a_view_that_is_made_again_has_what_came_since(spark: SparkSession, tmp_path: Path) -> None:
    built = plain_log().segments()
    options = {"subscribe": "topic", **bucket_alone(tmp_path)}
    listed = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    for number, count in ((1, 20), (3, 60)):
        tier(tmp_path, built[:number])
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW growing USING kafka_remote OPTIONS ({listed})")
        assert spark.table("growing").count() == load(spark, options).count() == count


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "topic", "startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"subscribe": "topic", "assign": "{}"}, "Only one of the following options can be specified for Kafka source"),
        ({"subscribe": "elsewhere"}, "no segment of topic 'elsewhere'"),
        ({"subscribe": "topic", "startingOffsets": '{"topic":{"1":0}}'}, "you must specify all TopicPartitions"),
        ({"subscribe": "topic", "startingTimestamp": str(2**50)}, "No offset matched from request of topic-partition"),
    ],
)
def test_what_is_wrong_is_said_before_a_task_begins(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    where = {name: value for name, value in tier(tmp_path, plain_log().segments()).items() if "locator" not in name}
    del where["subscribe"]
    with pytest.raises(Exception, match="(?s)" + message):
        load(spark, {**where, **options}).collect()


def test_a_worker_that_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    """Its task is done again: no row is lost, none comes twice."""
    log = plain_log(segments=6)
    options = tier(tmp_path / "tier", log.segments())
    mark = tmp_path / "killed"
    options |= {
        "remote.storage.fetcher.class": "killing:KillingFetcher",
        "remote.storage.fetcher.class.path": str(ROOT / "tests" / "spark"),
        "remote.storage.options.kill.at": "60",
        "remote.storage.options.kill.mark": str(mark),
        "includeHeaders": "true",
        "minPartitions": "4",
    }
    rows = plain(load(spark, options).collect())
    assert mark.exists()
    assert [(*row[2:6], *row[:2], row[7]) for row in rows] == expected(log.expected(UNCOMMITTED, 0, 120))


def test_what_reads_cost(spark: SparkSession, tmp_path: Path) -> None:
    registered = register(spark)
    assert registered.hints == ()
    assert load(spark, tier(tmp_path, plain_log().segments())).count() == 60
    report = registered.report
    assert (report.records, report.remote_gets, report.broker_records) == (60, 3, 0)


def test_a_second_session_of_a_driver(spark: SparkSession, tmp_path: Path) -> None:
    """Each has the format and its own report, and the active session stays the same."""
    registered, options = register(spark), tier(tmp_path, plain_log().segments())
    active = type(spark).getActiveSession()
    second = spark.newSession()
    also = register(second)
    assert type(spark).getActiveSession() is active
    assert [load(one, options).count() for one in (spark, second, second)] == [60, 60, 60]
    assert (registered.report.records, also.report.records) == (60, 120)
    assert register(second).report.records == 0
    assert load(second, options).count() == 60


def test_workers_pass_over_what_a_task_has_loaded(spark: SparkSession, tmp_path: Path) -> None:
    def frozen(number: int) -> int:
        import gc

        return gc.get_freeze_count() + 0 * number

    assert load(spark, tier(tmp_path, plain_log().segments())).count() == 60
    counted = udf(frozen, "int", useArrow=False).asNondeterministic()
    rows = spark.range(0, 16, 1, 16).select(counted("id")).collect()  # more tasks than workers: each has its turn
    assert max(row[0] for row in rows) > 10_000


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"remote.storage.layot": "x"}, "ConfigError: unknown configuration key 'remote.storage.layot'; the nearest"),
        ({"subscribe": "topics"}, "UnknownTopic: no segment of topic 'topics' is in the remote storage"),
        ({"remote.storage.url": "/no/such/tier"}, "SegmentNotFound: no such object [topic-0, object "),
        ({"startingOffsets": "soon"}, "ConfigError: "),
    ],
    ids=["a misspelt option", "an unknown topic", "an unknown place", "a bound that is none"],
)
def test_errors_on_the_driver_are_short(spark: SparkSession, tmp_path: Path, more: dict[str, str], said: str) -> None:
    """Spark's head, one frame, and the sentence with its hint."""
    options = tier(tmp_path, plain_log().segments())
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        load(spark, {**options, **more}).collect()
    lines = str(caught.value).partition("\n\nJVM stacktrace")[0].strip().splitlines()
    assert len(lines) <= 5, lines
    assert lines[3].startswith(f"remote_fetch.errors.{said}")


def test_errors_of_tasks_are_short(spark: SparkSession, tmp_path: Path) -> None:
    options = tier(tmp_path, plain_log().segments())
    for path in tmp_path.rglob("*.log"):
        path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(Exception, match="CorruptSegment") as caught:
        load(spark, options).collect()
    text = str(caught.value)
    assert "remote_fetch.errors.CorruptSegment: " in text
    own = {line.split('"')[1].rpartition("/")[2] for line in text.splitlines() if "/remote_fetch/" in line}
    assert own == {"brief_errors.py"}


def test_a_write_is_refused_in_one_sentence(spark: SparkSession) -> None:
    """A job whose formats were all renamed meets it. PySpark's own error says `writer is not implemented`."""
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        spark.range(1).write.format("kafka_remote").mode("append").save()
    lines = str(caught.value).partition("\n\nJVM stacktrace")[0].strip().splitlines()
    assert len(lines) <= 5, lines
    assert 'kafka_remote reads topics, and writes none. Keep write.format("kafka")' in lines[3]
    source = KafkaRemoteDataSource({})
    with pytest.raises(ConfigError, match=r'Keep writeStream.format\("kafka"\)'):
        source.streamWriter(StructType(), overwrite=False)


def test_workers_without_the_package() -> None:
    """The advice names both Pythons. A Python beside this one is not asked."""
    asked: list[str] = []

    def can_import(python: str) -> bool:
        asked.append(python)
        return python == "/good/bin/python3"

    assert list(worker_advice(None, "/env/bin/python", can_import)) == []
    assert list(worker_advice("/env/bin/python3", "/env/bin/python", can_import)) == []
    assert asked == []
    assert list(worker_advice("/good/bin/python3", "/env/bin/python", can_import)) == []
    (text,) = worker_advice("/usr/bin/python3", "/env/bin/python", can_import)
    assert "/usr/bin/python3, where remote-fetch cannot be imported" in text
    assert "PYSPARK_PYTHON to a Python that has it, such as /env/bin/python" in text


def test_a_python_that_has_the_package_and_one_that_has_not() -> None:
    bare = str(Path(sys.base_prefix) / "bin" / "python3")
    assert _can_import(sys.executable)
    assert not _can_import(bare)
    assert _can_import("/no/such/python")  # it is not here, so nothing is known


def test_settings_that_slow_it_down() -> None:
    settings = {
        "spark.python.unix.domain.socket.enabled": "false",
        "spark.python.worker.reuse": "false",
        "spark.sql.execution.arrow.maxBytesPerOutputBatch": "65536",
    }
    said = list(settings_advice(settings.get))
    assert [text.split()[0] for text in said] == list(settings)
    assert list(settings_advice({"spark.python.unix.domain.socket.enabled": "true"}.get)) == []


def test_spark_finds_the_format_by_itself(tmp_path: Path) -> None:
    """Where the package is installed Spark looks for `pyspark_*` and its DefaultSource."""
    script = (
        "import json, pkgutil, importlib, sys\n"
        "names = [one.name for one in pkgutil.iter_modules() if one.name.startswith('pyspark_')]\n"
        "print(json.dumps([importlib.import_module(name).DefaultSource.name() for name in names]))\n"
    )
    where = ROOT / "remote_fetch" / "spark" / "discovery"
    found = subprocess.run(
        [sys.executable, "-c", script],
        cwd=where,
        check=True,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert "kafka_remote" in json.loads(found.stdout)


@pytest.mark.parametrize(
    "column",
    [
        {"name": "offset", "type": "long", "nullable": False},
        {"name": "headers", "type": {"type": "array", "elementType": HEADER, "containsNull": False}},
    ],
)
def test_a_schema_without_nulls_is_refused_before_a_task_begins(column: dict[str, Any]) -> None:
    """PySpark compares it with that of the rows, in each task."""
    source = KafkaRemoteDataSource({"subscribe": "topic", "includeHeaders": "true", **bucket_alone("/bucket")})
    source.reader(source.schema())
    with pytest.raises(ConfigError, match=f"'{column['name']}' of the given schema has the type .*, not .* NOT NULL"):
        source.reader(StructType.fromJson({"type": "struct", "fields": [column]}))


def test_a_stream_with_wrong_options_answers_no_question() -> None:
    """If `streamReader` itself raised, PySpark would report an error of its own in place of the cause."""
    pytest.importorskip("remote_fetch.spark.streaming", exc_type=ImportError)  # PySpark 4.1 has no streams
    options = {"subscribe": "topic", **bucket_alone("/bucket")}
    source = KafkaRemoteDataSource({**options, "endingOffsets": "latest"})
    stream: Any = source.streamReader(source.schema())
    for ask in (
        stream.prepareForTriggerAvailableNow,
        stream.getDefaultReadLimit,
        stream.initialOffset,
        lambda: stream.latestOffset({}, None),
        stream.reportLatestOffset,
        lambda: stream.partitions({}, {}),
        lambda: stream.read(None),
    ):
        with pytest.raises(ConfigError, match="ending offset not valid in streaming queries"):
            ask()
    stream.stop()
