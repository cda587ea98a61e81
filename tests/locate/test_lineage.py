"""Lineages: Kafka's own cases, an offset-by-offset model, and Kafka's rule as it stands in the broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.locate.lineage import Lineage, epoch_at
from remote_fetch.model import (
    UNKNOWN_SIZE,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from tests.cases import each_of
from tests.searches import examples

PARTITION = TopicIdPartition(Uuid(bytes(range(16))), "orders", 0)


def epochs(*entries: tuple[int, int]) -> tuple[LeaderEpoch, ...]:
    return tuple(LeaderEpoch(epoch, start_offset) for epoch, start_offset in entries)


def segment(first: int, last: int, *entries: tuple[int, int]) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, Uuid(bytes(16))),
        first,
        last,
        UNKNOWN_SIZE,
        segment_leader_epochs=epochs(*entries),
    )


LINEAGE = Lineage(epochs((5, 10), (7, 15), (9, 100)), end_offset=200)


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, None), (9, None), (10, 5), (14, 5), (15, 7), (99, 7), (100, 9), (199, 9), (200, None)]
)
def test_epoch_for(offset: int, epoch: int | None) -> None:
    assert LINEAGE.epoch_for(offset) == epoch
    assert LINEAGE.agrees(offset, -1)
    assert LINEAGE.agrees(offset, 9 if epoch is None else epoch)
    assert LINEAGE.agrees(offset, 8) == (offset < 10)


def test_of_epochs_at_one_offset_the_last_has_the_records() -> None:
    entries = epochs((1, 0), (2, 10), (3, 10))
    assert [epoch_at(entries, offset) for offset in (-1, 0, 9, 10)] == [None, 1, 1, 3]


def test_without_an_end_the_last_epoch_goes_on() -> None:
    lineage = Lineage(LINEAGE.entries)
    assert lineage.epoch_for(10**15) == 9
    assert not lineage.accepts(segment(100, 300, (9, 100), (10, 250)))
    assert LINEAGE.accepts(segment(100, 300, (9, 100), (10, 250)))


def test_unknown_accepts_everything() -> None:
    lineage = Lineage.unknown()
    assert lineage.epoch_for(5) is None
    assert lineage.agrees(5, 3)
    assert lineage.accepts(segment(0, 10, (4, 0), (6, 5)))
    assert lineage.readable_end(segment(0, 10, (4, 0))) == 10


def test_a_segment_without_epochs_is_accepted() -> None:
    assert LINEAGE.accepts(segment(20, 30))


@each_of(
    ("lineage", "found", "readable_end"),
    [
        # A later leader uploaded an overlapping segment; both are of the log.
        (LINEAGE, segment(5, 50, (5, 5), (7, 15)), 50),
        (LINEAGE, segment(14, 150, (5, 14), (7, 15), (9, 100)), 150),
        # The same after the first of them has been deleted: the log now starts at 51.
        (Lineage(epochs((7, 51), (9, 100))), segment(14, 150, (5, 14), (7, 15), (9, 100)), 150),
        # The segment's epoch is older or newer than anything the lineage has where it lies.
        (LINEAGE, segment(20, 30, (4, 20)), 19),
        (LINEAGE, segment(20, 30, (8, 20)), 19),
        # An epoch of the lineage is missing in the segment, and the other way round.
        (LINEAGE, segment(14, 150, (5, 14), (9, 100)), 14),
        (LINEAGE, segment(14, 150, (5, 14), (7, 15), (8, 40), (9, 100)), 39),
        # Epochs start elsewhere, earlier or later.
        (LINEAGE, segment(12, 30, (5, 12), (7, 14)), 13),
        (LINEAGE, segment(12, 30, (5, 12), (7, 16)), 14),
        # Starts within an epoch, on both sides of where that epoch starts in the lineage.
        (LINEAGE, segment(14, 30, (7, 14)), 13),
        (LINEAGE, segment(16, 30, (7, 16)), 30),
        # Goes on where the lineage has turned.
        (LINEAGE, segment(50, 99, (7, 50)), 99),
        (LINEAGE, segment(50, 100, (7, 50)), 99),
        # Epochs without records, on either side.
        (LINEAGE, segment(12, 30, (5, 12), (6, 15), (7, 15)), 30),
        (Lineage(epochs((5, 10), (6, 15), (7, 15))), segment(12, 30, (5, 12), (7, 15)), 30),
        # Outside what the lineage knows.
        (LINEAGE, segment(0, 9, (99, 0)), 9),
        (LINEAGE, segment(200, 300, (99, 200)), 300),
        (LINEAGE, segment(0, 11, (4, 0)), -1),
        # Past the end, where epochs can only be the last one or later: the branch that lost reached further.
        (LINEAGE, segment(200, 300, (9, 200)), 300),
        (LINEAGE, segment(200, 300, (7, 200)), 199),
        (LINEAGE, segment(250, 300, (7, 250)), 249),
        (LINEAGE, segment(250, 300, (7, 250), (9, 270)), 249),
        (Lineage(epochs((5, 10), (7, 15), (9, 200)), 200), segment(190, 300, (7, 190)), 300),
        # Over the end: only the epoch there may not be older than the last one.
        (LINEAGE, segment(50, 300, (7, 50), (9, 100)), 300),
        (LINEAGE, segment(50, 300, (7, 50), (9, 100), (10, 200)), 300),
        # Nothing is said of the segment's first offsets.
        (LINEAGE, segment(10, 30, (7, 15)), 30),
    ],
)
def test_segments(lineage: Lineage, found: RemoteLogSegmentMetadata, readable_end: int) -> None:
    assert lineage.readable_end(found) == readable_end
    assert lineage.accepts(found) == (readable_end == found.end_offset)


@st.composite
def histories(draw: st.DrawFn, first: int, last: int) -> list[tuple[int, int]]:
    """Epochs and their start offsets, ascending, now and then without records."""
    count = draw(st.integers(1, 5))
    numbers = sorted(draw(st.sets(st.integers(0, 7), min_size=count, max_size=count)))
    starts = sorted(draw(st.lists(st.integers(first, last), min_size=count, max_size=count)))
    return list(zip(numbers, starts, strict=True))


@st.composite
def segments(draw: st.DrawFn, history: list[tuple[int, int]]) -> RemoteLogSegmentMetadata:
    """A segment of the very history, or of another one; its first epoch starts with it, as Kafka cuts it."""
    first = draw(st.integers(0, 30))
    last = draw(st.integers(first, 40))
    source = history if draw(st.booleans()) else draw(histories(0, 40))
    inside = [(epoch, max(start, first)) for epoch, start in source if start <= last]
    kept = [entry for at, entry in enumerate(inside) if at + 1 == len(inside) or inside[at + 1][1] > first]
    return segment(first, last, *kept)


def model_epoch(entries: tuple[LeaderEpoch, ...], offset: int) -> int | None:
    found = None
    for entry in entries:
        if entry.start_offset <= offset:
            found = entry.epoch
    return found


@examples(400)
@given(data=st.data())
def test_offset_by_offset(data: st.DataObject) -> None:
    history = data.draw(histories(0, 40))
    end_offset = data.draw(st.none() | st.integers(history[-1][1], 45))
    lineage = Lineage(epochs(*history), end_offset)
    found = data.draw(segments(history))

    disagreeing = []
    for offset in range(found.start_offset, found.end_offset + 1):
        theirs = model_epoch(found.segment_leader_epochs, offset)
        ours = model_epoch(lineage.entries, offset)
        known = end_offset is None or offset < end_offset
        assert lineage.epoch_for(offset) == (ours if known else None)
        last = -1 if end_offset is None else model_epoch(lineage.entries, end_offset - 1)
        is_older = not known and theirs is not None and theirs < (-1 if last is None else last)
        if is_older or (known and ours is not None and theirs is not None and ours != theirs):
            disagreeing.append(offset)
    assert lineage.accepts(found) == (not disagreeing)
    if disagreeing:
        assert lineage.readable_end(found) in (disagreeing[0] - 1, found.start_offset - 1)


def kafka_accepts(found: RemoteLogSegmentMetadata, log_end_offset: int, entries: tuple[LeaderEpoch, ...]) -> bool:
    """The broker's rule, epoch by epoch (RemoteLogManager of Kafka 3.6 and later)."""

    def with_records(source: tuple[LeaderEpoch, ...]) -> dict[int, int]:
        pairs = [(entry.epoch, entry.start_offset) for entry in source]
        return dict(pair for at, pair in enumerate(pairs) if at + 1 == len(pairs) or pairs[at + 1][1] != pair[1])

    def higher(source: dict[int, int], epoch: int) -> tuple[int, int] | None:
        above = [candidate for candidate in source if candidate > epoch]
        return (min(above), source[min(above)]) if above else None

    theirs, ours = with_records(found.segment_leader_epochs), with_records(entries)
    if not min(ours) <= max(theirs) <= max(ours):
        return False
    first = min(epoch for epoch in theirs if epoch >= min(ours))
    for epoch in (epoch for epoch in theirs if epoch >= first):
        following = higher(ours, epoch)
        if epoch not in ours or (epoch == first != min(ours) and theirs[epoch] < ours[epoch]):
            return False
        if epoch == max(theirs):
            if following is not None and found.end_offset > following[1] - 1:
                return False
        elif following != higher(theirs, epoch):
            return False
    return found.end_offset < log_end_offset


