"""The plan of every partition: the same each time, saved and loaded unchanged, and complete to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remote_fetch import read_arrow
from remote_fetch.cli import main
from remote_fetch.model import IsolationLevel
from remote_fetch.plan.cost import estimate
from remote_fetch.plan.ranges import PlanStep, SegmentSlice
from remote_fetch.plan.saved import dump_plan, load_plan
from remote_fetch.plan.shares import Share, share_out
from remote_fetch.prepare.cuts import settle_cut
from remote_fetch.prepare.job import plan_job
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from tests.cases import of_a_change
from tests.golden.places import each_place

if TYPE_CHECKING:
    from tests.golden.conftest import Place, Tier

PLANS = Path(__file__).with_name("plans")


def plan(session: Session, place: Place, isolation: str, *, log_start: int | None = None) -> PartitionPlan:
    (found,) = plan_job(
        session,
        place.topic,
        start="earliest",
        end="latest",
        partitions=[place.partition],
        isolation=IsolationLevel(isolation),
        log_start=log_start,
    )
    return found


@each_place
def test_planning_twice_gives_the_same(place: Place, isolation: str) -> None:
    found = []
    for _ in range(2):
        with Session.open(place.config) as session:
            found.append(plan(session, place, isolation, log_start=place.log_start))
    assert found[0] == found[1]
    assert load_plan(dump_plan(found[0].steps)) == found[0].steps


@each_place
def test_a_whole_read_takes_every_segment_to_its_end(place: Place, isolation: str) -> None:
    sizes = [path.stat().st_size for path in place.folder.glob("*.log")]
    with Session.open(place.config) as session:
        cost = estimate([plan(session, place, isolation).steps], 8 << 20)
    assert (cost.size_bytes, cost.gets, cost.segments) == (sum(sizes), len(sizes), len(sizes))
    assert (cost.broker_offsets, cost.unknown_slices) == (0, 0)


def test_plans_are_those_that_were_written_down(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    """The plans are the recorded ones. plans/README.md has the command that records an intended change."""
    topics = sorted({place.topic for place in tier.places})
    for topic in topics:
        assert main(["plan", "--url", tier.url, "-t", topic]) == 0
        assert capsys.readouterr().out == (PLANS / tier.name / f"{topic}.txt").read_text(encoding="utf-8")
    assert sorted(path.stem for path in (PLANS / tier.name).iterdir()) == topics


def slices_of(steps: tuple[PlanStep, ...]) -> list[SegmentSlice]:
    slices = [step for step in steps if isinstance(step, SegmentSlice)]
    assert len(slices) == len(steps)
    return slices


def settled(session: Session, share: Share) -> list[SegmentSlice]:
    """The parts of a share, as a worker finds them out, in order; those in which a batch begins."""
    steps = [step for _, step in share.steps if isinstance(step, SegmentSlice)]
    found = [settle_cut(session.storage, step) if step.is_cut else step for step in steps]
    return [step for step in found if step is not None]


@pytest.mark.slow
@pytest.mark.parametrize("target_bytes", of_a_change([2000, 300]))
@each_place
def test_parts_read_one_by_one_are_the_whole(place: Place, isolation: str, target_bytes: int) -> None:
    """Each part is completed and read alone, the last part first. Its records depend on no other part."""
    columns = ("offset", "key", "value")
    read: list[list[dict[str, object]]] = []
    with Session.open(place.config) as session:
        whole = plan(session, place, isolation, log_start=place.log_start)
        for share in reversed(share_out([slices_of(whole.steps)], target_bytes)):
            alone = PartitionPlan(whole.opened, tuple(settled(session, share)), whole.aborted)
            read.append([row for batch in Scan(session, [alone], columns).batches() for row in batch.to_pylist()])
    table = read_arrow(
        place.topic,
        partitions=[place.partition],
        isolation=isolation,
        columns=columns,
        config=place.config,
        log_start=place.log_start,
    ).read_all()
    assert [row for rows in reversed(read) for row in rows] == table.to_pylist()


@pytest.mark.slow
@pytest.mark.scheduled  # as the parts of 300 bytes
def test_most_partitions_can_be_cut(tier: Tier) -> None:
    """The plans of the test above are not trivial."""
    parts = {}
    for place in tier.places:
        with Session.open(place.config) as session:
            slices = slices_of(plan(session, place, "read_uncommitted").steps)
            shares = share_out([slices], 300)
            parts[str(place)] = sum(bool(settled(session, share)) for share in shares)
    assert sum(count > 1 for count in parts.values()) >= 20
    assert sum(parts.values()) > 150
