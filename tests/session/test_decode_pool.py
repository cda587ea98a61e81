"""Batches prepared in other threads: the same rows and the same errors as on the spot.

Rules of the file:

- Whole logs are read both ways and compared.
- A test of a single batch states its result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remote_fetch.decode.columns import ColumnBuilder
from remote_fetch.errors import Cancelled, DecompressionLimit
from remote_fetch.formats.batches import HEADER_BYTES, BatchFramer, FramedBatch
from remote_fetch.formats.codecs import Codecs
from remote_fetch.model import IsolationLevel
from remote_fetch.session import decode_pool as ahead_module
from remote_fetch.session import session
from remote_fetch.session.decode_pool import Ahead, Prepared, Wanted
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record, rewrite_crc
from remote_fetch.testing.segments import SegmentOptions
from remote_fetch.testing.strategies import logs, segment_options
from tests.own_threads import watch_threads
from tests.scan.bucket import Bucket, Outcome, examples, plain_log, read

PLENTY = 1 << 20
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def framed(log: LogBuilder) -> list[FramedBatch]:
    framer = BatchFramer(0)
    framer.feed(memoryview(b"".join(batch.data for batch in log.batches)))
    found = []
    while (batch := framer.next_batch()) is not None:
        found.append(batch)
    return found


def one_batch(codec: int, value: bytes = bytes(500)) -> FramedBatch:
    log = LogBuilder()
    log.append_batch([Record(0, value=value)], codec=codec)
    return framed(log)[0]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that prepare every batch, however small, whatever the machine."""
    monkeypatch.setattr(session, "Ahead", partial(Ahead, threads=2, min_batch_bytes=0))


def told(outcome: Outcome) -> tuple[object, ...]:
    error = outcome.error
    where = None if error is None else (type(error), str(error))
    return outcome.rows, where, outcome.report.rereads, outcome.report.scans, outcome.report.fallbacks


SPOT: dict[str, int] = {"threads": 0}
BATCHES: dict[str, int] = {"threads": 2, "min_batch_bytes": 0, "enough_bytes": 1}
TOGETHER: dict[str, int] = {"threads": 2, "min_batch_bytes": 0, "enough_bytes": 600}


def all_ways(bucket: Bucket, **bounds: object) -> list[Outcome]:
    """Make the same read in three ways: without threads, each batch alone in a thread, several batches together."""
    outcomes = []
    for options in (SPOT, BATCHES, TOGETHER):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(session, "Ahead", partial(Ahead, **options))
            outcomes.append(read(bucket, **bounds))  # type: ignore[arg-type]
    return outcomes


