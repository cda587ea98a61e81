"""The segment writer, judged by real brokers: their batches in, their files and metadata out."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from remote_fetch.formats.metadata_records import SegmentMetadataRecord, parse_metadata_record
from remote_fetch.model import (
    AbortedTransaction,
    IndexType,
    LeaderEpoch,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.testing.producers import EndMarker, WrittenBatch
from remote_fetch.testing.segments import (
    SegmentOptions,
    build_segments,
    encode_checkpoint,
    encode_offset_index,
    encode_time_index,
    encode_transaction_index,
)
from tests.cases import each_of

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
PARTITION = TopicIdPartition(Uuid(bytes(16)), "t", 0)
SUFFIXES = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
    IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
}
FOLDERS = [
    folder
    for name in ("local-4.1", "local-3.9")
    for folder in sorted((GOLDEN / name / "remote" / "kafka-tiered-storage").glob("*"))
]


def written_batches(data: bytes, number: int) -> list[WrittenBatch]:
    """The batches of a real segment, each of them taken for one append call."""
    found: list[WrittenBatch] = []
    at = 0
    while at < len(data):
        base, length, epoch, _, _, attributes, delta, _, max_ms, pid, pid_epoch, sequence, _ = struct.unpack_from(
            ">qiibIhiqqqhii", data, at
        )
        marker = None
        if attributes & 0x20:
            coordinator_epoch = int.from_bytes(data[at + 73 : at + 77], "big")
            marker = EndMarker(commit=data[at + 69] == 1, coordinator_epoch=coordinator_epoch)
        found.append(
            WrittenBatch(
                data[at : at + 12 + length],
                base,
                base + delta,
                max_ms,
                number + len(found),
                epoch,
                pid,
                pid_epoch,
                sequence,
                bool(attributes & 0x10),
                marker,
            )
        )
        at += 12 + length
    return found


def lineage_of(batches: list[WrittenBatch], checkpoint: str) -> list[LeaderEpoch]:
    """The epochs of the batches. The broker gives the start of the first, which may lie before the first segment."""
    found = [LeaderEpoch(*(int(field) for field in checkpoint.splitlines()[2].split()))]
    for batch in batches:
        if batch.leader_epoch != found[-1].epoch:
            found.append(LeaderEpoch(batch.leader_epoch, batch.base_offset))
    return found


@cache
def real_metadata(golden: Path) -> dict[str, RemoteLogSegmentMetadata]:
    """The metadata records of one golden set, by segment id."""
    found = {}
    with gzip.open(golden / "metadata.jsonl.gz", "rt") as lines:
        for line in lines:
            record = parse_metadata_record(base64.b64decode(json.loads(line)["value"]))
            if isinstance(record, SegmentMetadataRecord):
                found[str(record.metadata.segment_id.id)] = record.metadata
    return found


@each_of("folder", FOLDERS, ids=lambda folder: f"{folder.parts[-4]}-{folder.name[:-23]}")
def test_files_and_metadata_equal_those_of_real_brokers(folder: Path) -> None:
    logs = sorted(folder.glob("*.log"))
    batches: list[WrittenBatch] = []
    for log in logs:
        batches += written_batches(log.read_bytes(), len(batches))
    cuts = [int(log.name[:20]) for log in logs] + [batches[-1].last_offset + 1]
    options = SegmentOptions(
        index_interval_bytes=4096 if folder.name.startswith("tx-sparse") else 512,
        index_per_append=folder.parts[-4] == "local-3.9",
        flags_empty_txn_index=folder.parts[-4] != "local-3.9",
    )
    for number, log in enumerate(logs):
        # The log start moves with retention, and the lineage of later uploads begins there.
        lineage = lineage_of(batches, log.with_suffix(".leader_epoch_checkpoint").read_text())
        built = build_segments(PARTITION, batches, cuts, lineage, options)[number]
        assert built.log == log.read_bytes()
        for index_type, suffix in SUFFIXES.items():
            real = log.with_suffix(suffix)
            if real.match("epochs-*/00000000000000000000-*.index"):
                continue  # after a restart in the middle of this segment the broker counted the interval anew
            assert built.index(index_type) == (real.read_bytes() if real.exists() else None), real.name
        # Identity and time of the upload are the broker's own.
        theirs = real_metadata(folder.parents[2])[log.name[21:43]]
        assert theirs == replace(
            built.metadata,
            segment_id=theirs.segment_id,
            event_timestamp_ms=theirs.event_timestamp_ms,
            state=theirs.state,
        )


def test_there_are_real_brokers_files() -> None:
    assert len(FOLDERS) > 40


def batch(base: int, last: int, size: int = 100, **fields: object) -> WrittenBatch:
    return WrittenBatch(bytes(size), base, last, **{"append": base, **fields})  # type: ignore[arg-type]


LOG = [batch(10, 14, max_timestamp_ms=500), batch(15, 15, max_timestamp_ms=400), batch(16, 29, max_timestamp_ms=600)]
LINEAGE = [LeaderEpoch(1, 10), LeaderEpoch(4, 16)]


class TestMetadata:
    def test_fields(self) -> None:
        (first, second) = build_segments(PARTITION, LOG, [10, 16, 30], LINEAGE)
        assert (first.metadata.start_offset, first.metadata.end_offset) == (10, 15)
        assert first.metadata.segment_size_in_bytes == len(first.log) == 200
        assert first.metadata.max_timestamp_ms == 500
        assert first.metadata.event_timestamp_ms < second.metadata.event_timestamp_ms
        assert first.metadata.broker_id == 1
        assert first.metadata.topic_id_partition == PARTITION

    def test_epochs_are_clipped_to_the_segment(self) -> None:
        both, later = build_segments(PARTITION, [*LOG, batch(30, 30)], [10, 30, 31], LINEAGE)
        assert both.metadata.segment_leader_epochs == (LeaderEpoch(1, 10), LeaderEpoch(4, 16))
        assert later.metadata.segment_leader_epochs == (LeaderEpoch(4, 30),)

    def test_an_epoch_that_begins_at_the_end_is_not_in_it(self) -> None:
        (first, _) = build_segments(PARTITION, LOG, [10, 16, 30], LINEAGE)
        assert first.metadata.segment_leader_epochs == (LeaderEpoch(1, 10),)
        assert first.leader_epoch_checkpoint == b"0\n1\n1 10\n"

    def test_a_segment_without_timestamps_has_the_time_of_its_upload(self) -> None:
        (only,) = build_segments(PARTITION, [batch(10, 14)], [10, 15], LINEAGE)
        assert only.metadata.max_timestamp_ms == only.metadata.event_timestamp_ms
        assert only.time_index == b""

    def test_another_upload_has_another_id_and_the_same_one_the_same(self) -> None:
        ids = [
            build_segments(PARTITION, LOG, [10, 30], LINEAGE, SegmentOptions(upload=upload))[0].metadata.segment_id
            for upload in (0, 0, 1)
        ]
        assert ids[0] == ids[1] != ids[2]

    def test_metadata_marks_a_missing_transaction_index_from_4_0_on(self) -> None:
        (said,) = build_segments(PARTITION, LOG, [10, 30], LINEAGE)
        (silent,) = build_segments(PARTITION, LOG, [10, 30], LINEAGE, SegmentOptions(flags_empty_txn_index=False))
        assert (said.metadata.txn_index_empty, silent.metadata.txn_index_empty) == (True, False)
        assert said.transaction_index is None


class TestTransactionIndex:
    DATA = batch(10, 14, producer_id=7, producer_epoch=0, transactional=True)
    ABORT = batch(15, 15, producer_id=7, producer_epoch=0, transactional=True, marker=EndMarker(commit=False))

    def test_it_lies_in_the_segment_of_the_marker(self) -> None:
        first, second = build_segments(PARTITION, [self.DATA, self.ABORT], [10, 15, 16], LINEAGE)
        assert (first.transaction_index, first.metadata.txn_index_empty) == (None, True)
        assert second.transaction_index == encode_transaction_index([AbortedTransaction(7, 10, 15, 16)])
        assert not second.metadata.txn_index_empty

    def test_the_log_before_the_first_cut_counts_for_the_producers(self) -> None:
        (only,) = build_segments(PARTITION, [self.DATA, self.ABORT], [15, 16], LINEAGE)
        assert only.transaction_index == encode_transaction_index([AbortedTransaction(7, 10, 15, 16)])

    def test_a_batch_taken_out_counts_too_and_is_not_in_the_log(self) -> None:
        gone = batch(10, 14, size=0, producer_id=7, producer_epoch=0, transactional=True)
        (only,) = build_segments(PARTITION, [gone, self.ABORT], [10, 16], LINEAGE)
        assert only.log == self.ABORT.data
        assert only.transaction_index == encode_transaction_index([AbortedTransaction(7, 10, 15, 16)])


APPENDS = [batch(0, 1, append=1), batch(2, 3, append=1), batch(4, 5, append=2), batch(6, 7, append=2)]


class TestOffsetIndex:
    def test_each_batch_after_the_interval_has_an_entry(self) -> None:
        (built,) = build_segments(PARTITION, APPENDS, [0, 8], LINEAGE, SegmentOptions(index_interval_bytes=99))
        assert built.offset_index == encode_offset_index([(3, 100), (5, 200), (7, 300)])

    def test_before_4_0_only_the_append_call_has_one_at_its_first_byte(self) -> None:
        options = SegmentOptions(index_interval_bytes=99, index_per_append=True)
        (built,) = build_segments(PARTITION, APPENDS, [0, 8], LINEAGE, options)
        assert built.offset_index == encode_offset_index([(7, 200)])

    def test_the_interval_has_to_be_exceeded(self) -> None:
        (built,) = build_segments(PARTITION, APPENDS, [0, 8], LINEAGE, SegmentOptions(index_interval_bytes=100))
        assert built.offset_index == encode_offset_index([(5, 200)])

    def test_offsets_are_relative_to_the_segment(self) -> None:
        options = SegmentOptions(index_interval_bytes=0, index_entry_bytes=12)
        (built,) = build_segments(PARTITION, LOG, [10, 30], LINEAGE, options)
        assert built.offset_index == struct.pack(">iqiq", 5, 100, 19, 200)


class TestTimeIndex:
    def test_it_has_the_largest_so_far_and_the_end_of_its_batch(self) -> None:
        (built,) = build_segments(PARTITION, LOG, [10, 30], LINEAGE, SegmentOptions(index_interval_bytes=0))
        assert built.time_index == encode_time_index([(500, 4), (600, 19)])

    def test_the_roll_adds_the_last_one_to_a_sparse_index(self) -> None:
        (built,) = build_segments(PARTITION, LOG, [10, 30], LINEAGE)
        assert built.time_index == encode_time_index([(600, 19)])


class TestCuts:
    def test_not_inside_a_batch(self) -> None:
        with pytest.raises(ValueError, match="divides a batch"):
            build_segments(PARTITION, LOG, [10, 12], LINEAGE)

    def test_not_inside_an_append_call(self) -> None:
        with pytest.raises(ValueError, match="divides one append"):
            build_segments(PARTITION, APPENDS, [0, 2], LINEAGE)

    @pytest.mark.parametrize("cuts", [[], [10]])
    def test_less_than_two_make_no_segment(self, cuts: list[int]) -> None:
        assert build_segments(PARTITION, LOG, cuts, LINEAGE) == []


def test_a_checkpoint_without_epochs() -> None:
    assert encode_checkpoint([]) == b"0\n0\n"
