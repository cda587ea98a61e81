"""The progress of a topic in a table: what follows what, and whether the offsets of a job are as it planned."""

from __future__ import annotations

import pytest

from remote_fetch.errors import OffsetOutOfRange
from remote_fetch.observe import Event, Notice
from remote_fetch.tables.planning import pass_over_partitions
from remote_fetch.tables.progress import Progress
from remote_fetch.tables.table_job import _moved


def progress(topic_id: str = "id", **ranges: tuple[int, int]) -> Progress:
    """The ranges by partition, as `p0=(0, 10)`."""
    return Progress("topic", topic_id, {int(name[1:]): found for name, found in ranges.items()})


def test_what_follows_begins_where_the_first_began() -> None:
    both = progress(p0=(5, 10), p1=(0, 3)).followed_by(progress(p0=(10, 20), p2=(7, 8)))
    assert both.ranges == {0: (5, 20), 1: (0, 3), 2: (7, 8)}


def test_what_was_there_before() -> None:
    added = progress(p0=(10, 20), p2=(7, 8))
    assert added.without(added) is None
    before = progress(p0=(5, 20), p1=(0, 3), p2=(7, 8)).without(added)
    assert before is not None
    assert before.ranges == {0: (5, 10), 1: (0, 3)}


@pytest.mark.parametrize(
    ("base", "held", "has_moved"),
    [
        (None, None, False),
        (None, progress(p1=(0, 3)), False),
        (None, progress(p0=(0, 3)), True),
        (progress(p0=(0, 10)), progress(p0=(0, 10), p1=(0, 3)), False),
        (progress(p0=(0, 10)), progress(p0=(0, 20)), True),
        (progress(p0=(0, 10)), None, True),
        (progress(p0=(0, 10)), progress("other", p0=(0, 10)), True),
    ],
)
def test_a_job_of_partition_0_is_overtaken(base: Progress | None, held: Progress | None, has_moved: bool) -> None:
    assert _moved(base, held, progress(p0=(10, 30))) is has_moved


def test_offsets_of_partitions_that_are_gone_are_lost() -> None:
    """A partition of which nothing was to be read loses nothing."""
    begun, said = progress(p0=(5, 5), p1=(2, 4)), list[Event]()
    pass_over_partitions(begun, (), said.append, None)
    lost = "topic-1: offsets 2 to 3 were deleted before they were exported"
    assert said == [Notice(lost, is_warning=True)]
    with pytest.raises(OffsetOutOfRange, match=lost) as info:
        pass_over_partitions(begun, (), said.append, "the hint")
    assert (info.value.partition, info.value.offset, info.value.hint) == (1, 2, "the hint")
