"""A deep audit of transactions: first offsets are compared where the log was read whole, and nowhere else."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from remote_fetch.checks.audit_deep import DeepAudit
from remote_fetch.model import RemoteLogSegmentMetadata
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local

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
