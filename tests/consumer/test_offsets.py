"""Which offsets of an assignment the store may have."""

from __future__ import annotations

import pytest

from remote_fetch.consumer.offsets import (
    BEGINNING,
    END,
    INVALID,
    STORED,
    TAIL,
    end_of_truncated_epoch,
    is_looked_up,
    may_be_tiered,
)


@pytest.mark.parametrize(
    ("offset", "is_tiered", "looks_up"),
    [
        (0, True, True),
        (7, True, True),
        (BEGINNING, True, True),
        (TAIL, True, True),
        (TAIL - 5, True, True),
        (STORED, False, True),
        (INVALID, False, True),
        (END, False, False),
    ],
)
def test_the_store_may_have_all_offsets_but_the_end(offset: int, is_tiered: bool, looks_up: bool) -> None:
    assert (may_be_tiered(offset), is_looked_up(offset)) == (is_tiered, looks_up)


TRUNCATED = (
    "Partition log truncation detected at offset 500 (leader epoch 0): broker end offset is 200 (offset leader epoch 0)"
)
NO_EPOCH = (
    "No epoch found less or equal to offset 500 (leader epoch 9): broker end offset is -1 (offset leader epoch -1)"
)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (f"{TRUNCATED}. Reset to INVALID.: Local: Partition log truncation detected (broker 2)", 200),
        (f"{NO_EPOCH}. Reset using configured policy.: Local: Partition log truncation detected (broker 2)", None),
        ("fetch failed due to requested offset not available on the broker: Broker: Offset out of range", None),
    ],
    ids=["truncated", "no epoch", "out of range"],
)
def test_the_end_of_a_truncated_log_is_in_librdkafkas_text(text: str, end: int | None) -> None:
    assert end_of_truncated_epoch(text) == end
