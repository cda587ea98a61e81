"""Random lies in fields that others write: the reader gives the right rows, or an error.

Rules of the file:

- Each lie changes one field of a broker, a plug-in, a store or a file. The log stays whole, so that the right rows
  exist.
- A field that the reader believes, as brokers do, has a test of its own. The table is in
  docs/explanation/what-is-believed.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from struct import iter_unpack, pack
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.config import Config
from remote_fetch.errors import CorruptSegment, ErrorKind, SegmentNotFound, Unlocatable
from remote_fetch.formats.codecs import Codecs
from remote_fetch.model import UNKNOWN_SIZE, IndexType, IsolationLevel, LeaderEpoch, RemoteLogSegmentMetadata, Uuid
from remote_fetch.prepare.segment_ends import SizeTooSmall, check_end, offset_at_start
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import SegmentOptions, encode_checkpoint, encode_offset_index
from remote_fetch.testing.strategies import logs, segment_options
from tests.cases import each_of, of_a_change
from tests.scan.bucket import (
    COMMITTED,
    DENSE,
    UNCOMMITTED,
    Bucket,
    Outcome,
    WatchedBucket,
    expected_rows,
    plain_log,
    read,
    snapshot_config,
)
from tests.searches import examples
from tests.stores.stand_in import read_with_broker

SIZES = (-(2**31), -1073741824, -1, 0, 1, 61, 97, UNKNOWN_SIZE, 2**40, 2**62)
SHIFTS = (-(2**40), -1000, -7, -2, -1, 1, 2, 7, 1000, 2**31, 2**40)
ISOLATIONS = st.sampled_from((UNCOMMITTED, COMMITTED))

Lie: TypeAlias = "Callable[[Tier, int], None]"
"""Changes the metadata of one segment of a tier."""


class Tier(Bucket):
    """A bucket that tells `told` in listings and saved metadata, whatever its objects hold."""

    def __init__(self, log: LogBuilder, segments: Sequence[Any]) -> None:
        super().__init__(segments)
        self.log_builder = log
        self.lies: list[tuple[Lie, int]] = []
        self.told = list(self.metadata)
        self.listed_bytes = [len(segment.log) for segment in segments]
        self.listed_starts = [segment.metadata.start_offset for segment in segments]

    def __repr__(self) -> str:
        places = [(told.start_offset, told.end_offset, told.segment_leader_epochs) for told in self.told]
        return f"<tier from {self.log_builder.start_offset}, lies {self.lies}, told {places}>"

    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        for at, found in enumerate(super().list_segments(topic)):
            yield replace(
                found, segment_size_in_bytes=self.listed_bytes[at], start_offset=max(self.listed_starts[at], 0)
            )

    def read(self, isolation: IsolationLevel, *, by_listing: bool, **bounds: Any) -> Outcome:
        """All of the tier, or an error."""
        try:
            config = {} if by_listing else snapshot_config(self.told)
            return read(self, isolation=isolation, config=config, **bounds)
        except CorruptSegment as error:  # a snapshot that is refused as a whole
            return Outcome([], read(Bucket()).report, error)


@dataclass(frozen=True)
class Told:
    """Another value in a field of a segment's metadata; a callable makes it of the true value."""

    field: str
    value: Any

    def __call__(self, tier: Tier, at: int) -> None:
        before = getattr(tier.told[at], self.field)
        after = self.value(before) if callable(self.value) else self.value
        tier.told[at] = replace(tier.told[at], **{self.field: after})


@dataclass(frozen=True)
class Listed:
    """Another size, or another start offset, in a listing."""

    size_bytes: int | None = None
    shift: int = 0

    def __call__(self, tier: Tier, at: int) -> None:
        if self.size_bytes is not None:
            tier.listed_bytes[at] = self.size_bytes
        tier.listed_starts[at] += self.shift


@dataclass(frozen=True)
class File:
    """Another content of one of the small files; None removes it."""

    index_type: IndexType
    change: Callable[[Tier, int, bytes], bytes | None]

    def __call__(self, tier: Tier, at: int) -> None:
        key = tier.at(at).segment_id.id, self.index_type
        before = tier.indexes.get(key)
        after = None if before is None else self.change(tier, at, before)
        if after is None:
            tier.indexes.pop(key, None)
        else:
            tier.indexes[key] = after


