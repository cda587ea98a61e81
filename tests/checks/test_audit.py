"""The audit of a tier that a real broker wrote: nothing on a sound one, and every planted defect on a damaged one."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from remote_fetch.checks import audit_book
from remote_fetch.checks.audit_book import AuditBook
from remote_fetch.checks.audit_deep import DeepAudit
from remote_fetch.checks.audit_rows import TopicTotals
from remote_fetch.checks.audit_rules import is_one_word, judge_order, start_of
from remote_fetch.checks.audit_segment import faults_of, life_of
from remote_fetch.checks.findings import SEVERITIES, Finding, FindingKind, Severity
from remote_fetch.errors import ConfigError, CorruptSegment, UnknownTopic
from remote_fetch.fetch.inventory import ExpectedObject
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.formats.metadata_records import (
    PartitionDeleteRecord,
    RemotePartitionDeleteState,
    SegmentMetadataRecord,
    SegmentSnapshotRecord,
    SegmentUpdateRecord,
    parse_metadata_record,
)
from remote_fetch.formats.tagged_fields import encode_compact_string
from remote_fetch.model import (
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.testing.metadata_records import encode_metadata_record, encode_tagged_fields
from tests.checks.audited import NOW_MS, AuditedTier, Event
from tests.golden.conftest import AIVEN_SETS, SETS, AivenTier, Tier
from tests.scan.bucket import plain_log
from tools.fuzz_batches import reseal_log

KIND = FindingKind
NEWEST = Tier(SETS[0])
STATES = RemoteLogSegmentState
TOPIC = "tx"
"""Five segments in partition 0, two of them with aborted transactions."""
SOME = (TOPIC, "codecs", "delete-records", "retained")
"""With the last two, logs that begin later than at 0: one in a segment, one after deleted segments.

