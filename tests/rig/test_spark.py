"""Compares the rows of the Spark source with a plain consumer's on a real broker, for all kinds of options.

Rules of the file:

- A few tests use a real session, to see how Spark handles the rows.
- The rest read the tasks one by one, as workers would, in reverse order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remote_fetch.errors import ConfigError, OffsetOutOfRange, RemoteFetchError
from remote_fetch.observe import Report
from remote_fetch.spark.options import parse_options
from remote_fetch.spark.stream_driver import StreamDriver
from remote_fetch.spark.stream_limits import parse_trigger_limits
from tests.cases import of_a_change
from tests.rig import topics
from tests.rig.location_broker import located
from tests.rig.metrics import topic_metrics
from tests.rig.rig import Rig
from tests.rig.test_read import ISOLATIONS, mixed_topic, transaction
from tests.rig.test_readme import BROKER, TIER, TOPIC, readme
from tests.rig.topics import OracleRecord
from tests.rig.workload_oracle import listed_offset
from tests.spark.buckets import Row, planned, read
from tests.spark.session import run_script
from tests.spark.test_source import plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def options_of(rig: Rig, topic: str, **more: str) -> dict[str, str]:
    options = {"subscribe": topic, "kafka.bootstrap.servers": rig.bootstrap, "remote.storage.url": str(rig.remote)}
    return {**options, "kafka.log_level": "0", **more}


def shown(records: Iterable[OracleRecord]) -> list[Row]:
    """A consumer's records as rows of the Spark source."""
    return [
        (one.topic, one.partition, one.offset, one.timestamp_ms, one.key, one.value, one.headers or None)
        for one in records
    ]


def rows(options: dict[str, str], **more: str) -> tuple[list[Row], Report]:
    found, report = read({**options, **more})
    return [(*row[:5], topics.shortened(row[5]), row[6]) for row in found], report


@pytest.fixture(scope="module")
def halves() -> Callable[[Rig], str]:
    """Makes the topic of `half_tiered` on a rig."""

    @cache
    def half_of(rig: Rig) -> str:
        topic = "spark-half"
        mixed_topic(rig, topic)
        topics.set_config(rig, topic, local_retention_ms=-2)
        topics.produce(rig, topic, 40, seed=20)
        return topic

    return half_of


@pytest.fixture
def half_tiered(rig_43: Rig, halves: Callable[[Rig], str]) -> str:
    """A topic with every codec, and committed and aborted transactions. Its later records are not in the tier.

    A test that reads it does not change it.
    """
    return halves(rig_43)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_rows_in_spark(rig: Rig, halves: Callable[[Rig], str], spark: SparkSession, isolation: str) -> None:
    """The rows equal those of a plain consumer, and those of Spark's own Kafka source."""
    topic = halves(rig)
    options = options_of(rig, topic, includeHeaders="true", minPartitions="5", **{"kafka.isolation.level": isolation})
    found = plain(spark.read.format("kafka_remote").options(**options).load().collect())
    expected = topics.broker_records(rig, topic, 0, isolation)
    assert [(*row[2:6], row[0], topics.shortened(row[1]), row[7]) for row in found] == shown(expected)
    assert [row[6] for row in found] == [one.timestamp_type for one in expected]
    theirs = {name: value for name, value in options.items() if not name.startswith(("remote.", "kafka.log_level"))}
    own = spark.read.format("kafka").options(**theirs).load()
    assert own.dtypes == spark.read.format("kafka_remote").options(**options).load().dtypes
    assert plain(own.collect()) == found