@dataclass(frozen=True)
class Reaching:
    """Bounds that reach over other segments: to the end of the segment `later` on, from the start of one before it."""

    later: int
    by: int = 0
    earlier: int = 0

    def __call__(self, tier: Tier, at: int) -> None:
        last = tier.told[min(at + self.later, len(tier.told) - 1)]
        first = tier.told[max(at - self.earlier, 0)]
        end = max(last.end_offset + self.by, first.start_offset)
        tier.told[at] = replace(tier.told[at], start_offset=first.start_offset, end_offset=end)


@dataclass(frozen=True)
class Bytes:
    """The bytes of the segment `later` on, behind the segment's own bytes or in place of them."""

    later: int
    keeps: bool

    def __call__(self, tier: Tier, at: int) -> None:
        other = tier.log(min(at + self.later, len(tier.told) - 1))
        tier.write(at, tier.log(at) + other if self.keeps else other)
        tier.listed_bytes[at] = len(tier.log(at))


def shifted(by: int) -> Callable[[int], int]:
    return lambda before: before + by


def shifted_epochs(by: int, at: int) -> Callable[[Sequence[LeaderEpoch]], tuple[LeaderEpoch, ...]]:
    def change(before: Sequence[LeaderEpoch]) -> tuple[LeaderEpoch, ...]:
        return tuple(LeaderEpoch(e.epoch + by * at, e.start_offset + by * (1 - at)) for e in before)

    return change


def index_entries(by_offset: int, by_position: int, from_entry: int) -> Callable[[Tier, int, bytes], bytes]:
    """An offset index with other numbers, from one entry on."""

    def change(tier: Tier, at: int, data: bytes) -> bytes:
        if len(data) % 8:
            return data
        entries = list(iter_unpack(">ii", data))
        changed = [
            (offset + by_offset, position + by_position) if number >= from_entry else (offset, position)
            for number, (offset, position) in enumerate(entries)
        ]
        return encode_offset_index([pair for pair in changed if max(map(abs, pair)) < 2**31])

    return change


def time_entries(by_ms: int, by_offset: int) -> Callable[[Tier, int, bytes], bytes]:
    def change(tier: Tier, at: int, data: bytes) -> bytes:
        if len(data) % 12:
            return data
        entries = [(ms + by_ms, offset + by_offset) for ms, offset in iter_unpack(">qi", data)]
        return b"".join(pack(">qi", ms, offset) for ms, offset in entries if abs(offset) < 2**31)

    return change


def checkpoint(by_epoch: int, by_offset: int, dropped: int) -> Callable[[Tier, int, bytes], bytes]:
    def change(tier: Tier, at: int, data: bytes) -> bytes:
        entries = [LeaderEpoch(e.epoch + by_epoch, e.start_offset + by_offset) for e in tier.log_builder.lineage]
        return encode_checkpoint(entries[dropped:] or entries)

    return change


def flipped(position: int) -> Callable[[Tier, int, bytes], bytes]:
    def change(tier: Tier, at: int, data: bytes) -> bytes:
        changed = bytearray(data)
        if changed:
            changed[position % len(changed)] ^= 0x11
        return bytes(changed)

    return change


