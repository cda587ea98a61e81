"""read_arrow from end to end: a bucket on the disk, the public call, Arrow out; and what is refused in the call."""

from __future__ import annotations

import functools
import gc
import logging
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import remote_fetch
from remote_fetch.arrow import read_arrow
from remote_fetch.decode.columns import COLUMNS as ALL_COLUMNS
from remote_fetch.decode.run_decoder import is_native
from remote_fetch.errors import ConfigError, CorruptSegment, OffsetOutOfRange, UnknownTopic
from remote_fetch.model import IsolationLevel, Uuid
from remote_fetch.observe import Counters, Event, Notice
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from remote_fetch.testing.strategies import logs, segment_options
from tests.cases import each_of
from tests.eventually import eventually
from tests.scan.bucket import COLUMNS, expected_rows, plain_log, rows_of
from tests.searches import examples


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """The threads of a test's readers end after the test. The collector runs only for a reader that was given up."""
    before = threading.active_count()
    yield
    if threading.active_count() > before:
        gc.collect()
    assert eventually(lambda: threading.active_count() <= before)


@pytest.fixture
def config(tmp_path: Path) -> dict[str, str]:
    """Where a plain log of three segments lies."""
    write_kafka_local(tmp_path, plain_log(value_bytes=3000).segments())
    return {"remote.storage.url": str(tmp_path)}


@examples(30)
@given(
    logs(), segment_options(), st.sampled_from(IsolationLevel), st.sampled_from((1024, 4096, 8 << 20)), st.booleans()
)
def test_a_bucket_on_the_disk(
    log: LogBuilder, options: Any, isolation: IsolationLevel, range_bytes: int, as_url: bool
) -> None:
    segments = log.tiered(options)
    if not segments or any(not batch.data for batch in log.batches):
        return
    end = segments[-1].metadata.end_offset + 1
    if isolation is IsolationLevel.READ_COMMITTED:
        end = log.stable_offset_at(end)
    with tempfile.TemporaryDirectory() as directory:
        root = write_kafka_local(directory, segments)
        config = {"remote.storage.url": root.as_uri() if as_url else directory, "fetch.remote.range.bytes": range_bytes}
        with read_arrow("topic", isolation=isolation.value, columns=COLUMNS, config=config) as reader:
            rows = [row for batch in reader for row in rows_of(batch)]
    assert rows == expected_rows(log.expected(isolation, log.start_offset, end))


def test_the_default_columns(config: dict[str, str]) -> None:
    table = read_arrow("topic", config=config).read_all()
    types: dict[str, pa.DataType] = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
    }
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == types
    assert table.schema.names == list(types)
    assert table.num_rows == 60
    assert set(table["topic"].to_pylist()) == {"topic"}
    assert read_arrow("topic", columns=["offset"], config=config).read_all().column_names == ["offset"]