A test of one defect audits nine partitions. All 23 would take three times as long.
"""


@pytest.fixture
def sound(tmp_path: Path) -> AuditedTier:
    """Some topics of a tier of Kafka 4.1, without a defect."""
    return AuditedTier.of(NEWEST, tmp_path / "tier", *SOME)


@pytest.mark.parametrize("tier", [*map(Tier, SETS), *map(AivenTier, AIVEN_SETS)], ids=lambda tier: tier.name)
def test_nothing_is_wrong_with_what_brokers_wrote(tier: Tier, tmp_path: Path) -> None:
    """But the uploads of the topic `retried`, which failed, and whose end no broker wrote."""
    found, audit = AuditedTier.of(tier, tmp_path / "tier").audited(is_deep=True)
    left_open = {
        (finding.kind, finding.segment_id and finding.segment_id.topic_id_partition.topic) for finding in found
    }
    assert left_open <= {(KIND.STALE_COPY, "retried"), (KIND.STALE_DELETE, "retried")}
    segments = [timeline.segments for timeline in tier.timelines.values()]
    assert sum(each.segments for each in audit.totals) == sum(map(len, segments))
    assert sum(each.segment_bytes for each in audit.totals) == sum(
        segment.segment_size_in_bytes for found in segments for segment in found
    )


def test_the_totals_of_a_topic(sound: AuditedTier) -> None:
    _, audit = sound.audited(topic=TOPIC)
    topic_id = sound.topic_ids[TOPIC]
    assert topic_id is not None
    segments = [one for number in (0, 1) for one in sound.timelines[TopicIdPartition(topic_id, TOPIC, number)].segments]
    files = [path for path in sound.folder.rglob("*.*") if path.parent.name.startswith(f"{TOPIC}-0-{topic_id}")]
    files += [path for path in sound.folder.rglob("*.*") if path.parent.name.startswith(f"{TOPIC}-1-{topic_id}")]
    times = [segment.max_timestamp_ms for segment in segments]
    size_bytes = sum(segment.segment_size_in_bytes for segment in segments)
    sizes = [path.stat().st_size for path in files]
    assert audit.totals == (
        TopicTotals(TOPIC, topic_id, 2, len(segments), size_bytes, len(files), sum(sizes), min(times), max(times)),
    )


# ------------------------------------------------------------------------------------------------------ planted defects


@dataclass(frozen=True)
class Planted:
    """A defect: `plant` damages a tier and names the segment of the finding, None: it has none."""

    kind: FindingKind
    plant: Callable[[AuditedTier], RemoteLogSegmentMetadata | None]
    is_deep: bool = False


Plant = Callable[[AuditedTier], RemoteLogSegmentMetadata]


def _lost(suffix: str, at: int = 2) -> Plant:
    def plant(tier: AuditedTier) -> RemoteLogSegmentMetadata:
        segment = tier.segment(TOPIC, at)
        tier.file(segment, suffix).unlink()
        return segment

    return plant


def _resized(suffix: str, change: int) -> Plant:
    def plant(tier: AuditedTier) -> RemoteLogSegmentMetadata:
        segment = tier.segment(TOPIC, 2)
        path = tier.file(segment, suffix)
        path.write_bytes(path.read_bytes()[:change] if change < 0 else path.read_bytes() + bytes(change))
        return segment

    return plant


def _rewritten(suffix: str, change: Callable[[bytes], bytes], at: int = 2) -> Plant:
    def plant(tier: AuditedTier) -> RemoteLogSegmentMetadata:
        segment = tier.segment(TOPIC, at)
        path = tier.file(segment, suffix)
        changed = change(path.read_bytes())
        assert changed != path.read_bytes()
        path.write_bytes(changed)
        return segment

    return plant


def _told(**fields: object) -> Plant:
    """The metadata topic says something else of a segment."""
    return lambda tier: tier.change(tier.segment(TOPIC, 2), **fields)


def _in_state(state: STATES) -> Plant:
    """A segment that has no objects and has reached a state."""

    def plant(tier: AuditedTier) -> RemoteLogSegmentMetadata:
        segment = replace(_new(tier, 200, 300), state=state)
        tier.add(segment)
        return segment

    return plant


def _new(tier: AuditedTier, start: int, end: int) -> RemoteLogSegmentMetadata:
    like = tier.segment(TOPIC, 2)
    segment_id = RemoteLogSegmentId(like.topic_id_partition, Uuid(b"a new segment id"))
    epochs = (LeaderEpoch(0, start),)
    return replace(like, segment_id=segment_id, start_offset=start, end_offset=end, segment_leader_epochs=epochs)


def _orphaned_event(tier: AuditedTier) -> RemoteLogSegmentMetadata:
    segment = _new(tier, 200, 300)
    record = SegmentUpdateRecord(segment.segment_id, 1, 5, None, STATES.COPY_SEGMENT_FINISHED)
    tier.events.append(Event(encode_metadata_record(record), None, 10**6, 0))
    return segment


def _malformed_event(tier: AuditedTier) -> None:
    tier.events.append(Event(b"\x01\x00\x00nonsense", None, 77, 3))


def _overlap(tier: AuditedTier) -> RemoteLogSegmentMetadata:
    """A second upload of the middle segment, with all its files."""
    like = tier.segment(TOPIC, 2)
    again = replace(
        _new(tier, like.start_offset + 1, like.end_offset), segment_leader_epochs=like.segment_leader_epochs
    )
    for path in tier.folder.rglob(f"*-{like.segment_id.id}.*"):
        path.with_name(f"{again.start_offset:020d}-{again.segment_id.id}{path.suffix}").write_bytes(path.read_bytes())
    tier.add(again)
    return again


def _hole(tier: AuditedTier) -> RemoteLogSegmentMetadata:
    """All traces of a segment are lost."""
    lost = tier.segment(TOPIC, 2)
    tier.drop(lost)
    for path in tier.folder.rglob(f"*-{lost.segment_id.id}.*"):
        path.unlink()
    return tier.segment(TOPIC, 3)


def _hole_at_the_start(tier: AuditedTier) -> RemoteLogSegmentMetadata:
    for path in tier.folder.rglob(f"*-{tier.segment(TOPIC, 0).segment_id.id}.*"):
        path.unlink()
    tier.drop(tier.segment(TOPIC, 0))
    return tier.segment(TOPIC, 1)


def _unknown_segment(tier: AuditedTier) -> RemoteLogSegmentMetadata:
    """An object of a segment that no event names, in a folder of a topic that events name. Others have its offsets."""
    like = tier.segment(TOPIC, 2)
    segment = _new(tier, like.start_offset, like.end_offset)
    (tier.file(like, ".log").parent / f"{segment.object_stem}.log").write_bytes(b"left over")
    return segment


def _left_after_deletion(tier: AuditedTier) -> RemoteLogSegmentMetadata:
    """The first segment was deleted, and one of its files was not."""
    segment = tier.segment(TOPIC, 0)
    tier.log_starts[TOPIC, 0] = segment.end_offset + 1
    for path in tier.folder.rglob(f"*-{segment.segment_id.id}.*"):
        if path.suffix != ".index":
            path.unlink()
    tier.follow(segment, SegmentUpdateRecord(segment.segment_id, 1, NOW_MS, None, STATES.DELETE_SEGMENT_FINISHED))
    return segment


def _unknown_topic(tier: AuditedTier) -> RemoteLogSegmentMetadata:
    """A file of another cluster's topic below the same root."""
    partition = TopicIdPartition(Uuid(b"another cluster."), "foreign", 0)
    segment = replace(_new(tier, 0, 9), segment_id=RemoteLogSegmentId(partition, Uuid(b"a new segment id")))
    folder = tier.folder / "kafka-tiered-storage" / f"foreign-0-{partition.topic_id}"
    folder.mkdir()
    (folder / f"{0:020d}-{segment.segment_id.id}.log").write_bytes(b"not ours")
    return segment


def _unknown_object(tier: AuditedTier) -> None:
    (tier.folder / "notes.txt").write_text("of a person", encoding="utf-8")


def _misplaced(tier: AuditedTier) -> RemoteLogSegmentMetadata:
    segment = tier.segment(TOPIC, 2)
    path = tier.file(segment, ".index")
    path.with_name(path.name.replace("0000", "0001", 1)).write_bytes(b"")
    return segment


def _aborted_unlisted(data: bytes) -> bytes:
    return data[34:]


def _moved(data: bytes, by: int) -> bytes:
    """The first transaction begins at another offset."""
    return data[:10] + struct.pack(">q", struct.unpack_from(">q", data, 10)[0] + by) + data[18:]


def _first_epoch(data: bytes) -> bytes:
    """A checkpoint whose only epoch is 7."""
    return b"0\n1\n7 0\n"


