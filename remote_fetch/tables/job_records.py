"""The records of a job: one of each finished task, and the manifest of the job.

Rules of the file:

- Pure.
- A saved text is checked when it is loaded.
- Plan and records have a checksum: another digit in them would lose, hide or repeat records without a trace.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.failures.file_errors import MISSHAPEN
from remote_fetch.tables.progress import Progress

__all__ = ["Committed", "StagedFile", "TaskRecord", "checked", "with_checksum"]

T = TypeVar("T")

_VERSION = 1
_CHECKSUM = "checksum"
"""The field with the hash of all others. A text of an older release lacks it."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A data file: its path relative to the target, its rows and its size.

    `bounds` has [least, greatest] of columns without nulls, of whole numbers and of timestamps in their unit, if they
    are known.
    """

    path: str
    rows: int
    size_bytes: int
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The files that one attempt at a task has written. `cost` is the `Report` of its reading, as plain values."""

    task: int
    attempt: str
    files: tuple[StagedFile, ...]
    cost: Mapping[str, Any]

    def dump(self) -> str:
        """The record as JSON."""
        return with_checksum(asdict(self))

    @classmethod
    def load(cls, text: str | bytes) -> TaskRecord:
        """Parse the text of `dump`. Raises CorruptSegment for any other text."""
        return _parsed(text, lambda saved: cls._of(checked(saved)))

    @classmethod
    def _of(cls, saved: Any) -> TaskRecord:
        files = tuple(
            StagedFile(**{**file, "bounds": {name: (int(low), int(high)) for name, (low, high) in bounds.items()}})
            for file in saved["files"]
            for bounds in [file.get("bounds", {})]
        )
        return cls(int(saved["task"]), str(saved["attempt"]), files, dict(saved["cost"]))


@dataclass(frozen=True, slots=True)
class Committed:
    """The manifest of a job: `records` has the record of each task, in order.

    `reads` has the offsets of all tasks, None in the manifest of an older version. `partitions` are those of the topic.
    """

    job_id: str
    topic: str
    records: tuple[TaskRecord, ...]
    reads: Progress | None = None
    partitions: tuple[int, ...] = ()

    def dump(self) -> str:
        """The manifest as JSON."""
        reads = None if self.reads is None else json.loads(self.reads.dump())
        return json.dumps({"version": _VERSION, **asdict(replace(self, reads=None)), "reads": reads}, indent=1)

    @classmethod
    def load(cls, text: str | bytes) -> Committed:
        """Parse the text of `dump`. Raises UnsupportedFormat for another version, CorruptSegment for any other text."""
        return _parsed(text, cls._of)

    @classmethod
    def _of(cls, saved: Any) -> Committed:
        if saved["version"] != _VERSION:
            raise UnsupportedFormat(f"a manifest of version {saved['version']!r}; version {_VERSION} is known")
        records = tuple(TaskRecord._of(record) for record in saved["records"])
        reads = None if saved.get("reads") is None else Progress.load(json.dumps(saved["reads"]))
        partitions = tuple(map(int, saved.get("partitions", ())))
        return cls(str(saved["job_id"]), str(saved["topic"]), records, reads, partitions)


def with_checksum(saved: Mapping[str, Any]) -> str:
    """The fields as JSON, and a checksum of them. Older releases pass over it."""
    return json.dumps({**saved, _CHECKSUM: _checksum(saved)})


def checked(saved: Any) -> Any:
    """The parsed fields of `with_checksum`. Raises ValueError, and what Python does if `saved` is no dictionary."""
    checksum = saved.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(saved):
        raise ValueError(f"its checksum is {checksum}, and that of what it has is {_checksum(saved)}")
    return saved


def _checksum(saved: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(saved).encode("utf-8")).hexdigest()[:16]


def _parsed(text: str | bytes, parse: Callable[[Any], T]) -> T:
    try:
        return parse(json.loads(text))
    except MISSHAPEN as error:
        raise CorruptSegment(f"not a record of an export or a backfill: {type(error).__name__}: {error}") from None