def cut(tier: Tier, at: int, data: bytes) -> bytes:
    return data[: len(data) // 2]


def gone(tier: Tier, at: int, data: bytes) -> None:
    return None


def told_lies() -> st.SearchStrategy[Lie]:
    return st.one_of(
        st.builds(Told, st.just("segment_size_in_bytes"), st.sampled_from(SIZES)),
        st.builds(Told, st.just("segment_size_in_bytes"), st.sampled_from(SHIFTS).map(shifted)),
        st.builds(Told, st.sampled_from(("start_offset", "end_offset")), st.sampled_from(SHIFTS).map(shifted)),
        st.builds(Told, st.just("end_offset"), st.sampled_from((2**63 - 1, -1, 0))),
        st.builds(
            Told,
            st.just("segment_leader_epochs"),
            st.builds(shifted_epochs, st.sampled_from(SHIFTS), st.integers(0, 1)) | st.just(()),
        ),
        st.builds(
            Told,
            st.sampled_from(("max_timestamp_ms", "event_timestamp_ms", "broker_id")),
            st.sampled_from((-(2**63), -1, 0, 2**63 - 1)),
        ),
    )


def file_lies() -> st.SearchStrategy[Lie]:
    small = st.sampled_from((0, 0, *SHIFTS))
    return st.one_of(
        st.builds(File, st.just(IndexType.OFFSET), st.builds(index_entries, small, small, st.integers(0, 2))),
        st.builds(File, st.just(IndexType.TIMESTAMP), st.builds(time_entries, small, small)),
        st.builds(File, st.just(IndexType.LEADER_EPOCH), st.builds(checkpoint, small, small, st.integers(0, 2))),
        st.builds(
            File,
            st.sampled_from((IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.LEADER_EPOCH)),
            st.sampled_from((cut, gone)) | st.builds(flipped, st.integers(0, 200)),
        ),
        # A checksum keeps it.
        st.builds(File, st.just(IndexType.PRODUCER_SNAPSHOT), st.builds(flipped, st.integers(0, 200))),
    )


def listed_lies() -> st.SearchStrategy[Lie]:
    return st.builds(Listed, st.sampled_from((*SIZES, None)), st.sampled_from((0, 0, 0, *SHIFTS)))


def reaching_lies() -> st.SearchStrategy[Lie]:
    return st.builds(Reaching, st.integers(0, 4), st.sampled_from((-1, 0, 1, 1000)), st.sampled_from((0, 0, 1, 2)))


def bytes_lies() -> st.SearchStrategy[Lie]:
    return st.builds(Bytes, st.integers(1, 4), st.booleans())


def transactions() -> st.SearchStrategy[LogBuilder]:
    """Logs of many segments, whose markers often lie a few segments behind the records."""
    turns = st.sampled_from(("roll", "roll", "records", "records", "abort", "commit"))
    return st.lists(st.tuples(turns, st.sampled_from((7, 8, -1))), min_size=4, max_size=40).map(played)


def played(turns: Sequence[tuple[str, int]]) -> LogBuilder:
    log = LogBuilder()
    for turn, producer in [*turns, ("abort", 7), ("abort", 8), ("records", -1), ("roll", -1)]:
        if turn == "roll":
            log.roll()
        elif turn == "records":
            if producer >= 0 and not log.in_transaction(producer):
                log.begin(producer)
            log.append_batch([Record(number, value=b"v") for number in range(2)], producer_id=producer)
        elif producer >= 0 and log.in_transaction(producer):
            (log.abort if turn == "abort" else log.commit)(producer)
    return log


@st.composite
def tiers(
    draw: st.DrawFn,
    lies: st.SearchStrategy[Lie],
    drawn: st.SearchStrategy[LogBuilder] | None = None,
    *,
    most: int = 2,
) -> Tier:
    log = draw(logs() if drawn is None else drawn)
    segments = log.tiered(draw(segment_options()))
    tier = Tier(log, segments)
    for _ in range(draw(st.integers(1, most))) if segments else ():
        lie, at = draw(lies), draw(st.integers(0, len(segments) - 1))
        tier.lies.append((lie, at))
        lie(tier, at)
    return tier


def check(tier: Tier, outcome: Outcome, isolation: IsolationLevel) -> None:
    """The right rows of the tier; or the first of them, and an error of ours that says where."""
    stop = tier.metadata[-1].end_offset + 1
    start = tier.metadata[0].start_offset
    if isolation is COMMITTED:
        stop = tier.log_builder.stable_offset_at(stop)
    right = expected_rows(tier.log_builder.expected(isolation, start, stop))
    if outcome.error is None:
        assert outcome.rows == right
    else:
        assert outcome.rows == right[: len(outcome.rows)]
        assert outcome.error.topic == "topic" or "snapshot" in str(outcome.error) or "metadata" in str(outcome.error)


@examples(120)
@given(tiers(told_lies() | file_lies()), ISOLATIONS)
def test_metadata_and_files_that_lie(tier: Tier, isolation: IsolationLevel) -> None:
    if tier.metadata:
        check(tier, tier.read(isolation, by_listing=False), isolation)


@examples(80)
@given(tiers(listed_lies() | file_lies()), ISOLATIONS)
def test_listings_that_lie(tier: Tier, isolation: IsolationLevel) -> None:
    """The reader trusts only the order of names: the last start ends the tier (docs/howto/read-a-bucket.md).

    If the first start lies behind the last stable offset, no batch is wanted, and none can contradict the name.
    """
    if not tier.metadata or tier.listed_starts != sorted(tier.listed_starts):
        return
    outcome = tier.read(isolation, by_listing=True)
    stable_offset = tier.log_builder.stable_offset_at(tier.metadata[-1].end_offset + 1)
    if isolation is COMMITTED and tier.listed_starts[0] >= stable_offset and outcome.error is None:
        assert outcome.rows == []
        assert "is read up to offset" in outcome.report.ends["topic-0"]
    else:
        check(tier, outcome, isolation)


@examples(120)
@given(tiers(told_lies() | file_lies()), ISOLATIONS)
def test_with_a_broker(tier: Tier, isolation: IsolationLevel) -> None:
    """Offsets that the store cannot give come through the broker: all rows of the log, with every lie."""
    if not tier.metadata:
        return
    try:
        config: Mapping[str, Any] = snapshot_config(tier.told)
        stream = read_with_broker(tier, tier.log_builder, isolation, {"fetch.remote.retry.backoff.ms": 1, **config})
    except CorruptSegment as error:
        refused = str(error)
    else:
        refused = ""
    log = tier.log_builder
    assert not refused or "snapshot" in refused or "metadata" in refused
    if not refused:
        assert stream.rows == expected_rows(log.expected(isolation, log.start_offset, log.next_offset))


@examples(120)
@given(tiers(reaching_lies(), transactions(), most=1), ISOLATIONS)
def test_bounds_that_reach_over_other_segments(tier: Tier, isolation: IsolationLevel) -> None:
    """The segments below have the markers of the transactions, and their transaction indexes are read too.

    One segment lies. Bounds of two may confirm each other.
    """
    if not tier.metadata:
        return
    check(tier, tier.read(isolation, by_listing=False), isolation)
    log = tier.log_builder
    stream = read_with_broker(tier, log, isolation, {"fetch.remote.retry.backoff.ms": 1, **snapshot_config(tier.told)})
    assert stream.rows == expected_rows(log.expected(isolation, log.start_offset, log.next_offset))


@examples(120)
@given(tiers(bytes_lies(), transactions()), ISOLATIONS)
def test_objects_with_bytes_of_another_segment(tier: Tier, isolation: IsolationLevel) -> None:
    """The last batch of an object is no proof that the object has the offsets before it."""
    if tier.metadata:
        check(tier, tier.read(isolation, by_listing=True), isolation)


EXACT = pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
ONE_OF_A_CHANGE = pytest.mark.parametrize("isolation", of_a_change([COMMITTED, UNCOMMITTED]))
"""For sizes. Both levels ask for the same bytes."""


def plain_tier() -> Tier:
    """Three segments of four batches, of which each has offsets 0-19, 20-39 and 40-59 and 824 bytes."""
    log = plain_log()
    return Tier(log, log.segments(DENSE))


class Sized(Tier):
    """The plain tier, in a store that tells one size for every segment."""

    def __init__(self, size_bytes: int) -> None:
        log = plain_log()
        super().__init__(log, log.segments(DENSE))
        self.size_bytes = size_bytes

    def size(self, metadata: RemoteLogSegmentMetadata) -> int:
        """As `SegmentSizer.size`."""
        return self.size_bytes


def first_offset_of(data: memoryview) -> int | None:
    """As `offset_at_start`, of all bytes of a segment."""
    return offset_at_start(data, Codecs(), lambda _: memoryview(b""), max_batch_bytes=1 << 20)


@EXACT
@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)])
def test_a_start_below_a_segment_before_it(magic: int, codec: int, isolation: IsolationLevel) -> None:
    """The header of a compressed legacy message set has only its last offset."""
    log = LogBuilder(start_offset=999)
    log.append_batch([Record(0, value=b"before")])
    log.roll()
    records = [Record(number, value=b"v") for number in range(3)]
    if magic == 2:
        log.append_batch(records)
    else:
        log.append_legacy(records, magic=magic, codec=codec)
    log.roll()
    tier = Tier(log, log.segments())
    # A batch of v2 may be larger than a range. Then the first bytes suffice.
    data = memoryview(log.segments()[1].log)[: 17 if magic == 2 else None]
    assert first_offset_of(data) == 1000
    Told("start_offset", 0)(tier, 1)
    outcome = tier.read(isolation, by_listing=False)
    check(tier, outcome, isolation)
    assert outcome.offsets == [999, 1000, 1001, 1002]


