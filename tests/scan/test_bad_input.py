"""Bad bytes, one test each: a clear error with its whereabouts, or the right rows by a way that is counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from struct import pack, unpack_from

import pytest

from remote_fetch.errors import (
    CorruptSegment,
    DecompressionLimit,
    EpochMismatch,
    ErrorKind,
    RemoteFetchError,
    SegmentNotFound,
    Unlocatable,
    UnsupportedFormat,
)
from remote_fetch.formats.batches import BatchFramer
from remote_fetch.model import UNKNOWN_SIZE, IndexType, IsolationLevel, RemoteLogSegmentMetadata
from remote_fetch.testing.compression import GZIP, LZ4, SNAPPY, ZSTD
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record, rewrite_crc
from remote_fetch.testing.segments import BuiltSegment, SegmentOptions, encode_offset_index
from tests.cases import of_a_change
from tests.scan.bucket import (
    COMMITTED,
    DENSE,
    Bucket,
    Outcome,
    expected_rows,
    plain_log,
    planned,
    read,
    snapshot_config,
)

LOCATORS = pytest.mark.parametrize("exact", [False, True], ids=["listing", "snapshot"])


def positions(log: bytes) -> list[int]:
    """Where the batches of a segment start."""
    framer = BatchFramer(0)
    framer.feed(memoryview(log))
    found = []
    while (batch := framer.next_batch()) is not None:
        found.append(batch.position)
    return found


def config_of(bucket: Bucket, exact: bool, tmp_path: Path) -> dict[str, str]:
    return snapshot_config(bucket.metadata, tmp_path) if exact else {}


def check_error(outcome: Outcome, error: type[RemoteFetchError], *, before: int, position: int | None = None) -> None:
    """The error says what and where, and everything up to `before` was delivered."""
    assert type(outcome.error) is error, outcome.error
    assert outcome.offsets == list(range(before))
    assert (outcome.error.topic, outcome.error.partition) == ("topic", 0)
    assert outcome.error.object_name is not None
    if position is not None:
        assert outcome.error.position == position
        assert f"position {position}" in str(outcome.error)


class TestTruncated:
    @LOCATORS
    @pytest.mark.parametrize("kept", [1, 17, 60, 61, 100])
    def test_the_middle_segment_inside_a_batch(self, exact: bool, kept: int, tmp_path: Path) -> None:
        bucket = Bucket(plain_log().segments())
        config = config_of(bucket, exact, tmp_path)
        start = positions(bucket.log(1))[2]
        bucket.write(1, bucket.log(1)[: start + kept])
        # The last whole batch is held back until the header after it has confirmed it.
        outcome = read(bucket, config=config)
        check_error(outcome, CorruptSegment, before=len(outcome.rows))
        assert len(outcome.rows) in (25, 30)
        assert outcome.error is not None
        assert outcome.error.position == (start + kept if exact else start)
        assert outcome.report.rereads == {ErrorKind.CORRUPT: 1}

    @LOCATORS
    def test_the_middle_segment_between_two_batches(self, exact: bool, tmp_path: Path) -> None:
        bucket = Bucket(plain_log().segments())
        config = config_of(bucket, exact, tmp_path)
        bucket.write(1, bucket.log(1)[: positions(bucket.log(1))[2]])
        outcome = read(bucket, config=config)
        check_error(outcome, CorruptSegment if exact else Unlocatable, before=len(outcome.rows))
        assert len(outcome.rows) in (25, 30)

    def test_the_last_segment_of_a_listing(self) -> None:
        bucket = Bucket(plain_log().segments())
        start = positions(bucket.log(2))[2]
        bucket.write(2, bucket.log(2)[: start + 50])
        check_error(read(bucket), CorruptSegment, before=0, position=start)

    def test_the_last_segment_of_a_listing_below_what_its_index_knows(self) -> None:
        bucket = Bucket(plain_log().segments(DENSE))
        start = positions(bucket.log(2))[2]
        bucket.write(2, bucket.log(2)[:start])
        check_error(read(bucket), CorruptSegment, before=0, position=start)

    def test_the_last_segment_of_a_snapshot(self, tmp_path: Path) -> None:
        bucket = Bucket(plain_log().segments())
        config = config_of(bucket, True, tmp_path)
        bucket.write(2, bucket.log(2)[:-1])
        check_error(read(bucket, config=config), CorruptSegment, before=55, position=len(bucket.log(2)))

    def test_to_nothing(self, tmp_path: Path) -> None:
        bucket = Bucket(plain_log().segments())
        config = config_of(bucket, True, tmp_path)
        bucket.write(1, b"")
        check_error(read(bucket, config=config), CorruptSegment, before=20, position=0)


class ShortBucket(Bucket):
    """The first of its answers ends too soon, with a batch."""

    is_short = True

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> memoryview:
        data = super().fetch_log_segment(metadata, start_position, end_position)
        if start_position == 0 and self.is_short:
            self.is_short = False
            return data[: positions(bytes(data))[4]]
        return data


def test_bytes_behind_an_answer_that_ended_too_soon_do_not_follow_it(tmp_path: Path) -> None:
    """The next GET begins with a batch. So nothing but the length tells that batches are missing."""
    log = plain_log(segments=1, batches=12)
    bucket = ShortBucket(log.segments())
    range_bytes = positions(bucket.log(0))[6]
    outcome = read(bucket, config={**config_of(bucket, True, tmp_path), "fetch.remote.range.bytes": range_bytes})
    assert outcome.fine() == expected_rows(log.records())
    assert outcome.report.rereads == {ErrorKind.CORRUPT: 1}


class TestFlips:
    @LOCATORS
    def test_every_byte_of_a_batch(self, exact: bool, tmp_path: Path) -> None:
        """No damaged byte gives wrong rows. The next batches show a wrong base offset or leader epoch."""
        log = plain_log(value_bytes=3)
        expected = expected_rows(log.records())
        segments = log.segments()
        start, stop = positions(segments[1].log)[1:3]
        config = config_of(Bucket(segments), exact, tmp_path)
        for position in range(start, stop):
            bucket = Bucket(segments)
            bucket.flip(1, position)
            outcome = read(bucket, config=config)
            kinds = (CorruptSegment, UnsupportedFormat, EpochMismatch)
            assert isinstance(outcome.error, kinds), f"byte {position - start}"
            assert outcome.error.object_name is not None
            assert outcome.error.position in (start, stop), f"byte {position - start}"
            assert outcome.rows == expected[: len(outcome.rows)]
            assert len(outcome.rows) in (20, 25)
            assert sum(outcome.report.rereads.values()) == 1

    def test_wrong_magic(self) -> None:
        bucket = Bucket(plain_log().segments())
        start = positions(bucket.log(1))[2]
        bucket.flip(1, start + 16, 0x01)
        check_error(read(bucket), UnsupportedFormat, before=30, position=start)

    @pytest.mark.parametrize("length", [0, 48, 10**6, 2**31 - 1, -1])
    def test_wrong_length(self, length: int) -> None:
        bucket = Bucket(plain_log().segments())
        start = positions(bucket.log(1))[2]
        data = bucket.log(1)
        bucket.write(1, data[: start + 8] + pack(">i", length) + data[start + 12 :])
        check_error(read(bucket), CorruptSegment, before=30, position=start)

    @pytest.mark.parametrize("codec", [5, 6, 7])
    def test_unknown_codec(self, codec: int) -> None:
        bucket = Bucket(plain_log().segments())
        data, starts = bucket.log(1), positions(bucket.log(1))
        batch = bytearray(data[starts[1] : starts[2]])
        batch[22] |= codec
        bucket.write(1, data[: starts[1]] + rewrite_crc(bytes(batch)) + data[starts[2] :])
        outcome = read(bucket)
        check_error(outcome, UnsupportedFormat, before=25, position=starts[1])
        assert f"codec {codec}" in str(outcome.error)

    @pytest.mark.slow
    @LOCATORS
    @pytest.mark.parametrize(
        ("start", "end"), of_a_change([(0, 60), (25, 35), (27, 33), (30, 31), (34, 35), (20, 30)], (0, 60), (27, 33))
    )
    @pytest.mark.parametrize("options", [SegmentOptions(), DENSE, SegmentOptions(0, index_per_append=True)])
    def test_the_base_offset(self, exact: bool, start: int, end: int, options: SegmentOptions, tmp_path: Path) -> None:
        """In a log without gaps, the order, the segment's range or an index entry shows it, for any bounds."""
        log = plain_log(value_bytes=1)
        expected = expected_rows(log.records())[start:end]
        segments = log.segments(options)
        config = config_of(Bucket(segments), exact, tmp_path)
        for number in range(4):
            batch = positions(segments[1].log)[number]
            for bit in (*range(8), 30, 62, 63):
                bucket = Bucket(segments)
                bucket.flip(1, batch + 7 - bit // 8, 1 << bit % 8)
                outcome = read(bucket, start=start, end=end, config=config)
                assert outcome.rows == expected[: len(outcome.rows)], (number, bit)
                if outcome.error is None:
                    assert outcome.rows == expected, (number, bit)
                else:
                    assert isinstance(outcome.error, CorruptSegment | Unlocatable), (number, bit)

    @pytest.mark.parametrize("end", [25, 30, 35])
    @pytest.mark.parametrize("bit", [0x01, 0x04])
    def test_the_last_offset_of_the_last_batch_that_is_read(self, end: int, bit: int, tmp_path: Path) -> None:
        """The error tells its checksum. The index, which agrees with no such offset, is not blamed."""
        bucket = Bucket(plain_log().segments(DENSE))
        config = config_of(bucket, True, tmp_path)
        start = positions(bucket.log(1))[(end - 20) // 5 - 1]
        bucket.flip(1, start + 26, bit)
        outcome = read(bucket, start=20, end=end, config=config)
        assert "checksum mismatch" in str(outcome.error)
        assert outcome.error is not None
        assert (outcome.offsets, outcome.error.position) == (list(range(20, end - 5)), start)
        assert outcome.report.scans == {}

    @LOCATORS
    def test_the_leader_epoch(self, exact: bool, tmp_path: Path) -> None:
        log = LogBuilder(leader_epoch=3)
        for _ in range(3):
            for _ in range(3):
                log.append_batch([Record(n, value=b"v") for n in range(5)])
                log.new_leader_epoch()
            log.roll()
        bucket = Bucket(log.segments())
        config = config_of(bucket, exact, tmp_path)
        start = positions(bucket.log(1))[1]
        bucket.flip(1, start + 15, 0x01)
        outcome = read(bucket, config=config)
        check_error(outcome, EpochMismatch, before=20, position=start)
        assert "leader epoch 6 where the log has epoch 7" in str(outcome.error)
        assert outcome.report.rereads == {ErrorKind.TRUNCATED: 1}


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_decompression_bomb(codec: int) -> None:
    log = LogBuilder()
    log.append_batch([Record(0, value=b"fine")])
    log.append_batch([Record(0, value=bytes(4 << 20))], codec=codec)
    log.roll()
    outcome = read(Bucket(log.segments()), config={"fetch.remote.max.decompressed.bytes": 1 << 20})
    check_error(outcome, DecompressionLimit, before=1, position=len(log.batches[0].data))
    assert "fetch.remote.max.decompressed.bytes" in str(outcome.error)
    assert read(Bucket(log.segments())).error is None


def test_a_batch_beyond_the_bound() -> None:
    log = plain_log(value_bytes=2000)
    outcome = read(Bucket(log.segments()), config={"fetch.remote.max.batch.bytes": 1024})
    check_error(outcome, CorruptSegment, before=0, position=0)


class TestOffsetIndex:
    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (None, "missing"),
            (b"1234567", "corrupt"),
            (encode_offset_index([(9, 100), (4, 200)]), "corrupt"),
            (encode_offset_index([(4, 10**6)]), "corrupt"),
            (encode_offset_index([(4, 30), (9, 31), (14, 40)]), "misleading"),
        ],
        ids=["missing", "wrong size", "descending", "past the end", "inside batches"],
    )
    @LOCATORS
    def test_the_segment_is_scanned(self, exact: bool, data: bytes | None, reason: str, tmp_path: Path) -> None:
        log = plain_log()
        bucket = Bucket(log.segments())
        config = config_of(bucket, exact, tmp_path)
        bucket.write_index(1, IndexType.OFFSET, data)
        outcome = read(bucket, start=31, end=33, config=config)
        assert outcome.fine() == expected_rows(log.records())[31:33]
        assert outcome.report.scans == {reason: 1}

    @LOCATORS
    def test_an_offset_past_the_end(self, exact: bool, tmp_path: Path) -> None:
        """The end of a listed segment is inferred, and its object may go on behind it: such an entry is passed over."""
        log = plain_log()
        bucket = Bucket(log.segments())
        config = config_of(bucket, exact, tmp_path)
        bucket.write_index(1, IndexType.OFFSET, encode_offset_index([(10**6, 4)]))
        outcome = read(bucket, start=31, end=33, config=config)
        assert outcome.fine() == expected_rows(log.records())[31:33]
        assert outcome.report.scans == ({"corrupt": 1} if exact else {})

    def test_entries_that_point_at_later_batches(self) -> None:
        log = plain_log()
        bucket = Bucket(log.segments())
        starts = positions(bucket.log(1))
        bucket.write_index(1, IndexType.OFFSET, encode_offset_index([(4, starts[2]), (9, starts[3])]))
        outcome = read(bucket, start=26, end=32)
        assert outcome.fine() == expected_rows(log.records())[26:32]
        assert outcome.report.scans == {"misleading": 1}

    def test_entries_that_end_too_soon(self) -> None:
        log = plain_log()
        bucket = Bucket(log.segments())
        starts = positions(bucket.log(1))
        bucket.write_index(1, IndexType.OFFSET, encode_offset_index([(14, starts[1]), (19, starts[2])]))
        outcome = read(bucket, start=20, end=32)
        assert outcome.fine() == expected_rows(log.records())[20:32]
        assert outcome.report.scans == {"misleading": 1}

    def test_an_entry_behind_the_wanted_offsets_that_lies_inside_a_batch(self) -> None:
        log = plain_log()
        bucket = Bucket(log.segments())
        starts = positions(bucket.log(1))
        bucket.write_index(1, IndexType.OFFSET, encode_offset_index([(9, starts[1]), (14, starts[2] + 10)]))
        outcome = read(bucket, start=20, end=27)
        assert outcome.fine() == expected_rows(log.records())[20:27]
        assert outcome.report.scans == {"misleading": 1}

    def test_of_the_last_segment_of_a_listing(self) -> None:
        log = plain_log()
        for data in (None, b"1234567", encode_offset_index([(4, 30)])):
            bucket = Bucket(log.segments())
            bucket.write_index(2, IndexType.OFFSET, data)
            outcome = read(bucket)
            assert outcome.fine() == expected_rows(log.records())
            assert sum(outcome.report.scans.values()) == 1

    @staticmethod
    def ambiguous() -> tuple[LogBuilder, BuiltSegment]:
        """A segment of unknown size whose 8-byte index is also a valid one with 12-byte entries."""
        log = LogBuilder()
        for _ in range(4):
            log.append_batch([Record(n * 3000, value=bytes(5000)) for n in range(2)], last_offset_delta=5999)
        log.roll()
        return log, log.segments(DENSE)[0]

    def test_one_that_can_be_read_in_two_ways_is_held_against_the_bytes(self, tmp_path: Path) -> None:
        log, segment = self.ambiguous()
        bucket = Bucket([segment])
        config = unknown_size_config(segment, tmp_path)
        for start, end, is_tie in ((12000, 12001, True), (15000, 18001, True), (7000, 15001, False), (0, 3000, False)):
            outcome = read(bucket, start=start, end=end, config=config)
            assert outcome.fine() == [row for row in expected_rows(log.records()) if start <= row.offset < end]
            assert outcome.report.scans == {}
            assert outcome.report.ties == ({"8-byte": 1} if is_tie else {})

    def test_an_object_that_is_cut_under_one_that_can_be_read_in_two_ways(self, tmp_path: Path) -> None:
        """The object ends with a whole batch, as after compaction. Its size is unknown, so only the index tells."""
        _, segment = self.ambiguous()
        bucket = Bucket([segment])
        bucket.write(0, segment.log[: len(segment.log) // 2])
        outcome = read(bucket, config=unknown_size_config(segment, tmp_path))
        assert isinstance(outcome.error, CorruptSegment)
        assert "its offset index knows a batch at" in str(outcome.error)

    def test_bytes_that_only_look_like_a_batch(self, tmp_path: Path) -> None:
        """Both entry sizes are wrong, and one leads to zeros, which look like offset 0, magic 0 and length 0."""
        log = LogBuilder()
        log.append_batch([Record(0, value=bytes(5000))], last_offset_delta=299)
        for _ in range(3):
            log.append_batch([Record(n * 100, value=b"v%d" % n) for n in range(2)], last_offset_delta=299)
        log.roll()
        segment = log.segments(DENSE)[0]
        bucket = Bucket([segment])
        bucket.write_index(0, IndexType.OFFSET, encode_offset_index([(299, 200), (599, 300), (899, 400)]))
        outcome = read(bucket, start=899, config=unknown_size_config(segment, tmp_path))
        assert outcome.fine() == [row for row in expected_rows(log.records()) if row.offset >= 899]
        assert outcome.report.scans == {"ambiguous": 1}

    def test_one_that_can_be_read_in_two_wrong_ways(self, tmp_path: Path) -> None:
        log, segment = self.ambiguous()
        bucket = Bucket([segment])
        entries = [unpack_from(">ii", segment.offset_index, at) for at in range(0, 24, 8)]
        bucket.write_index(0, IndexType.OFFSET, encode_offset_index([(offset, at + 1) for offset, at in entries]))
        outcome = read(bucket, start=12000, config=unknown_size_config(segment, tmp_path))
        assert outcome.fine() == [row for row in expected_rows(log.records()) if row.offset >= 12000]
        assert outcome.report.scans == {"ambiguous": 1}


def unknown_size_config(segment: BuiltSegment, tmp_path: Path) -> dict[str, str]:
    return snapshot_config([replace(segment.metadata, segment_size_in_bytes=UNKNOWN_SIZE)], tmp_path)


class TestTransactionIndex:
    @staticmethod
    def aborted_log() -> LogBuilder:
        """Offsets 0..4 plain; 5..9 of a transaction that is aborted at 10, in the next segment; 11..15 plain."""
        log = LogBuilder()
        records = [Record(n, value=b"v") for n in range(5)]
        log.append_batch(records)
        log.begin(7)
        log.append_batch(records, producer_id=7)
        log.roll()
        log.abort(7)
        log.append_batch(records)
        log.roll()
        return log

    def test_it_is_used(self) -> None:
        log = self.aborted_log()
        outcome = read(Bucket(log.tiered()), isolation=COMMITTED)
        assert outcome.fine() == expected_rows(log.expected(COMMITTED))
        assert outcome.offsets == [*range(5), *range(11, 16)]

    def test_lost_in_a_listing(self) -> None:
        """The listing cannot tell; the abort marker can."""
        bucket = Bucket(self.aborted_log().tiered())
        bucket.write_index(1, IndexType.TRANSACTION, None)
        outcome = read(bucket, isolation=COMMITTED)
        assert type(outcome.error) is CorruptSegment
        assert "no transaction index says so" in str(outcome.error)
        assert (outcome.error.topic, outcome.error.partition, outcome.error.position) == ("topic", 0, 0)
        assert outcome.error.offset == 5
        assert "broker" in str(outcome.error)
        assert read(bucket, isolation=IsolationLevel.READ_UNCOMMITTED).error is None

    @pytest.mark.parametrize(("data", "state"), [(None, "missing"), (b"", "empty")])
    def test_lost_where_the_metadata_promises_it(self, tmp_path: Path, data: bytes | None, state: str) -> None:
        bucket = Bucket(self.aborted_log().tiered())
        config = config_of(bucket, True, tmp_path)
        assert bucket.at(0).txn_index_empty
        bucket.write_index(1, IndexType.TRANSACTION, data)
        outcome = read(bucket, isolation=COMMITTED, config=config)
        check_error(outcome, CorruptSegment, before=0)
        assert f"but it is {state}" in str(outcome.error)

    def test_lost_where_the_metadata_is_older(self, tmp_path: Path) -> None:
        bucket = Bucket(self.aborted_log().tiered(SegmentOptions(flags_empty_txn_index=False)))
        config = config_of(bucket, True, tmp_path)
        bucket.write_index(1, IndexType.TRANSACTION, None)
        outcome = read(bucket, isolation=COMMITTED, config=config)
        assert "no transaction index says so" in str(outcome.error)

    @pytest.mark.parametrize("data", [b"123", pack(">hqqqq", 0, 7, 11, 10, 11), pack(">hqqqq", 1, 7, 5, 10, 11)])
    def test_damaged(self, data: bytes) -> None:
        bucket = Bucket(self.aborted_log().tiered())
        bucket.write_index(1, IndexType.TRANSACTION, data)
        outcome = read(bucket, isolation=COMMITTED)
        assert isinstance(outcome.error, RemoteFetchError)
        assert "(transaction index)" in str(outcome.error)
        assert outcome.rows == []


class TestStateFiles:
    def test_a_lost_producer_snapshot(self) -> None:
        log = plain_log()
        bucket = Bucket(log.segments())
        bucket.write_index(2, IndexType.PRODUCER_SNAPSHOT, None)
        outcome = read(bucket, isolation=COMMITTED)
        check_error(outcome, Unlocatable, before=0)
        assert "no producer snapshot" in str(outcome.error)
        assert read(bucket).fine() == expected_rows(log.records())

    def test_a_producer_snapshot_that_is_lost_with_its_segment(self) -> None:
        """With a wrong URL, no object of the metadata exists. The error says that, and not that a file is lost."""
        bucket = Bucket(plain_log().segments())
        config = snapshot_config(bucket.metadata)
        while bucket.metadata:
            bucket.drop(0)
        outcome = read(bucket, isolation=COMMITTED, config=config)
        check_error(outcome, SegmentNotFound, before=0)
        assert "producer snapshot" not in str(outcome.error)

    def test_a_damaged_producer_snapshot(self) -> None:
        bucket = Bucket(plain_log().segments())
        bucket.write_index(2, IndexType.PRODUCER_SNAPSHOT, b"\x00\x01" + bytes(8))
        outcome = read(bucket, isolation=COMMITTED)
        check_error(outcome, CorruptSegment, before=0)
        assert "(producer-snapshot index)" in str(outcome.error)

    def test_a_lost_leader_epoch_checkpoint(self) -> None:
        log = plain_log()
        bucket = Bucket(log.segments())
        bucket.write_index(2, IndexType.LEADER_EPOCH, None)
        outcome = read(bucket)
        assert outcome.fine() == expected_rows(log.records())
        assert outcome.report.scans == {"missing": 1}

    def test_a_damaged_leader_epoch_checkpoint(self) -> None:
        bucket = Bucket(plain_log().segments())
        bucket.write_index(2, IndexType.LEADER_EPOCH, b"0\n9\n")
        outcome = read(bucket)
        check_error(outcome, CorruptSegment, before=0)
        assert "(leader-epoch index)" in str(outcome.error)


def test_legacy_messages_are_checked_too() -> None:
    log = LogBuilder()
    log.append_legacy([Record(n, value=b"v" * 30) for n in range(3)], magic=1)
    log.roll()
    bucket = Bucket(log.segments())
    assert read(bucket).fine() == expected_rows(log.records())
    bucket.flip(0, len(bucket.log(0)) - 1)
    outcome = read(bucket)
    check_error(outcome, CorruptSegment, before=len(outcome.rows))


@LOCATORS
@pytest.mark.parametrize("magic", [0, 1])
def test_every_low_bit_of_the_offset_of_a_compressed_legacy_message(magic: int, exact: bool, tmp_path: Path) -> None:
    """No checksum covers it. In format v1 all offsets inside follow from it."""
    log = LogBuilder()
    for segment in range(2):
        for number in range(4):
            first = 5 * (4 * segment + number)
            values = [Record(delta, value=b"%d" % (first + delta)) for delta in range(5)]
            log.append_legacy(values, magic=magic, codec=GZIP)
        log.roll()
    segments, expected = log.segments(), expected_rows(log.records())
    config = config_of(Bucket(segments), exact, tmp_path)
    assert read(Bucket(segments), config=config).fine() == expected
    for start in positions(segments[0].log):
        for bit in range(6):
            bucket = Bucket(segments)
            bucket.flip(0, start + 7, 1 << bit)
            outcome = read(bucket, config=config)
            assert outcome.rows == expected[: len(outcome.rows)]
            if (magic, start, bit) == (1, 0, 2):  # 0 is right, too: then the offsets inside are not relative
                assert outcome.fine() == expected
            else:
                assert isinstance(outcome.error, (CorruptSegment, Unlocatable)), f"bit {bit} at {start}"


@LOCATORS
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("first", "stop"), [(1, 40), (7, 40), (0, 3), (0, 7), (0, 10)])
def test_a_read_that_begins_or_ends_inside_a_compressed_legacy_message(
    magic: int, first: int, stop: int, exact: bool, tmp_path: Path
) -> None:
    """A message before the first offset, and one behind the last, tell by their offsets which records are wanted."""
    log = LogBuilder()
    for number in range(8):
        values = [Record(delta, value=b"%d" % (5 * number + delta)) for delta in range(5)]
        log.append_legacy(values, magic=magic, codec=GZIP)
        if number % 4 == 3:
            log.roll()
    segments, wanted = log.segments(), expected_rows(log.records())[first:stop]
    config = config_of(Bucket(segments), exact, tmp_path)
    assert read(Bucket(segments), config=config, start=first, end=stop).fine() == wanted
    for start in positions(segments[0].log):
        for bit in range(6):
            bucket = Bucket(segments)
            bucket.flip(0, start + 7, 1 << bit)
            outcome = read(bucket, config=config, start=first, end=stop)
            assert outcome.rows == wanted[: len(outcome.rows)]
            assert outcome.error is not None or outcome.rows == wanted, f"bit {bit} at {start}"


def test_a_plan_for_a_scan_is_the_whole_segment() -> None:
    bucket = Bucket(plain_log().segments())
    bucket.write_index(1, IndexType.OFFSET, None)
    (piece,) = planned(bucket, start=31, end=33)
    assert (piece.start_position, piece.end_position) == (0, -1)
