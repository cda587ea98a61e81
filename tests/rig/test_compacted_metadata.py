"""KIP-1266 on a real broker: a topic with keys has the metadata of a real tier, and a real cleaner compacts it.

Rules of the file:

- The broker keeps its own metadata topic. Its records are copied with keys to another topic, which the reader gets by
  `remote.locator.topic`.
- `tests/locate/test_timeline_builder.py` has the outcome of each cell. These tests check that the right records come,
  from the store, or with a notice through the broker.
- A test sees in the topic that the cleaner has run: records are gone, then tombstones are gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from remote_fetch import RemoteConsumer
from remote_fetch.cli import main
from remote_fetch.errors import ErrorKind
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.timeline_builder import TimelineBuilder
from remote_fetch.model import Buffer, RemoteLogSegmentMetadata
from remote_fetch.session.session import Session
from remote_fetch.spark import plan
from tests.locate.keyed_topic import DIALECTS, SCENARIOS, Dialect, Event, compacted
from tests.rig.faults import new_leader_epoch, tier_folder
from tests.rig.rig import Rig, single
from tests.rig.test_read import ISOLATIONS, config_of, from_store
from tests.rig.topics import (
    QUIET,
    OracleRecord,
    admin,
    broker_records,
    create_topic,
    delete_records,
    oracle_record,
    produce,
    set_config,
    wait_tiered,
)

RECORDS = 60
FILLER = b"filler"
"""The key of a record without a value. It closes a segment, so that the cleaner may clean the records before it."""
_TIMEOUT_S = 150


@dataclass(frozen=True)
class Tier:
    """A topic for each scenario, and one for a half-finished migration (0), with their segments in the real tier."""

    rig: Rig
    topics: Mapping[int, str]
    segments: Mapping[int, tuple[RemoteLogSegmentMetadata, ...]]

    def events(self, dialect: Dialect) -> list[Event]:
        """The metadata of all topics in a dialect, each topic's first segment by its scenario."""
        legacy = DIALECTS["legacy"]
        first, *others = self.segments[0]
        events = [*legacy.upload(first, 3)]
        for segment in others:
            events += dialect.upload(segment, 3)
        for number, scenario in SCENARIOS.items():
            first, *others = self.segments[number]
            events += scenario(dialect, first)
            for segment in [] if number == 5 else others:
                events += dialect.upload(segment, 3)
        return events


@pytest.fixture(scope="module")
def tier(needs_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tier]:
    """A broker whose cleaner runs twice a second, and tiered topics."""
    properties = {"log.cleaner.backoff.ms": "200", "log.cleaner.threads": "1"}
    with single(tmp_path_factory.mktemp("compacted"), properties=properties) as rig:
        topics = {number: f"scenario-{number}" for number in (0, *SCENARIOS)}
        for topic in topics.values():
            create_topic(rig, topic)
        for topic in topics.values():
            produce(rig, topic, RECORDS)
        for topic in topics.values():
            wait_tiered(rig, topic)
        segments = {number: _segments(rig, topic) for number, topic in topics.items()}
        assert all(len(found) > 1 for found in segments.values())
        # Scenario 4 is real: its first segment is gone from the tier and from the log.
        delete_records(rig, topics[4], 0, segments[4][0].end_offset + 1)
        folder, gone = tier_folder(rig, topics[4], 0), f"*{segments[4][0].segment_id.id}*"
        rig.until("the segment's end", lambda: not list(folder.glob(gone)))
        yield Tier(rig, topics, segments)


def _segments(rig: Rig, topic: str) -> tuple[RemoteLogSegmentMetadata, ...]:
    """The segments of a topic by the broker's own metadata topic."""
    with Session.open(config_of(rig)) as session:
        (partition,) = session.locator.partitions(topic)
        return session.locator.timeline(partition).segments


# -------------------------------------------------------------------------------------------------- the metadata topic


def write(rig: Rig, topic: str, events: Iterable[Event]) -> None:
    """Append records, each in its own batch, as brokers do."""
    producer = Producer({"bootstrap.servers": rig.bootstrap, "batch.num.messages": 1, **QUIET})
    for event in events:
        producer.produce(topic, event.value, event.key, partition=0)
    assert producer.flush(_TIMEOUT_S) == 0