@pytest.mark.parametrize("data", [b"", bytes(16), bytes(40), b"\xff" * 40], ids=["none", "few", "zeros", "ones"])
def test_bytes_that_do_not_tell_their_first_offset(data: bytes) -> None:
    assert first_offset_of(memoryview(data)) is None


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)])
def test_a_start_below_a_segment_before_it_whose_first_batch_is_larger_than_a_range(magic: int, codec: int) -> None:
    log = LogBuilder(start_offset=999)
    log.append_batch([Record(0, value=b"before")])
    log.roll()
    records = [Record(number, value=Random(number).randbytes(3_000)) for number in range(3)]
    if magic == 2:
        log.append_batch(records, codec=codec)
    else:
        log.append_legacy(records, magic=magic, codec=codec)
    log.roll()
    tier = Tier(log, log.segments())
    Told("start_offset", 0)(tier, 1)
    config = {"fetch.remote.range.bytes": 1024, "fetch.remote.max.bytes": 4096, **snapshot_config(tier.told)}
    assert read(tier, config=config).fine() == expected_rows(log.records())


@pytest.mark.slow
class TestSizes:
    @ONE_OF_A_CHANGE
    @each_of("at", [0, 1, 2])
    @each_of("size_bytes", [*SIZES, 100, 206, 618, 823, 825])
    def test_a_sound_segment_under_any_size(self, size_bytes: int, at: int, isolation: IsolationLevel) -> None:
        tier = plain_tier()
        Told("segment_size_in_bytes", size_bytes)(tier, at)
        check(tier, outcome := tier.read(isolation, by_listing=False), isolation)
        assert outcome.error is None
        for start, end in ((7, 13), (21, 22), (39, 41), (57, 60)):
            bounded = tier.read(isolation, by_listing=False, start=start, end=end)
            assert [row.offset for row in bounded.fine()] == list(range(start, end))

    @ONE_OF_A_CHANGE
    @each_of("at", [0, 1, 2])
    @each_of("size_bytes", [*SIZES, 100, 206, 618, 823, 825])
    def test_a_store_that_tells_any_size(self, size_bytes: int, at: int, isolation: IsolationLevel) -> None:
        """Metadata has none (KIP-1333), so the store is asked."""
        tier = Sized(size_bytes)
        Told("segment_size_in_bytes", UNKNOWN_SIZE)(tier, at)
        outcome = tier.read(isolation, by_listing=False)
        check(tier, outcome, isolation)
        assert outcome.error is None
        assert outcome.report.sizes == {"learned" if size_bytes > 0 else "unknown": 1}
        for start, end in ((7, 13), (21, 22), (39, 41), (57, 60)):
            bounded = tier.read(isolation, by_listing=False, start=start, end=end)
            assert [row.offset for row in bounded.fine()] == list(range(start, end))

    def test_a_store_that_tells_the_size_of_an_object_that_is_cut(self) -> None:
        tier = Sized(824)
        tier.write(1, tier.log(1)[:412])
        Told("segment_size_in_bytes", UNKNOWN_SIZE)(tier, 1)
        outcome = tier.read(UNCOMMITTED, by_listing=False)
        assert isinstance(outcome.error, CorruptSegment)
        assert "before byte 824 that it should have" in str(outcome.error)

    @pytest.mark.parametrize("size_bytes", [-1, 0, 97, 206, 2**20])
    def test_a_time_behind_the_size(self, size_bytes: int) -> None:
        tier = plain_tier()
        times = [row.timestamp_ms for row in expected_rows(tier.log_builder.records())]
        Told("segment_size_in_bytes", size_bytes)(tier, 1)
        tier.write_index(1, IndexType.TIMESTAMP, None)
        outcome = tier.read(UNCOMMITTED, by_listing=False, start=f"{utc(times[37])}")
        assert outcome.fine()[0].offset == 37

    @pytest.mark.parametrize(
        ("lie", "at"), [(Told("end_offset", 39), 0), (Told("end_offset", 59), 1), (Reaching(1, earlier=1), 1)]
    )
    def test_a_time_in_a_segment_under_another_one(self, lie: Lie, at: int) -> None:
        """The segment whose bounds lie has no record of the time, or only later ones."""
        tier = plain_tier()
        times = [row.timestamp_ms for row in expected_rows(tier.log_builder.records())]
        lie(tier, at)
        for number in (7, 27, 47):
            outcome = tier.read(UNCOMMITTED, by_listing=False, start=utc(times[number]))
            assert outcome.fine()[0].offset == number

    def test_a_time_in_a_segment_of_which_another_copy_is_missing(self) -> None:
        """Both have the same bounds, so none of them hides the other. The object of the other is not asked for."""
        tier = plain_tier()
        times = [row.timestamp_ms for row in expected_rows(tier.log_builder.records())]
        lost = replace(tier.told[1], segment_id=replace(tier.told[1].segment_id, id=Uuid(bytes(15) + b"9")))
        tier.told.insert(0, lost)  # the one that was finished earlier
        outcome = tier.read(UNCOMMITTED, by_listing=False, start=utc(times[27]))
        assert outcome.fine()[0].offset == 27

    @pytest.mark.parametrize("number", [27, 35, 39])
    def test_a_time_in_a_segment_of_which_a_shorter_copy_is_missing(self, number: int) -> None:
        """The segment has all offsets of the copy, so the copy hides none of its records."""
        tier = plain_tier()
        times = [row.timestamp_ms for row in expected_rows(tier.log_builder.records())]
        whole = tier.told[1]
        lost = replace(whole, end_offset=37, segment_id=replace(whole.segment_id, id=Uuid(bytes(15) + b"9")))
        tier.told.append(lost)
        outcome = tier.read(UNCOMMITTED, by_listing=False, start=utc(times[number]))
        assert outcome.fine()[0].offset == number

    def test_a_time_in_a_missing_segment_under_another_one(self) -> None:
        """The segment whose end offset lies ends before the offsets of the missing one."""
        tier = plain_tier()
        times = [row.timestamp_ms for row in expected_rows(tier.log_builder.records())]
        Told("end_offset", 39)(tier, 0)
        del tier.logs[tier.at(1).segment_id.id]
        outcome = tier.read(UNCOMMITTED, by_listing=False, start=utc(times[27]))
        assert isinstance(outcome.error, SegmentNotFound)
        assert outcome.rows == []

    def test_a_time_in_a_branch_that_the_log_has_lost(self) -> None:
        """No checkpoint tells so, and the read takes the branch of the later epoch."""
        lost = LogBuilder()
        lost.append_batch([Record(0, 0, None, b"")], base_timestamp_ms=1000)
        won = lost.fork(1)
        won.new_leader_epoch(1)
        for log, times in ((lost, (9000,)), (won, (2000, 9000))):
            for time_ms in times:
                log.append_batch([Record(0, 0, None, b"")], base_timestamp_ms=time_ms)
            log.roll()
        tier = Tier(won, [*lost.segments(), *won.segments()])
        for at in range(len(tier.told)):
            File(IndexType.LEADER_EPOCH, gone)(tier, at)
        outcome = tier.read(UNCOMMITTED, by_listing=False, start=utc(9000))
        assert outcome.offsets == [2]

    def test_an_object_that_is_cut_is_told_from_a_size_that_is_wrong(self) -> None:
        tier = plain_tier()
        tier.write(1, tier.log(1)[:412])
        outcome = tier.read(UNCOMMITTED, by_listing=False)
        assert isinstance(outcome.error, CorruptSegment)
        assert "before byte 824 that it should have (SegmentSizeInBytes, or the store's word)" in str(outcome.error)

    @pytest.mark.parametrize("size_bytes", [-1, 0, UNKNOWN_SIZE])
    def test_an_object_that_is_cut_where_the_size_is_unknown(self, size_bytes: int) -> None:
        """The offset index knows batches behind the end."""
        tier = plain_tier()
        tier.write(1, tier.log(1)[:412])
        Told("segment_size_in_bytes", size_bytes)(tier, 1)
        outcome = tier.read(UNCOMMITTED, by_listing=False)
        assert isinstance(outcome.error, CorruptSegment)
        assert "its offset index knows a batch at 618" in str(outcome.error)

    def test_an_answer_that_is_cut_where_the_size_is_unknown(self) -> None:
        """After SizeTooSmall the size is forgotten and the bytes are read again. Without a size that would not end."""
        tier = plain_tier()
        Told("segment_size_in_bytes", UNKNOWN_SIZE)(tier, 1)
        with Session(Config.parse({}), tier) as session, pytest.raises(CorruptSegment, match="at byte 412,") as error:
            check_end(session.storage, tier.told[1], 412)
        assert error.type is not SizeTooSmall

    def test_a_sound_segment_costs_no_get_more(self) -> None:
        tier = plain_tier()
        watched = WatchedBucket(tier)
        read(watched, config=snapshot_config(tier.told)).fine()
        assert [call.start_position for call in watched.calls if call.index_type is None] == [0, 0, 0]

    def test_one_that_ends_in_a_gap_costs_one(self) -> None:
        log = LogBuilder()
        for _ in range(2):
            log.append_batch([Record(n, value=b"v") for n in range(5)])
            log.take_out(3)
            log.roll()
        tier = Tier(log, log.segments())
        watched = WatchedBucket(tier)
        assert read(watched, config=snapshot_config(tier.told)).offsets == [*range(5), *range(8, 13)]
        ends = [len(tier.log(0)), len(tier.log(1))]
        asked = [call.start_position for call in watched.calls if call.index_type is None]
        assert asked == [0, 0, ends[0], ends[1]]


