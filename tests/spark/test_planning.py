"""Planning: which partitions, which offsets, what is refused, and what a plan looks like."""

from __future__ import annotations

from pathlib import Path

import pytest

from remote_fetch.errors import ConfigError, RemoteFetchError, UnknownTopic, Unlocatable
from remote_fetch.observe import Event, Notice
from remote_fetch.session.session import Session
from remote_fetch.spark import plan
from remote_fetch.spark.limits import Restriction
from remote_fetch.spark.options import Subscription, parse_options
from remote_fetch.spark.planning import JobPlan, plan_batch, subscribed
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from tests.scan.bucket import UNCOMMITTED, plain_log
from tests.scan.sparse import SparseTier
from tests.spark.buckets import at, bucket_alone, expected, planned, read, tier
from tests.stores.stand_in import give_broker


@pytest.fixture
def where(tmp_path: Path) -> dict[str, str]:
    """Sixty records in three segments, each one a second after the one before."""
    log = LogBuilder()
    for second in range(60):
        log.append_batch([Record(0, 0, b"k", b"v")], base_timestamp_ms=1_700_000_000_000 + 1000 * second)
        if second % 20 == 19:
            log.roll()
    return tier(tmp_path, log.segments())


def offsets_of(found: JobPlan) -> list[tuple[int, int]]:
    return [(step.first_offset, step.last_offset) for task in found.tasks for step in task.steps]


def test_what_a_plan_looks_like(where: dict[str, str]) -> None:
    found = str(plan({**where, "minPartitions": "30"})).splitlines()
    assert found[0].startswith("30 tasks, 0.0 MiB to 0.0 MiB each")
    assert found[1].startswith("from the store: 0.0 MiB of 3 segments with 30 GETs")
    assert found[2] == "from the broker: 0 offsets in 0 ranges"
    assert "topic-0: offsets 0..19 from 00000000000000000000-" in found[3]
    assert found[-1] == "  ... and 10 more"
    assert str(plan({**where, "startingOffsets": at(60)})).startswith("no tasks")


def test_a_segment_whose_size_metadata_cannot_hold(tmp_path: Path) -> None:
    """8 GiB that metadata has as 2 GiB and one byte less: it was cut into 33 tasks, the last of 6 GiB."""
    sparse = SparseTier(tmp_path, 8 << 30)
    options = {"subscribe": "topic", **bucket_alone(tmp_path), **sparse.clamped(tmp_path)}
    found = planned({**options, "startingOffsets": at(1000)})
    assert len(found.tasks) == 129
    sizes = [task.size_bytes for task in found.tasks]
    assert max(sizes) < 2 * min(sizes)
    assert (found.cost.size_bytes, found.cost.unknown_slices) == (8 << 30, 0)
    assert str(found).splitlines()[1].startswith("from the store: 8192.0 MiB of 1 segment with ")
    rows, report = read({**options, "startingOffsets": at(1503)})
    assert [row[4:6] for row in rows] == [(None, value) for value in (b"last0", b"last1", b"last2")]
    assert report.remote_bytes <= 2 * sparse.end_bytes


def test_a_batch_that_begins_at_the_first_offset_has_lost_nothing(tmp_path: Path) -> None:
    log = LogBuilder(start_offset=7)
    log.append_batch([Record(0, 0, b"k", b"v")])
    log.roll()
    options = tier(tmp_path, log.segments())
    assert offsets_of(plan_batch(parse_options({**options, "startingOffsets": at(7)}))) == [(7, 7)]
    with pytest.raises(RemoteFetchError, match="offsets 6 to 6 are gone"):
        plan_batch(parse_options({**options, "startingOffsets": at(6)}))


@pytest.mark.parametrize(
    ("limits", "start", "end"),
    [
        ({"endingOffsets": 5}, 7, 5),  # the log starts at 7
        ({"startingOffsets": 9}, 9, 8),  # and ends at 8
    ],
)
def test_a_batch_that_starts_past_its_end_is_refused(
    tmp_path: Path, limits: dict[str, int], start: int, end: int
) -> None:
    """With either value of `failOnDataLoss`, as by Spark's own source. An empty range that was deleted is none."""
    log = LogBuilder(start_offset=7)
    log.append_batch([Record(0, 0, b"k", b"v")])
    log.roll()
    where = {**tier(tmp_path, log.segments()), "failOnDataLoss": "false"}
    with pytest.raises(ConfigError, match=f"start offset {start} is greater than the resolved end offset {end}"):
        plan_batch(parse_options({**where, **{name: at(offset) for name, offset in limits.items()}}))
    assert plan_batch(parse_options({**where, "startingOffsets": at(3), "endingOffsets": at(5)})).tasks == ()


