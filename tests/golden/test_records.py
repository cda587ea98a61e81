"""The broker is the oracle: what it gave a consumer from the tier, a read of the bucket gives, field for field.

Each partition is read between its log start and the end of the tier, under both isolation levels: from the bucket
alone, and through the timelines that the broker's own metadata records come to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from remote_fetch import Counters, UnknownTopic, read_arrow
from tests.golden.places import each_place
from tests.searches import fewer

if TYPE_CHECKING:
    from tests.golden.conftest import Line, Place, Tier

LinesOf = Callable[[Iterable[pa.RecordBatch]], "list[Line]"]


def read(place: Place, isolation: str, **more: Any) -> pa.RecordBatchReader:
    arguments: dict[str, Any] = {"config": place.config, "log_start": place.log_start, **more}
    return read_arrow(place.topic, partitions=[place.partition], isolation=isolation, **arguments)


@pytest.mark.each_version
@each_place
def test_the_bucket_alone(place: Place, isolation: str, lines_of: LinesOf, decoder: None) -> None:
    expected = place.recorded(isolation)
    counters = Counters()
    assert lines_of(read(place, isolation, observer=counters)) == expected
    assert expected
    report = counters.report()
    assert report.records == len(expected)
    assert [report.fallbacks, report.rereads, report.retries, report.scans] == [{}, {}, {}, {}]


@pytest.mark.each_version
@each_place
def test_by_way_of_the_metadata_records(
    place: Place, isolation: str, lines_of: LinesOf, snapshots: dict[str, Path]
) -> None:
    config = {
        **place.config,
        "remote.locator": "snapshot",
        "remote.locator.snapshot.file": str(snapshots[place.tier.name]),
    }
    counters = Counters()
    assert lines_of(read(place, isolation, config=config, observer=counters)) == place.recorded(isolation)
    report = counters.report()
    assert [report.fallbacks, report.rereads, report.retries, report.scans] == [{}, {}, {}, {}]


@each_place
def test_in_small_ranges(place: Place, isolation: str, lines_of: LinesOf, decoder: None) -> None:
    config = {**place.config, "fetch.remote.range.bytes": 1024, "fetch.remote.max.bytes": 4096}
    assert lines_of(read(place, isolation, config=config)) == place.recorded(isolation)


@pytest.mark.slow
@each_place
def test_between_offsets(place: Place, isolation: str) -> None:
    """Bounds in the middle of batches and segments, on control records and on records that are not shown.

    Each pair of bounds is a session. A change proves half of them, and the schedule all.
    """
    offsets = [line["offset"] for line in place.recorded(isolation)]
    span = place.stop - place.log_start
    stops = {place.stop, *range(place.log_start, place.stop, span // 3 + 1)}
    for shift, stop in enumerate(sorted(stops)):
        for start in range(place.log_start + shift, stop + 1, span // max(2, fewer(5)) + 1):
            table = read(place, isolation, start=start, end=stop, columns=["offset"]).read_all()
            wanted = [offset for offset in offsets if start <= offset < stop]
            assert table.column("offset").to_pylist() == wanted, (start, stop)


def test_all_partitions_in_one_read(tier: Tier, isolation: str, lines_of: LinesOf) -> None:
    topics: dict[str, list[Place]] = {}
    for place in tier.places:
        topics.setdefault(place.topic, []).append(place)
    compared = 0
    for topic, places in topics.items():
        log_start = {place.partition: place.log_start for place in places}
        config = {"remote.storage.url": tier.url}
        rows = lines_of(read_arrow(topic, isolation=isolation, config=config, log_start=log_start))
        assert rows == [line for place in places for line in place.recorded(isolation)]
        compared += len(rows)
    assert compared == tier.facts["counts"][isolation] - 10


def test_without_a_log_start_deleted_records_show_too(tier: Tier, lines_of: LinesOf) -> None:
    """DeleteRecords moved the log start into a segment; the bucket still has the records before it."""
    (place,) = (place for place in tier.places if place.topic == "delete-records")
    before = [line for line in tier.lines("truth") if line["topic"] == place.topic and line["offset"] < place.log_start]
    assert len(before) == place.log_start == 47
    rows = lines_of(read(place, "read_committed", log_start=None))
    kept = range(rows[0]["offset"], 47)
    assert rows[: len(kept)] == [{name: line[name] for name in rows[0] if name in line} for line in before][kept[0] :]
    assert rows[len(kept) :] == place.recorded("read_committed")
    assert kept, "some of the deleted records still lie in the first segment"


def test_a_deleted_topic_is_gone(tier: Tier) -> None:
    with pytest.raises(UnknownTopic, match="no segment of topic 'gone'"):
        read_arrow("gone", config={"remote.storage.url": tier.url})


@each_place
def test_leader_epochs_are_those_of_the_metadata(place: Place) -> None:
    table = read(place, "read_uncommitted", columns=["offset", "leaderEpoch"]).read_all()
    segments = place.tier.timelines[place.topic_id_partition].segments
    epochs: dict[Any, int] = {}
    for segment in segments:
        bounds = [*(entry.start_offset for entry in segment.segment_leader_epochs[1:]), segment.end_offset + 1]
        start = segment.start_offset
        for entry, stop in zip(segment.segment_leader_epochs, bounds, strict=True):
            epochs.update(dict.fromkeys(range(start, stop), entry.epoch))
            start = stop
    rows = zip(table.column("offset").to_pylist(), table.column("leaderEpoch").to_pylist(), strict=True)
    assert [(offset, epoch) for offset, epoch in rows if epochs[offset] != epoch] == []
    assert table.num_rows


def test_leader_epochs_are_those_that_kafka_prints(tier: Tier) -> None:
    compared = set()
    for place in tier.places:
        batches = tier.dumped.get((place.topic, place.partition), [])
        epochs = {
            offset: int(batch.fields["partitionLeaderEpoch"])
            for batch in batches
            for offset in range(int(batch.fields["baseOffset"]), int(batch.fields["lastOffset"]) + 1)
        }
        table = read(place, "read_uncommitted", columns=["offset", "leaderEpoch"]).read_all()
        for offset, epoch in zip(*(column.to_pylist() for column in table.columns), strict=True):
            if offset in epochs:
                assert epoch == epochs[offset], (str(place), offset)
                compared.add((place.topic, epoch))
    assert {("epochs", 0), ("epochs", 2), ("tx", 0)} <= compared