class TestReads:
    @examples(60)
    @given(logs(), segment_options(), st.sampled_from(IsolationLevel), st.sampled_from((1024, 1500, 1 << 20)))
    def test_whole_logs(
        self, log: LogBuilder, options: SegmentOptions, isolation: IsolationLevel, range_bytes: int
    ) -> None:
        segments = log.tiered(options)
        if segments:
            config = {"fetch.remote.range.bytes": range_bytes, "fetch.remote.max.bytes": 4 * range_bytes}
            plain, prepared, together = map(told, all_ways(Bucket(segments), isolation=isolation, config=config))
            assert prepared == plain
            assert together == plain

    def test_what_lies_before_the_start_was_not_shown(self) -> None:
        """A thread gets batches of which none is wanted. Their producer's later abort concerns no delivered record."""
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
        outcomes = all_ways(Bucket(log.segments()), start=start, isolation=IsolationLevel.READ_COMMITTED)
        assert [(one.error, one.offsets) for one in outcomes] == [(None, [start, start + 2])] * 3

    @examples(60)
    @example(segment=0, at=419, bit=0)  # a base offset that is one too high: only the next header shows it
    @given(st.integers(0, 2), st.integers(0, 1000), st.integers(0, 7))
    def test_one_damaged_bit(self, segment: int, at: int, bit: int) -> None:
        bucket = Bucket(plain_log().segments())
        log = bytearray(bucket.log(segment))
        log[at % len(log)] ^= 1 << bit
        bucket.write(segment, bytes(log))
        plain, prepared, together = map(told, all_ways(bucket))
        assert prepared == plain
        assert together == plain

    @examples(60)
    @given(st.integers(0, 5000), st.integers(0, 255), st.sampled_from((0, LZ4, ZSTD)))
    def test_one_batch_that_is_damaged_under_a_right_checksum(self, at: int, byte: int, codec: int) -> None:
        log = LogBuilder()
        for number in range(40):
            log.append_batch([Record(delta, value=b"%d" % number * 20) for delta in range(3)], codec=codec)
        log.roll()
        data = bytearray().join(one.data for one in log.batches)
        frame = next(one for one in framed(log) if at % len(data) < one.position + one.header.size_bytes)
        start, end = frame.position, frame.position + frame.header.size_bytes
        data[max(at % len(data), start + HEADER_BYTES)] = byte
        data[start:end] = rewrite_crc(bytes(data[start:end]))
        bucket = Bucket(log.segments())
        bucket.write(0, bytes(data))
        plain, prepared, together = map(told, all_ways(bucket))
        assert prepared == plain
        assert together == plain

    @pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
    def test_the_bound_of_the_configuration_holds(self, codec: int, always: None) -> None:
        log = LogBuilder()
        log.append_batch([Record(0, value=b"fine")])
        log.append_batch([Record(0, value=bytes(100_000))], codec=codec)
        log.roll()
        outcome = read(Bucket(log.segments()), config={"fetch.remote.max.decompressed.bytes": 50_000})
        assert type(outcome.error) is DecompressionLimit
        assert outcome.offsets == [0]

    def test_threads_end_with_the_session(self, always: None) -> None:
        threads = watch_threads()
        assert read(Bucket(plain_log().segments())).fine()
        assert threads() == []


def wanted(start_offset: int = 0) -> Wanted:
    return Wanted(ColumnBuilder("topic", 0), start_offset, 1 << 40)


def prepare(ahead: Ahead, *batches: FramedBatch, wanted: Wanted | None = None, shown: bool = True) -> Prepared:
    return ahead.prepare(batches, [shown] * len(batches), wanted or Wanted(ColumnBuilder("topic", 0), 0, 1 << 40))


def damaged(batch: FramedBatch) -> FramedBatch:
    """The first record's length is wrong, and the checksum right."""
    data = bytearray(batch.data)
    data[HEADER_BYTES] ^= 1
    rewritten = rewrite_crc(bytes(data))
    header = batch.header._replace(crc=int.from_bytes(rewritten[17:21], "big"))
    return batch._replace(header=header, data=memoryview(rewritten))


def with_wrong_checksum(batch: FramedBatch) -> FramedBatch:
    data = bytearray(batch.data)
    data[-1] ^= 1
    return batch._replace(data=memoryview(data))


