"""Records of a feed as messages: taken, put back, skipped, dropped."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest
from confluent_kafka import Message

from remote_fetch.consumer.store_records import StoreRecords
from tests.consumer.fakes import chunk


def records_of(*offsets: range) -> StoreRecords:
    """Records whose feed has brought one chunk for each range."""
    records = StoreRecords("t", 0)
    records.start(SimpleNamespace(chunks=deque(chunk(part) for part in offsets)))  # type: ignore[arg-type]
    return records


def offsets(messages: list[Message]) -> list[int | None]:
    return [message.offset() for message in messages]


def test_records_are_taken_over_chunks_in_their_order() -> None:
    records = records_of(range(3), range(3, 5))
    assert (records.are_ready, records.ready_count) == (True, 5)
    assert offsets(records.take(2)) == [0, 1]
    assert records.ready_count == 3
    assert offsets(records.take(9)) == [2, 3, 4]
    assert (records.are_ready, records.ready_count, records.take(1)) == (False, 0, [])


def test_records_that_were_put_back_are_taken_first() -> None:
    records = records_of(range(4))
    taken = records.take(3)
    records.put_back(taken[1:])
    assert records.ready_count == 3
    records.put_back(records.take(1))
    assert offsets(records.take(9)) == [1, 2, 3]


def test_records_before_the_take_over_are_skipped() -> None:
    records = records_of(range(3), range(3, 6))
    records.skip(4)
    records.drop_skipped()
    assert (records.ready_count, records.skip_before) == (2, 0)
    assert offsets(records.take(9)) == [4, 5]


def test_skipping_ends_with_the_first_record_behind_it() -> None:
    records = records_of(range(3))
    records.skip(4)
    records.drop_skipped()
    assert (records.are_ready, records.skip_before) == (False, 4)


def test_reserved_records_leave_the_queue_of_the_feed_and_are_taken_first() -> None:
    records = records_of(range(3), range(3, 5))
    assert records.feed is not None
    records.reserve()
    assert not records.feed.chunks
    records.feed.chunks.append(chunk(range(5, 7)))
    assert (records.are_ready, records.ready_count) == (True, 7)
    assert offsets(records.take(9)) == list(range(7))
    assert not records.are_ready


def test_the_next_records_by_their_size() -> None:
    records = records_of(range(10))
    assert records.feed is not None
    size_bytes = records.feed.chunks[0].size_bytes
    assert (records.rows_in(size_bytes), records.rows_in(size_bytes // 2), records.rows_in(1)) == (10, 5, 1)
    assert offsets(records.take(9)) == list(range(9))


def test_large_records_are_prepared_for_few_polls() -> None:
    records = records_of(range(3))
    assert records.feed is not None
    records.feed.chunks[0].size_bytes = 3 << 20
    assert records.rows_in(640 << 10) == 1


@pytest.mark.parametrize("is_reserved", [False, True])
def test_stopping_drops_all_records(is_reserved: bool) -> None:
    records = records_of(range(3), range(3, 5))
    if is_reserved:
        records.reserve()
    records.put_back(records.take(2))
    records.stop()
    assert (records.are_ready, records.take(1), records.feed) == (False, [], None)
