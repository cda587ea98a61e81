"""Records and manifests of a backfill, as text and back; any other text is refused."""

from __future__ import annotations

import json

import pytest

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.tables.job_records import Committed, StagedFile, TaskRecord


def test_text_and_back() -> None:
    record = TaskRecord(3, "attempt", (StagedFile("day=1/part.parquet", 5, 70),), {"records": 5})
    committed = Committed("job", "orders", (record,))
    assert TaskRecord.load(record.dump()) == record
    assert Committed.load(committed.dump()) == committed


def test_manifests_that_are_none() -> None:
    with pytest.raises(UnsupportedFormat, match="version 9"):
        Committed.load(json.dumps({"version": 9}))
    for text in ("", "[]", "{}", '{"version": 1}', '{"version": 1, "job_id": "a", "topic": "b", "records": [1]}'):
        with pytest.raises(CorruptSegment, match="not a record of an export or a backfill"):
            Committed.load(text)
    with pytest.raises(CorruptSegment):
        TaskRecord.load(b"\xff")
