"""The rules of `slice_reader`, each over the bytes of one small segment, without a session."""

from __future__ import annotations

import pytest

from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.codecs import Codecs
from remote_fetch.locate.lineage import Lineage
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.scan.rows import PartitionRows
from remote_fetch.scan.slice_reader import SliceReader
from remote_fetch.session.decode_pool import DecodePool
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record, encode_legacy

GZIP = 1


class Slice:
    """Offsets 0 to `last` of the only segment of `log`, whose bytes a test may change."""

    def __init__(self, log: LogBuilder, last: int | None = None) -> None:
        log.roll()
        (self.segment,) = log.segments()
        self.data = bytearray(self.segment.log)
        metadata = self.segment.metadata
        self.rows = PartitionRows("topic", 0, ("offset",), Lineage.unknown(), None, 0)
        self.reader = SliceReader(
            SegmentSlice(metadata, 0, metadata.end_offset if last is None else last),
            self.rows,
            Codecs(),
            DecodePool(threads=0),
            position=0,
            max_batch_bytes=1 << 20,
        )

    def offsets(self, *, whole: bool = True) -> list[int]:
        """Read all bytes as one range, and return the offsets of the rows. `whole`: they end here."""
        data = memoryview(bytes(self.data))
        found = [*self.reader.feed(data), *(self.reader.finish() if whole else ()), *self.rows.flush()]
        return [offset for rows in found for batch in rows.to_arrow() for offset in batch.column("offset").to_pylist()]


def of(count: int = 5) -> list[Record]:
    return [Record(delta, value=b"%d" % delta) for delta in range(count)]


def test_a_legacy_set_whose_own_offset_goes_back_is_refused_whatever_its_messages_say() -> None:
    log = LogBuilder()
    log.append_batch(of())
    log.append_batch(of())
    read = Slice(log)
    followers = encode_legacy(0, [Record(offset) for offset in range(5, 10)], magic=1, codec=GZIP)
    read.data[len(log.batches[0].data) :] = bytes(8) + followers[8:]
    with pytest.raises(CorruptSegment, match="base offset 0 follows one that ends with offset 4"):
        read.offsets()


def test_the_checksum_of_a_legacy_set_is_verified_although_its_own_offset_is_not_wanted() -> None:
    """Its own offset is that of its last message. The first ones are wanted."""
    log = LogBuilder()
    log.append_legacy(of(), magic=1, codec=GZIP)
    assert Slice(log, last=2).offsets() == [0, 1, 2]
    read = Slice(log, last=2)
    read.data[25] ^= 1  # of the timestamp, which no other check covers
    with pytest.raises(CorruptSegment, match="checksum mismatch"):
        read.offsets()