@pytest.mark.parametrize(
    ("wanted", "offsets"),
    [
        (Restriction(), [(0, 19), (20, 39), (40, 59)]),
        (Restriction(first_partition=1), []),
        (Restriction(partitions=frozenset({0})), [(0, 19), (20, 39), (40, 59)]),
        (Restriction(first_offset=25, stop_offset=45), [(25, 39), (40, 44)]),
        (Restriction(first_offset=45, stop_offset=25), []),
        (Restriction(since_ms=1_700_000_030_500), [(31, 39), (40, 59)]),
        (Restriction(since_ms=1_800_000_000_000), []),
    ],
)
def test_what_filters_leave(where: dict[str, str], wanted: Restriction, offsets: list[tuple[int, int]]) -> None:
    assert offsets_of(plan_batch(parse_options(where), restriction=wanted)) == offsets


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"subscribePattern": "("}, ConfigError, "subscribePattern '(' is no regular expression"),
        ({"subscribePattern": "(?a)(?u)"}, ConfigError, "subscribePattern '(?a)(?u)' is no regular expression"),
        ({"subscribePattern": "t{99999999999}"}, ConfigError, "subscribePattern 't{99999999999}' is no regular"),
        ({"subscribePattern": "(" * 9999 + ")" * 9999}, ConfigError, "subscribePattern '(((("),
        ({"subscribePattern": "topi[a-z&&b-d]"}, ConfigError, "subscribePattern 'topi[a-z&&b-d]' has [ or && inside"),
        ({"subscribePattern": "topi[ab[c]]"}, ConfigError, "subscribePattern 'topi[ab[c]]' has [ or && inside of"),
        ({"subscribePattern": "[^]&&t]"}, ConfigError, "subscribePattern '[^]&&t]' has [ or && inside of brackets"),
        ({"assign": '{"topic":[0,3]}'}, UnknownTopic, "topic 'topic': no partition 3 was found; there are 0"),
        ({"assign": '{"other":[0]}'}, UnknownTopic, "no segment of topic 'other' is in the remote storage"),
        (
            {"subscribe": "topic", "startingOffsets": '{"topic":{"0":1,"1":1}}'},
            ConfigError,
            "If startingOffsets contains specific offsets, you must specify all TopicPartitions. Use -1 for latest, ",
        ),
        (
            {"subscribe": "topic", "endingOffsetsByTimestamp": '{"topic":{"1":1}}'},
            ConfigError,
            "If endingOffsetsByTimestamp contains specific offsets, you must specify all TopicPartitions. Specified: ",
        ),
    ],
)
def test_what_is_refused(
    where: dict[str, str], options: dict[str, str], error: type[RemoteFetchError], message: str
) -> None:
    del where["subscribe"]
    with pytest.raises(error) as caught:
        plan({**where, **options})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        *(("to.*c", 1), ("opi", 1), ("pic$", 1), ("^opi", 0), ("topics", 0), ("[t][^x][]p][i]c&&|topic", 1)),
        *((r"[\]]opic|[t]opic", 1), (r"[\[t]opic", 1), (r"\[&&|topic", 1)),
    ],
    ids=str,
)
def test_topics_by_pattern(where: dict[str, str], pattern: str, count: int) -> None:
    """As in Spark's source, a part of the name is enough."""
    del where["subscribe"]
    assert len(plan({**where, "subscribePattern": pattern}).tasks) == count


def test_a_topic_that_is_deleted_after_it_was_named(where: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers name all topics, and describe each of a pattern then. One of a subscription has to be there."""
    with Session.open(parse_options(where).config) as session:
        there = session.locator.partitions("topic")
        monkeypatch.setattr("remote_fetch.spark.planning.topic_names", lambda *_: ("gone", "topic"))
        with pytest.raises(UnknownTopic):
            subscribed(session, Subscription(pattern="gone|topic"))
        give_broker(session, plain_log())
        assert subscribed(session, Subscription(pattern="gone|topic")) == there
        with pytest.raises(UnknownTopic):
            subscribed(session, Subscription(("gone", "topic")))


def test_a_hole_that_nobody_can_fill(tmp_path: Path) -> None:
    first, _, third = plain_log(segments=3).segments()
    with pytest.raises(Unlocatable, match="offsets 20 to 39 cannot be read from the bucket alone"):
        plan(tier(tmp_path, [first, third]))


def test_times(where: dict[str, str]) -> None:
    found, _ = read({**where, "startingTimestamp": "1700000010000", "endingTimestamp": "1700000012500"})
    assert [row[2] for row in found] == [10, 11, 12]
    late = {**where, "startingTimestamp": str(2**45)}
    with pytest.raises(ConfigError, match="No offset matched from request of topic-partition topic-0 and timestamp 35"):
        plan(late)
    assert plan({**late, "startingOffsetsByTimestampStrategy": "latest"}).tasks == ()
    for key, bounds in (
        ("startingTimestamp", {"startingTimestamp": "1700000010000", "endingOffsets": at(5)}),
        ("endingTimestamp", {"startingOffsets": at(10), "endingTimestamp": "1700000005000"}),
    ):
        with pytest.raises(ConfigError, match="resolved start offset 10 is greater than the resolved end offset 5 fo"):
            plan({**where, **bounds})
        with pytest.raises(ConfigError) as caught:
            plan({**where, **bounds, "failOnDataLoss": "false"})
        assert caught.value.key == key


def test_an_empty_range_has_lost_nothing(tmp_path: Path) -> None:
    _, last = plain_log(segments=2).segments()
    where = tier(tmp_path, [last])
    for offset in (3, 25, 99):
        assert plan({**where, "startingOffsets": at(offset), "endingOffsets": at(offset)}).tasks == ()


def test_data_that_may_be_lost_is_said(tmp_path: Path) -> None:
    log = plain_log(segments=2)
    _, last = log.segments()
    heard: list[Event] = []
    bounds = {"startingOffsets": at(3), "endingOffsets": at(99), "failOnDataLoss": "false"}
    where = {**tier(tmp_path, [last]), **bounds}
    assert offsets_of(plan_batch(parse_options(where), observer=heard.append)) == [(20, 39)]
    said = [event.text for event in heard if isinstance(event, Notice) and event.is_warning]
    assert said == [
        "Partition topic-0: offsets 3 to 19 are gone, some data may have been missed",
        "Partition topic-0: the log ends at offset 40, before 99, some data may have been missed",
    ]
    assert read(where)[0] == expected(log.expected(UNCOMMITTED, 20, 40))