def read(rig: Rig, topic: str) -> dict[int, Event]:
    """All records of the topic that are left, by their offsets, without fillers."""
    records = broker_records(rig, topic, 0, "read_uncommitted")
    assert all(record.value is None or not record.value.startswith(b"%d bytes") for record in records)
    return {record.offset: Event(record.key, record.value) for record in records if record.key != FILLER}


def make_keyed_topic(rig: Rig, topic: str, events: Iterable[Event]) -> None:
    """Make the topic without compaction, because a compacted topic accepts no record without a key."""
    settings = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.ms": "100", "file.delete.delay.ms": "100"}
    client = admin(rig)
    client.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(_TIMEOUT_S)
    rig.until(f"topic {topic}", lambda: topic in client.list_topics(timeout=_TIMEOUT_S).topics)
    write(rig, topic, events)


def compact(rig: Rig, topic: str, expected: Iterable[Event], **config: object) -> None:
    """Let the cleaner run until exactly these records are left."""
    set_config(rig, topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.001", **config)
    wanted = sorted(expected, key=repr)

    def is_clean() -> bool:
        time.sleep(0.15)  # so that the next record begins another segment
        write(rig, topic, [Event(FILLER, None)])
        return sorted(read(rig, topic).values(), key=repr) == wanted

    rig.until(f"{topic} compacted", is_clean)


# -------------------------------------------------------------------------------------------------------- its reader


def timelines(tier: Tier, keyed: str, **more: object) -> dict[int, Timeline]:
    """The timeline of each topic by the keyed topic."""
    with Session.open(config_of(tier.rig, remote_locator_topic=keyed, **more)) as session:
        found = {}
        for number, topic in tier.topics.items():
            (partition,) = session.locator.partitions(topic)
            found[number] = session.locator.timeline(partition)
        assert session.configured_locator.unlocated is None
        return found


Located = tuple[tuple[RemoteLogSegmentMetadata, ...], int]
"""The readable segments, and the number of updates without a base."""


def expected_timelines(tier: Tier, events: Iterable[Event]) -> dict[int, Located]:
    builder = TimelineBuilder()
    for offset, event in enumerate(events):
        builder.apply(event.value, key=event.key, offset=offset)
    built = {number: builder.build(found[0].topic_id_partition) for number, found in tier.segments.items()}
    return {number: (timeline.segments, timeline.orphan_updates) for number, timeline in built.items()}


def assert_outcome(tier: Tier, keyed: str, events: Iterable[Event], cache: Path) -> None:
    """Every topic's records are the broker's. Those of located segments come from the store.

    The timelines are also those of a reader that goes on from `cache`, as far as it may.
    """
    events = list(events)
    located = timelines(tier, keyed)
    outcome = {number: (found.segments, found.orphan_updates) for number, found in located.items()}
    assert outcome == expected_timelines(tier, events)
    resumed = timelines(tier, keyed, remote_locator_cache=cache)
    assert {number: parts_of(found) for number, found in resumed.items()} == {
        number: parts_of(found) for number, found in located.items()
    }
    for number, topic in tier.topics.items():
        for isolation in ISOLATIONS:
            expected = broker_records(tier.rig, topic, 0, isolation)
            found, report = from_store(config_of(tier.rig, remote_locator_topic=keyed), topic, isolation)
            assert found == expected
            assert expected
            assert report.orphan_updates == located[number].orphan_updates
            if is_contradicted(located[number]) and isolation == "read_committed":
                assert report.fallbacks == {ErrorKind.CORRUPT: 1}
                continue
            # No upload without an object was chosen, and no deleted segment.
            assert report.fallbacks == {}
            covered = {
                offset
                for segment in located[number].segments
                for offset in range(segment.start_offset, segment.end_offset + 1)
            }
            assert report.broker_records == sum(record.offset not in covered for record in expected)


def parts_of(timeline: Timeline) -> tuple[object, ...]:
    """The timeline without the place of the last record, because a tombstone may be dropped after its segment."""
    return timeline.segments, timeline.upload_epochs, timeline.orphan_updates, timeline.unfinished


def is_contradicted(timeline: Timeline) -> bool:
    """Whether some segments have TxnIndexEmpty and later segments do not, although none has a transaction index.

    KIP-1266's text gives the number of that field to the leader's epoch, so that its records cannot have the field.
    After a half-finished migration they seem to promise an index. A reader of committed records does not find it, and
    falls back to the broker.
    """
    flags = [segment.txn_index_empty for segment in timeline.segments]
    return flags != sorted(flags)


@pytest.mark.scheduled
@pytest.mark.parametrize("name", ["text", "pull request"])
def test_the_scenarios_through_a_compacted_topic(tier: Tier, name: str, tmp_path: Path) -> None:
    rig, keyed, dialect = tier.rig, f"keyed-{name.replace(' ', '-')}", DIALECTS[name]
    events = tier.events(dialect)
    make_keyed_topic(rig, keyed, events)
    assert list(read(rig, keyed).values()) == events
    assert_outcome(tier, keyed, events, tmp_path / "old")

    left = compacted(events)
    assert len(left) < len(events)
    compact(rig, keyed, left, delete_retention_ms="3600000")
    kept = read(rig, keyed)
    assert any(event.value is None for event in kept.values()), "tombstones are still there"
    assert len(kept) < max(kept) + 1 - min(kept), "offsets are missing between the records"
    assert_outcome(tier, keyed, left, tmp_path / "new")

    # The cleaner has written the time of its removal into each tombstone. New tombstones replace these.
    set_config(rig, keyed, delete_retention_ms="1")
    write(rig, keyed, [event for event in left if event.value is None])
    last = [event for event in left if event.value is not None]
    compact(rig, keyed, last)
    assert_outcome(tier, keyed, last, tmp_path / "old")


@pytest.mark.scheduled
def test_every_face_goes_on_from_the_cache(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Every face goes on from the cache of the broker's own metadata topic, also after a change of its leader."""
    rig, topic = tier.rig, tier.topics[1]
    config = config_of(rig, remote_locator_cache=tmp_path / "cache")
    expected = broker_records(rig, topic, 0, "read_committed")
    applied: list[int] = []
    apply = TimelineBuilder.apply

    def counted(builder: TimelineBuilder, value: Buffer | None, *, offset: int, **more: Any) -> None:
        applied.append(offset)
        apply(builder, value, offset=offset, **more)

    monkeypatch.setattr(TimelineBuilder, "apply", counted)

    def consumed() -> list[OracleRecord]:
        mine = {"group.id": "cached", "auto.offset.reset": "earliest", "fetch.remote.enabled": "true"}
        found: list[OracleRecord] = []
        with RemoteConsumer({**config, **mine}) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            rig.until("the records", lambda: _poll(consumer, found) or len(found) == len(expected))
        return found

    def printed() -> int:
        place = ["-b", rig.bootstrap, "--url", str(rig.remote), "-X", f"remote.locator.cache={tmp_path / 'cache'}"]
        assert main(["cat", *place, "-t", topic, "-X", "log_level=0", "-q", "-e", "-o", "beginning", "-f", "%o\n"]) == 0
        return len(capfdbinary.readouterr().out.split())

    assert from_store(config, topic, "read_committed")[0] == expected
    assert applied
    read_to = max(applied)
    (folder,) = (tmp_path / "cache").iterdir()
    assert list(folder.iterdir())
    applied.clear()
    assert from_store(config, topic, "read_committed")[0] == expected
    assert consumed() == expected
    assert printed() == len(expected)
    options = {name: value for name, value in config.items() if name not in ("bootstrap.servers", "log_level")}
    assert plan({**options, "kafka.bootstrap.servers": rig.bootstrap, "subscribe": topic}).tasks
    assert applied == [], "nothing was read twice"

    new_leader_epoch(rig, topic)
    produce(rig, topic, RECORDS, seed=1)
    wait_tiered(rig, topic)
    expected = broker_records(rig, topic, 0, "read_committed")
    found, report = from_store(config, topic, "read_committed")
    assert found == expected
    assert (report.fallbacks, report.broker_records) == ({}, 0)
    assert applied
    assert min(applied) > read_to, "only the new records were read"
    for file in folder.iterdir():
        file.write_bytes(b"damaged")
    found, report = from_store(config, topic, "read_committed")
    assert found == expected
    assert any("is not used and will be replaced" in notice for notice in report.notices)
    applied.clear()
    assert from_store(config, topic, "read_committed")[0] == expected
    assert applied == [], "the damaged files were replaced"


def _poll(consumer: RemoteConsumer, found: list[OracleRecord]) -> bool:
    message = consumer.poll(1.0)
    if message is not None and message.error() is None:
        found.append(oracle_record(message))
    return False