def test_an_open_transaction(rig_43: Rig, new_topic: Callable[[str], str]) -> None:
    topic = new_topic("spark")
    mixed_topic(rig_43, topic)
    with transaction(rig_43, topic, 60, "open") as producer:
        topics.produce(rig_43, topic, 60, seed=3)
        tasks: tuple[dict[str, str], ...] = ({}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "17"})
        for isolation in ISOLATIONS:
            expected = shown(topics.broker_records(rig_43, topic, 0, isolation))
            for more in tasks:
                found, report = rows(options_of(rig_43, topic, **more), **{"kafka.isolation.level": isolation})
                assert found == expected, (isolation, more)
                assert report.remote_gets > 0
        # The log has these offsets. A message that the log ended before them would send its reader astray.
        stable, offsets = 262, json.dumps({topic: {"0": 300}})
        options = options_of(rig_43, topic, **{"kafka.isolation.level": "read_committed"})
        with pytest.raises(OffsetOutOfRange, match=f"the last stable offset is {stable}, before 300"):
            planned({**options, "endingOffsets": offsets})
        begun = {**options, "startingOffsets": offsets}
        stream = StreamDriver(parse_options(begun), parse_trigger_limits(begun))
        with closing(stream), pytest.raises(OffsetOutOfRange, match=f"the last stable offset is {stable}, before 300"):
            stream.initial()
        producer.abort_transaction(30)


def test_what_is_tiered_costs_the_broker_nothing(rig_43: Rig, new_topic: Callable[[str], str]) -> None:
    topic = new_topic("spark")
    mixed_topic(rig_43, topic)
    for isolation in ISOLATIONS:
        found, report = rows(options_of(rig_43, topic, minPartitions="7"), **{"kafka.isolation.level": isolation})
        assert found
        assert (report.broker_records, report.fallbacks) == (0, {})
    used = topic_metrics(rig_43, topic)
    assert (used.bytes_out, used.remote_fetch_bytes, used.remote_fetch_requests) == (0, 0, 0)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_rows_by_the_leaders_answers(rig_43: Rig, half_tiered: str, isolation: str) -> None:
    """With remote.locator=broker, tasks read parts of segments, and use the tier's transaction indexes."""
    expected = shown(topics.broker_records(rig_43, half_tiered, 0, isolation))
    options = options_of(rig_43, half_tiered, minPartitions="9", **{"kafka.isolation.level": isolation})
    with located(rig_43) as double:
        found, report = rows({**options, "kafka.bootstrap.servers": double.bootstrap, "remote.locator": "broker"})
        assert double.locations > 0
    assert found == expected
    assert (report.fallbacks, report.broker_records) == ({}, 40)


def test_offsets(rig_43: Rig, half_tiered: str) -> None:
    everything = shown(topics.broker_records(rig_43, half_tiered, 0, "read_uncommitted"))
    latest = topics.offsets(rig_43, half_tiered, 0).latest
    for start, end in ((-2, -1), (0, 10), (11, 250), (37, -1), (latest - 5, latest), (latest, -1), (-2, 30), (40, 40)):
        bounds = {
            "startingOffsets": json.dumps({half_tiered: {"0": start}}),
            "endingOffsets": json.dumps({half_tiered: {"0": end}}),
        }
        for more in ({}, {"minPartitions": "4"}, {"maxRecordsPerPartition": "23"}):
            found, _ = rows(options_of(rig_43, half_tiered, **bounds, **more))
            low, high = (0 if start == -2 else start), (latest if end == -1 else end)
            assert found == [row for row in everything if low <= row[2] < high], (start, end, more)


@pytest.mark.parametrize("form", ["global", "by partition"])
def test_timestamps(rig_43: Rig, half_tiered: str, form: str) -> None:
    everything = shown(topics.broker_records(rig_43, half_tiered, 0, "read_uncommitted"))
    for start, end in ((1_700_000_004_000, 1_700_000_012_345), (0, 1_700_000_020_000), (1_700_000_027_500, 2**45)):
        first, stop = (listed_offset(rig_43, (half_tiered, 0), time, "read_uncommitted") for time in (start, end))
        assert first is not None
        if form == "global":
            bounds = {"startingTimestamp": str(start), "endingTimestamp": str(end), "startingOffsets": "{}"}
        else:
            bounds = {
                "startingOffsetsByTimestamp": json.dumps({half_tiered: {"0": start}}),
                "endingOffsetsByTimestamp": json.dumps({half_tiered: {"0": end}}),
            }
        found, _ = rows(options_of(rig_43, half_tiered, **bounds))
        assert found == [row for row in everything if first <= row[2] and (stop is None or row[2] < stop)]


