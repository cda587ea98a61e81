"""Which offsets of an assignment the store may have."""

from __future__ import annotations

import pytest

from remote_fetch.consumer.offsets import (
    BEGINNING,
    END,
    INVALID,
    STORED,
    TAIL,
    is_looked_up,
    may_be_tiered,
    partition_at,
    place_of,
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


def test_an_offset_in_words() -> None:
    shown = [place_of(offset) for offset in (7, BEGINNING, END, STORED, INVALID)]
    assert shown == ["offset 7", "its beginning", "its end", "its committed offset", "its committed offset"]


@pytest.mark.parametrize("leader_epoch", [None, -1, 0, 4])
@pytest.mark.parametrize("metadata", [None, "", "mine"])
def test_the_form_of_store_offsets(leader_epoch: int | None, metadata: str | None) -> None:
    made = partition_at("t", 3, 5, leader_epoch, metadata)
    known = None if leader_epoch == -1 else leader_epoch
    assert (made.topic, made.partition, made.offset, made.leader_epoch) == ("t", 3, 5, known)
    assert made.metadata == metadata
