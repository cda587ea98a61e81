"""Units change how fast a slice is read and nothing else: in any size and in any thread, the same rows and errors.

Rules of the file: the read without units, batch by batch, is what the others are compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from remote_fetch.decode.run_decoder import is_native
from remote_fetch.errors import CorruptSegment, DecompressionLimit
from remote_fetch.formats.batches import HEADER_BYTES, BatchFramer, FramedBatch
from remote_fetch.formats.indexes import parse_transaction_index
from remote_fetch.locate.lineage import Lineage
from remote_fetch.model import IndexType, IsolationLevel
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.scan import units
from remote_fetch.scan.delivery import Delivery, Single
from remote_fetch.scan.rows import PartitionRows
from remote_fetch.scan.units import Units
from remote_fetch.session import session
from remote_fetch.session.decode_pool import DecodePool
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record, rewrite_crc
from remote_fetch.testing.segments import SegmentOptions, encode_transaction_index
from remote_fetch.testing.strategies import logs, segment_options
from tests.scan.bucket import COMMITTED, Bucket, Outcome, expected_rows, plain_log, read
from tests.searches import examples

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
WAYS: dict[str, dict[str, int]] = {
    "one thread": {"threads": 0},
    "one thread, small units": {"threads": 0, "unit_bytes": 700},
    "other threads, a batch each": {"threads": 2, "min_bytes": 0, "unit_bytes": 1},
    "other threads, small units": {"threads": 2, "min_bytes": 0, "unit_bytes": 2400},
}
"""Arguments of the pool. A unit ends with the batch at which it has a quarter of `unit_bytes` as stored, at first."""


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


def batch_by_batch(bucket: Bucket, **options: Any) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Units, "cut", lambda *_: None)
        return read(bucket, **options)


def in_all_ways(bucket: Bucket, **options: Any) -> Iterator[tuple[str, Outcome]]:
    for name, pool in WAYS.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "DecodePool", partial(DecodePool, **pool))
            yield name, read(bucket, **options)


def facts(outcome: Outcome) -> tuple[Any, ...]:
    error = outcome.error
    said = None if error is None else (type(error), str(error))
    report = outcome.report
    return outcome.rows, said, report.scans, report.rereads, report.fallbacks


def check(bucket: Bucket, **options: Any) -> Outcome:
    """Read in every way. Return the outcome of reading batch by batch, which all others have to equal."""
    expected = batch_by_batch(bucket, **options)
    for name, outcome in in_all_ways(bucket, **options):
        assert facts(outcome) == facts(expected), name
    return expected


@settings(examples(60), suppress_health_check=list(HealthCheck))
@given(
    log=logs(),
    tiered=segment_options(),
    isolation=st.sampled_from(IsolationLevel),
    range_bytes=st.sampled_from([1024, 5000, 1 << 20]),
    damage=st.none() | st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255), st.booleans()),
)
def test_whole_and_damaged_logs(
    log: LogBuilder,
    tiered: SegmentOptions,
    isolation: IsolationLevel,
    range_bytes: int,
    damage: tuple[float, int, bool] | None,
) -> None:
    bucket = Bucket(log.tiered(tiered))
    if not bucket.metadata:
        return
    if damage is not None:
        number = int(damage[0] * len(bucket.metadata))
        bucket.write(number, damaged(bucket.log(number), *damage))
    config = {"fetch.remote.range.bytes": range_bytes, "fetch.remote.max.bytes": 4 * range_bytes}
    check(bucket, isolation=isolation, config=config)


@examples(60)
@example(segment=0, at=419, bit=0)  # a base offset that is one too high: only the next header shows it
@example(segment=0, at=438, bit=0)  # a last offset that is one too high: the next batch seems to be misplaced
@given(st.integers(0, 2), st.integers(0, 1000), st.integers(0, 7))
def test_one_damaged_bit(segment: int, at: int, bit: int) -> None:
    bucket = Bucket(plain_log().segments())
    log = bytearray(bucket.log(segment))
    log[at % len(log)] ^= 1 << bit
    bucket.write(segment, bytes(log))
    check(bucket)


def test_offsets_that_go_back_after_a_message_set_whose_own_offset_is_0() -> None:
    """The offsets inside tell where the set ends. A checksum covers neither its own offset nor that of the batch."""
    log = LogBuilder()
    log.append_legacy([Record(n, value=b"v%d" % n) for n in range(4)], magic=1, codec=GZIP)
    log.append_batch([Record(n, value=b"w%d" % n) for n in range(3)])
    log.append_batch([Record(0, value=b"end")])
    log.roll()
    bucket = Bucket(log.segments())
    data = bytearray(bucket.log(0))
    data[:8] = bytes(8)
    second = frames_of(bytes(data))[1].position
    data[second : second + 8] = (1).to_bytes(8, "big")
    bucket.write(0, bytes(data))
    assert isinstance(batch_by_batch(bucket).error, CorruptSegment)
    check(bucket)


@examples(60)
@given(st.integers(0, 5000), st.integers(0, 255), st.sampled_from((0, LZ4, ZSTD)))
def test_one_batch_that_is_damaged_under_a_right_checksum(at: int, byte: int, codec: int) -> None:
    log = LogBuilder()
    for number in range(40):
        log.append_batch([Record(delta, value=b"%d" % number * 20) for delta in range(3)], codec=codec)
    log.roll()
    data = bytearray().join(one.data for one in log.batches)
    frame = next(one for one in frames_of(bytes(data)) if at % len(data) < one.position + one.header.size_bytes)
    start, end = frame.position, frame.position + frame.header.size_bytes
    data[max(at % len(data), start + HEADER_BYTES)] = byte
    data[start:end] = rewrite_crc(bytes(data[start:end]))
    bucket = Bucket(log.segments())
    bucket.write(0, bytes(data))
    check(bucket)


def test_what_lies_before_the_start_was_not_shown() -> None:
    """A unit has batches of which none is wanted. Their producer's later abort concerns no delivered record."""
    log = LogBuilder()
    log.begin(1)
    for _ in range(3):
        log.append_batch([Record(0, value=bytes(100))], producer_id=1)
    log.commit(1)
    start = log.append_batch([Record(0, value=b"wanted")])
    log.begin(1)
    log.abort(1)
    log.append_batch([Record(0, value=b"wanted too")])
    log.roll()
    found = check(Bucket(log.segments()), start=start, isolation=COMMITTED)
    assert (found.error, found.offsets) == (None, [start, start + 2])


