"""Scans by Polars, DuckDB and Arrow: the rows of `read_arrow`, with as few GETs and bytes as the query needs."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from remote_fetch import Counters, read_arrow, scan_topic
from remote_fetch.engines.polars_source import arrow_predicate
from remote_fetch.engines.topic_scan import TopicScan
from remote_fetch.errors import ConfigError, MissingExtra, UnknownTopic, Unlocatable
from remote_fetch.observe import Event, Notice, ReadEnds, ReadPlanned
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from tests.cases import each_of
from tests.golden.conftest import SETS, Tier
from tests.scan.bucket import snapshot_config

HOURS, PARTITIONS = 24, 8
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A topic of eight partitions with a segment for each hour of a day; timestamps ascend."""
    directory = tmp_path_factory.mktemp("tier")
    for partition in range(PARTITIONS):
        log = LogBuilder(partition=partition)
        for hour in range(HOURS):
            for batch in range(2):
                at_ms = hour * HOUR_MS + batch * HOUR_MS // 2
                log.append_batch([Record(one, at_ms + one, b"k", bytes(200)) for one in range(5)])
            log.roll()
        write_kafka_local(directory, log.segments())
    return {"remote.storage.url": str(directory)}


def times(day: dict[str, str]) -> list[datetime]:
    """The beginnings of its hours."""
    first: Any = read_arrow("topic", partitions=[0], end=1, config=day).read_all().column("timestamp")[0].as_py()
    return [first + timedelta(hours=hour) for hour in range(HOURS)]


class Cost:
    """A scan of the day, and what it costs."""

    def __init__(self, day: dict[str, str], **more: Any) -> None:
        self.counters = Counters()
        self.scan = scan_topic("topic", config=day, observer=self.counters, **more)

    @property
    def gets(self) -> int:
        return self.counters.report().remote_gets

    @property
    def size_bytes(self) -> int:
        return self.counters.report().remote_bytes

    @property
    def records(self) -> int:
        return self.counters.report().records


@each_of("engine", ["arrow", "polars", "duckdb"])
@each_of("topic", ["codecs", "tx"])
def test_rows_are_those_of_read_arrow(topic: str, engine: str) -> None:
    config = {"remote.storage.url": Tier(SETS[0]).url}
    scan = scan_topic(topic, config=config)
    expected = read_arrow(topic, config=config).read_all()
    if engine == "arrow":
        found = pa.Table.from_batches(scan.batches(), scan.schema)
    elif engine == "polars":
        found = scan.polars().collect().to_arrow()
    else:
        with duckdb.connect() as connection:
            found = scan.duckdb(connection).to_arrow_table()
    for name in ("partition", "offset", "key", "value"):
        assert found.column(name).to_pylist() == expected.column(name).to_pylist(), name


def asked(cost: Cost, engine: str, low: datetime, high: datetime) -> list[tuple[int, int]]:
    """Partition and offset of the records in one hour, as an engine finds them."""
    if engine == "polars":
        at = pl.col("timestamp")
        found = cost.scan.polars().filter(at >= low, at < high).select("partition", "offset").collect()
        return sorted(found.iter_rows())
    with duckdb.connect() as connection:
        relation = cost.scan.duckdb(connection)
        query = 'select partition, "offset" from relation where timestamp >= $1 and timestamp < $2'
        assert relation is not None
        return sorted(connection.execute(query, [low, high]).fetchall())


