"""Learned sizes in plans: who is asked, where the answer stands, and what it changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import StorageDenied
from remote_fetch.model import UNKNOWN_SIZE, LogBounds, RemoteLogSegmentMetadata
from remote_fetch.plan.cost import estimate
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.plan.shares import share_out
from remote_fetch.prepare.cuts import settle_cut
from remote_fetch.prepare.planner import Planner
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.session.session import Session
from tests.cases import each_of
from tests.scan.bucket import COMMITTED, UNCOMMITTED, Bucket, expected_rows, plain_log, read, snapshot_config
from tests.scan.resource_runs import repeated
from tests.scan.resources import RepeatingTier

LOG = plain_log()
"""Three segments, of offsets 0 to 19, 20 to 39 and 40 to 59."""
GIB = 1 << 30


class Sizer(Bucket):
    """A bucket that tells sizes, true ones unless `told` has others."""

    def __init__(self) -> None:
        super().__init__(LOG.segments())
        self.told: dict[int, int] = {}
        self.asked: list[int] = []
        self.denies = False

    def size(self, metadata: RemoteLogSegmentMetadata) -> int | None:
        self.asked.append(metadata.start_offset)
        if self.denies:
            raise StorageDenied("no HEAD")
        return self.told.get(metadata.start_offset, len(self.logs[metadata.segment_id.id]))


def clamped(bucket: Bucket, numbers: Sequence[int], size_bytes: int = UNKNOWN_SIZE) -> dict[str, str]:
    """A configuration whose metadata has no size for these segments."""
    known = enumerate(bucket.metadata)
    return snapshot_config(
        [replace(one, segment_size_in_bytes=size_bytes) if at in numbers else one for at, one in known]
    )


def planned(bucket: Sizer, config: dict[str, str], first: int, stop: int, *, outline: bool = False) -> PartitionPlan:
    with Session(Config.parse(config), bucket) as session:
        (partition,) = session.locator.partitions("topic")
        planner = Planner(session, UNCOMMITTED)
        opened = planner.open_timeline(session.locator.timeline(partition), LogBounds(0, 60))
        return (planner.outline if outline else planner.plan)(opened, first, stop)


@pytest.mark.parametrize("outline", [True, False])
@each_of("unknown", [UNKNOWN_SIZE, 0, -1073741824])
def test_only_segments_of_the_plan_whose_size_is_unknown_are_asked_for(outline: bool, unknown: int) -> None:
    bucket = Sizer()
    plan = planned(bucket, clamped(bucket, (0, 1), unknown), 25, 60, outline=outline)
    assert bucket.asked == [20]
    sizes = [step.segment.segment_size_in_bytes for step in plan.steps if isinstance(step, SegmentSlice)]
    assert sizes == [len(bucket.log(1)), len(bucket.log(2))]
    assert estimate([plan.steps], 8 << 20).unknown_slices == 0


def test_a_slice_of_several_is_asked_for_once() -> None:
    bucket = Sizer()
    planned(bucket, clamped(bucket, (0, 1, 2)), 0, 60)
    assert sorted(bucket.asked) == [0, 20, 40]


def test_a_failure_leaves_the_plan_as_it_was() -> None:
    bucket = Sizer()
    bucket.denies = True
    plan = planned(bucket, clamped(bucket, (1,)), 0, 60)
    assert [step.size_bytes for step in plan.steps if isinstance(step, SegmentSlice)][1] is None
    outcome = read(bucket, config=clamped(bucket, (1,)))
    assert outcome.fine() == expected_rows(LOG.records())
    assert outcome.report.sizes == {"auth": 1}


def test_no_range_is_asked_past_the_end() -> None:
    """Without a size, a read goes on to an answer that is shorter than asked."""
    bucket = Sizer()
    ends: list[tuple[int, int]] = []
    fetch = bucket.fetch_log_segment

    def watched(metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1) -> memoryview:
        ends.append((end_position, len(bucket.logs[metadata.segment_id.id])))
        return fetch(metadata, start_position, end_position)

    bucket.fetch_log_segment = watched  # type: ignore[method-assign]
    outcome = read(bucket, config=clamped(bucket, (0, 1, 2)), isolation=COMMITTED)
    assert outcome.fine() == expected_rows(LOG.records())
    assert outcome.report.sizes == {"learned": 3}
    assert ends
    assert all(end <= size for end, size in ends)


def test_cuts_beyond_4_gib_divide_the_records() -> None:
    """Every byte of this segment is a real batch, and its offset index has entries of 12 bytes."""

    class Large(RepeatingTier):
        def size(self, metadata: RemoteLogSegmentMetadata) -> int:
            return self.segment.size_bytes

    tier = Large(repeated(5 * GIB, 64, 16 << 10, entry_bytes=12))
    end_offset = tier.segment.copies * tier.segment.offsets - 1
    tier.metadata = [replace(tier.metadata[0], segment_size_in_bytes=UNKNOWN_SIZE, end_offset=end_offset)]
    with Session(Config.parse(snapshot_config(tier.metadata)), tier) as session:
        (partition,) = session.locator.partitions("topic")
        planner = Planner(session, UNCOMMITTED)
        opened = planner.open_timeline(session.locator.timeline(partition), LogBounds())
        shares = share_out([planner.outline(opened, 0, opened.stop_offset).steps], 64 << 20)
        steps = [step for share in shares for _, step in share.steps if isinstance(step, SegmentSlice)]
        behind = [at for at, step in enumerate(steps) if step.start_position > 1 << 32]
        found = [settle_cut(session.storage, steps[at]) for at in (behind[0] - 1, behind[0], behind[-1])]
    before, after, last = (slice_ for slice_ in found if slice_ is not None)
    assert before.last_offset + 1 == after.first_offset
    assert after.start_position > (1 << 32) - (2 << 20)
    assert last.last_offset == end_offset
    assert tier.returned_bytes < 32 << 20


def test_tasks_of_a_clamped_segment_are_even() -> None:
    """8 GiB that metadata knows as 2 GiB and one byte less: it was cut into 33 tasks, the last of 6 GiB."""
    bucket = Sizer()
    bucket.told[20] = 8 * GIB
    plan = planned(bucket, clamped(bucket, (1,)), 20, 40, outline=True)
    assert estimate([plan.steps], 8 << 20).size_bytes == 8 * GIB
    shares = share_out([plan.steps], 64 << 20)
    assert len(shares) == 129
    assert max(share.size_bytes for share in shares) < 2 * min(share.size_bytes for share in shares)
    cuts = [step for share in shares for _, step in share.steps if isinstance(step, SegmentSlice)]
    assert max(cut.start_position for cut in cuts) > 8 * GIB - (65 << 20)