def transactions(decisions: Sequence[bool], producers: int = 3) -> LogBuilder:
    """Transactions of two records, of several producers in turn, that overlap. True: committed."""
    log = LogBuilder()
    for number in range(len(decisions)):
        producer = 1 + number % producers
        log.begin(producer)
        log.append_batch([Record(at, value=b"%d" % number * 30) for at in range(2)], producer_id=producer)
        if number:
            end(log, number - 1, decisions, producers)
    end(log, len(decisions) - 1, decisions, producers)
    log.roll()
    return log


def end(log: LogBuilder, number: int, decisions: Sequence[bool], producers: int) -> None:
    (log.commit if decisions[number] else log.abort)(1 + number % producers)


@pytest.mark.parametrize("lost", range(6))
def test_an_abort_inside_a_unit_that_no_index_tells_of(lost: int) -> None:
    """Transactions of its producer that ended before it, in the same unit, do not count."""
    log = transactions([number % 5 not in (1, 3) for number in range(15)])
    bucket = Bucket(log.segments())
    whole = check(bucket, isolation=COMMITTED)
    assert whole.fine() == expected_rows(log.expected(COMMITTED))
    entries = [*parse_transaction_index(bucket.indexes[bucket.at(0).segment_id.id, IndexType.TRANSACTION])]
    entry = entries.pop(lost)
    bucket.write_index(0, IndexType.TRANSACTION, encode_transaction_index(entries))
    found = check(bucket, isolation=COMMITTED)
    assert type(found.error) is CorruptSegment
    assert found.error.offset == entry.first_offset
    assert f"was aborted at offset {entry.last_offset}" in str(found.error)
    before = [offset for offset in whole.offsets if offset < entry.first_offset]
    assert set(before) < set(found.offsets)
    later = check(bucket, isolation=COMMITTED, start=entry.first_offset + 2)
    assert later.error is None, "no record of the transaction is wanted, so nothing wrong can be delivered"
    for start in (entry.first_offset, entry.first_offset + 1):
        assert check(bucket, isolation=COMMITTED, start=start).error is not None


def test_an_index_that_gives_a_transaction_an_earlier_start() -> None:
    """Its interval holds the one before it. Records that were shown because of that one are aborted by the marker."""
    log = LogBuilder()
    log.append_batch([Record(0, value=b"first")])
    log.begin(1)
    log.append_batch([Record(0, value=b"aborted")], producer_id=1)
    log.abort(1)
    log.begin(1)
    log.append_batch([Record(0, value=b"aborted too")], producer_id=1)
    log.roll()
    log.abort(1)
    log.append_batch([Record(0, value=b"last")])
    log.roll()
    bucket = Bucket(log.segments())
    (entry,) = parse_transaction_index(bucket.indexes[bucket.at(1).segment_id.id, IndexType.TRANSACTION])
    lie = encode_transaction_index([replace(entry, first_offset=0)])
    bucket.write_index(1, IndexType.TRANSACTION, lie)
    found = check(bucket, isolation=COMMITTED)
    assert type(found.error) is CorruptSegment
    assert found.error.offset == entry.first_offset


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_the_bound_of_the_configuration_holds(codec: int) -> None:
    log = LogBuilder()
    log.append_batch([Record(0, value=b"fine")])
    log.append_batch([Record(0, value=bytes(100_000))], codec=codec)
    log.roll()
    found = check(Bucket(log.segments()), config={"fetch.remote.max.decompressed.bytes": 50_000})
    assert type(found.error) is DecompressionLimit
    assert found.offsets == [0]