@each_of("engine", ["polars", "duckdb"])
@pytest.mark.slow
def test_one_hour_of_a_day(day: dict[str, str], engine: str) -> None:
    whole, later, exact = Cost(day), Cost(day), Cost(day, timestamps_ascend=True)
    assert whole.scan.polars().select(pl.len()).collect().item() == HOURS * PARTITIONS * 10
    starts = times(day)
    expected = sorted((partition, offset) for partition in range(PARTITIONS) for offset in range(180, 190))
    assert asked(later, engine, starts[18], starts[19]) == expected
    assert asked(exact, engine, starts[18], starts[19]) == expected
    # The end of each partition's last segment is read once more: a bucket does not tell it.
    assert whole.gets == (HOURS + 1) * PARTITIONS
    # Of six hours, for a later record might be an earlier one; and of one, since that is said to be impossible. A time
    # is looked up in the segment that has it, which takes GETs of its own.
    assert later.records <= 6 * PARTITIONS * 10
    assert later.gets <= 9 * PARTITIONS
    assert exact.records <= PARTITIONS * 10
    assert exact.gets <= 6 * PARTITIONS
    assert exact.size_bytes * 4 < whole.size_bytes


def test_segments_whose_latest_time_is_known(tmp_path: Path) -> None:
    """A segment is left out if its latest time is before what is wanted, and not if it is that time."""
    log = LogBuilder()
    for first_ms in (HOUR_MS, 0, 2 * HOUR_MS):  # not in order of time: the second segment begins after a match
        log.append_batch([Record(at, first_ms + at) for at in range(5)])
        log.roll()
    segments = log.segments()
    write_kafka_local(tmp_path / "tier", segments)
    config = {"remote.storage.url": str(tmp_path / "tier"), **snapshot_config(one.metadata for one in segments)}
    times = read_arrow("topic", columns=["timestamp"], config=config).read_all().column("timestamp")
    cost = Cost(config)
    found = [batch.column("offset") for batch in cost.scan.batches(["offset"], pc.field("timestamp") >= times[4])]
    assert [offset for column in found for offset in column.to_pylist()] == [4, *range(10, 15)]
    assert cost.records == 1 + 5, "the second segment is left out"


def test_a_marker_is_later_than_the_records_behind_it(tmp_path: Path) -> None:
    """A marker has its broker's clock. Records ascend, and some behind the marker match."""
    log = LogBuilder()
    for hour in range(4):
        log.begin(7)
        log.append_batch([Record(at) for at in range(3)], producer_id=7, base_timestamp_ms=hour * HOUR_MS)
        log.commit(7, timestamp_ms=24 * HOUR_MS)
        log.roll()
    write_kafka_local(tmp_path / "tier", log.segments())
    config = {"remote.storage.url": str(tmp_path / "tier")}
    cost = Cost(config, timestamps_ascend=True)
    before = pc.field("timestamp") < pa.scalar(2 * HOUR_MS * 1000, pa.timestamp("us", "UTC"))
    found = [batch.column("offset") for batch in cost.scan.batches(["offset"], before)]
    assert [offset for column in found for offset in column.to_pylist()] == [0, 1, 2, 4, 5, 6]
    assert cost.records == 6, "the read ends before the first record that is too late"
    # A look-up of a time searches the wanted offsets alone, which lie in the last segment.
    last, soon = Cost(config, timestamps_ascend=True), Cost(config, timestamps_ascend=True)
    behind = pc.field("offset") >= 12
    before = pc.field("timestamp") < pa.scalar(9 * HOUR_MS * 1000, pa.timestamp("us", "UTC"))
    assert list(last.scan.batches(["offset"], behind)) == list(soon.scan.batches(["offset"], behind & before))
    assert soon.gets <= last.gets + 1


@each_of("engine", ["polars", "duckdb"])
def test_one_partition_of_eight(day: dict[str, str], engine: str) -> None:
    cost = Cost(day)
    if engine == "polars":
        found = cost.scan.polars().filter(pl.col("partition") == 5).select(pl.len()).collect().item()
    else:
        with duckdb.connect() as connection:
            relation = cost.scan.duckdb(connection)
            assert relation is not None
            found = relation.filter("partition = 5").aggregate("count(*)").fetchall()[0][0]
    assert (found, cost.gets, cost.records) == (HOURS * 10, HOURS + 1, HOURS * 10)


