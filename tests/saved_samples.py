"""A text of each format that is saved, by the code of now: `tests/golden/saved/` keeps those of each version.

    python -m tests.saved_samples        writes the files that are missing

Rules of the file:

- A file in the folder is never written again: users have such files on their disks.
- A sample has a value in each field that the format has.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from remote_fetch.checks.deep_journal import DeepJournal
from remote_fetch.locate.saved_replay import SavedReplay, dump_replay, load_replay
from remote_fetch.locate.snapshot import SnapshotOrigin, dump_timelines, load_timelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.uploads import LooseUpload, Rest
from remote_fetch.model import (
    IsolationLevel,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.plan.ranges import BrokerRange, PlanStep, Reason, SegmentSlice
from remote_fetch.plan.saved import dump_plan, load_plan
from remote_fetch.restore.journal import Journal, JournalHead, read_maps
from remote_fetch.tables.export_plan import ExportBounds, plan_export
from remote_fetch.tables.job_records import Committed, StagedFile, TaskRecord
from remote_fetch.tables.progress import Progress
from remote_fetch.tables.saved_tasks import Reading, dump_job, load_job

__all__ = ["AGAIN", "FOLDER", "SAMPLES"]

FOLDER = Path(__file__).parent / "golden" / "saved"

_PARTITION = TopicIdPartition(Uuid(bytes(range(16))), "orders", 3)
_STARTED, _FINISHED, *_ = RemoteLogSegmentState
_SEGMENT = RemoteLogSegmentMetadata(
    RemoteLogSegmentId(_PARTITION, Uuid(bytes(range(16, 32)))),
    100, 199, 4_096, 1_700_000_000_000, 1_700_000_001_000, 2,
    (LeaderEpoch(4, 100), LeaderEpoch(5, 150)), b"custom", _FINISHED, txn_index_empty=True,
)  # fmt: skip
_STEPS: tuple[PlanStep, ...] = (
    SegmentSlice(_SEGMENT, 110, 149, 512, 2_048, 105, 155, is_cut=False),
    BrokerRange(_PARTITION, 200, 250, Reason.NOT_TIERED),
)
_TIMELINE = Timeline(_PARTITION, (_SEGMENT,), (7,), next_metadata_offset=9, upload_epochs=(5,))
_ORIGIN = SnapshotOrigin("a-cluster", Uuid(bytes(range(32, 48))), 50, ((2, 77),), taken_at_ms=1_700_000_002_000)
_REST = Rest(
    (LooseUpload(b"l" * 16, _STARTED, 8, 5, (_FINISHED, 2, 1_700_000_003_000, b"loose")),),
    (b"g" * 16,),
    ((b"key", b"k" * 16),),
    ((b"e" * 16, 5),),
)
_REPLAY = SavedReplay(_ORIGIN, _PARTITION.topic_id, 5, 1, (_TIMELINE,), (_REST,))
_PROGRESS = Progress("orders", str(_PARTITION.topic_id), {0: (5, 90), 3: (100, 250)}, "0123456789abcde")
_FILE = StagedFile("day=1/a.parquet", 40, 900, {"offset": (110, 149)})
_RECORD = TaskRecord(2, "an-attempt", (_FILE,), {"records": 40})
_MANIFEST = Committed("a-job", "orders", (_RECORD,), _PROGRESS, (0, 3))
_BUCKET = {"remote.storage.url": str(files("remote_fetch.cli") / "demo_bucket")}
_BOUNDS = ExportBounds("tx", 3, 20, (0, 1), IsolationLevel.READ_COMMITTED, 0, False, 1 << 20, _BUCKET)
_HEAD = JournalHead("orders", str(_PARTITION.topic_id), "read_committed", "again", str(Uuid(b"t" * 16)), {0: 5, 3: 0})


def _journal(again: bytes | None = None, head: JournalHead = _HEAD) -> bytes:
    """A journal with two lines of records; or the one that a resumed run leaves of the given bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        if again is None:
            journal = Journal.create(path, head)
            journal.add(0, 10, 4)
            journal.add(3, 2, 7)
        else:
            path.write_bytes(again)
            head, maps, _ = read_maps(path)
            journal = Journal.create(path, head)
            for number, known in maps.items():
                for run in known.runs():
                    journal.add(number, run.source, run.records)
        journal.close()
        return path.read_bytes()


def _tasks(again: bytes | None = None) -> bytes:
    """The saved tasks of an export of the demo's bucket; or those that the given bytes load to."""
    if again is None:
        return dump_job(plan_export(_BOUNDS, None), "a-fingerprint", _PROGRESS).encode()
    fingerprint, job = load_job(again.decode(), Reading(_BUCKET, _BOUNDS.isolation, _BOUNDS.find), "lake/_orders.job")
    base = {int(number): end for number, end in json.loads(again)["base"].items()}
    held = Progress("", "", {number: (end, end) for number, end in base.items()})
    return dump_job(job, fingerprint, held).encode()


def _audit(again: bytes | None = None) -> bytes:
    """A journal with one sound segment; or the given one, after it was opened and has told its segment."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        if again is not None:
            path.write_bytes(again)
        with closing(DeepJournal(path, "s3://tier/prefix")) as journal:
            if again is None:
                journal.note(_SEGMENT, {7, 9})
            assert journal.open_producers_after(_SEGMENT) == frozenset((7, 9))
        return path.read_bytes()


def _timelines(again: bytes) -> bytes:
    """The timelines that the given bytes load to."""
    origin, timelines = load_timelines(again)
    return dump_timelines(timelines, origin=origin)


SAMPLES: Mapping[str, Callable[[], bytes]] = {
    "plan-2.json": lambda: dump_plan(_STEPS).encode(),
    "tasks-2.json": _tasks,
    "record.json": lambda: _RECORD.dump().encode(),
    "manifest-1.json": lambda: _MANIFEST.dump().encode(),
    "progress.json": lambda: _PROGRESS.dump().encode(),
    "timelines-2.bin": lambda: dump_timelines((_TIMELINE,), origin=_ORIGIN),
    "replay-1.bin": lambda: dump_replay(_REPLAY),
    "journal-1.jsonl": _journal,
    "journal-1.starts.jsonl": lambda: _journal(head=replace(_HEAD, source_starts={0: 10, 3: 0})),
    "audit-1.db": _audit,
}
"""The bytes of now, by the name of their file: the format, and its version if it has one."""

AGAIN: Mapping[str, Callable[[bytes], bytes]] = {
    "plan": lambda data: dump_plan(load_plan(data.decode())).encode(),
    "tasks": _tasks,
    "record": lambda data: TaskRecord.load(data).dump().encode(),
    "manifest": lambda data: Committed.load(data).dump().encode(),
    "progress": lambda data: Progress.load(data.decode()).dump().encode(),
    "timelines": _timelines,
    "replay": lambda data: dump_replay(load_replay(data)),
    "journal": _journal,
    "audit": _audit,
}
"""Loads the bytes of a format, and writes what was loaded."""


def main() -> None:
    """Write the files that are missing."""
    FOLDER.mkdir(exist_ok=True)
    for name, sample in SAMPLES.items():
        if not (FOLDER / name).exists():
            (FOLDER / name).write_bytes(sample())
            print(f"new: {name}")


if __name__ == "__main__":
    main()