@pytest.mark.parametrize(
    ("most_bytes", "most_units"), [(0, 4), (1, 4), (300, 4), (2000, 4), (16 << 20, 0), (16 << 20, 1)]
)
def test_what_a_thread_may_not_inflate_the_reader_does(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int, most_units: int
) -> None:
    monkeypatch.setattr(units, "_MAX_AHEAD_BYTES", most_bytes)
    monkeypatch.setattr(units, "_MAX_AHEAD_UNITS", most_units)
    log = LogBuilder()
    for number in range(30):
        log.append_batch([Record(delta, value=bytes(100)) for delta in range(5)], codec=(0, ZSTD)[number % 2])
    log.roll()
    found = check(Bucket(log.segments()))
    assert (found.error, found.offsets) == (None, list(range(150)))


@pytest.mark.parametrize("way", WAYS)
def test_no_ordinary_batch_is_read_alone(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Wherever ranges and units end."""
    single: list[int] = []
    deliver = Delivery._single

    def counted(self: Delivery, item: Single) -> Any:
        single.append(item.batch.header.base_offset)
        return deliver(self, item)

    monkeypatch.setattr(Delivery, "_single", counted)
    monkeypatch.setattr(session, "DecodePool", partial(DecodePool, **WAYS[way]))
    bucket = Bucket(plain_log(segments=2, batches=300, records=2).segments())
    config = {"fetch.remote.range.bytes": 1024, "fetch.remote.max.bytes": 4096}
    assert read(bucket, config=config).offsets == list(range(1200))
    assert single == []
    log = transactions([number % 7 != 3 for number in range(300)])
    assert read(Bucket(log.segments()), isolation=COMMITTED, config=config).rows == expected_rows(
        log.expected(COMMITTED)
    )
    assert single == [], "markers are ordinary too"


def test_threads_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every unit of a read with threads is decoded by them, and its rows are used."""
    used: list[bool] = []
    taken_from = Units._taken_from

    def noted(self: Units, *arguments: Any) -> Any:
        runs = taken_from(self, *arguments)
        used.append(bool(runs))
        return runs

    monkeypatch.setattr(Units, "_taken_from", noted)
    monkeypatch.setattr(session, "DecodePool", partial(DecodePool, **WAYS["other threads, small units"]))
    assert read(Bucket(plain_log().segments())).fine()
    assert used
    assert all(used)


def test_threads_end_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    pools, most = list[DecodePool](), list[int]()

    class Noted(DecodePool):
        """Notes its threads before it closes."""

        def close(self) -> None:
            pools.append(self)
            most.append(self.threads.count)
            super().close()

    monkeypatch.setattr(session, "DecodePool", partial(Noted, **WAYS["other threads, small units"]))
    assert read(Bucket(plain_log().segments())).fine()
    assert most in ([[1], [2]] if is_native() else [[0]])  # a second one only if a unit finds the first one busy
    assert [pool.threads.count for pool in pools] == [0]


@pytest.mark.parametrize(
    ("begun_with", "start", "fits"), [(0, 0, True), (0, 5, True), (7, 7, True), (0, 7, False), (7, 5, False)]
)
def test_rows_of_a_thread_that_did_not_know_the_start(begun_with: int, start: int, fits: bool) -> None:
    """Rows of a unit that begins at offset 5 are used only if the start did not change inside the unit."""
    log = LogBuilder()
    for _ in range(2):
        log.append_batch([Record(at, value=bytes(9)) for at in range(5)])
    log.roll()
    data = log.batches[1].data
    (segment,) = Bucket(log.segments()).metadata
    rows = PartitionRows("topic", 0, ("offset",), Lineage.unknown(), None, begun_with)
    pool = DecodePool(threads=1, min_bytes=0)
    sizes = {"max_batch_bytes": 1 << 20, "max_decompressed_bytes": 1 << 20}
    found = Units(SegmentSlice(segment, 0, 9), rows, pool, entry_offsets=(-1, -1), **sizes)
    unit = found.cut(memoryview(data), 0, 0, 4)
    assert unit is not None
    assert bool(found._taken_from(unit, 0, start)) == fits
    runs = list(found.runs(unit, 0, 4, start))
    assert sum(run.rows.num_rows for run in runs) == 10 - max(start, 5)
    pool.close()