@each_of("engine", ["polars", "duckdb"])
def test_some_offsets(day: dict[str, str], engine: str) -> None:
    cost = Cost(day)
    if engine == "polars":
        lazy = cost.scan.polars().filter(pl.col("offset").is_between(95, 104), pl.col("partition").is_in([2, 3]))
        found = lazy.select("offset").collect().to_series().to_list()
    else:
        with duckdb.connect() as connection:
            relation = cost.scan.duckdb(connection)
            assert relation is not None
            rows = relation.filter('"offset" between 95 and 104 and partition in (2, 3)').project('"offset"').fetchall()
            found = [row[0] for row in rows]
    assert sorted(found) == sorted([*range(95, 105)] * 2)
    assert cost.records == 20
    assert cost.gets <= 6


def test_two_columns_of_eight(day: dict[str, str]) -> None:
    """A record is in a batch as a whole: columns cost no bytes of the store, but are decoded and handed on alone."""
    sizes = {}
    for columns in (None, ["partition", "offset"]):
        cost = Cost(day)
        sizes[columns is None] = sum(batch.nbytes for batch in cost.scan.batches(columns))
        assert (cost.gets, cost.records) == ((HOURS + 1) * PARTITIONS, HOURS * PARTITIONS * 10)
    assert sizes[False] * 10 < sizes[True]


def test_no_more_rows_than_are_wanted(day: dict[str, str]) -> None:
    cost = Cost(day)
    assert cost.scan.polars().head(3).collect().height == 3
    assert cost.records < HOURS * PARTITIONS * 10
    rows = cost.scan.batches()
    assert next(rows).num_rows
    assert isinstance(rows, Iterator)
    rows.close()  # type: ignore[attr-defined]


def test_the_first_rows_are_those_before_a_filter_that_comes_after(day: dict[str, str]) -> None:
    """Polars hands over both. A plan for the filter would have other first rows."""
    topic = scan_topic("topic", columns=["offset"], partitions=[0], config=day).polars()
    late = pl.col("offset") > 10
    for lazy, expected in (
        (topic.head(20).filter(late), [*range(11, 20)]),
        (topic.head(5).filter(late), []),
        (topic.filter(late).head(3), [11, 12, 13]),
        (topic.slice(5, 10).filter(late), [*range(11, 15)]),
    ):
        assert lazy.collect().to_series().to_list() == expected


def test_a_dataset_with_expressions_and_without_what_it_cannot_do(day: dict[str, str]) -> None:
    def dataset() -> Any:
        return scan_topic("topic", columns=["offset", "partition"], partitions=[0], config=day).dataset()

    few = pc.field("offset") < 5
    assert dataset().to_table(columns={"twice": pc.field("offset") * 2}, filter=few).to_pydict() == {
        "twice": [0, 2, 4, 6, 8]
    }
    assert dataset().to_table(columns=["partition"], filter=few).to_pydict() == {"partition": [0] * 5}
    assert sum(batch.num_rows for batch in dataset().to_batches(filter=few, use_threads=False)) == 5
    assert dataset().count_rows(filter=few) == 5
    assert dataset().to_table(columns=[]).shape == (HOURS * 10, 0)
    assert dataset().to_table(columns=[], filter=few).shape == (5, 0)
    assert dataset().head(3, columns=["offset"]).column("offset").to_pylist() == [0, 1, 2]
    for refused in ("filter", "get_fragments", "join", "join_asof", "replace_schema", "sort_by"):
        with pytest.raises(NotImplementedError, match="to_table"):
            getattr(dataset(), refused)("offset")
    with pytest.raises(NotImplementedError, match="to_table"):
        _ = dataset().partition_expression


def test_a_scanner_asks_nothing_of_the_store_before_its_first_row(day: dict[str, str]) -> None:
    scanner = scan_topic("nothing", config=day).dataset().scanner()
    with pytest.raises(UnknownTopic):
        scanner.to_table()
    with pytest.raises(KeyError):
        scan_topic("topic", config=day).dataset().scanner(columns=["nothing"])