def test_a_time_that_no_record_reaches(rig_43: Rig, half_tiered: str) -> None:
    options = options_of(rig_43, half_tiered, startingTimestamp=str(2**45))
    with pytest.raises(ConfigError, match=f"No offset matched from request of topic-partition {half_tiered}-0"):
        rows(options)
    assert rows(options, startingOffsetsByTimestampStrategy="latest")[0] == []


def test_several_topics_and_partitions(rig_43: Rig, new_topic: Callable[[str], str]) -> None:
    topic = new_topic("spark-many")
    names = [f"{topic}-a", f"{topic}-b"]
    for name in names:
        topics.create_topic(rig_43, name, partitions=3)
        for number in range(2):  # the last one stays empty
            topics.produce(rig_43, name, 40, partition=number, seed=number)
    topics.wait_tiered(rig_43, names[0], range(3))

    def of(*places: tuple[str, int]) -> list[Row]:
        return [row for place in places for row in shown(topics.broker_records(rig_43, *place, "read_uncommitted"))]

    everything = of(*((name, number) for name in names for number in range(2)))
    options = options_of(rig_43, topic)
    del options["subscribe"]
    assert sorted(rows(options, subscribe=", ".join(names))[0]) == sorted(everything)
    assert sorted(rows(options, subscribePattern=f"{topic}-[ab]", minPartitions="8")[0]) == sorted(everything)
    assert rows(options, assign=json.dumps({names[1]: [0], names[0]: [1]}))[0] in (
        of((names[0], 1), (names[1], 0)),
        of((names[1], 0), (names[0], 1)),
    )


@pytest.mark.parametrize(
    ("how", "fails", "cut"),
    of_a_change(
        list(product(["DeleteRecords", "retention"], [False, True], [False, True])),
        ("DeleteRecords", True, True), ("DeleteRecords", False, False), ("retention", True, False),
        ("retention", False, True),
    ),
)  # fmt: skip
def test_records_deleted_between_plan_and_read(
    rig_43: Rig, new_topic: Callable[[str], str], how: str, fails: bool, cut: bool
) -> None:
    topic = new_topic("spark")
    topics.make_tiered(rig_43, topic, 200, sizes=(600, 700))
    expected = shown(topics.broker_records(rig_43, topic, 0, "read_uncommitted"))
    options = options_of(rig_43, topic, failOnDataLoss=str(fails).lower(), minPartitions="30" if cut else "1")
    plan = planned(options)
    if how == "retention":
        topics.set_config(rig_43, topic, retention_bytes=30_000)
    else:
        topics.delete_records(rig_43, topic, 0, 150)
    rig_43.until("objects deleted", lambda: len(list(rig_43.remote.rglob(f"{topic}-0*/*.log"))) < 10)
    start = topics.offsets(rig_43, topic, 0).earliest
    assert 0 < start < 200
    if fails:
        with pytest.raises(OffsetOutOfRange, match="Some data may have been lost because they are not available"):
            read(options, plan)
        return
    found, _ = read(options, plan)
    assert [(*row[:5], topics.shortened(row[5]), row[6]) for row in found] == expected[start:]


def test_an_object_that_only_the_broker_still_has(rig_43: Rig, new_topic: Callable[[str], str]) -> None:
    topic = new_topic("spark")
    topics.create_topic(rig_43, topic, local_retention_ms="-2")
    topics.produce(rig_43, topic, 150)
    rig_43.until("tiered", lambda: topics.offsets(rig_43, topic, 0).latest_tiered > 100)
    options = options_of(rig_43, topic, **{"fetch.remote.when": "always"})
    for path in sorted(rig_43.remote.rglob(f"{topic}-0*/*.log"))[1:3]:
        path.unlink()
    for isolation in ISOLATIONS:
        for more in ({}, {"maxRecordsPerPartition": "20"}):
            found, report = rows(options, **{"kafka.isolation.level": isolation}, **more)
            assert found == shown(topics.broker_records(rig_43, topic, 0, isolation))
            assert report.fallbacks
            assert report.broker_records > 0
    with pytest.raises(RemoteFetchError, match=r"Run the query again.*asks the broker"):
        rows(options, minPartitions="40")