@examples(400)
@given(data=st.data())
def test_same_verdict_as_the_broker_inside_the_log(data: st.DataObject) -> None:
    history = data.draw(histories(0, 40))
    found = data.draw(segments([(0, 0), *history]))
    lineage = Lineage(epochs(*history))
    if not found.segment_leader_epochs or found.start_offset < history[0][1]:
        return
    verdict = kafka_accepts(found, 1000, lineage.entries)
    first_epoch = model_epoch(lineage.entries, lineage.entries[0].start_offset)
    assert first_epoch is not None
    if found.segment_leader_epochs[0].epoch >= first_epoch:
        assert lineage.accepts(found) == verdict
    else:
        # The broker does not look at epochs older than the lineage's first, wherever they lie.
        assert verdict or not lineage.accepts(found)


@examples(300)
@given(data=st.data())
def test_a_part_says_the_same_within_its_offsets(data: st.DataObject) -> None:
    entries = epochs(*data.draw(histories(0, 60)))
    whole = Lineage(entries, data.draw(st.none() | st.integers(0, 70)))
    first = data.draw(st.integers(0, 60))
    last = data.draw(st.integers(first, 70))
    part = whole.within(first, last)
    assert len(part.entries) <= len(whole.entries)
    for offset in range(first, last + 1):
        if whole.end_offset is None or offset < whole.end_offset:
            assert part.epoch_for(offset) == whole.epoch_for(offset)
    for offset in range(80):  # those before and behind the part too: it may not know them, but it refuses no batch
        for epoch in range(-1, 12):
            if whole.agrees(offset, epoch):
                assert part.agrees(offset, epoch)
