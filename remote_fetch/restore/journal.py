"""The journal of a restore: a file that says which records are in the new topic. A later run goes on from it.

    {"restore": 1, "topic": "orders", "topic_id": "...", "isolation": "read_committed", "target": "orders", ...}
    {"reads": {"0": 9000}}
    {"partition": 0, "source": 0, "target": 0, "records": 4000}
    {"given_up": 0}

Rules of the file:

- Lines are appended after the broker has acknowledged their records, and are on disk before the next ones are sent.
- A last line that is cut off does not count: its records are found in the new topic.
- Each run says before its first record up to which old offsets it reads. A later run may see less of the old topic.
- If the system has `flock`, one run at a time has the journal open for writing. A process that ends leaves no lock.
- A job is given up if a partition of the new topic has records that are not in the old one. No run goes on from it.
  That line is the last one. The offsets of the lines before it are right, and are translated as before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from remote_fetch.errors import ConfigError
from remote_fetch.failures.file_errors import MISSHAPEN, file_fault
from remote_fetch.model import MAX_OFFSET
from remote_fetch.restore.offset_map import OffsetMap, Run

__all__ = ["Journal", "JournalHead", "read_maps"]

_VERSION = 1
_BEGIN = b'{"restore": '
_MAX_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class JournalHead:
    """The job that a journal belongs to. `starts` are the first offsets of the new partitions.

    `source_starts` are the first offsets that the first run read of the old partitions. An older release wrote none.
    """

    topic: str
    topic_id: str
    isolation: str
    target: str
    target_id: str
    starts: Mapping[int, int] = field(default_factory=dict)
    source_starts: Mapping[int, int] = field(default_factory=dict)


class Journal:
    """A journal that is open for writing.

    `maps` has the offset map of each partition, `reads` the old offset up to which any run has read it (exclusive).
    """

    def __init__(self, path: Path, file: BinaryIO, known: _Known) -> None:
        self._path = path
        self._file = file
        self.head = known.head
        self.maps = known.maps
        self.reads = known.reads

    @staticmethod
    def is_begun(path: Path) -> bool:
        """Whether the file has a journal, or anything else that is no beginning of one. Raises ConfigError.

        A run that is killed at once may leave the first line cut off. No record was written then.
        """
        first = b""
        with _named(path), suppress(FileNotFoundError), open(path, "rb") as file:
            first = file.readline(_MAX_LINE_BYTES)
        return first.endswith(b"\n") or first[: len(_BEGIN)] != _BEGIN[: len(first)]

    @classmethod
    def create(cls, path: Path, head: JournalHead) -> Journal:
        """A new journal, in place of one whose first line is cut off. Raises ConfigError if it cannot be made."""
        with _locked(path, "ab") as file:
            file.truncate(0)
            journal = cls(path, file, _Known.begun(head))
            fields = {name: value for name, value in asdict(head).items() if value != {}}
            journal._write({"restore": _VERSION, **fields})
            journal.sync()
        return journal

    @classmethod
    def resume(cls, path: Path) -> Journal:
        """The journal in a file, to go on with.

        Raises ConfigError for a file that is none, for one that another run has open, or if the job was given up.
        """
        with _locked(path, "r+b") as file:
            known, end = _read(path, file)  # not by another descriptor: on SMB the lock keeps that one out
            if known.given_up is not None:
                raise ConfigError(
                    f"--journal {path}: partition {known.given_up} of the target has records that are not of this "
                    "restore",
                    key="--journal",
                    hint="Begin again with an empty topic and a new journal",
                )
            file.truncate(end)
            file.seek(end)
        return cls(path, file, known)

    def note_reads(self, stops: Mapping[int, int]) -> None:
        """Note the old offsets, exclusive, up to which this run reads partitions, and put all lines on disk."""
        self._write({"reads": dict(stops)})
        self.sync()

    def add(self, partition: int, source: int, count: int) -> None:
        """Note records that the new topic has."""
        run = self.maps[partition].add(source, count)
        self._write({"partition": partition, **run._asdict()})

    def give_up(self, partition: int) -> None:
        """Note that the new partition has other records than those of the job, and put all lines on disk."""
        self._write({"given_up": partition})
        self.sync()

    def sync(self) -> None:
        """Put all lines on disk. Raises ConfigError if there is no room for them."""
        with _named(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file. May be called twice. The new topic has the records of lines that cannot be put on disk."""
        with suppress(OSError):
            self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        with _named(self._path):
            self._file.write(json.dumps(line).encode() + b"\n")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Raise an error of the system as a ConfigError that names the journal."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--journal {path}: {file_fault(error)}", key="--journal") from None