PLANTED = {
    "log lost": Planted(KIND.MISSING, _lost(".log")),
    "offset index lost": Planted(KIND.MISSING, _lost(".index")),
    "time index lost": Planted(KIND.MISSING, _lost(".timeindex")),
    "producer snapshot lost": Planted(KIND.MISSING, _lost(".snapshot")),
    "leader-epoch checkpoint lost": Planted(KIND.MISSING, _lost(".leader_epoch_checkpoint")),
    "log cut off": Planted(KIND.SHORT, _resized(".log", -100)),
    "log goes on": Planted(KIND.TOO_LONG, _resized(".log", 100)),
    "another size in the metadata": Planted(KIND.TOO_LONG, _told(segment_size_in_bytes=7)),
    "time index cut off": Planted(KIND.DAMAGED_INDEX, _resized(".timeindex", -1)),
    "offset index goes on": Planted(KIND.DAMAGED_INDEX, _resized(".index", 3)),
    "no leader epochs": Planted(KIND.WRONG_METADATA, _told(segment_leader_epochs=())),
    "leader epochs begin late": Planted(KIND.WRONG_METADATA, _told(segment_leader_epochs=(LeaderEpoch(0, 50),))),
    "hole": Planted(KIND.HOLE, _hole),
    "hole at the log start": Planted(KIND.HOLE, _hole_at_the_start),
    "overlap": Planted(KIND.OVERLAP, _overlap),
    "copy never ended": Planted(KIND.STALE_COPY, _in_state(STATES.COPY_SEGMENT_STARTED)),
    "deletion never ended": Planted(KIND.STALE_DELETE, _in_state(STATES.DELETE_SEGMENT_STARTED)),
    "event of an unknown segment": Planted(KIND.ORPHANED_EVENT, _orphaned_event),
    "event that cannot be read": Planted(KIND.MALFORMED_EVENT, _malformed_event),
    "objects of no segment": Planted(KIND.ORPHANED, _unknown_segment),
    "objects of a deleted segment": Planted(KIND.ORPHANED, _left_after_deletion),
    "objects of another cluster": Planted(KIND.UNKNOWN_TOPIC, _unknown_topic),
    "file of a person": Planted(KIND.UNKNOWN_OBJECT, _unknown_object),
    "file under another offset": Planted(KIND.UNKNOWN_OBJECT, _misplaced),
    "byte of a record changed": Planted(KIND.CORRUPT, _rewritten(".log", lambda log: log[:-1] + b"\xff"), is_deep=True),
    "record area damaged, checksum right": Planted(
        KIND.CORRUPT, _rewritten(".log", lambda log: reseal_log(log[:-1] + b"\x55")), is_deep=True
    ),
    "batch moved": Planted(
        KIND.CORRUPT, _rewritten(".log", lambda log: struct.pack(">q", 400) + log[8:]), is_deep=True
    ),
    "offset index names no batch": Planted(
        KIND.DAMAGED_INDEX, _rewritten(".index", lambda index: index[:-1] + bytes([index[-1] ^ 1])), is_deep=True
    ),
    "time index too early": Planted(
        KIND.DAMAGED_INDEX,
        _rewritten(".timeindex", lambda index: index[:-12] + struct.pack(">q", 1) + index[-4:]),
        is_deep=True,
    ),
    "aborted transaction not listed": Planted(
        KIND.DAMAGED_INDEX, _rewritten(".txnindex", _aborted_unlisted, at=1), is_deep=True
    ),
    "aborted transaction begins late": Planted(
        KIND.DAMAGED_INDEX, _rewritten(".txnindex", lambda index: _moved(index, 1), at=1), is_deep=True
    ),
    "aborted transaction begins early": Planted(
        KIND.DAMAGED_INDEX, _rewritten(".txnindex", lambda index: _moved(index, -1), at=1), is_deep=True
    ),
    "transaction index lost": Planted(
        KIND.DAMAGED_INDEX,
        _lost(".txnindex", at=1),
        is_deep=True,
    ),
    "producer snapshot damaged": Planted(
        KIND.DAMAGED_INDEX, _rewritten(".snapshot", lambda data: data[:-1] + b"\x55"), is_deep=True
    ),
    "checkpoint of other epochs": Planted(
        KIND.WRONG_METADATA, _rewritten(".leader_epoch_checkpoint", _first_epoch), is_deep=True
    ),
    "batches of another leader epoch": Planted(
        KIND.WRONG_METADATA, _told(segment_leader_epochs=(LeaderEpoch(5, 47),)), is_deep=True
    ),
    "later timestamps than the metadata says": Planted(KIND.WRONG_METADATA, _told(max_timestamp_ms=1), is_deep=True),
}


def test_a_log_that_compaction_left_empty(sound: AuditedTier) -> None:
    """A real broker uploads it (4.3.1), if the topic was compacted before it was tiered. Its indexes are empty too."""
    segment = sound.segment("codecs", 0)
    for suffix in (".log", ".index", ".timeindex"):
        sound.file(segment, suffix).write_bytes(b"")
    assert {finding.kind for finding in sound.audit(is_deep=True)} >= {KIND.SHORT}
    sound.change(segment, segment_size_in_bytes=0)
    assert sound.audit(is_deep=True) == []