def utc(timestamp_ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)).isoformat()


class TestLeaderEpochs:
    @EXACT
    @pytest.mark.parametrize("epoch", [-(2**31), -1])
    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_an_epoch_that_no_leader_has(self, at: int, epoch: int, isolation: IsolationLevel) -> None:
        tier = plain_tier()
        Told("segment_leader_epochs", (LeaderEpoch(epoch, 20 * at),))(tier, at)
        error = tier.read(isolation, by_listing=False).error
        assert f"leader epoch {epoch} from offset {20 * at} on" in str(error)

    @EXACT
    def test_an_epoch_that_is_too_low_at_the_start_of_the_tier(self, isolation: IsolationLevel) -> None:
        """The lineage of the later segments knows these offsets, so that the tier lacks them."""
        log = LogBuilder()
        log.new_leader_epoch()
        for _ in range(2):
            log.append_batch([Record(n, value=b"v") for n in range(5)])
            log.roll()
        tier = Tier(log, log.segments())
        Told("segment_leader_epochs", (LeaderEpoch(0, 0),))(tier, 0)
        outcome = tier.read(isolation, by_listing=False)
        assert isinstance(outcome.error, Unlocatable)
        assert "offsets 0 to 4 cannot be read from the bucket alone (hole: no segment has them" in str(outcome.error)
        stream = read_with_broker(tier, log, isolation, snapshot_config(tier.told))
        assert [row.offset for row in stream.rows] == list(range(10))

    @EXACT
    @pytest.mark.parametrize("epoch", [1, 2**31])
    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_an_epoch_that_is_not_that_of_the_log(self, at: int, epoch: int, isolation: IsolationLevel) -> None:
        """The segment is not of the log's lineage then. The log has its offsets, and nothing says that it has not."""
        tier = plain_tier()
        Told("segment_leader_epochs", (LeaderEpoch(epoch, 20 * at),))(tier, at)
        outcome = tier.read(isolation, by_listing=False)
        assert outcome.error is not None
        stream = read_with_broker(tier, tier.log_builder, isolation, snapshot_config(tier.told))
        assert [row.offset for row in stream.rows] == list(range(60))