@contextmanager
def _locked(path: Path, mode: Literal["ab", "r+b"]) -> Iterator[BinaryIO]:
    """The file, open for this run alone. It stays so after the block, unless an error ends that.

    Raises ConfigError if another run has it open, and for an error of the system.
    """
    with _named(path):
        file = open(path, mode)  # noqa: SIM115 - the journal closes it
        try:
            _lock(path, file)
            yield file
        except BaseException:
            with suppress(OSError):
                file.close()
            raise


def _lock(path: Path, file: BinaryIO) -> None:
    try:
        import fcntl  # noqa: PLC0415 - Windows has none

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"--journal {path}: another run has it open",
            key="--journal",
            hint="Wait until that run has ended, or stop it",
        ) from None
    except (ImportError, OSError):
        pass  # neither does every file system


def read_maps(path: Path) -> tuple[JournalHead, dict[int, OffsetMap], int | None]:
    """The job of a journal, its offset maps, and the partition for which it was given up or None.

    That partition has records that are not of the job at or behind the end of its map. Raises ConfigError for a file
    that is no journal.
    """
    try:
        with open(path, "rb") as file:
            known, _ = _read(path, file)
    except OSError as error:
        raise ConfigError(f"the journal {path}: {file_fault(error)}", key="--journal") from None
    return known.head, known.maps, known.given_up


@dataclass
class _Known:
    """The contents of a journal. `given_up` is the partition for which the job was given up; None: it was not."""

    head: JournalHead
    maps: dict[int, OffsetMap]
    reads: dict[int, int] = field(default_factory=dict)
    given_up: int | None = None

    @classmethod
    def begun(cls, head: JournalHead) -> _Known:
        """The contents of a journal that has its first line alone."""
        return cls(head, {number: OffsetMap(start) for number, start in head.starts.items()})

    def take(self, line: Mapping[str, Any]) -> None:
        """Take a line. Raises ValueError, KeyError, TypeError or AttributeError for one that is none."""
        if self.given_up is not None:
            raise ValueError("a line behind the one that gives the job up")
        if "given_up" in line:
            self.given_up = _offset(line["given_up"])
            self.maps[self.given_up]
        elif "reads" in line:
            for number, stop in line["reads"].items():
                self.reads[int(number)] = max(self.reads.get(int(number), 0), _offset(stop))
        else:
            run = Run(*(_offset(line[name]) for name in Run._fields))
            added = self.maps[line["partition"]].add(run.source, run.records)
            if added.target != run.target:
                raise ValueError(f"{run} does not follow the line before it")


def _read(path: Path, file: BinaryIO) -> tuple[_Known, int]:
    """The contents, and the byte after the last whole line."""
    known: _Known | None = None
    end = 0
    try:
        while (line := file.readline(_MAX_LINE_BYTES)).endswith(b"\n"):
            if known is None:
                known = _Known.begun(_head_of(json.loads(line)))
            else:
                known.take(json.loads(line))
            end += len(line)
    except MISSHAPEN as error:
        raise ConfigError(f"{path} is no journal of a restore, at byte {end}: {error}", key="--journal") from None
    if known is None:
        raise ConfigError(f"{path} is no journal of a restore: it has no first line", key="--journal")
    return known, end


def _head_of(line: Mapping[str, Any]) -> JournalHead:
    if line["restore"] != _VERSION:
        raise ValueError(f"version {line['restore']!r}; {_VERSION} is known")
    starts, source_starts = (
        {int(number): _offset(start) for number, start in offsets.items()}
        for offsets in (line["starts"], line.get("source_starts", {}))
    )
    topic, topic_id, isolation, target, target_id = (
        str(line[name]) for name in ("topic", "topic_id", "isolation", "target", "target_id")
    )
    return JournalHead(topic, topic_id, isolation, target, target_id, starts, source_starts)


def _offset(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_OFFSET:
        raise ValueError(f"{value!r} is no offset")
    return value