def test_leader_epochs_begin_at_the_log_start(sound: AuditedTier) -> None:
    """DeleteRecords moved it into the segment before the upload: a broker cuts the epochs there (Kafka 4.3.1)."""
    segment = sound.segment(TOPIC, 2)
    partition = segment.topic_id_partition
    changed = sound.change(segment, segment_leader_epochs=(LeaderEpoch(0, segment.start_offset + 3),))
    assert [finding.kind for finding in sound.audit()] == [KIND.WRONG_METADATA], "the log starts before that"
    sound.log_starts[TOPIC, 0] = segment.start_offset + 3
    assert sound.audit(is_deep=True) == []
    assert faults_of(changed) is None
    assert faults_of(changed, {partition: segment.start_offset + 2}.get) is not None
    late = replace(changed, segment_leader_epochs=(LeaderEpoch(0, segment.end_offset + 1),))
    assert faults_of(late) is not None


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found_and_nothing_else(sound: AuditedTier, name: str) -> None:
    planted = PLANTED[name]
    segment = planted.plant(sound)
    found = sound.audit(is_deep=planted.is_deep)
    segment_id = None if segment is None else segment.segment_id
    assert {(finding.kind, finding.segment_id) for finding in found} == {(planted.kind, segment_id)}
    assert all(finding.text for finding in found)


@pytest.mark.parametrize(("log_start", "told"), [(None, "20 to 39"), (30, "30 to 39"), (40, None)])
def test_a_hole_counts_from_the_log_start_on(log_start: int | None, told: str | None) -> None:
    first, _, third = (segment.metadata for segment in plain_log().segments())
    found = [finding.text for finding in judge_order([first, third], lambda partition: log_start)]
    assert found == ([] if told is None else [f"no segment has the offsets {told} before it"])


def test_a_lost_log_is_one_finding_of_a_deep_audit(sound: AuditedTier) -> None:
    _lost(".log")(sound)
    assert [finding.kind for finding in sound.audit(is_deep=True)] == [KIND.MISSING]