def test_a_read_makes_no_array_in_the_way_that_loads_pandas(
    config: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where NumPy is there, `pa.array` and `pa.scalar` ask pandas, which costs 60 MB, and may be broken."""
    expected = read_arrow("topic", columns=ALL_COLUMNS, config=config).read_all()

    def refuse(*_arguments: Any, **_options: Any) -> None:
        raise AssertionError("this loads pandas")

    for name in ("array", "scalar", "nulls", "repeat", "chunked_array"):
        monkeypatch.setattr(pa, name, refuse)
    assert read_arrow("topic", columns=ALL_COLUMNS, config=config).read_all() == expected


def test_it_is_the_packages_own() -> None:
    assert remote_fetch.read_arrow is read_arrow


def test_a_reader_given_up_in_the_middle(config: dict[str, str]) -> None:
    reader = read_arrow("topic", config={**config, "fetch.remote.range.bytes": 1024, "fetch.remote.max.bytes": 8192})
    reader.read_next_batch()
    del reader


def test_a_reader_closed_in_the_middle(config: dict[str, str]) -> None:
    reader = read_arrow("topic", config={**config, "fetch.remote.range.bytes": 1024})
    reader.read_next_batch()
    reader.close()
    del reader


def test_a_reader_that_is_never_read(config: dict[str, str]) -> None:
    read_arrow("topic", config=config)


def test_an_error_in_the_middle_comes_after_what_was_read(config: dict[str, str], tmp_path: Path) -> None:
    path = sorted(tmp_path.rglob("*.log"))[1]
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    reader = read_arrow("topic", config=config, columns=["offset"])
    batches: list[pa.RecordBatch] = []
    with pytest.raises(CorruptSegment, match="checksum mismatch"):
        batches.extend(reader)
    assert sum(batch.num_rows for batch in batches) == 35


@pytest.mark.parametrize(
    ("timestamp_ms", "microseconds"),
    [(1_700_000_000 * 10**9, 2**63 - 1), (-(2**63), -(2**63)), (2**63 // 1000, 2**63 // 1000 * 1000)],
)
def test_a_timestamp_that_microseconds_cannot_hold_is_saturated_and_counted(
    tmp_path: Path, timestamp_ms: int, microseconds: int
) -> None:
    log = LogBuilder()
    for base_ms in (1000, timestamp_ms, 1001):
        log.append_batch([Record(0, value=b"v")], base_timestamp_ms=base_ms)
        log.roll()
    log.append_batch([Record(0)])
    write_kafka_local(tmp_path, log.segments())
    counters = Counters()
    reader = read_arrow(
        "topic",
        columns=["offset", "timestamp", "timestampMs"],
        config={"remote.storage.url": str(tmp_path)},
        end=3,
        observer=counters,
    )
    table = reader.read_all()
    assert table["offset"].to_pylist() == [0, 1, 2]
    assert table["timestampMs"].to_pylist() == [1000, timestamp_ms, 1001]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [1_000_000, microseconds, 1_001_000]
    assert counters.report().saturated_timestamps == (microseconds % 1000 != 0)


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_the_lines_of_a_read_with_faults(
    config: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    for path in [*tmp_path.rglob("*.leader_epoch_checkpoint"), *tmp_path.rglob("*.index")]:
        path.unlink()
    with caplog.at_level(level):
        table = read_arrow("topic", start=5, columns=["offset"], config=config).read_all()
        del table
        gc.collect()
    lineage, position = (f"topic-0: read without its {index} index (missing)" for index in ("leader-epoch", "offset"))
    lines = [
        ("INFO", "log start unknown: the bucket alone does not tell which records were deleted before its segments"),
        ("DEBUG", f"topic-0: topic id {LogBuilder().topic_id_partition.topic_id}"),
        ("WARNING", position),
        ("WARNING", lineage),
        *[("DEBUG", lineage)] * 2,
        ("DEBUG", position),
        ("INFO", "topic-0 is read up to offset 60 (exclusive), where the tier ends (not-tiered)"),
        ("WARNING", f"{position}: 1 more since the last such line"),
        ("WARNING", f"{lineage}: 2 more since the last such line"),
    ]
    found = [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "remote_fetch"]
    if not is_native():
        assert "in plain Python" in found.pop(0)[1]
    assert found == [line for line in lines if level == logging.DEBUG or line[0] != "DEBUG"]
    assert level == logging.DEBUG or {one.name for one in caplog.records} == {"remote_fetch"}


def test_an_observer_hears(config: dict[str, str]) -> None:
    counters, notices = Counters(), []
    table = read_arrow(
        "topic", config=config, observer=lambda e: notices.append(e) if isinstance(e, Notice) else counters(e)
    ).read_all()
    assert counters.report().records == table.num_rows
    assert counters.report().remote_gets > 0
    assert any("log start unknown" in notice.text for notice in notices)


class TestRefused:
    """In the call, before anything is read."""

    @each_of(
        ("observer", "said"),
        [
            (Counters, "observer is the class Counters"),
            (3, "observer is 3"),
            (None, "observer is None"),
            (lambda: None, "observer is <function"),
        ],
    )
    def test_an_observer_that_takes_no_event(
        self, config: dict[str, str], tmp_path: Path, observer: Any, said: str
    ) -> None:
        brokers = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "fetch.remote.enabled": True}
        calls: list[Callable[[], object]] = [
            lambda: read_arrow("topic", config=config, observer=observer),
            lambda: remote_fetch.scan_topic("topic", config=config, observer=observer),
            lambda: remote_fetch.export_topic("topic", to=tmp_path / "out", config=config, observer=observer),
            lambda: remote_fetch.RemoteConsumer({**brokers, **config}, observer=observer),
        ]
        for call in calls:
            with pytest.raises(ConfigError, match=f"{said}.*called with one event"):
                call()

    def test_observers_of_all_kinds(self, config: dict[str, str]) -> None:
        heard: list[Event] = []
        for observer in (heard.append, print, Counters(), functools.partial(Counters.__call__, Counters())):
            read_arrow("topic", config=config, observer=observer).read_all()
        assert heard

    def test_an_unknown_topic(self, config: dict[str, str]) -> None:
        with pytest.raises(UnknownTopic, match="topics there: topic"):
            read_arrow("nothing", config=config)

    def test_an_unknown_partition(self, config: dict[str, str]) -> None:
        with pytest.raises(UnknownTopic, match="'topic': no partition 1, 7 was found; there are 0"):
            read_arrow("topic", partitions=[7, 0, 1], config=config)

    def test_two_ids_of_one_name(self, config: dict[str, str], tmp_path: Path) -> None:
        other = Uuid(b"another topic id")
        log = LogBuilder(topic_id=other)
        log.append_batch([Record(0, value=b"other")])
        log.roll()
        write_kafka_local(tmp_path, log.segments())
        with pytest.raises(UnknownTopic, match="2 topic ids") as raised:
            read_arrow("topic", config=config)
        assert f"topic:{other}" in str(raised.value)
        assert read_arrow(f"topic:{other}", config=config).read_all()["value"].to_pylist() == [b"other"]

    @pytest.mark.parametrize(
        ("key", "nearest"),
        [("remote.storage.uri", "remote.storage.url"), ("fetch.remote.range.byte", "fetch.remote.range.bytes")],
    )
    def test_a_wrong_key(self, config: dict[str, str], key: str, nearest: str) -> None:
        with pytest.raises(ConfigError, match=nearest) as raised:
            read_arrow("topic", config={**config, key: "1"})
        assert raised.value.key == key

    @pytest.mark.parametrize(
        "arguments",
        [
            {"isolation": "serializable"},
            {"columns": ["valeu"]},
            {"columns": []},
            {"start": "tomorrow"},
            {"end": {0: 1.5}},
            {"log_start": -1},
            {"log_start": {0: "x"}},
            {"config": {}},
            {"config": None},
        ],
    )
    def test_a_wrong_argument(self, config: dict[str, str], arguments: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            read_arrow("topic", **{"config": config, **arguments})

    def test_a_start_outside(self, config: dict[str, str]) -> None:
        with pytest.raises(OffsetOutOfRange, match="topic-0"):
            read_arrow("topic", start=99, config=config)


@pytest.mark.parametrize("topic", [None, "", 5, b"topic", ["topic"]])
def test_a_topic_that_is_no_name(topic: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a topic's name"):
        read_arrow(topic, config={"remote.storage.url": str(tmp_path)})


@pytest.mark.parametrize("config", ["bucket", [("remote.storage.url", "bucket")]])
def test_a_configuration_that_is_no_dict(config: Any) -> None:
    with pytest.raises(ConfigError, match="a configuration is a dict of keys and values, not a "):
        read_arrow("topic", config=config)


def test_a_name_is_no_list_of_columns() -> None:
    with pytest.raises(ConfigError, match=r"columns='offset': give a list of names, such as \['offset'\]"):
        read_arrow("topic", columns="offset")
