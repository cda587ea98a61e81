"""The rules of `slice_reader`, each over the bytes of one small segment, without a session."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.codecs import Codecs
from remote_fetch.locate.lineage import Lineage
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.plan.visibility import SequentialAborts
from remote_fetch.prepare.order import MisleadingIndex
from remote_fetch.scan.rows import PartitionRows
from remote_fetch.scan.slice_reader import SliceReader
from remote_fetch.session.decode_pool import DecodePool
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record, encode_legacy

GZIP = 1
FIVE = [Record(delta, value=b"%d" % delta) for delta in range(5)]


class Slice:
    """The only segment of `log`, whose bytes a test may change, and a reader of its offsets up to `last`.

    The reader begins at the batch `begin`, as after an error. Offsets from `first` on are wanted, by default from the
    one of that batch on.
    """

    def __init__(
        self,
        log: LogBuilder,
        last: int | None = None,
        *,
        entry: int = -1,
        end_entry: int = -1,
        begin: int = 0,
        first: int | None = None,
        aborted: SequentialAborts | None = None,
    ) -> None:
        log.roll()
        (segment,) = log.segments()
        self.data = bytearray(segment.log)
        sizes = [len(batch.data) for batch in log.batches if batch.data]
        self.starts = [sum(sizes[:at]) for at in range(len(sizes))]
        first = log.batches[begin].base_offset if first is None else first
        self.rows = PartitionRows("topic", 0, ("offset",), Lineage.unknown(), aborted, first)
        metadata = segment.metadata
        stop = metadata.end_offset if last is None else last
        piece = SegmentSlice(metadata, 0, stop, start_entry_offset=entry, end_entry_offset=end_entry)
        pool, at = DecodePool(threads=0), self.starts[begin]
        self.reader = SliceReader(piece, self.rows, Codecs(), pool, position=at, max_batch_bytes=1 << 20)

    def feed(self, start: int = 0, stop: int | None = None) -> list[int]:
        """Feed bytes [start, stop). Returns the offsets of the rows that are delivered after it."""
        return self._offsets(self.reader.feed(memoryview(bytes(self.data[start:stop]))))

    def drain(self) -> list[int]:
        return self._offsets(self.reader.drain())

    def finish(self) -> list[int]:
        return self._offsets(self.reader.finish())

    def _offsets(self, found: Iterable[DecodedRows]) -> list[int]:
        rows = [*found, *self.rows.flush()]
        return [row["offset"] for each in rows for batch in each.to_arrow() for row in batch.to_pylist()]


def three_batches() -> LogBuilder:
    """Offsets 0 to 14."""
    log = LogBuilder()
    for _ in range(3):
        log.append_batch(FIVE)
    return log


def a_gap() -> LogBuilder:
    """Offsets 0 to 4, 10 to 14, and 15 to 19."""
    log = LogBuilder()
    log.append_batch(FIVE)
    log.take_out(5)
    log.append_batch(FIVE)
    log.append_batch(FIVE)
    return log


def test_a_batch_is_held_until_the_next_header_confirms_it() -> None:
    read = Slice(three_batches())
    _, second, third = read.starts
    assert (read.feed(0, second), read.drain()) == ([], [])
    assert read.feed(second, third) + read.drain() == [0, 1, 2, 3, 4]
    assert read.reader.resume_position == second, "the second one is held"
    assert read.feed(third) + read.finish() == list(range(5, 15))


def test_a_base_offset_that_is_too_high_is_an_error_at_the_batch_after_it() -> None:
    """Nothing is delivered of a batch whose place is not confirmed."""
    read = Slice(three_batches())
    read.data[read.starts[1] + 7] ^= 2  # 5 becomes 7
    with pytest.raises(CorruptSegment, match="base offset 10 follows one that ends with offset 11"):
        read.feed() + read.finish()
    assert read.rows.next_offset == 5
    assert read.reader.resume_position == read.starts[1]


def test_the_last_batch_may_not_reach_behind_its_segment() -> None:
    """No header follows that would show its base offset to be too high."""
    read = Slice(three_batches())
    read.data[read.starts[2] + 7] ^= 4  # 10 becomes 14
    with pytest.raises(CorruptSegment, match="offsets 14 to 18 in a segment of offsets 0 to 14"):
        read.feed() + read.finish()
    assert read.rows.next_offset == 5, "the batch before it waits for its header"


def test_a_slice_ends_at_the_first_batch_behind_it_if_it_has_all_offsets() -> None:
    read = Slice(three_batches(), last=7)
    read.feed(0, read.starts[2])
    read.drain()
    assert not read.reader.done
    read.feed(read.starts[2])
    read.drain()
    assert read.reader.done
    assert read.rows.next_offset == 8


def test_a_slice_that_lacks_offsets_ends_at_the_second_batch_behind_it() -> None:
    """The first one shows a gap, or its base offset is damaged. The header after it shows which."""
    read = Slice(a_gap(), last=7)
    assert read.feed(0, read.starts[2]) + read.drain() == [0, 1, 2, 3, 4]
    assert not read.reader.done
    read.feed(read.starts[2])
    read.drain()
    assert read.reader.done
    assert read.finish() == []
    assert read.rows.next_offset == 8, "none is lost"


def test_a_batch_that_only_seems_to_be_behind_the_slice() -> None:
    log = three_batches()
    log.append_batch(FIVE)
    read = Slice(log, last=9)
    read.data[read.starts[1] + 7] ^= 8  # 5 becomes 13
    with pytest.raises(CorruptSegment, match="base offset 10 follows one that ends with offset 17"):
        read.feed() + read.finish()
    assert read.rows.next_offset == 5, "5 to 9 are still wanted"


def test_an_entry_behind_the_last_batch_is_of_another_segment() -> None:
    read = Slice(three_batches(), entry=20)
    with pytest.raises(MisleadingIndex):
        read.feed() + read.finish()


@pytest.mark.parametrize("begin", [0, 1])
def test_the_last_entry_of_a_slice_shows_a_wrong_offset_of_its_last_batch(begin: int) -> None:
    """The bytes end before the next header. So the entry counts after an error too."""
    log = three_batches()
    log.append_batch(FIVE)
    read = Slice(log, last=12, end_entry=14, begin=begin)
    read.data[read.starts[2] + 7] ^= 1  # 10 becomes 11
    with pytest.raises(MisleadingIndex):
        read.feed(read.starts[begin], read.starts[3]) + read.finish()
    assert read.rows.next_offset <= 10


def test_a_broker_s_list_need_not_tell_of_a_transaction_that_ends_before_the_wanted_offsets() -> None:
    """None of its records is given, so its marker contradicts nothing."""
    log = LogBuilder()
    log.begin(7)
    log.append_batch(FIVE, producer_id=7)
    log.abort(7)
    log.append_batch(FIVE)
    read = Slice(log, first=6, aborted=SequentialAborts(()))
    assert read.feed() + read.finish() == list(range(6, 11))


def test_an_item_that_is_held_is_not_delivered_if_it_is_no_longer_wanted() -> None:
    read = Slice(three_batches())
    assert read.feed() + read.drain() == list(range(10))
    read.reader.done = True
    assert read.finish() == []


def test_a_legacy_set_whose_own_offset_goes_back_is_refused_whatever_its_messages_say() -> None:
    log = LogBuilder()
    log.append_batch(FIVE)
    log.append_batch(FIVE)
    read = Slice(log)
    followers = encode_legacy(0, [Record(offset) for offset in range(5, 10)], magic=1, codec=GZIP)
    read.data[read.starts[1] :] = bytes(8) + followers[8:]
    with pytest.raises(CorruptSegment, match="base offset 0 follows one that ends with offset 4"):
        read.feed() + read.finish()


def test_the_checksum_of_a_legacy_set_is_verified_although_its_own_offset_is_not_wanted() -> None:
    """Its own offset is that of its last message. The first ones are wanted."""
    log = LogBuilder()
    log.append_legacy(FIVE, magic=1, codec=GZIP)
    read = Slice(log, last=2)
    assert read.feed() + read.finish() == [0, 1, 2]
    read = Slice(log, last=2)
    read.data[25] ^= 1  # of the timestamp, which no other check covers
    with pytest.raises(CorruptSegment, match="checksum mismatch"):
        read.feed() + read.finish()