def test_a_log_that_is_lost_after_another_object(sound: AuditedTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing tells of the index alone: the log went while the audit read for hours."""
    index = _lost(".index")(sound)
    assert index is not None
    read = DeepAudit.findings

    def later(self: DeepAudit, segment: RemoteLogSegmentMetadata) -> Iterator[Finding]:
        if segment.segment_id == index.segment_id:
            sound.file(segment, ".log").unlink()
        return read(self, segment)

    monkeypatch.setattr(DeepAudit, "findings", later)
    found = sound.audit(is_deep=True)
    assert {(finding.kind, finding.segment_id) for finding in found} == {(KIND.MISSING, index.segment_id)}
    texts = [finding.text.partition(":")[0] for finding in found]
    assert texts == ["the object of offset is not in the storage", "its log"]


def test_objects_that_together_have_another_size(tmp_path: Path) -> None:
    """Aiven's plug-in writes their sum into custom metadata (KIP-917). No other field tells the size of an object."""
    tier = AuditedTier.of(AivenTier("aiven-zstd"), tmp_path / "tier")
    segment = tier.segment(TOPIC, 2)
    path = tier.file(segment, ".indexes")
    size_bytes = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    (cut,) = (finding for finding in tier.audit() if finding.segment_id == segment.segment_id)
    assert cut.kind is KIND.SHORT
    path.write_bytes(bytes(size_bytes + 1))
    (longer,) = (finding for finding in tier.audit() if finding.segment_id == segment.segment_id)
    assert longer.kind is KIND.TOO_LONG
    path.unlink()
    (lost,) = (finding for finding in tier.audit() if finding.segment_id == segment.segment_id)
    assert lost.kind is KIND.MISSING


def test_a_file_whose_name_is_not_utf_8(sound: AuditedTier) -> None:
    """It is found. Its name is not one of a list."""
    stray = sound.file(_unknown_segment(sound), ".log")
    folder = os.path.join(os.fsencode(sound.folder), b"\xff", os.fsencode(stray.parent.name))
    os.makedirs(folder)
    os.rename(stray, os.path.join(folder, os.fsencode(stray.name)))
    (finding,) = sound.audit()
    assert (finding.kind, finding.may_delete) == (KIND.ORPHANED, False)
    assert finding.object_name is not None
    assert os.fsencode(finding.object_name).startswith(b"\xff/")


def test_sizes_that_no_object_has(tmp_path: Path) -> None:
    tier = AuditedTier.of(AivenTier("aiven-zstd"), tmp_path / "tier")
    with AuditBook() as book, pytest.raises(CorruptSegment, match="lists an object of 9223372036854775808 bytes"):
        book.add_object(ObjectInfo("a", 2**63), None)
    segment = tier.segment(TOPIC, 2)
    with AuditBook() as book:
        number = book.add_segment(life_of([encode_metadata_record(SegmentMetadataRecord(segment))]), [], 1)
        book.expect(number, [ExpectedObject(name, ("log",)) for name in "ab"], is_finished=True)
        for name in "ab":
            book.add_object(ObjectInfo(name, 2**63 - 1), None)
        assert [each.object_bytes for each in book.totals()] == [2**63 - 1]
        assert [found for _, _, found in book.wrong_sums()] == [2**63 - 1]


def test_no_room_for_the_temporary_database(sound: AuditedTier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_book, "_PRAGMAS", ("max_page_count=24",))
    with pytest.raises(ConfigError, match="temporary database of the audit: database or disk is full") as caught:
        sound.audit()
    assert "TMPDIR" in str(caught.value.hint)


def test_the_start_offset_in_the_name_of_an_object(sound: AuditedTier) -> None:
    segment = sound.segment(TOPIC, 2)
    stem, segment_id = segment.object_stem, segment.segment_id
    assert start_of(f"tier/{TOPIC}-0/{stem}.log", segment_id) == start_of(stem, segment_id) == segment.start_offset
    for name in (stem[1:], stem.replace("0", "x", 1), f"{segment_id.id}.log", f"{TOPIC}/{segment_id.id}", stem[:-1]):
        assert start_of(name, segment_id) is None


def test_all_defects_at_once(sound: AuditedTier) -> None:
    """Those of different segments do not hide each other."""
    names = ("log lost", "hole at the log start", "copy never ended", "objects of another cluster", "file of a person")
    for name in names:
        PLANTED[name].plant(sound)
    assert {finding.kind for finding in sound.audit()} == {PLANTED[name].kind for name in names}


def test_a_deleted_topic(sound: AuditedTier) -> None:
    """Its segments are one finding each. Each of its objects may be deleted, because a broker deletes it too."""
    sound.delete_topic(TOPIC)
    found = sound.audit()
    assert {finding.kind for finding in found} == {KIND.DELETED_TOPIC}
    names = {finding.object_name for finding in found if finding.may_delete}
    files = [path for path in sound.folder.rglob("*.*") if path.parent.name.startswith((f"{TOPIC}-0", f"{TOPIC}-1"))]
    assert names == {str(path.relative_to(sound.folder)) for path in files}
    assert {finding.object_name for finding in found if not finding.may_delete} == {None}


def test_a_topic_of_another_cluster_that_shares_the_metadata_topic(sound: AuditedTier) -> None:
    """Nothing tells it from a deleted topic of which no broker has begun to delete the segments."""
    sound.topic_ids[TOPIC] = Uuid(b"of this cluster.")
    found = sound.audit()
    assert {(finding.kind, finding.may_delete) for finding in found} == {(KIND.DELETED_TOPIC, False)}
    assert all("another cluster may have" in finding.text for finding in found if finding.object_name is not None)


def test_a_deleted_topic_whose_metadata_names_an_object_of_another(tmp_path: Path) -> None:
    """Custom metadata of Aiven's plug-in tells the name of an object. It may lie."""
    tier = AuditedTier.of(AivenTier("aiven-zstd"), tmp_path / "tier")
    live, deleted = tier.segment(TOPIC, 2), tier.segment("codecs", 0)
    key = str(tier.file(live, ".log").relative_to(tier.folder)).removesuffix(".log")
    names = {1: encode_compact_string(""), 2: encode_compact_string(key)}
    tier.change(deleted, custom_metadata=encode_tagged_fields(names))
    tier.topic_ids["codecs"] = Uuid(b"made once again.")
    of_live = [finding for finding in tier.audit() if finding.object_name is not None and key in finding.object_name]
    assert len(of_live) == 3
    assert {(finding.kind, finding.may_delete) for finding in of_live} == {(KIND.DELETED_TOPIC, False)}
    assert all("its name is none of the segment" in finding.text for finding in of_live)


@pytest.mark.parametrize("name", ["aiven-plain", "aiven-zstd"])
def test_metadata_that_names_the_objects_of_another_segment(tmp_path: Path, name: str) -> None:
    """That one is sound. The objects count once, and as those that they are."""
    tier = AuditedTier.of(AivenTier(name), tmp_path / "tier")
    owner, other = tier.segment(TOPIC, 2), tier.segment(TOPIC, 3)
    _, before = tier.audited(topic=TOPIC)
    own_bytes = sum(tier.file(other, suffix).stat().st_size for suffix in (".log", ".indexes", ".rsm-manifest"))
    key = str(tier.file(owner, ".log").relative_to(tier.folder)).removesuffix(".log")
    tier.change(
        other, custom_metadata=encode_tagged_fields({1: encode_compact_string(""), 2: encode_compact_string(key)})
    )
    found, after = tier.audited(topic=TOPIC)
    errors = [(each.kind, each.segment_id, each.object_name) for each in found if each.severity is Severity.ERROR]
    assert errors == [(KIND.WRONG_METADATA, other.segment_id, f"{key}.indexes")]
    (was,), (now,) = before.totals, after.totals
    assert (now.objects, now.object_bytes) == (was.objects - 3, was.object_bytes - own_bytes)


def test_only_what_no_broker_needs_may_be_deleted(sound: AuditedTier) -> None:
    for name in ("objects of no segment", "objects of another cluster", "file of a person", "log lost"):
        PLANTED[name].plant(sound)
    deletable = [finding.kind for finding in sound.audit() if finding.may_delete]
    assert deletable == [KIND.ORPHANED]


def _snapshot(value: bytes, _: bytes) -> bytes:
    """The segment of a record, in the form of a broker's own file."""
    record = parse_metadata_record(value)
    segment = record.metadata if isinstance(record, SegmentMetadataRecord) else None
    return value if segment is None else encode_metadata_record(
        SegmentSnapshotRecord(
            segment.segment_id.id, segment.start_offset, segment.end_offset, 1, 1, 1, segment.segment_leader_epochs, 1,
            None, STATES.COPY_SEGMENT_FINISHED,
        )
    )  # fmt: skip


@pytest.mark.parametrize("between", ["\n", "\r", "\x85", "\u2028", " ", "\t", "'", '"'], ids=ascii)
def test_a_name_that_a_list_would_split_may_not_be_deleted(sound: AuditedTier, between: str) -> None:
    """Else a user who may write one object would choose which objects the reader of the list deletes."""
    segment = _unknown_segment(sound)
    live = sound.file(sound.segment(TOPIC, 2), ".log").relative_to(sound.folder)
    stray = sound.file(segment, ".log")
    folder = sound.folder / f"x{between}{live}{between}y" / stray.parent.name
    folder.mkdir(parents=True)
    stray.rename(folder / stray.name)
    (finding,) = sound.audit()
    assert (finding.kind, finding.may_delete) == (KIND.ORPHANED, False)
    assert "a list would split its name" in finding.text
    assert not is_one_word("a\\b")
    assert is_one_word("kafka/tiered=ä/a-0-b/1.log")


UNKNOWN_FORMS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "a frame of another version": lambda value, _: b"\x02" + value[1:],
    "an api key of another release": lambda value, _: value[:1] + b"\x04" + value[2:],
    "a state of another release": lambda value, _: value[:-2] + b"\x09" + value[-1:],
    "cut short": lambda value, _: value[:-3],
    "a version with another field at the segment's id": lambda value, segment: (
        value[:2] + b"\x01" + value[3:].replace(segment, b"a field of bytes")
    ),
    "a snapshot in the topic": _snapshot,
}