class TestEnds:
    def test_an_end_that_is_too_high(self) -> None:
        """The next segment has what this one says that it has."""
        tier = plain_tier()
        Told("end_offset", 29)(tier, 0)
        assert tier.read(UNCOMMITTED, by_listing=False).offsets == list(range(60))
        Told("end_offset", 70)(tier, 1)
        assert tier.read(UNCOMMITTED, by_listing=False).offsets == list(range(60))

    @pytest.mark.parametrize("end_offset", [29, 70])
    def test_an_end_that_is_too_high_under_read_committed(self, end_offset: int) -> None:
        """Up to where transactions are decided hangs on it: the broker answers, or the field is named."""
        tier = plain_tier()
        Told("end_offset", end_offset)(tier, 0)
        outcome = tier.read(COMMITTED, by_listing=False)
        assert isinstance(outcome.error, Unlocatable)
        assert f"should end with offset {end_offset} (EndOffset) and ends before offset 20" in str(outcome.error)
        stream = read_with_broker(tier, tier.log_builder, COMMITTED, snapshot_config(tier.told))
        assert [row.offset for row in stream.rows] == list(range(60))

    @pytest.mark.parametrize("copy", ["sound", "damaged", "missing"])
    def test_a_gap_at_an_end_that_the_copy_of_another_leader_has_too(self, copy: str) -> None:
        """Compaction has left it, so that the end is right. Only a copy that can be read shows that."""
        log = plain_log(segments=1, batches=3)
        log.take_out(5)
        for _ in range(3):
            log.append_batch([Record(n, value=b"v") for n in range(5)])
        log.roll()
        bucket = Bucket(log.segments(cuts=[0, 20, 35]) + log.segments(SegmentOptions(upload=1), cuts=[10, 25]))
        config = snapshot_config(bucket.metadata)
        if copy == "damaged":
            bucket.flip(2, 100)
        elif copy == "missing":
            bucket.drop(2)
        outcome = read(bucket, isolation=COMMITTED, config=config)
        assert outcome.offsets == [*range(15), *(range(20, 35) if copy == "sound" else ())]
        assert isinstance(outcome.error, Unlocatable) is (copy != "sound")

    @EXACT
    def test_an_end_behind_that_of_the_tier_is_too_high_for_another_segment_too(
        self, isolation: IsolationLevel
    ) -> None:
        """The segments behind have some of the offsets, and the broker alone the last ones."""
        tier = plain_tier()
        log = tier.log_builder
        log.append_batch([Record(n, value=b"not tiered") for n in range(5)])
        Told("end_offset", 64)(tier, 0)
        stream = read_with_broker(tier, log, isolation, snapshot_config(tier.told))
        assert [row.offset for row in stream.rows] == list(range(65))

    def test_an_end_that_is_too_high_does_not_end_the_tier(self) -> None:
        """A transaction is open where the first segment ends, and decided in the last."""
        log = LogBuilder()
        log.begin(7)
        log.append_batch([Record(n, value=b"v") for n in range(5)], producer_id=7)
        log.roll()
        log.commit(7)
        log.append_batch([Record(n, value=b"v") for n in range(5)])
        log.roll()
        tier = Tier(log, log.segments())
        Told("end_offset", 2**40)(tier, 0)
        assert isinstance(tier.read(COMMITTED, by_listing=False).error, Unlocatable)

    @EXACT
    def test_a_start_that_is_too_low(self, isolation: IsolationLevel) -> None:
        tier = plain_tier()
        Told("start_offset", 5)(tier, 1)
        Told("segment_leader_epochs", (LeaderEpoch(0, 5),))(tier, 1)
        outcome = tier.read(isolation, by_listing=False, start=7)
        assert outcome.offsets == list(range(7, 60))
        assert outcome.report.fallbacks == {ErrorKind.NOT_FOUND: 1}

    def test_a_start_that_is_too_low_in_a_name(self) -> None:
        tier = plain_tier()
        Listed(shift=-15)(tier, 1)
        assert tier.read(UNCOMMITTED, by_listing=True).offsets == list(range(60))

    @pytest.mark.parametrize(("field", "value"), [("end_offset", 29), ("start_offset", 25)])
    def test_a_segment_that_holds_more_than_it_says(self, field: str, value: int) -> None:
        tier = plain_tier()
        Told(field, value)(tier, 1)
        outcome = tier.read(UNCOMMITTED, by_listing=False)
        assert isinstance(outcome.error, CorruptSegment | Unlocatable)
        assert outcome.offsets == list(range(len(outcome.rows)))

    @EXACT
    def test_behind_the_last_segment_the_broker_is_asked(self, isolation: IsolationLevel) -> None:
        log = plain_log()
        tier = Tier(log, log.segments()[:2])
        Told("end_offset", 49)(tier, 1)
        stream = read_with_broker(tier, log, isolation, snapshot_config(tier.told))
        assert [row.offset for row in stream.rows] == list(range(60))
        assert stream.from_broker == [(40, 59)]  # one range
        alone = tier.read(isolation, by_listing=False)
        assert alone.offsets == list(range(40))
        assert any("should end with offset 49, and ends before 40" in notice for notice in alone.report.notices)


