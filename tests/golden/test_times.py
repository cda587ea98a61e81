"""Reading by time: a start given as a time is the offset that the broker's offsetsForTimes gave."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remote_fetch.model import IsolationLevel
from remote_fetch.prepare.job import plan_job
from remote_fetch.session.session import Session
from tests.golden.places import each_place

if TYPE_CHECKING:
    from tests.golden.conftest import Place

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def start_of(session: Session, place: Place, moment: datetime | str) -> int | None:
    """The first offset of a read from `moment` on, None if nothing is left to read."""
    (plan,) = plan_job(
        session,
        place.topic,
        start=moment,
        end="latest",
        partitions=[place.partition],
        isolation=IsolationLevel.READ_UNCOMMITTED,
        log_start=place.log_start,
    )
    return plan.steps[0].first_offset if plan.steps else None


@pytest.mark.slow
@pytest.mark.parametrize("locator", ["listing", "snapshot"])
@each_place
def test_times_lead_to_the_brokers_offsets(place: Place, snapshots: dict[str, Path], locator: str) -> None:
    """The broker's -1 (no record is as late) is an empty read, and so is what it found past the end of the tier.

    A listing knows no timestamps, metadata records tell the largest of each segment: two ways to the same answer.
    """
    config = {**place.config, "remote.locator": locator}
    if locator == "snapshot":
        config["remote.locator.snapshot.file"] = str(snapshots[place.tier.name])
    asked = [
        (line["timestamp"], line["offset"])
        for line in place.tier.lines("offsets_for_times")
        if (line["topic"], line["partition"]) == (place.topic, place.partition)
    ]
    assert len(asked) == 10
    with Session.open(config) as session:
        for number, (timestamp_ms, offset) in enumerate(asked):
            expected = offset if 0 <= offset < place.stop else None
            moment = EPOCH + timedelta(milliseconds=timestamp_ms)
            start = moment.isoformat() if number % 2 else moment
            assert start_of(session, place, start) == expected, timestamp_ms
        assert session.counters.report().scans == {}


@pytest.mark.slow
@each_place
def test_every_timestamp_leads_to_the_first_record_that_has_it(place: Place) -> None:
    """Compared with the recording, which has timestamps out of order. Control records count, as on a broker."""
    recorded = [(line["offset"], line["timestamp"]) for line in place.recorded("read_uncommitted")]
    offsets = {offset for offset, _ in recorded}
    control = [offset for offset in range(place.log_start, place.stop) if offset not in offsets]
    compared = 0
    with Session.open(place.config) as session:
        for timestamp_ms in sorted({timestamp for _, timestamp in recorded})[::3]:
            first = min(offset for offset, timestamp in recorded if timestamp >= timestamp_ms)
            found = start_of(session, place, EPOCH + timedelta(milliseconds=timestamp_ms))
            if found != first:  # a marker lies before it, with the wall clock of the day the broker wrote it
                assert found == min(control) < first
            compared += 1
    assert compared
