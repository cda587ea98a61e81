"""Where the tier has a hole: nothing whose fate it hides is delivered, and nothing that is missing goes unsaid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remote_fetch import Counters, read_arrow
from remote_fetch.config import Config
from remote_fetch.errors import UnknownTopic, Unlocatable
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IndexType, IsolationLevel, Uuid
from remote_fetch.plan.ranges import BrokerRange, Reason, SegmentSlice
from remote_fetch.prepare.job import plan_job
from remote_fetch.prepare.refusals import refuse_broker_ranges
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from tests.scan.bucket import COMMITTED, UNCOMMITTED, Bucket, plain_log, read, snapshot_config

LOCATORS = pytest.mark.parametrize("exact", [False, True], ids=["listing", "snapshot"])


def ten(first: int = 0, count: int = 10) -> list[Record]:
    return [Record(number, (first + number) * 1000, b"k", b"v") for number in range(count)]


def transaction_over_a_hole() -> Bucket:
    """Offsets 0-4 plain and 5-9 of a transaction; 10-19 with its abort, missing; 20-29 plain."""
    log = LogBuilder()
    log.append_batch(ten(count=5))
    log.begin(7)
    log.append_batch(ten(5, 5), producer_id=7)
    log.roll()
    log.append_batch(ten(10, 9))
    log.abort(7)
    log.roll()
    log.append_batch(ten(20))
    log.roll()
    segments = log.segments()
    return Bucket([segments[0], segments[2]])


def config_of(bucket: Bucket, exact: bool, tmp_path: Path) -> Mapping[str, Any] | None:
    return snapshot_config(bucket.metadata) if exact else None


@LOCATORS
@pytest.mark.parametrize("end", ["latest", 10, 30])
def test_a_transaction_that_is_decided_in_the_hole_is_not_shown(exact: bool, end: object, tmp_path: Path) -> None:
    bucket = transaction_over_a_hole()
    outcome = read(bucket, isolation=COMMITTED, end=end, config=config_of(bucket, exact, tmp_path))
    assert isinstance(outcome.error, Unlocatable)
    assert outcome.error.first == 5
    assert all(offset < 5 for offset in outcome.offsets)


@LOCATORS
def test_offsets_before_the_hole_are_named_with_their_reason(exact: bool, tmp_path: Path) -> None:
    bucket = transaction_over_a_hole()
    outcome = read(bucket, isolation=COMMITTED, config=config_of(bucket, exact, tmp_path))
    assert str(outcome.error) == (
        "offsets 5 to 19 cannot be read from the bucket alone: 5 to 9 (unstable), 10 to 19 (hole: no segment "
        "has them) [topic-0]. A transaction that is open where the hole begins may end in it, and only a broker knows "
        "how: set bootstrap.servers (-b)"
    )


@LOCATORS
def test_what_lies_before_it_can_be_read(exact: bool, tmp_path: Path) -> None:
    bucket = transaction_over_a_hole()
    config = config_of(bucket, exact, tmp_path)
    assert read(bucket, isolation=COMMITTED, end=5, config=config).offsets == list(range(5))
    assert read(bucket, isolation=COMMITTED, start=20, config=config).offsets == list(range(20, 30))
    assert read(bucket, isolation=UNCOMMITTED, end=10, config=config).offsets == list(range(10))


def test_a_time_inside_the_hole_is_not_found_behind_it() -> None:
    log = LogBuilder()
    for first in (0, 10, 20):
        log.append_batch(ten(first), base_timestamp_ms=0)
        log.roll()
    segments = log.segments()
    outcome = read(Bucket([segments[0], segments[2]]), start="1970-01-01T00:00:15Z")
    assert isinstance(outcome.error, Unlocatable)
    assert (outcome.error.first, outcome.error.last) == (10, 19)


@pytest.mark.parametrize("lists_again", [False, True])
def test_a_plan_does_not_forget_that_an_end_was_a_guess(lists_again: bool) -> None:
    """Another read of the session measures the end behind which the hole is. Another listing may come while it does."""
    first, _, last, newer = plain_log(segments=4).segments()
    bucket = Bucket([first, last])
    with Session(Config.parse({}), bucket) as session:
        (plan,) = plan_job(session, "topic", start="earliest", end="latest", partitions=None, isolation=UNCOMMITTED)
        step = plan.steps[0]
        assert isinstance(step, SegmentSlice)
        partition, guessed = plan.opened.partition, step.segment
        listed = session.locator.measure(partition, [guessed]).segments[0]
        if lists_again:
            bucket.add(newer)
            session.locator.partitions("topic")
            listed = session.locator.timeline(partition).segments[0]
        assert session.locator.end_is_inferred(guessed)
        assert session.locator.end_is_inferred(listed) == lists_again
        assert listed.end_offset == (39 if lists_again else 19)
        with pytest.raises(Unlocatable, match="20"):
            list(Scan(session, [plan], ("offset",)).batches())


@pytest.mark.parametrize(("number", "offsets"), [(0, range(20, 60)), (2, range(40))])
def test_a_lost_log_at_either_end_is_none(number: int, offsets: range, tmp_path: Path) -> None:
    """Its other files are still there. A listing cannot tell a loss from a deletion: a notice says both."""
    segments = plain_log().segments()
    write_kafka_local(tmp_path, segments)
    (lost,) = tmp_path.rglob(f"{segments[number].metadata.object_stem}.log")
    lost.unlink()
    counters = Counters()
    table = read_arrow("topic", config={"remote.storage.url": str(tmp_path)}, observer=counters).read_all()
    assert table.column("offset").to_pylist() == list(offsets)
    assert f"up to offset {offsets.stop} (exclusive)" in counters.report().ends["topic-0"]
    (notice,) = [text for text in counters.report().notices if "no log" in text]
    assert notice.startswith(f"topic-0: the store has files of segment {segments[number].metadata.object_stem}, but")
    assert notice.endswith(f"begins at offset {offsets.start}" if number == 0 else "ends at offset 40 (exclusive)")


def test_a_topic_without_any_log_is_told_from_the_one_of_its_name_that_is_read(tmp_path: Path) -> None:
    """A broker that died while it deleted a topic may have left such files."""
    for filling in (7, 8):
        log = LogBuilder("topic", Uuid(bytes([filling] * 16)))
        log.append_batch(ten(0))
        log.roll()
        write_kafka_local(tmp_path, log.segments())
    deleted = Uuid(bytes([7] * 16))
    for lost in tmp_path.rglob(f"topic-0-{deleted}/*.log"):
        lost.unlink()
    counters = Counters()
    assert (
        read_arrow("topic", config={"remote.storage.url": str(tmp_path)}, observer=counters).read_all().num_rows == 10
    )
    (told,) = [text for text in counters.report().notices if "no log" in text]
    assert told.endswith(f"Nothing can be read of the partition with the topic id {deleted}")


@pytest.mark.parametrize("wanted", [None, [0]])
def test_a_partition_without_any_log_is_told(wanted: list[int] | None, tmp_path: Path) -> None:
    for number in (0, 1):
        log = LogBuilder("topic", Uuid(bytes([7] * 16)), partition=number)
        for first in (0, 10):
            log.append_batch(ten(first))
            log.roll()
        write_kafka_local(tmp_path, log.segments())
    for lost in tmp_path.rglob("topic-1-*/*.log"):
        lost.unlink()
    counters = Counters()
    config = {"remote.storage.url": str(tmp_path)}
    assert read_arrow("topic", config=config, partitions=wanted, observer=counters).read_all().num_rows == 20
    told = [text for text in counters.report().notices if "no log" in text]
    assert len(told) == (wanted is None)
    if told:
        assert told[0].startswith("topic-1: the store has files of 2 segments, of which the first is 000000")
        assert told[0].endswith(f"Nothing can be read of the partition with the topic id {Uuid(bytes([7] * 16))}")
    with pytest.raises(UnknownTopic):
        read_arrow("topic", config=config, partitions=[1])


def test_an_upload_under_way_is_none() -> None:
    log = LogBuilder()
    for first in (0, 10):
        log.append_batch(ten(first))
        log.roll()
    done, under_way = log.segments()
    assert under_way.metadata.start_offset == 10
    assert read(Bucket([done]), isolation=COMMITTED).offsets == list(range(10))


def test_after_an_unclean_election_the_branch_with_the_higher_epoch_is_the_log() -> None:
    """The branch that lost reaches further; a listing has only the checkpoints to tell."""
    lost = LogBuilder(leader_epoch=0)
    for first in (0, 10, 20):
        lost.append_batch([Record(number, 0, b"lost", b"v") for number in range(10)])
        if first == 0:
            won = lost.fork(10)
        lost.roll()
    won.roll()
    won.new_leader_epoch(1)
    won.append_batch([Record(number, 0, b"won", b"v") for number in range(9)])
    won.roll()
    outcome = read(Bucket([*lost.segments(), won.segments()[-1]]), end=19)
    assert outcome.error is None
    assert [row.key for row in outcome.rows] == [b"lost"] * 10 + [b"won"] * 9


def test_a_hole_s_refusal_tells_of_metadata_that_locates_nothing() -> None:
    partition = LogBuilder().topic_id_partition
    timeline = Timeline(partition, (), (), orphan_updates=2)
    with pytest.raises(
        Unlocatable,
        match=r"\(hole: no segment has them\); finished segments of which metadata has an update alone, so that no "
        r"offset is found: 2 ",
    ):
        refuse_broker_ranges(timeline, [BrokerRange(partition, 3, 5, "hole")])
    with pytest.raises(Unlocatable, match=r"\(not-tiered\) \["):
        refuse_broker_ranges(timeline, [BrokerRange(partition, 3, 5, Reason.NOT_TIERED)])


def compacted() -> Bucket:
    """Offsets 0-4 with 5-9 taken out, then 10-14 with 15-19 taken out, then 20-29."""
    log = LogBuilder()
    for first in (0, 10):
        log.append_batch(ten(first, 5))
        log.take_out(5)
        log.roll()
    log.append_batch(ten(20))
    log.roll()
    return Bucket(log.segments())


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_a_gap_that_compaction_left_is_no_hole_where_metadata_tells(isolation: IsolationLevel, tmp_path: Path) -> None:
    bucket = compacted()
    config = config_of(bucket, True, tmp_path)
    assert read(bucket, isolation=isolation, config=config).offsets == [*range(5), *range(10, 15), *range(20, 30)]


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("start", ["earliest", "1970-01-01T00:00:07Z"])
def test_a_listing_cannot_tell_it_from_a_hole_and_says_what_to_do(isolation: IsolationLevel, start: str) -> None:
    bucket = compacted()
    outcome = read(bucket, isolation=isolation, start=start)
    assert isinstance(outcome.error, Unlocatable)
    assert outcome.error.last == 9
    assert "compacted before it was tiered" in str(outcome.error)
    assert "bootstrap.servers" in str(outcome.error)
    around = [read(bucket, start=first, end=end).offsets for first, end in ((0, 5), (10, 15), (20, 30))]
    assert around == [[*range(5)], [*range(10, 15)], [*range(20, 30)]]


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("number", [0, 1])
def test_an_object_that_compaction_left_empty(isolation: IsolationLevel, number: int, tmp_path: Path) -> None:
    """A real broker uploads such a log (4.3.1). Metadata tells its end; a bucket alone cannot tell it from a loss."""
    bucket = Bucket(plain_log().segments())
    bucket.write(number, b"")
    bucket.write_index(number, IndexType.OFFSET, b"")
    bucket.metadata[number] = replace(bucket.metadata[number], segment_size_in_bytes=0)
    kept = [offset for offset in range(60) if not 20 * number <= offset < 20 * number + 20]
    assert read(bucket, isolation=isolation, config=config_of(bucket, True, tmp_path)).offsets == kept
    outcome = read(bucket, isolation=isolation)
    assert isinstance(outcome.error, Unlocatable)
    assert (outcome.error.first, outcome.error.last) == (20 * number, 20 * number + 19)
    assert "compacted before it was tiered" in str(outcome.error)
    assert read(bucket, isolation=isolation, start=20 * number + 20).offsets == [at for at in kept if at >= 20 * number]
