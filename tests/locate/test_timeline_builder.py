"""The five scenarios of KIP-1266, in each dialect and at each age of a compacted topic, and the uploader's epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from remote_fetch.formats.metadata_records import SegmentUpdateRecord
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.timeline_builder import TimelineBuilder
from remote_fetch.model import (
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.testing.metadata_records import encode_metadata_record
from tests.cases import each_of
from tests.locate.keyed_topic import DIALECTS, SCENARIOS, Event, another_upload, compacted, without_tombstones

ORDERS = TopicIdPartition(Uuid(b"orders----------"), "orders", 0)
FIRST = RemoteLogSegmentMetadata(
    RemoteLogSegmentId(ORDERS, Uuid(bytes(16))), 0, 99, 1000, 1, 1, 1, (LeaderEpoch(1, 0),), b"custom"
)
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED

AGES: dict[str, Callable[[Sequence[Event]], Sequence[Event]]] = {
    "raw": lambda events: events,
    "compacted": compacted,
    "tombstones gone": without_tombstones,
}
NONE: tuple[str, ...] = ()
EXPECTED: dict[tuple[int, str, str], tuple[tuple[str, ...], int]] = {
    # scenario, dialect, age: which uploads are readable, the one to read first, and how many updates lack their base
    (1, "legacy", "raw"): (("first",), 0),
    (1, "text", "raw"): (("first",), 0),
    (1, "text", "compacted"): (NONE, 1),
    (1, "text", "tombstones gone"): (NONE, 1),
    (1, "pull request", "raw"): (("first",), 0),
    (1, "pull request", "compacted"): (("first",), 0),
    (1, "pull request", "tombstones gone"): (("first",), 0),
    (2, "legacy", "raw"): (("1", "first"), 0),
    (2, "text", "raw"): (("first", "1"), 0),
    (2, "text", "compacted"): (NONE, 2),
    (2, "text", "tombstones gone"): (NONE, 2),
    (2, "pull request", "raw"): (("first", "1"), 0),
    (2, "pull request", "compacted"): (("first", "1"), 0),
    (2, "pull request", "tombstones gone"): (("first", "1"), 0),
    (3, "legacy", "raw"): (("first",), 0),
    (3, "text", "raw"): (("first",), 0),
    (3, "text", "compacted"): (NONE, 1),
    (3, "text", "tombstones gone"): (NONE, 1),
    (3, "pull request", "raw"): (("first",), 0),
    (3, "pull request", "compacted"): (("first",), 0),
    (3, "pull request", "tombstones gone"): (("first",), 0),
    (4, "legacy", "raw"): (("4", "3"), 0),
    (4, "text", "raw"): (NONE, 0),
    (4, "text", "compacted"): (NONE, 0),
    (4, "text", "tombstones gone"): (NONE, 0),
    (4, "pull request", "raw"): (NONE, 0),
    (4, "pull request", "compacted"): (NONE, 0),
    (4, "pull request", "tombstones gone"): (NONE, 0),
    **{(5, dialect, age): (NONE, 0) for dialect in DIALECTS for age in AGES if dialect != "legacy" or age == "raw"},
}


def built(events: Iterable[Event]) -> Timeline:
    builder = TimelineBuilder()
    for offset, event in enumerate(events):
        builder.apply(event.value, key=event.key, offset=offset)
    return builder.build(ORDERS)


def name_of(segment: RemoteLogSegmentMetadata) -> str:
    return "first" if segment.segment_id == FIRST.segment_id else str(segment.segment_id.id.raw[-1])


def in_order_of_choice(timeline: Timeline) -> tuple[str, ...]:
    """The readable uploads, the one that a reader of offset 50 takes first."""
    names = []
    while timeline.segments:
        chosen = timeline.covering(50, Lineage.unknown())
        assert chosen is not None
        names.append(name_of(chosen))
        kept = [at for at, segment in enumerate(timeline.segments) if segment is not chosen]
        timeline = replace(
            timeline,
            segments=tuple(timeline.segments[at] for at in kept),
            finish_order=tuple(timeline.finish_order[at] for at in kept),
            upload_epochs=tuple(timeline.upload_epochs[at] for at in kept) if timeline.upload_epochs else (),
        )
    return tuple(names)


def test_every_cell_is_here() -> None:
    keyed = [name for name, dialect in DIALECTS.items() if dialect.has_keys]
    assert len(EXPECTED) == len(SCENARIOS) * (1 + len(keyed) * len(AGES))


@each_of("cell", EXPECTED, ids=str)
def test_a_scenario_has_the_expected_outcome(cell: tuple[int, str, str]) -> None:
    number, dialect, age = cell
    events = AGES[age](list(SCENARIOS[number](DIALECTS[dialect], FIRST)))
    timeline = built(events)
    readable, orphans = EXPECTED[cell]
    assert in_order_of_choice(timeline) == readable
    assert (timeline.orphan_updates, timeline.malformed_records) == (orphans, 0)
    assert timeline.partition_deleted == (number == 5)
    assert all(segment.custom_metadata == b"custom" for segment in timeline.segments)
    once_more = built([*events, *events])
    assert set(in_order_of_choice(once_more)) <= {*readable, *(("3", "4", "first") if number == 4 else ())}


def test_a_migration_that_is_half_done() -> None:
    """Records without keys come first, and the cleaner drops them. So their segments come through the broker."""
    later = replace(FIRST, segment_id=replace(FIRST.segment_id, id=Uuid(b"l" * 16)), start_offset=100, end_offset=199)
    for name in ("text", "pull request"):
        half = [*DIALECTS["legacy"].upload(FIRST, 3), *DIALECTS[name].upload(later, 3)]
        assert [segment.start_offset for segment in built(half).segments] == [0, 100]
        cleaned = built(compacted(half))
        assert [segment.start_offset for segment in cleaned.segments] == ([] if name == "text" else [100])
        assert cleaned.orphan_updates == (name == "text")
        # The base was written before the migration, the end of the copy after it.
        split = [DIALECTS["legacy"].base(FIRST, 3), DIALECTS[name].update(FIRST, FINISHED, 3)]
        assert built(split).upload_epochs == (3,)
        assert (built(compacted(split)).segments, built(compacted(split)).orphan_updates) == ((), 1)


def test_the_uploaders_epoch_decides_only_between_uploads_that_end_together() -> None:
    dialect = DIALECTS["pull request"]
    longer = replace(another_upload(FIRST, 1), end_offset=150)
    assert in_order_of_choice(built([*dialect.upload(longer, 3), *dialect.upload(FIRST, 9)])) == ("1", "first")
    written_later = replace(another_upload(FIRST, 1), segment_leader_epochs=(LeaderEpoch(2, 0),))
    assert in_order_of_choice(built([*dialect.upload(written_later, 3), *dialect.upload(FIRST, 9)])) == ("1", "first")
    same = another_upload(FIRST, 1)
    assert in_order_of_choice(built([*dialect.upload(same, 3), *dialect.upload(FIRST, 3)])) == ("first", "1")
    unknown = [*DIALECTS["legacy"].upload(same, 0), *dialect.upload(FIRST, 0), *DIALECTS["legacy"].upload(same, 0)]
    assert in_order_of_choice(built(unknown)) == ("first", "1")


def test_the_epoch_of_a_deletion_is_not_that_of_an_upload() -> None:
    dialect = DIALECTS["pull request"]
    timeline = built([*dialect.upload(FIRST, 3), dialect.update(FIRST, FINISHED, 4)])
    assert timeline.upload_epochs == (4,), "a repeated record may come from the next leader"
    late = SegmentUpdateRecord(FIRST.segment_id, 1, 1, None, FINISHED)
    assert built([*dialect.upload(FIRST, 3), Event(None, encode_metadata_record(late))]).upload_epochs == (3,)


def test_parts_of_a_timeline_keep_their_epochs() -> None:
    dialect = DIALECTS["pull request"]
    later = replace(FIRST, segment_id=replace(FIRST.segment_id, id=Uuid(b"l" * 16)), start_offset=100, end_offset=199)
    timeline = built([*dialect.upload(FIRST, 3), *dialect.upload(later, 4)])
    assert timeline.upload_epochs == (3, 4)
    assert timeline.within(150, 150).upload_epochs == (4,)
    assert timeline.without([FIRST.segment_id]) == timeline.within(150, 150)
    assert built(DIALECTS["legacy"].upload(FIRST, 3)).within(0, 9).upload_epochs == ()


def test_an_unfinished_upload_keeps_its_epoch_in_a_saved_replay() -> None:
    dialect = DIALECTS["pull request"]
    first, second = TimelineBuilder(), TimelineBuilder()
    base = dialect.base(FIRST, 7)
    first.apply(base.value, key=base.key, offset=0)
    second.restore(first.build(ORDERS), first.rest([ORDERS])[ORDERS])
    end = DIALECTS["legacy"].update(FIRST, FINISHED, 0)
    for builder in (first, second):
        builder.apply(end.value, offset=1)
    assert first.build(ORDERS) == second.build(ORDERS)
    assert second.build(ORDERS).upload_epochs == (7,)


def test_an_update_without_its_base_keeps_its_epoch_in_a_saved_replay() -> None:
    dialect = DIALECTS["pull request"]
    first, second = TimelineBuilder(), TimelineBuilder()
    first.apply(dialect.update(FIRST, FINISHED, 7).value, offset=0)
    second.restore(first.build(ORDERS), first.rest([ORDERS])[ORDERS])
    base = DIALECTS["legacy"].base(FIRST, 0)
    for builder in (first, second):
        builder.apply(base.value, offset=1)
    assert first.build(ORDERS) == second.build(ORDERS)
    assert second.build(ORDERS).upload_epochs == (7,)