class TestBatches:
    @pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
    def test_are_decoded(self, codec: int) -> None:
        ahead, batch = Ahead(max_bytes=PLENTY, threads=1, min_batch_bytes=0), one_batch(codec)
        prepared = prepare(ahead, batch)
        header, model = batch.header, ColumnBuilder("topic", 0)
        model.append(header, Codecs().decompress(codec, batch.data[HEADER_BYTES:]), 0, 1 << 40)
        assert prepared.is_sound
        assert prepared.rows(header.base_offset, 0) == model.drain()
        ahead.close()

    def test_several_become_one_arrow_batch(self) -> None:
        ahead, log = Ahead(max_bytes=PLENTY, threads=1, min_batch_bytes=0), LogBuilder()
        for _ in range(3):
            log.append_batch([Record(at, value=bytes(9)) for at in range(5)])
        (rows,) = prepare(ahead, *framed(log)).rows(0, 0) or []
        assert rows.column("offset").to_pylist() == list(range(15))
        ahead.close()

    def test_one_builder_after_another(self) -> None:
        """A thread that makes rows of one partition makes those of the next as well, in other columns."""
        ahead, batch = Ahead(max_bytes=PLENTY, threads=1, min_batch_bytes=0), one_batch(ZSTD)
        for partition in (3, 4):
            model = ColumnBuilder("topic", partition, ["partition", "offset"])
            for _ in range(2):
                (rows,) = prepare(ahead, batch, wanted=Wanted(model, 0, 1 << 40)).rows(0, 0) or []
                assert rows.to_pylist() == [{"partition": partition, "offset": 0}]
        ahead.close()

    @pytest.mark.parametrize(
        ("begun_with", "start", "fits"), [(0, 0, True), (0, 5, True), (7, 7, True), (0, 7, False), (7, 5, False)]
    )
    def test_rows_that_were_made_before_the_start_was_known(self, begun_with: int, start: int, fits: bool) -> None:
        """Rows of a batch that begins at offset 5 are used only if the start did not change inside the batch."""
        ahead, log = Ahead(max_bytes=PLENTY, threads=1, min_batch_bytes=0), LogBuilder()
        for _ in range(2):
            log.append_batch([Record(at, value=bytes(9)) for at in range(5)])
        rows = prepare(ahead, framed(log)[1], wanted=wanted(begun_with)).rows(5, start)
        assert (rows is not None) == fits
        if rows is not None:
            assert sum(one.num_rows for one in rows) == 10 - max(begun_with, 5)
        ahead.close()

    def test_only_its_checksum_is_checked_where_nobody_will_see_it(self) -> None:
        ahead = Ahead(max_bytes=PLENTY, threads=1, min_batch_bytes=0)
        assert prepare(ahead, damaged(one_batch(0)), shown=False).rows(0, 0) == []
        assert not prepare(ahead, with_wrong_checksum(one_batch(0)), shown=False).is_sound
        ahead.close()

    @pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD, 0])
    def test_what_inflates_too_much_is_left_for_its_turn(self, codec: int) -> None:
        ahead = Ahead(max_bytes=400, threads=1, min_batch_bytes=0)
        assert not prepare(ahead, one_batch(codec)).is_sound
        ahead.close()

    def test_what_is_too_much_together_goes_one_by_one(self) -> None:
        ahead, batch = Ahead(max_bytes=700, threads=1, min_batch_bytes=0), one_batch(0)
        assert ahead.enough_bytes > 1
        assert not prepare(ahead, batch, batch).is_sound
        assert ahead.enough_bytes == 1
        assert prepare(ahead, batch).is_sound, "and nothing of the last ones is left"
        ahead.close()

    @pytest.mark.parametrize("spoil", [damaged, with_wrong_checksum])
    def test_one_that_is_damaged_spoils_all_for_now(self, spoil: Callable[[FramedBatch], FramedBatch]) -> None:
        ahead, log = Ahead(max_bytes=PLENTY, threads=1, min_batch_bytes=0), LogBuilder()
        for _ in range(3):
            log.append_batch([Record(0, value=b"value")])
        batches = framed(log)
        assert not prepare(ahead, batches[0], spoil(batches[1]), batches[2]).is_sound
        (rows,) = prepare(ahead, batches[2]).rows(2, 0) or []
        assert rows.column("offset").to_pylist() == [2], "nothing of the others is left"
        ahead.close()

    def test_a_small_one_is_not_worth_it(self) -> None:
        header = one_batch(0).header
        assert not Ahead(max_bytes=PLENTY, threads=1, min_batch_bytes=header.size_bytes + 1).takes(header)
        assert Ahead(max_bytes=PLENTY, threads=1, min_batch_bytes=header.size_bytes).takes(header)

    def test_without_threads_there_is_nothing_ahead(self) -> None:
        ahead = Ahead(max_bytes=PLENTY, threads=0, min_batch_bytes=0)
        assert not ahead.takes(one_batch(0).header)
        assert ahead.depth == 1
        ahead.close()

    def test_after_closing(self) -> None:
        ahead = Ahead(max_bytes=PLENTY, threads=1, min_batch_bytes=0)
        ahead.close()
        prepared = prepare(ahead, one_batch(0))
        with pytest.raises(Cancelled):
            prepared.rows(0, 0)


@pytest.mark.parametrize(("processors", "threads"), [(1, 0), (2, 2), (4, 4), (96, 4)])
def test_threads_by_the_number_of_processors(monkeypatch: pytest.MonkeyPatch, processors: int, threads: int) -> None:
    monkeypatch.setattr(ahead_module, "_processors", lambda: processors)
    one = Ahead(max_bytes=PLENTY)
    assert one.depth == (threads + 2 if threads else 1)
    one.close()