def test_a_filter_on_the_value_alone(day: dict[str, str]) -> None:
    cost = Cost(day)
    lazy = cost.scan.polars().filter(pl.col("value").bin.size() > 300)
    assert lazy.select("offset").collect().height == 0
    assert cost.records == HOURS * PARTITIONS * 10


def test_bounds_of_the_scan_hold_too(day: dict[str, str]) -> None:
    scan = scan_topic("topic", start=100, end=120, partitions=[1, 2], config=day)
    found = scan.polars().filter(pl.col("offset") >= 110, pl.col("partition") != 1).select("offset").collect()
    assert found.to_series().to_list() == list(range(110, 120))


def test_polars_that_leaves_filters_out(day: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 1.21 it gives all rows if it cannot hand a filter over, such as one on a time."""
    scan = scan_topic("topic", config=day)
    monkeypatch.setattr(pl, "__version__", "1.21.0")
    with pytest.raises(MissingExtra, match=r"Polars 1\.21\.0 leaves filters out.*polars>=1\.22"):
        scan.polars()
    monkeypatch.setattr(pl, "__version__", "2.0.0-beta.1")
    assert scan.polars().collect_schema().names() == list(scan.columns)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (pl.col("offset") > 5, "(offset > 5)"),
        (pl.lit(5) < pl.col("offset"), "(offset > 5)"),
        ((pl.col("offset") == 5) & (pl.col("value") == b"x"), "(offset == 5)"),
        ((pl.col("offset") == 5) | (pl.col("value") == b"x"), None),
        (~(pl.col("offset") < 5), "invert((offset < 5))"),
        (~((pl.col("offset") < 5) & (pl.col("value") == b"x")), None),
        (pl.col("value") == b"x", None),
        (pl.col("offset") % 2 == 0, None),
        (pl.col("offset").is_between(2, 4, closed="left"), "((offset >= 2) and (offset < 4))"),
        (pl.col("timestamp") >= datetime(2024, 1, 1, tzinfo=UTC), "(timestamp >= 2024-01-01 00:00:00.000000Z)"),
        (pl.col("offset") > 1.5, None),
        (pl.col("offset") > pl.Series([5]), None),
        (pl.col("offset") < 2**63, None),
        ((pl.col("offset") < 2**70) & (pl.col("offset") > 5), "(offset > 5)"),
    ],
)
def test_predicates_that_are_understood(predicate: pl.Expr, expected: str | None) -> None:
    found = arrow_predicate(predicate)
    assert (None if found is None else str(found)) == expected


def test_tasks_for_workers(day: dict[str, str]) -> None:
    scan: TopicScan = pickle.loads(pickle.dumps(scan_topic("topic", config=day)))
    tasks = scan.tasks(4096, pc.field("partition") == 3)
    assert len(tasks) > 3
    rows = [
        offset
        for task in pickle.loads(pickle.dumps(tasks))
        for batch in scan.read(task, ["offset"])
        for offset in batch.column("offset").to_pylist()
    ]
    assert set(rows) == set(range(HOURS * 10))
    assert len(rows) == HOURS * 10


def test_tasks_of_offsets_that_only_a_broker_has(day: dict[str, str]) -> None:
    """As a read is. Of an end that is far away there would be tasks without end."""
    with pytest.raises(Unlocatable, match="offsets 240 to 999 cannot be read from the bucket alone"):
        scan_topic("topic", end=1000, config=day).tasks()
    with pytest.raises(Unlocatable, match="offsets 240 to 9223372036854775807 cannot"):
        next(scan_topic("topic", end=2**70, config=day).batches(filter=pc.field("offset") > 1))


@pytest.mark.parametrize("task_bytes", [1, 64 << 20])
def test_an_abort_in_a_segment_that_the_filter_leaves_out(tmp_path: Path, task_bytes: int) -> None:
    """Its marker is in another segment than its records, and so is the entry of the transaction index."""
    log = LogBuilder()
    log.begin(7)
    log.append_batch([Record(at, value=b"aborted") for at in range(3)], producer_id=7)
    log.append_batch([Record(at, value=b"v") for at in range(3)])
    log.roll()
    log.append_batch([Record(at, value=b"w") for at in range(30)])
    log.roll()
    log.abort(7)
    log.append_batch([Record(at, value=b"x") for at in range(30)])
    log.roll()
    log.append_batch([Record(at, value=b"y") for at in range(3)])
    log.roll()
    write_kafka_local(tmp_path / "tier", log.segments())
    scan = scan_topic("topic", config={"remote.storage.url": str(tmp_path / "tier")})
    edges = (pc.field("offset") <= 6) | (pc.field("offset") >= 67)
    tasks = scan.tasks(task_bytes, edges)
    tables = [
        pa.Table.from_batches([batch]).filter(edges) for task in tasks for batch in scan.read(task, ["offset", "value"])
    ]
    assert pa.concat_tables(tables).column("value").to_pylist() == [b"v"] * 3 + [b"w"] + [b"y"] * 3
    assert all(batch.num_columns == 0 and batch.num_rows for task in tasks for batch in scan.read(task, []))


@each_of("start", ["earliest", "2099-01-01"])
def test_a_scan_reports_what_a_read_does(day: dict[str, str], start: str) -> None:
    """Its offsets, its end, and a start that is later than every record. That would look like an empty topic."""
    heard: tuple[list[Event], list[Event]] = ([], [])
    read_arrow("topic", start=start, config=day, observer=heard[0].append).read_all()
    for _ in scan_topic("topic", start=start, config=day, observer=heard[1].append).batches():
        pass
    read, scanned = ([one for one in each if isinstance(one, ReadPlanned | ReadEnds | Notice)] for each in heard)
    assert read == scanned
    assert any("later than every record" in str(one) for one in read) is (start != "earliest")


def test_a_late_start_of_the_partitions_that_a_filter_keeps(day: dict[str, str]) -> None:
    """It says nothing of the topic."""
    heard: list[Event] = []
    starts = dict.fromkeys(range(PARTITIONS), "earliest") | {0: "2099-01-01"}
    scan = scan_topic("topic", start=starts, config=day, observer=heard.append)
    assert list(scan.batches(filter=pc.field("partition") == 0)) == []
    assert not any("later than every record" in one.text for one in heard if isinstance(one, Notice))


def test_errors_come_when_they_can_be_known(day: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="unknown column"):
        scan_topic("topic", columns=["nothing"], config=day)
    with pytest.raises(ConfigError, match="topic=''"):
        scan_topic("", config=day)
    with pytest.raises(ConfigError, match="start='yesterday' is neither"):
        scan_topic("topic", start="yesterday", config=day)
    with pytest.raises(ConfigError, match=r"end\[3\]='tomorrow' is neither"):
        scan_topic("topic", end={3: "tomorrow"}, config=day)
    with pytest.raises(ConfigError, match="log_start of partition 3 is -1"):
        scan_topic("topic", log_start={3: -1}, config=day)
    strangers: list[dict[str, Any]] = [
        {"start": {"0": 1}},
        {"end": {1: 5}, "partitions": [0]},
        {"log_start": {1: 5}, "partitions": [0]},
    ]
    for wrong in strangers:
        with pytest.raises(ConfigError, match="names partitions that are not read"):
            scan_topic("topic", config=day, **wrong)
    with pytest.raises(ConfigError, match="start names partitions that are not read"):
        next(scan_topic("topic", start={PARTITIONS: 0}, config=day).batches())
    with pytest.raises(UnknownTopic):
        next(scan_topic("topics", config=day).batches())
