"""A tier that a real broker wrote, in a folder of the test, with its metadata records: to damage and to audit."""

from __future__ import annotations

import base64
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from remote_fetch.checks.audit import Audit
from remote_fetch.checks.audit_deep import DeepAudit
from remote_fetch.checks.audit_sources import AuditOptions, AuditSources
from remote_fetch.checks.deep_journal import DeepJournal
from remote_fetch.checks.findings import Finding
from remote_fetch.formats.metadata_records import MetadataRecord, SegmentMetadataRecord, SegmentUpdateRecord
from remote_fetch.locate.replay import Replay
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import (
    NO_ID,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.session.session import Session
from remote_fetch.testing.metadata_records import encode_metadata_record
from tests.golden.conftest import Tier

NOW_MS = 4_000_000_000_000


class Event(NamedTuple):
    """A record of the metadata topic."""

    value: bytes | None
    key: bytes | None
    offset: int
    source: int


@cache
def _events(tier: Tier) -> tuple[Event, ...]:
    """The records of the metadata topic of a set."""
    found: list[Event] = []
    for line in tier.lines("metadata"):
        value, key = (None if line[name] is None else base64.b64decode(line[name]) for name in ("value", "key"))
        found.append(Event(value, key, line["offset"], line["partition"]))
    return tuple(found)


@dataclass
class AuditedTier:
    """A copy of a tier and its metadata records. The topics of the set exist, and their logs start where they did."""

    tier: Tier
    folder: Path
    events: list[Event] = field(default_factory=list)
    later: list[Event] = field(default_factory=list)
    """The records of the second reading."""
    ends: dict[int, int] = field(default_factory=dict)
    """The ends of the metadata partitions that have no record at their end."""
    topic_ids: dict[str, Uuid | None] = field(default_factory=dict)
    log_starts: dict[tuple[str, int], int] = field(default_factory=dict)
    log_start: Callable[[TopicIdPartition], int | None] = lambda _: None

    @classmethod
    def of(cls, tier: Tier, folder: Path, *topics: str) -> AuditedTier:
        """A copy of the tier in `folder`, or of some topics of LocalTieredStorage as if there were no others."""
        made = cls(tier, folder)
        for name, facts in tier.facts["topics"].items():
            if name in topics or not topics:
                made.topic_ids[name] = Uuid.parse(facts["topic_id"])
        if topics:
            made._copy_some()
        else:
            shutil.copytree(tier.url, folder)
            made.events = list(_events(tier))
        made.log_starts = {(line["topic"], line["partition"]): line["earliest"] for line in tier.facts["offsets"]}
        made.log_start = lambda partition: made.log_starts.get((partition.topic, partition.partition))
        return made

    def _copy_some(self) -> None:
        """Copy the topics of `topic_ids`. Their records get other offsets: a gap would tell of lost records."""
        for partition in self.timelines:
            if self.topic_ids.get(partition.topic) == partition.topic_id:
                name = f"kafka-tiered-storage/{partition.topic_partition}-{partition.topic_id}"
                shutil.copytree(Path(self.tier.url) / name, self.folder / name)
        ids = [topic_id.raw for topic_id in self.topic_ids.values() if topic_id is not None]
        next_offsets: Counter[int] = Counter()
        for event in _events(self.tier):
            if event.value is not None and any(raw in event.value for raw in ids):
                self.events.append(event._replace(offset=next_offsets[event.source]))
                next_offsets[event.source] += 1

    def audit(self, *, topic: str | None = None, is_deep: bool = False, stale_before_ms: int = NOW_MS) -> list[Finding]:
        """The findings."""
        return self.audited(topic=topic, is_deep=is_deep, stale_before_ms=stale_before_ms)[0]

    def audited(
        self, *, topic: str | None = None, is_deep: bool = False, stale_before_ms: int = NOW_MS
    ) -> tuple[list[Finding], Audit]:
        """The findings, and the audit that made them."""
        config = {**self.tier.config, "remote.storage.url": str(self.folder), "remote.locator": "listing"}
        with Session.open(config) as session:
            audit = Audit(self.sources(session), AuditOptions(topic, stale_before_ms, is_deep))
            return list(audit.findings()), audit

    def sources(self, session: Session, journal: DeepJournal | None = None) -> AuditSources:
        """The storage of a session, and everything else from here."""
        return AuditSources(
            session.inventory(),
            self._open_records,
            lambda name: self.topic_ids.get(name, NO_ID),
            self.log_start,
            DeepAudit(session.storage, session.codecs, journal).findings,
            session.stored_size,
        )

    def _open_records(self, new_replay: Callable[[Uuid | None], Replay]) -> Callable[[], object]:
        replay, readings = new_replay(None), [self.events, self.later]

        def read() -> None:
            for event in readings.pop(0) if readings else ():
                replay.builder.apply(event.value, key=event.key, offset=event.offset, source=event.source)
            replay.read_to.update(self.ends)

        return read

    # --------------------------------------------------------------------------------------------------------- damages

    @property
    def timelines(self) -> Mapping[TopicIdPartition, Timeline]:
        """The timelines of the records of the set, also of topics that were not copied."""
        return self.tier.timelines

    def segment(self, topic: str, at: int, partition: int = 0) -> RemoteLogSegmentMetadata:
        """A finished segment of a topic that exists."""
        topic_id = self.topic_ids[topic]
        assert topic_id is not None
        return self.timelines[TopicIdPartition(topic_id, topic, partition)].segments[at]

    def file(self, segment: RemoteLogSegmentMetadata, suffix: str) -> Path:
        """One of its files, in the layout of LocalTieredStorage."""
        (found,) = self.folder.rglob(f"{segment.start_offset:020d}-{segment.segment_id.id}{suffix}")
        return found

    def add(self, segment: RemoteLogSegmentMetadata) -> None:
        """Another record that describes a segment, in its state."""
        value = encode_metadata_record(SegmentMetadataRecord(segment))
        self.events.append(Event(value, None, 10**6 + len(self.events), 0))

    def follow(self, segment: RemoteLogSegmentMetadata, record: MetadataRecord) -> None:
        """Another record behind all others of the metadata partition that has the segment's."""
        source = self.source_of(segment)
        offset = 1 + max(event.offset for event in self.events if event.source == source)
        self.events.append(Event(encode_metadata_record(record), None, offset, source))

    def source_of(self, segment: RemoteLogSegmentMetadata) -> int:
        """The metadata partition that has the records of a segment."""
        raw = segment.segment_id.id.raw
        return next(event.source for event in self.events if event.value is not None and raw in event.value)

    def change(self, segment: RemoteLogSegmentMetadata, **fields: object) -> RemoteLogSegmentMetadata:
        """A record that says something else of a finished segment."""
        changed = replace(segment, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED, **fields)  # type: ignore[arg-type]
        self.add(changed)
        return changed

    def delete_topic(self, topic: str) -> None:
        """Another topic has the name now, and a broker has begun to delete the segments of this one."""
        topic_id = self.topic_ids[topic]
        self.topic_ids[topic] = Uuid(b"made once again.")
        for partition, timeline in self.timelines.items():
            for segment in timeline.segments if partition.topic_id == topic_id else ():
                state, custom = RemoteLogSegmentState.DELETE_SEGMENT_STARTED, segment.custom_metadata
                self.follow(segment, SegmentUpdateRecord(segment.segment_id, 1, NOW_MS, custom, state))

    def drop(self, segment: RemoteLogSegmentMetadata) -> None:
        """Remove all records of a segment."""
        raw = segment.segment_id.id.raw
        self.events = [event for event in self.events if event.value is None or raw not in event.value]