@pytest.mark.parametrize("form", UNKNOWN_FORMS)
def test_records_of_a_form_that_is_not_known_may_be_about_any_segment(sound: AuditedTier, form: str) -> None:
    """Brokers of another release may read what this one does not. The objects of a deleted topic are another thing."""
    live = sound.segment(TOPIC, 2)
    _left_after_deletion(sound)
    _unknown_segment(sound)
    assert any(finding.may_delete for finding in sound.audit())
    raw, change = live.segment_id.id.raw, UNKNOWN_FORMS[form]
    sound.events = [
        event if event.value is None or raw not in event.value else event._replace(value=change(event.value, raw))
        for event in sound.events
    ]
    found = sound.audit()
    assert {KIND.ORPHANED} <= {finding.kind for finding in found}
    assert [finding for finding in found if finding.may_delete] == []
    assert all("this release does not know" in each.text for each in found if each.kind is KIND.ORPHANED)
    sound.delete_topic("codecs")
    assert {finding.kind for finding in sound.audit() if finding.may_delete} == {KIND.DELETED_TOPIC}


@pytest.mark.parametrize("name", [NEWEST.name, "aiven-plain"])
def test_a_backup_below_the_root(tmp_path: Path, name: str) -> None:
    """It keeps segments that the brokers have deleted. Their objects in the brokers' own folder are left over."""
    tier = AuditedTier.of(NEWEST if name == NEWEST.name else AivenTier(name), tmp_path / "tier")
    segment = tier.segment(TOPIC, 0)
    shutil.copytree(tier.folder, tmp_path / "backup")
    (tmp_path / "backup").rename(tier.folder / "backup")
    own = [path for path in tier.folder.rglob(f"*{segment.segment_id.id}*") if "backup" not in path.parts]
    tier.log_starts[TOPIC, 0] = segment.end_offset + 1
    tier.follow(segment, SegmentUpdateRecord(segment.segment_id, 1, NOW_MS, None, STATES.DELETE_SEGMENT_FINISHED))
    found = [finding for finding in tier.audit() if finding.kind is KIND.ORPHANED]
    listed = {finding.object_name for finding in found if finding.may_delete}
    assert listed == {str(path.relative_to(tier.folder)) for path in own}
    kept = [finding for finding in found if not finding.may_delete]
    assert len(kept) == len(own)
    assert all("a backup's" in finding.text for finding in kept)


def test_the_only_topic_was_deleted(sound: AuditedTier) -> None:
    """No segment is left that tells where segments are: those that were deleted do."""
    segments = [one for number in (0, 1) for one in sound.timelines[_partition_of(sound, number)].segments]
    for segment in segments:
        sound.follow(segment, SegmentUpdateRecord(segment.segment_id, 1, NOW_MS, None, STATES.DELETE_SEGMENT_FINISHED))
    found = sound.audit(topic=TOPIC)
    assert {(finding.kind, finding.may_delete) for finding in found} == {(KIND.ORPHANED, True)}
    assert {finding.segment_id for finding in found} == {segment.segment_id for segment in segments}


def _partition_of(tier: AuditedTier, number: int) -> TopicIdPartition:
    return tier.segment(TOPIC, 0, number).topic_id_partition


@pytest.mark.parametrize("lost", [slice(2), slice(2, 3), slice(3, None), slice(None)], ids=str)
def test_a_metadata_topic_that_was_made_again(sound: AuditedTier, lost: slice) -> None:
    """It has no gap, and no record of some segments. Brokers that were running then still read these."""
    segments = sound.timelines[sound.segment(TOPIC, 0).topic_id_partition].segments[lost]
    for segment in segments:
        sound.drop(segment)
    next_offsets = dict.fromkeys({event.source for event in sound.events}, 0)
    for place, event in enumerate(sound.events):
        sound.events[place] = event._replace(offset=next_offsets[event.source])
        next_offsets[event.source] += 1
    left = [finding for finding in sound.audit() if finding.kind is KIND.ORPHANED]
    assert {finding.segment_id for finding in left} == {segment.segment_id for segment in segments}
    assert all("no known segment has" in finding.text and not finding.may_delete for finding in left)


