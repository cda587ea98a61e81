"""A deep audit of transactions and producers: compared where the log was read whole, and nowhere else."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from remote_fetch.checks import audit_deep
from remote_fetch.checks.audit_deep import DeepAudit
from remote_fetch.errors import StorageTimeout
from remote_fetch.model import RemoteLogSegmentMetadata
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from tests.cases import each_of

PRODUCER = 7
FIRST = 20
"""The first offset of the transaction."""


def records(count: int) -> list[Record]:
    return [Record(at, at, b"k", b"v") for at in range(count)]


class Written:
    """Three segments in a folder. A transaction begins in the first and is aborted in the second.

    `taken_out` offsets are lost to compaction before the transaction ends, in the segment of that number.
    """

    def __init__(self, folder: Path, *, taken_out: int = 0, number: int = -1) -> None:
        log = LogBuilder("orders")
        log.append_batch(records(FIRST))
        log.begin(PRODUCER)
        log.append_batch(records(3), producer_id=PRODUCER)
        if number == 0:
            log.take_out(taken_out)
        log.roll()
        log.append_batch(records(20))
        if number == 1:
            log.take_out(taken_out)
        log.append_batch(records(3), producer_id=PRODUCER)
        log.abort(PRODUCER)
        log.roll()
        log.append_batch(records(20))
        log.roll()
        built = log.segments()
        write_kafka_local(folder, built)
        self.folder = folder
        self.segments = [each.metadata for each in built]

    def file(self, number: int, suffix: str) -> Path:
        (found,) = self.folder.rglob(f"*{self.segments[number].segment_id.id}{suffix}")
        return found

    def begins_at(self, offset: int) -> None:
        """The transaction index says another first offset."""
        path = self.file(1, ".txnindex")
        data = path.read_bytes()
        assert struct.unpack_from(">q", data, 10) == (FIRST,)
        path.write_bytes(data[:10] + struct.pack(">q", offset) + data[18:])

    def snapshot(self, number: int, *producers: tuple[int, int, int]) -> None:
        """The snapshot has these producers: id, last offset, and first offset of the open transaction."""
        entries = [struct.pack(">qhiqiqiq", each, 0, 0, last, 0, 0, -1, first) for each, last, first in producers]
        covered = struct.pack(">i", len(entries)) + b"".join(entries)
        self.file(number, ".snapshot").write_bytes(struct.pack(">hI", 1, crc32c(covered)) + covered)

    def audit(self, segments: list[RemoteLogSegmentMetadata] | None = None) -> list[str]:
        with Session.open({"remote.storage.url": str(self.folder)}) as session:
            deep = DeepAudit(session.storage, session.codecs)
            return [each.text for segment in segments or self.segments for each in deep.findings(segment)]


@pytest.mark.parametrize("offset", [0, FIRST - 1, FIRST + 1, FIRST + 3])
def test_a_transaction_that_begins_in_the_segment_before(tmp_path: Path, offset: int) -> None:
    written = Written(tmp_path)
    assert written.audit() == []
    written.begins_at(offset)
    (text,) = written.audit()
    assert text.startswith("transaction index: the transaction of producer 7")
    assert text.endswith(f"begins at offset {FIRST}, and not at {offset}")


LAST = 22
"""The last offset of the first segment. It has two batches."""


@each_of(
    ("suffix", "entries", "told"),
    [
        (".index", [(">ii", LAST, 0)], None),
        (".index", [(">ii", LAST - 1, 0)], "offset index: no batch ends with offset 21"),
        (".index", [(">ii", LAST, 1 << 20)], "offset index: its last entry is behind the last batch"),
        (".timeindex", [(">qi", 1 << 60, LAST)], None),
        (".timeindex", [(">qi", 1, LAST)], "timestamp index: a record at .* up to offset 19, is later than its entry"),
        (".timeindex", [(">qi", 1 << 60, LAST + 1)], "timestamp index: its entry for .* names offset 23, behind the"),
        (".txnindex", [(">hqqqq", 0, 8, 3, 5, 3)], "transaction index: no marker at offset 5 aborts a transaction of"),
    ],
)
def test_an_index_that_the_batches_contradict(
    tmp_path: Path, suffix: str, entries: list[tuple[Any, ...]], told: str | None
) -> None:
    """It parses. The end offset of the metadata lies behind the last batch, as after compaction."""
    written = Written(tmp_path)
    log = written.file(0, ".log")
    path = log.with_name(log.name.replace(".log", suffix))
    path.write_bytes(b"".join(struct.pack(*entry) for entry in entries))
    texts = written.audit([replace(written.segments[0], end_offset=LAST + 2, max_timestamp_ms=-1)])
    assert len(texts) == (told is not None), texts
    assert told is None or re.match(told, texts[0]), texts


def test_batches_behind_the_end_offset(tmp_path: Path) -> None:
    written = Written(tmp_path)
    for suffix in (".index", ".timeindex"):
        written.file(0, suffix).write_bytes(b"")
    texts = written.audit([replace(written.segments[0], end_offset=LAST - 1)])
    assert "its batches have offsets 0 to 22" in texts


@pytest.mark.parametrize("reads", ["segment_bytes", "read_parsed"])
def test_a_store_that_fails_is_told_with_the_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    def stalls(*_: object, **__: object) -> None:
        raise StorageTimeout("no answer from the store")

    monkeypatch.setattr(audit_deep, reads, stalls)
    written = Written(tmp_path)
    stem = written.segments[0].object_stem
    with pytest.raises(StorageTimeout, match=rf"no answer from the store \[orders-0, object {stem}\]"):
        written.audit()


def test_its_beginning_was_not_read(tmp_path: Path) -> None:
    """The first batch that was read is not the first of the transaction."""
    written = Written(tmp_path)
    assert written.audit(written.segments[1:]) == []


@pytest.mark.parametrize("number", [0, 1])
def test_after_compaction_first_offsets_are_unknown(tmp_path: Path, number: int) -> None:
    """Compaction may have taken out the first batch, or the marker of the transaction before."""
    written = Written(tmp_path, taken_out=5, number=number)
    written.begins_at(FIRST - 1)
    assert written.audit() == []


@pytest.mark.parametrize(
    ("number", "producers", "told"),
    [
        (0, [], "producer 7 has no open transaction, and by the log a transaction that is open from offset 20 on"),
        (0, [(7, 22, 21)], "producer 7 has a transaction that is open from offset 21 on, and by the log a transaction"),
        (0, [(7, 22, 20), (8, 23, -1)], "producer 8 has a batch at offset 23, after the segment"),
        (0, [(7, 22, 20), (8, -1, 30)], "producer 8 has a batch at offset 30, after the segment"),
        (1, [(7, 45, 20)], "producer 7 has a transaction that is open from offset 20 on, and by the log no open"),
        (2, [(8, 50, 48)], "producer 8 has a transaction that is open from offset 48 on, and by the log no open"),
    ],
)
def test_a_snapshot_of_another_offset(
    tmp_path: Path, number: int, producers: list[tuple[int, int, int]], told: str
) -> None:
    written = Written(tmp_path)
    written.snapshot(number, *producers)
    (text,) = written.audit()
    assert text.startswith(f"producer-snapshot index: {told}")


def test_the_snapshots_of_two_segments_are_swapped(tmp_path: Path) -> None:
    written = Written(tmp_path)
    paths = [written.file(number, ".snapshot") for number in (0, 1)]
    data = [path.read_bytes() for path in paths]
    for path, other in zip(paths, reversed(data), strict=True):
        path.write_bytes(other)
    assert len(written.audit()) == 2


def test_a_producer_whose_beginning_was_not_read(tmp_path: Path) -> None:
    """Its transaction began before the segments that were read, or compaction may have taken out its marker."""
    written = Written(tmp_path / "tier")
    written.snapshot(1, (8, 30, 21))
    assert written.audit(written.segments[1:]) == []
    compacted = Written(tmp_path / "compacted", taken_out=5, number=0)
    compacted.snapshot(0)
    assert compacted.audit(compacted.segments[:1]) == []


@pytest.mark.parametrize(
    ("number", "checkpoint", "told"),
    [
        (0, "0 0", []),
        (0, "0 3", []),  # DeleteRecords has moved the log start there while the segment was copied
        (0, "0 20", ["begins epoch 0 at offset 20, and the metadata at 0"]),
        (1, "0 0\n1 30", []),
        (1, "0 25\n1 30", []),
        (1, "0 0\n1 31", ["begins epoch 1 at offset 31, and the metadata at 30"]),
        (1, "0 0\n1 29", ["begins epoch 1 at offset 29, and the metadata at 30"]),
        (1, "1 30", []),
        (1, "1 35", []),
        (1, "1 29", ["begins epoch 1 at offset 29, and the metadata at 30"]),
        (1, "1 40", ["lacks the epochs [0] of the metadata", "begins epoch 1 at offset 40, and the metadata at 30"]),
        (1, "0 0", ["lacks the epochs [1] of the metadata"]),
        (1, "", ["lacks the epochs [0, 1] of the metadata"]),
        (2, "0 0\n1 30", []),
        (2, "0 0\n1 41", ["begins epoch 1 at offset 41, and the metadata at 40"]),
    ],
)
def test_the_epochs_of_a_checkpoint_begin_elsewhere(
    tmp_path: Path, number: int, checkpoint: str, told: list[str]
) -> None:
    """Three segments of twenty records. Epoch 1 begins in the middle of the second one."""
    log = LogBuilder("orders")
    for count in (20, 10, 10, 20):
        log.append_batch(records(count))
        if log.next_offset == 30:
            log.new_leader_epoch()
        else:
            log.roll()
    built = log.segments()
    write_kafka_local(tmp_path, built)
    segment = built[number].metadata
    (path,) = tmp_path.rglob(f"*{segment.segment_id.id}.leader_epoch_checkpoint")
    lines = checkpoint.splitlines()
    path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    with Session.open({"remote.storage.url": str(tmp_path)}) as session:
        found = [each.text for each in DeepAudit(session.storage, session.codecs).findings(segment)]
    assert found == [f"its leader-epoch checkpoint {text}" for text in told]
