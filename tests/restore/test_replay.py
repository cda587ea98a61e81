"""A replay into a topic in memory: the records, where they go, and how fast."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException

from remote_fetch.decode.columns import schema_for
from remote_fetch.restore import replay as module
from remote_fetch.restore.replay import REPLAYED_COLUMNS, Pace, Replayed, replay
from tests.clock import Clock
from tests.restore.fake_target import FakeTarget


def batches(*counts: int) -> Iterator[pa.RecordBatch]:
    """A batch of so many records for each partition in turn. Keys have as many bytes as the record's number."""
    for number, count in enumerate(counts):
        rows: list[dict[str, Any]] = [
            {"partition": number, "offset": 10 + at, "key": b"k" * at, "value": b"v" * 10,
             "headers": [{"key": "h", "value": b"x"}], "timestampMs": 1000 + at}
            for at in range(count)
        ]  # fmt: skip
        yield pa.RecordBatch.from_pylist(rows, schema=schema_for(REPLAYED_COLUMNS))


def replayed(
    target: FakeTarget, *counts: int, pace: Pace | None = None, clock: Clock | None = None, **how: bool
) -> Replayed:
    done, clock = Replayed(), clock or Clock()
    made: Any = target
    replay(
        batches(*counts), made, done, keeps_partitions=how.get("keeps_partitions", True),
        keeps_timestamps=how.get("keeps_timestamps", True), pace=pace or Pace(), clock=clock, sleep=clock.sleep,
    )  # fmt: skip
    return done


def test_records_in_their_partitions() -> None:
    target = FakeTarget(logs={0: [], 1: [], 2: []})
    done = replayed(target, 3, 2, 1)
    assert (done.records, done.size_bytes, done.next_offsets) == (6, 6 * 10 + 3 + 1, {0: 13, 1: 12, 2: 11})
    assert target.logs[1] == [
        (b"", b"v" * 10, [("h", b"x")], 1000),
        (b"k", b"v" * 10, [("h", b"x")], 1001),
    ]
    assert target.logs[2] == target.logs[1][:1]


def test_partitions_by_key_and_new_timestamps() -> None:
    target = FakeTarget(logs={0: [], 1: []})
    replayed(target, 4, keeps_partitions=False, keeps_timestamps=False)
    assert [[key for key, *_ in log] for log in target.logs.values()] == [[b"", b"kk"], [b"k", b"kkk"]]
    assert {timestamp for log in target.logs.values() for *_, timestamp in log} == {0}


@pytest.mark.parametrize(
    ("pace", "least_s"),
    [
        (Pace(records_per_second=1000), 4.0),
        (Pace(records_per_second=1), 4999.0),
        (Pace(bytes_per_second=100_000), 99.0),
        (Pace(), 0.0),
    ],
)
def test_the_pace(pace: Pace, least_s: float) -> None:
    """5,000 records, with 12.5 MB of keys and values. The last records are sent when the time of all others is over."""
    clock = Clock(50.0)
    replayed(FakeTarget(logs={0: []}), 5_000, pace=pace, clock=clock)
    took_s = clock.now_s - 50
    assert took_s >= least_s
    assert took_s <= 1.3 * least_s


@pytest.mark.parametrize("pace", [Pace(records_per_second=20), Pace(bytes_per_second=2_000)])
def test_a_slow_pace_has_no_bursts(pace: Pace) -> None:
    """At the end of each step the time for its records begins. They are those of about one second."""
    done, clock, target = Replayed(), Clock(), cast("Any", FakeTarget(logs={0: []}))
    sent = [0]
    replay(
        batches(200), target, done, keeps_partitions=True, keeps_timestamps=True, pace=pace,
        progressed=lambda reached: sent.append(reached.records), clock=clock, sleep=clock.sleep,
    )  # fmt: skip
    assert max(after - before for before, after in pairwise(sent)) <= 20
    assert sent[-1] == 200


def broken(*counts: int, error: BaseException) -> Iterator[pa.RecordBatch]:
    """The batches, then an error."""
    yield from batches(*counts)
    raise error


def ended_early(target: FakeTarget, found: Iterator[pa.RecordBatch], clock: Clock | None = None) -> Replayed:
    """A replay that ends with an error, a second after each step."""
    done, clock = Replayed(), clock or Clock()
    made: Any = target
    with pytest.raises((OSError, KeyboardInterrupt, KafkaException)):
        replay(
            found, made, done, keeps_partitions=True, keeps_timestamps=True, pace=Pace(),
            progressed=lambda sent: clock.sleep(1), clock=clock, sleep=clock.sleep,
        )  # fmt: skip
    return done


@pytest.mark.parametrize("error", [OSError("the store is gone"), KeyboardInterrupt()])
def test_records_acknowledged_after_an_error_are_counted(error: BaseException) -> None:
    done = ended_early(FakeTarget(logs={0: []}), broken(4, error=error))
    assert (done.records, done.next_offsets) == (4, {0: 14})


def test_records_without_an_acknowledgement_are_not_counted() -> None:
    """The topic gets 1,200 records. The last wait for acknowledgements was after 1,000 of them, two seconds."""
    target = FakeTarget(logs={0: []}, fails_after=1_200)
    done = ended_early(target, batches(2_000))
    assert (done.records, done.size_bytes, done.next_offsets) == (1_000, 1_000 * 10 + 499_500, {0: 1_010})
    assert len(target.logs[0]) == 1_200


def test_acknowledgements_are_waited_for_after_some_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NOTED_BYTES", 130_000)  # the first 500 records have 129,750 bytes
    target = FakeTarget(logs={0: []}, fails_after=1_499)
    done, made = Replayed(), cast("Any", target)
    with pytest.raises(KafkaException):
        replay(batches(2_000), made, done, keeps_partitions=True, keeps_timestamps=True, pace=Pace())
    assert (done.next_offsets, target.flushes) == ({0: 1_010}, 2)


def test_a_partition_that_has_begun_is_named_without_an_acknowledgement() -> None:
    done = ended_early(FakeTarget(logs={0: [], 1: []}, fails_after=0), batches(4, 4))
    assert (done.records, done.next_offsets) == (0, {0: 10, 1: 10})
