"""Runs change how fast a slice is read and nothing else: with them and without, the same rows and the same errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remote_fetch.formats.batches import BatchFramer, FramedBatch
from remote_fetch.model import IsolationLevel
from remote_fetch.scan import runs
from remote_fetch.scan.runs import Runs
from remote_fetch.scan.slice_reader import SliceReader
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import rewrite_crc
from remote_fetch.testing.strategies import logs
from tests.scan.bucket import Bucket, Outcome, examples, plain_log, read


def frames_of(log: bytes) -> list[FramedBatch]:
    framer = BatchFramer(0)
    framer.feed(memoryview(log))
    found = []
    while (batch := framer.next_batch()) is not None:
        found.append(batch)
    return found


def damaged(log: bytes, place: float, byte: int, reseal: bool) -> bytes:
    """One byte changed; `reseal`: with the checksum of its batch renewed, so that only its meaning is wrong."""
    at = int(place * len(log))
    frame = next(batch for batch in frames_of(log) if at < batch.position + batch.header.size_bytes)
    start, end = frame.position, frame.position + frame.header.size_bytes
    data = bytearray(log)
    data[at] = byte
    if reseal and frame.header.magic == 2 and data[start + 16] == 2:
        data[start:end] = rewrite_crc(bytes(data[start:end]))
    return bytes(data)


def without_runs(monkeypatch: pytest.MonkeyPatch, bucket: Bucket, **options: Any) -> Outcome:
    with monkeypatch.context() as patch:
        patch.setattr(Runs, "find", lambda *_: False)
        return read(bucket, **options)


def facts(outcome: Outcome) -> tuple[Any, ...]:
    error = outcome.error
    said = None if error is None else (type(error), str(error))
    report = outcome.report
    return outcome.rows, said, report.scans, report.rereads, report.fallbacks


@settings(examples(60), suppress_health_check=list(HealthCheck))
@given(
    log=logs(),
    isolation=st.sampled_from(IsolationLevel),
    range_bytes=st.sampled_from([1024, 5000, 1 << 20]),
    step=st.sampled_from([(1, 1), (700, 3), (1 << 18, 512)]),
    damage=st.none() | st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255), st.booleans()),
)
def test_the_same_rows_and_errors(
    monkeypatch: pytest.MonkeyPatch,
    log: LogBuilder,
    isolation: IsolationLevel,
    range_bytes: int,
    step: tuple[int, int],
    damage: tuple[float, int, bool] | None,
) -> None:
    bucket = Bucket(log.tiered())
    if not bucket.metadata:
        return
    if damage is not None:
        number = int(damage[0] * len(bucket.metadata))
        bucket.write(number, damaged(bucket.log(number), *damage))
    options: dict[str, Any] = {"isolation": isolation, "config": {"fetch.remote.range.bytes": range_bytes}}
    with monkeypatch.context() as patch:
        patch.setattr(runs, "STEP_BYTES", step[0])
        patch.setattr(runs, "STEP_BATCHES", step[1])
        outcome = read(bucket, **options)
    assert facts(outcome) == facts(without_runs(monkeypatch, bucket, **options))


def test_of_ordinary_batches_all_but_two_a_range_go_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    single: list[int] = []
    deliver = SliceReader._deliver

    def counted(self: SliceReader, batch: FramedBatch, *others: Any) -> Any:
        single.append(batch.header.base_offset)
        return deliver(self, batch, *others)

    monkeypatch.setattr(SliceReader, "_deliver", counted)
    bucket = Bucket(plain_log(segments=1, batches=300, records=2).segments())
    assert read(bucket).offsets == list(range(600))
    assert single == [598]