def test_leader_epochs_that_their_own_checkpoint_does_not_have() -> None:
    """Else the lineage would take all segments for those of another log, and nothing would be read."""
    tier = plain_tier()
    tier.write_index(2, IndexType.LEADER_EPOCH, encode_checkpoint([LeaderEpoch(7, 0)]))
    outcome = tier.read(UNCOMMITTED, by_listing=False)
    assert isinstance(outcome.error, CorruptSegment)
    assert "does not have the leader epochs of its metadata (0 from 40)" in str(outcome.error)
    assert "(leader-epoch index)" in str(outcome.error)


def test_a_time_index_that_knows_offsets_past_the_end() -> None:
    """It would say that the time lies behind the segment."""
    tier = plain_tier()
    times = [row.timestamp_ms for row in expected_rows(tier.log_builder.records())]
    tier.write_index(1, IndexType.TIMESTAMP, pack(">qi", times[21], 25))
    outcome = tier.read(UNCOMMITTED, by_listing=False, start=utc(times[23]))
    assert outcome.fine()[0].offset == 23
    assert outcome.report.scans == {"corrupt": 1}


class TestTransactionIndex:
    """It is believed as brokers and their consumers believe it; markers in the data speak against some of its lies."""

    @examples(30)
    @given(
        tiers(
            st.builds(
                File,
                st.just(IndexType.TRANSACTION),
                st.sampled_from((cut, gone)) | st.builds(flipped, st.integers(0, 200)),
            )
            | st.builds(Told, st.just("txn_index_empty"), st.booleans())
        )
    )
    def test_nothing_is_doubled_or_out_of_order(self, tier: Tier) -> None:
        if tier.metadata:
            outcome = tier.read(COMMITTED, by_listing=False)
            everything = {row.offset: row for row in expected_rows(tier.log_builder.records())}
            assert outcome.offsets == sorted(set(outcome.offsets))
            assert all(everything[row.offset] == row for row in outcome.rows)
