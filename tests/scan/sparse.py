"""A tier with a segment of many gigabytes (KIP-1333), of which only a few bytes are on the disk.

The middle of the file is a hole: a reader that goes into it finds gigabytes of zeros and no batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from remote_fetch.model import UNKNOWN_SIZE
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import encode_offset_index
from remote_fetch.testing.stores import write_kafka_local
from tests.scan.bucket import DENSE, snapshot_config

__all__ = ["OnDisk", "SparseTier"]

DEFAULT_BYTES = 9 << 29


class SparseTier:
    """A bucket whose large segment has offsets 1000 to 1499 at its start, and 1500 to 1505 in two batches at its end.

    The segment before it is small, and its offset index has entries of 8 bytes. That of the large one has 12.
    """

    def __init__(self, directory: Path, size_bytes: int = DEFAULT_BYTES) -> None:
        log = LogBuilder()
        for number in range(4):
            log.append_batch(
                [Record(n, value=b"small%d" % (250 * number + n)) for n in range(5)], last_offset_delta=249
            )
        log.roll()
        before = log.segments(DENSE)[0]
        log.append_batch([Record(n, value=b"first%d" % n) for n in range(5)], last_offset_delta=499)
        for name in (b"near%d", b"last%d"):
            log.append_batch([Record(n, value=name % n) for n in range(3)])
        log.roll()
        first, near, last = (len(batch.data) for batch in log.batches[4:])
        built = log.segments(DENSE)[1]
        far = size_bytes - near - last
        index = encode_offset_index([(502, far), (505, far + near)], entry_bytes=12)
        tree = write_kafka_local(directory, [before, replace(built, offset_index=index)])
        (self.path,) = tree.rglob(f"*{built.metadata.segment_id.id}.log")
        with self.path.open("r+b") as file:
            file.truncate(first)
            file.seek(far)
            file.write(built.log[first:])
        assert self.path.stat().st_size == size_bytes
        assert self.path.stat().st_blocks * 512 < 1 << 20
        self.directory = directory
        self.last_bytes = last
        self.end_bytes = near + last
        self.before = before.metadata
        self.metadata = replace(built.metadata, segment_size_in_bytes=size_bytes)

    def clamped(self, folder: Path) -> dict[str, str]:
        """The configuration of saved metadata, in which the large segment has no size."""
        return snapshot_config([self.before, replace(self.metadata, segment_size_in_bytes=UNKNOWN_SIZE)], folder)

    def files(self) -> Mapping[str, bytes]:
        """The files by their names below the directory. The large one is read as far as it is asked for."""
        found: dict[str, bytes] = {}
        for path in self.directory.rglob("*-*"):
            if path.is_file():
                data = OnDisk(path) if path == self.path else path.read_bytes()
                found[path.relative_to(self.directory).as_posix()] = data  # type: ignore[assignment]
        return found


class OnDisk:
    """A file that is taken for bytes, as far as its length and slices go."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __len__(self) -> int:
        return self._path.stat().st_size

    def __getitem__(self, wanted: slice) -> bytes:
        start, stop, _ = wanted.indices(len(self))
        assert stop - start <= 1 << 20, "a test goes into the hole"
        with self._path.open("rb") as file:
            file.seek(start)
            return file.read(max(stop - start, 0))
