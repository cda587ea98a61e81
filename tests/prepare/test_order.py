"""The order of batches, and the offsets of index entries, which are last offsets of batches."""

from __future__ import annotations

import pytest

from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.batches import BatchHeader, FramedBatch
from remote_fetch.prepare.order import MisleadingIndex, check_order
from tests.cases import each_of

NO_ENTRY = -1


def batch(first: int, last: int) -> FramedBatch:
    """A batch with these offsets; no other field matters."""
    count = last - first + 1
    header = BatchHeader(first, 4096, 61, 2, 0, 0, last, 0, 0, -1, -1, -1, count)
    assert (header.base_offset, header.last_offset) == (first, last)
    return FramedBatch(header, 4096, memoryview(b""))


@each_of("entry", [NO_ENTRY, 3, 9, 10, 20, 21, 1000])
def test_entries_that_a_batch_confirms_or_says_nothing_of(entry: int) -> None:
    """Offsets up to the batch before, its own last offset, and those behind it. Between batches there may be a gap."""
    check_order(batch(12, 20), 10, [entry])


@each_of("entry", [11, 12, 13, 19])
def test_an_entry_inside_a_batch_misleads(entry: int) -> None:
    with pytest.raises(MisleadingIndex):
        check_order(batch(12, 20), 10, [NO_ENTRY, entry])


@each_of("previous", [12, 15, 20, 100])
def test_offsets_grow(previous: int) -> None:
    with pytest.raises(CorruptSegment, match=f"base offset 12 follows one that ends with offset {previous}") as error:
        check_order(batch(12, 20), previous, [NO_ENTRY])
    assert (error.value.position, error.value.offset) == (4096, 12)


def test_the_first_batch_follows_nothing() -> None:
    check_order(batch(0, 0), -1, [NO_ENTRY, NO_ENTRY])
