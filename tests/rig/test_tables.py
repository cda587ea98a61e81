"""Tables of a real broker's topic: the tutorial, runs while the topic grows and is cut, and the stream that goes on."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from remote_fetch import export_topic
from remote_fetch.errors import OffsetOutOfRange, TopicRecreated
from tests.rig import topics
from tests.rig.rig import Rig
from tests.rig.test_read import mixed_topic
from tests.rig.test_spark import options_of
from tests.rig.test_spark_streaming import LiveQuery, records
from tests.rig.tutorials import blocks_of, half_tiered_topic, run_blocks
from tests.spark.queries import run_to_end
from tests.tables.tables import held, opened, target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "iceberg-table.md"
COLUMNS = ["partition", "offset", "key", "value"]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def config(rig: Rig) -> dict[str, str]:
    return {"bootstrap.servers": rig.bootstrap, "remote.storage.url": str(rig.remote), "log_level": "0"}


def shown(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table as `records` has those of a consumer."""
    rows = zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)
    return [(*row[:3], topics.shortened(row[3])) for row in rows]


@pytest.mark.scheduled
def test_the_tutorial(rig_43: Rig, tmp_path: Path) -> None:
    half_tiered_topic(rig_43, "orders-table")
    text = PAGE.read_text(encoding="utf-8").replace("-t orders ", "-t orders-table ")
    printed = run_blocks(rig_43, blocks_of(text), tmp_path)
    assert printed[0].startswith("200 rows in ")
    assert printed[1] == "[(0, 100, 99), (1, 100, 99)]\n"
    assert json.loads((tmp_path / "report.json").read_text())["rows"] == 20
    assert printed[3] == "rows 20 next None\n"


@pytest.mark.scheduled
@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_runs_while_the_topic_grows_is_cut_and_made_again(
    rig_43: Rig, new_topic: Callable[[str], str], tmp_path: Path, format_: str
) -> None:
    topic, where = new_topic("table"), target(format_, tmp_path)
    mixed_topic(rig_43, topic)
    run = functools.partial(export_topic, topic, config=config(rig_43), partition_by=["partition"], **where)
    first = run()
    assert (shown(held(where, COLUMNS)), first.cost.broker_records) == (records(rig_43, topic, 1), 0)
    topics.set_config(rig_43, topic, local_retention_ms=-2)
    topics.produce(rig_43, topic, 25, seed=20)
    in_the_tail = run(end="latest")
    assert (in_the_tail.rows, shown(held(where, COLUMNS))) == (25, records(rig_43, topic, 1))
    before = shown(held(where, COLUMNS))

    topics.produce(rig_43, topic, 40, seed=21)
    (end,) = json.loads(in_the_tail.starting_offsets or "")[topic].values()
    topics.delete_records(rig_43, topic, 0, end + 10)
    with pytest.raises(OffsetOutOfRange, match=f"offsets {end} to {end + 9} were deleted before they were exported"):
        run(end="latest")
    assert run(end="latest", allow_lost=True).rows == 30
    after = shown(held(where, COLUMNS))
    assert after == before + records(rig_43, topic, 1)[-30:]

    topics.delete_topic(rig_43, topic)
    mixed_topic(rig_43, topic)
    with pytest.raises(TopicRecreated, match="deleted and created again"):
        run(end="latest")
    assert shown(held(where, COLUMNS)) == after
    assert opened(where).folder().jobs() == []


@pytest.mark.scheduled
def test_table_and_stream_are_the_log(
    rig_43: Rig, new_topic: Callable[[str], str], spark: SparkSession, tmp_path: Path
) -> None:
    topic, where = new_topic("table-stream"), target("iceberg", tmp_path / "lake")
    mixed_topic(rig_43, topic)
    done = export_topic(topic, config=config(rig_43), **where)
    topics.produce(rig_43, topic, 70, seed=30)
    options = {**options_of(rig_43, topic), "startingOffsets": done.starting_offsets or ""}
    query = LiveQuery(spark, tmp_path, {**options, "kafka.isolation.level": "read_committed"})
    run_to_end(functools.partial(query.start, {}, availableNow=True))
    assert len(query.written()) == 70
    assert shown(held(where, COLUMNS)) + query.written() == records(rig_43, topic, 1)


def test_a_wrong_url_is_in_the_report(rig_43: Rig, new_topic: Callable[[str], str], tmp_path: Path) -> None:
    """The brokers serve all of it. The report counts that planning found no segment in the store."""
    topic = new_topic("wrong-url")
    mixed_topic(rig_43, topic)
    (tmp_path / "empty").mkdir()
    wrong = {**config(rig_43), "remote.storage.url": str(tmp_path / "empty")}
    report = export_topic(topic, config=wrong, to=str(tmp_path / "files"), format="parquet", end="latest")
    assert (report.cost.remote_bytes, report.cost.broker_records) == (0, report.rows)
    assert set(report.cost.fallbacks) == {"not-found"}
    assert "fallbacks: none" not in str(report)