@pytest.mark.parametrize("place", ["the first records", "one in the middle", "all of a partition"])
def test_segments_whose_records_were_deleted(sound: AuditedTier, place: str) -> None:
    """By retention or compaction of the metadata topic. The brokers that were running then know them."""
    _left_after_deletion(sound)
    _unknown_segment(sound)
    assert [finding.may_delete for finding in sound.audit()] == [True, True]
    source = sound.events[0].source
    offsets = [event.offset for event in sound.events if event.source == source]
    assert offsets == list(range(len(offsets)))
    if place == "all of a partition":
        sound.ends[10**4] = 1
    else:
        lost = offsets[0] if place == "the first records" else offsets[len(offsets) // 2]
        sound.events = [event for event in sound.events if (event.source, event.offset) != (source, lost)]
    found = [finding for finding in sound.audit() if finding.kind is KIND.ORPHANED]
    kept = [finding.text for finding in found if not finding.may_delete]
    assert any("records of the metadata topic were deleted" in text for text in kept)
    assert [finding.text for finding in found if finding.may_delete] == [
        "the segment was deleted, and this object of it is left"
    ]


def test_one_topic_alone(sound: AuditedTier) -> None:
    PLANTED["log lost"].plant(sound)
    PLANTED["file of a person"].plant(sound)
    assert sound.audit(topic="codecs") == []
    assert [finding.kind for finding in sound.audit(topic=TOPIC)] == [KIND.MISSING]
    assert [finding.kind for finding in sound.audit(topic=f"{TOPIC}:{sound.topic_ids[TOPIC]}")] == [KIND.MISSING]
    for unknown in ("shoes", f"{TOPIC}:{sound.topic_ids['codecs']}"):
        with pytest.raises(UnknownTopic, match="neither the metadata topic nor the storage"):
            sound.audit(topic=unknown)
    with pytest.raises(UnknownTopic, match="The nearest name is 'codecs'"):
        sound.audit(topic="codcs")


class TestWhileBrokersWrite:
    """The storage is listed before the metadata topic is read."""

    def test_a_segment_that_was_uploaded_after_the_listing(
        self, sound: AuditedTier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hidden = sound.segment(TOPIC, 4)
        raw = str(hidden.segment_id.id)
        scan = os.scandir

        class Early:
            """A directory as it was before the upload."""

            def __init__(self, path: str) -> None:
                self._found = scan(path)

            def __enter__(self) -> Iterator[os.DirEntry[str]]:
                with self._found as found:
                    return iter([entry for entry in found if raw not in entry.name])

            def __exit__(self, *_: object) -> None: ...

        monkeypatch.setattr(os, "scandir", Early)
        assert sound.audit() == []

    def test_a_segment_that_was_deleted_after_the_first_reading(self, sound: AuditedTier) -> None:
        segment = sound.segment(TOPIC, 0)
        for path in sound.folder.rglob(f"*-{segment.segment_id.id}.*"):
            path.unlink()
        record = SegmentUpdateRecord(segment.segment_id, 1, NOW_MS, None, STATES.DELETE_SEGMENT_STARTED)
        sound.later.append(Event(encode_metadata_record(record), None, 10**6, 0))
        found, audit = sound.audited()
        assert found == []
        assert audit.changed

    def test_a_topic_that_was_deleted_after_the_metadata_was_read(self, sound: AuditedTier) -> None:
        """The brokers do not know its partitions any more. After the first such answer its id is asked for again."""
        asked: list[tuple[str, int]] = []
        partitions = [
            each for each in sound.timelines if each.topic == TOPIC and each.topic_id == sound.topic_ids[TOPIC]
        ]
        assert len(partitions) == 2

        def log_start(partition: TopicIdPartition) -> int | None:
            asked.append((partition.topic, partition.partition))
            if partition.topic == TOPIC:
                sound.topic_ids.pop(TOPIC, None)
                return None
            return sound.log_starts[partition.topic, partition.partition]

        sound.log_start = log_start
        assert sound.audit() == []
        assert [place for place in asked if place[0] == TOPIC] == [(TOPIC, 0)]

    def test_an_upload_under_way(self, sound: AuditedTier) -> None:
        """Its objects are not left over, and those that it still lacks are not missing."""
        segment = _unknown_segment(sound)
        sound.add(replace(segment, state=STATES.COPY_SEGMENT_STARTED, event_timestamp_ms=NOW_MS))
        assert sound.audit(stale_before_ms=NOW_MS) == []


class TestTombstones:
    """Keys and tombstones of KIP-1266's drafts."""

    def test_a_tombstone_deletes_the_segment_of_its_key(self, sound: AuditedTier) -> None:
        PLANTED["copy never ended"].plant(sound)
        sound.events[-1] = sound.events[-1]._replace(key=b"k")
        sound.events.append(Event(None, b"k:UPDATE", 10**6 + 1, 0))
        assert sound.audit() == []

    def test_a_new_upload_under_its_key_replaces_an_unfinished_one(self, sound: AuditedTier) -> None:
        PLANTED["copy never ended"].plant(sound)
        sound.events[-1] = sound.events[-1]._replace(key=b"k")
        again = replace(_new(sound, 200, 300), state=STATES.COPY_SEGMENT_STARTED, event_timestamp_ms=NOW_MS)
        other = RemoteLogSegmentId(again.topic_id_partition, Uuid(b"an upload again."))
        sound.add(replace(again, segment_id=other))
        sound.events[-1] = sound.events[-1]._replace(key=b"k", offset=10**7)
        assert sound.audit() == []


class TestDoubtfulDeletions:
    """Segments that readers take for deleted, and that a broker may read."""

    @staticmethod
    def kept(tier: AuditedTier) -> set[str]:
        """The texts of left-over objects. None may be deleted."""
        found = tier.audit()
        assert {(finding.kind, finding.may_delete) for finding in found} == {(KIND.ORPHANED, False)}
        return {finding.text for finding in found}

    def test_a_record_after_the_deletion(self, sound: AuditedTier) -> None:
        """A broker that has forgotten a segment takes a later record of it for a new one."""
        segment = _left_after_deletion(sound)
        sound.follow(segment, SegmentMetadataRecord(replace(segment, state=STATES.COPY_SEGMENT_STARTED)))
        assert self.kept(sound) == {
            "the segment was deleted, and this object of it is left. But the last record of the segment does not say so"
        }

    def test_records_whose_order_is_not_known(self, sound: AuditedTier) -> None:
        _left_after_deletion(sound)
        sound.events[-1] = sound.events[-1]._replace(source=10**3)
        assert self.kept(sound)

    def test_a_tombstone_alone(self, sound: AuditedTier) -> None:
        """A key may be wrong. The value of a record tells the segment."""
        segment = _unknown_segment(sound)
        sound.follow(segment=sound.segment(TOPIC, 2), record=SegmentMetadataRecord(segment))
        last = sound.events[-1]
        sound.events[-1:] = [last._replace(key=b"k"), last._replace(value=None, key=b"k", offset=last.offset + 1)]
        assert self.kept(sound)

    def test_an_upload_that_another_one_replaces(self, sound: AuditedTier) -> None:
        """It may be under way."""
        segment = replace(_unknown_segment(sound), state=STATES.COPY_SEGMENT_STARTED, event_timestamp_ms=NOW_MS)
        other = RemoteLogSegmentId(segment.topic_id_partition, Uuid(b"an upload again."))
        for one in (segment, replace(segment, segment_id=other)):
            sound.follow(segment=sound.segment(TOPIC, 2), record=SegmentMetadataRecord(one))
            sound.events[-1] = sound.events[-1]._replace(key=b"k")
        assert self.kept(sound)


class TestPartitionDeletes:
    """No released broker writes these events. Brokers serve a partition until its deletion has ended."""

    @staticmethod
    def delete(tier: AuditedTier, state: RemotePartitionDeleteState, offset: int, source: int | None = None) -> None:
        segment = tier.segment(TOPIC, 2)
        record = PartitionDeleteRecord(segment.topic_id_partition, 1, NOW_MS, state)
        value = encode_metadata_record(record)
        tier.events.append(Event(value, None, offset, tier.source_of(segment) if source is None else source))

    def test_its_segments_are_left_over(self, sound: AuditedTier) -> None:
        self.delete(sound, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED, 10**7)
        found = sound.audit()
        assert {(finding.kind, finding.may_delete) for finding in found} == {(KIND.ORPHANED, True)}
        partitions = {finding.segment_id and finding.segment_id.topic_id_partition for finding in found}
        assert partitions == {sound.segment(TOPIC, 2).topic_id_partition}

    @pytest.mark.parametrize("state", list(RemotePartitionDeleteState)[:-1])
    def test_one_that_has_not_ended(self, sound: AuditedTier, state: RemotePartitionDeleteState) -> None:
        self.delete(sound, state, 10**7)
        assert sound.audit() == []

    def test_segments_that_were_written_after_it(self, sound: AuditedTier) -> None:
        self.delete(sound, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED, -1)
        assert sound.audit() == []

    def test_a_segment_that_was_changed_after_it(self, sound: AuditedTier) -> None:
        segment = sound.segment(TOPIC, 2)
        raw = segment.segment_id.id.raw
        first, last = (event.offset for event in sound.events if event.value is not None and raw in event.value)
        assert first < last
        self.delete(sound, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED, last)
        left = {finding.segment_id for finding in sound.audit() if finding.may_delete}
        assert left == {sound.segment(TOPIC, at).segment_id for at in (0, 1)}

    def test_one_whose_place_in_the_order_is_not_known(self, sound: AuditedTier) -> None:
        """It is in another metadata partition than the segments' records. No broker writes it there."""
        self.delete(sound, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED, 10**7, source=10**3)
        assert sound.audit() == []


def test_every_kind_has_a_planted_defect() -> None:
    assert {planted.kind for planted in PLANTED.values()} == set(FindingKind) - {KIND.DELETED_TOPIC}
    assert len(PLANTED) >= 25
    assert {kind for kind in FindingKind if SEVERITIES[kind] is Severity.NOTE} == {KIND.UNKNOWN_OBJECT, KIND.OVERLAP}