@pytest.mark.parametrize("locator", ["metadata-topic", "listing"])
def test_a_topic_whose_objects_are_all_gone_behind_the_plan(
    rig_43: Rig, new_topic: Callable[[str], str], locator: str
) -> None:
    topic = new_topic("spark")
    topics.create_topic(rig_43, topic, local_retention_ms="-2")
    topics.produce(rig_43, topic, 150)
    rig_43.until("tiered", lambda: topics.offsets(rig_43, topic, 0).latest_tiered > 100)
    options = options_of(rig_43, topic, **{"remote.locator": locator, "fetch.remote.when": "always"})
    plan = planned(options)
    for path in rig_43.remote.rglob(f"{topic}-0*/*"):
        path.unlink()
    found, report = read(options, plan)
    assert [row[2] for row in found] == list(range(150))
    assert report.fallbacks
    assert (report.remote_gets, report.broker_records) == (0, 150)


def test_partitions_of_which_the_bucket_knows_nothing(rig_43: Rig, new_topic: Callable[[str], str]) -> None:
    topic = new_topic("spark")
    topics.make_tiered(rig_43, topic, 40, partitions=2)
    topics.set_config(rig_43, topic, local_retention_ms=-2)
    topics.produce(rig_43, topic, 3, partition=1, sizes=(4,))
    expected = [one for number in (0, 1) for one in topics.broker_records(rig_43, topic, number, "read_uncommitted")]
    assert {one.partition for one in expected} == {0, 1}
    for locator in ("metadata-topic", "listing"):
        found, report = rows(options_of(rig_43, topic, **{"remote.locator": locator}))
        assert found == shown(expected)
        assert (len(found), report.broker_records) == (43, 3)


def test_a_worker_that_cannot_reach_the_broker(rig_43: Rig, new_topic: Callable[[str], str]) -> None:
    """The worker reads tiered records with the driver's answers, and reports once that it cannot ask the broker."""
    topic = new_topic("spark")
    topics.make_tiered(rig_43, topic, 100)
    options = options_of(rig_43, topic)
    plan = planned(options)
    found, report = read({**options, "kafka.bootstrap.servers": "127.0.0.1:1"}, plan)
    assert [(*row[:5], topics.shortened(row[5]), row[6]) for row in found] == (
        shown(topics.broker_records(rig_43, topic, 0, "read_uncommitted"))
    )
    assert [notice for notice in report.notices if "does not answer" in notice]


def test_the_example(rig_43: Rig, half_tiered: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    run_script(spark, ROOT / "examples" / "05_spark_batch.py", rig_43.bootstrap, str(rig_43.remote), half_tiered)
    count = len(topics.broker_records(rig_43, half_tiered, 0, "read_committed"))
    assert f"{count} records" in capsys.readouterr().out


def test_the_readme(rig_43: Rig, half_tiered: str, spark: SparkSession) -> None:
    """The source is registered in this session. test_readme.py runs the block in a session that has to find it."""
    _, _, block = readme("python")
    script = block.text
    for old, new in ((TIER, str(rig_43.remote)), (BROKER, rig_43.bootstrap), (f'"{TOPIC}"', f'"{half_tiered}"')):
        assert script.count(old) == 1
        script = script.replace(old, new)
    scope: dict[str, Any] = {"spark": spark}
    exec(script, scope)
    assert scope["orders"].count() == len(topics.broker_records(rig_43, half_tiered, 0, "read_uncommitted"))
