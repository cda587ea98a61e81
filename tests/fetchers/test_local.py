"""The local fetcher: how a directory may be written, and what a file system of this machine can do wrong."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from fetchers.local import LocalFetcher
from remote_fetch.errors import RemoteFetchError, SegmentNotFound, StorageDenied, StorageUnavailable
from remote_fetch.model import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid

PARTITION = TopicIdPartition(Uuid(b"t" * 16), "orders", 0)
SEGMENT = RemoteLogSegmentMetadata(RemoteLogSegmentId(PARTITION, Uuid(b"s" * 16)), 5, -1, 10, txn_index_empty=True)
FOLDER = f"kafka-tiered-storage/orders-0-{PARTITION.topic_id}"
STEM = f"{5:020d}-{SEGMENT.segment_id.id}"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "a tier" / FOLDER
    folder.mkdir(parents=True)
    (folder / f"{STEM}.log").write_bytes(b"0123456789")
    (folder / f"{STEM}.index").write_bytes(b"index")
    return tmp_path / "a tier"


def opened(url: str) -> LocalFetcher:
    fetcher = LocalFetcher()
    fetcher.configure({"remote.storage.url": url})
    return fetcher


@pytest.mark.parametrize(
    "spelled", ["{}", "{}/", "file://{}", "file://{}/", "file:{}", "{}/../a tier", "{}/kafka-tiered-storage"]
)
def test_spellings_of_the_directory(tree: Path, spelled: str) -> None:
    fetcher = opened(spelled.format(tree))
    assert list(fetcher.list_segments()) == [SEGMENT]
    assert fetcher.fetch_log_segment(SEGMENT, 2, 4) == b"23"


def test_a_relative_directory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree.parent)
    assert list(opened("a tier").list_segments()) == [SEGMENT]


def test_the_root_directory_is_not_the_working_directory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert list(opened("/").list_segments()) == []


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    fetcher = opened(str(tmp_path / "nowhere"))
    assert list(fetcher.list_segments()) == []
    with pytest.raises(SegmentNotFound):
        fetcher.fetch_log_segment(SEGMENT, 0)


def test_a_folder_where_the_object_should_be(tree: Path) -> None:
    log = tree / FOLDER / f"{STEM}.log"
    log.unlink()
    log.mkdir()
    fetcher = opened(str(tree))
    with pytest.raises(SegmentNotFound):
        fetcher.fetch_log_segment(SEGMENT, 0)
    assert list(fetcher.list_segments()) == []


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "kafka-tiered-storage").mkdir()
    (tmp_path / FOLDER).write_bytes(b"")
    fetcher = opened(str(tmp_path))
    assert list(fetcher.list_segments()) == []
    with pytest.raises(SegmentNotFound):
        fetcher.fetch_log_segment(SEGMENT, 0)


def test_a_listing_that_fails_on_the_way(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that leads to itself cannot be followed, and a directory on a network may be lost while it is read."""
    os.symlink("loop", tree / FOLDER / "loop")
    asks: tuple[Callable[[], Iterator[object]], ...] = (opened(str(tree)).list_segments, opened(str(tree)).list_objects)
    for ask in asks:
        with pytest.raises(StorageUnavailable) as caught:
            list(ask())
        assert caught.value.object_name == f"{FOLDER}/loop"
    (tree / FOLDER / "loop").unlink()
    os.symlink("nowhere", tree / FOLDER / "to nothing")
    assert list(opened(str(tree)).list_segments()) == [SEGMENT]

    def lost(path: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        def entries() -> Iterator[os.DirEntry[str]]:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            yield

        return nullcontext(entries())

    monkeypatch.setattr(os, "scandir", lost)
    with pytest.raises(StorageUnavailable):
        list(opened(str(tree)).list_segments())


def test_a_segment_that_is_deleted_under_the_reader(tree: Path) -> None:
    fetcher = opened(str(tree))
    assert fetcher.fetch_log_segment(SEGMENT, 0, 2) == b"01"
    (tree / FOLDER / f"{STEM}.log").unlink()
    with pytest.raises(SegmentNotFound):
        fetcher.fetch_log_segment(SEGMENT, 2, 4)
    assert fetcher.fetch_index(SEGMENT, IndexType.OFFSET) == b"index"


@pytest.mark.parametrize(
    ("theirs", "ours"), [(PermissionError(13, "denied"), StorageDenied), (OSError(5, "I/O"), StorageUnavailable)]
)
def test_what_may_not_be_read_is_not_missing(
    tree: Path, monkeypatch: pytest.MonkeyPatch, theirs: OSError, ours: type[RemoteFetchError]
) -> None:
    fetcher = opened(str(tree))
    fetcher.fetch_log_segment(SEGMENT, 0)

    def refuse(*arguments: object, **options: object) -> None:
        raise theirs

    with monkeypatch.context() as patched:
        patched.setattr("builtins.open", refuse)
        patched.setattr(os, "scandir", refuse)
        with pytest.raises(ours) as raised:
            fetcher.fetch_log_segment(SEGMENT, 0)
        assert "s3:" not in str(raised.value)
        assert (f"object {tree}/{FOLDER}" in str(raised.value)) == (ours is StorageDenied), "which directory refuses?"
        with pytest.raises(ours):
            fetcher.fetch_index(SEGMENT, IndexType.TRANSACTION)
        with pytest.raises(ours):
            list(fetcher.list_segments())


def test_a_file_that_becomes_shorter_is_no_short_object(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction index that is copied over in place would look like one with fewer transactions."""
    index = tree / FOLDER / f"{STEM}.index"
    index.write_bytes(b"index, whole")
    before = os.stat(index)
    index.write_bytes(b"index")
    monkeypatch.setattr(os, "fstat", lambda descriptor: before)
    with pytest.raises(StorageUnavailable, match="shorter"):
        opened(str(tree)).fetch_index(SEGMENT, IndexType.OFFSET)


def test_a_segment_beyond_two_gibibytes(tree: Path) -> None:
    size_bytes = (3 << 30) + 5
    with open(tree / FOLDER / f"{STEM}.log", "r+b") as file:
        file.seek(size_bytes - 4)
        file.write(b"last")  # the rest is a hole that takes no room
    fetcher = opened(str(tree))
    (segment,) = fetcher.list_segments()
    assert segment.segment_size_in_bytes == size_bytes
    assert segment.size_known
    assert fetcher.fetch_log_segment(segment, size_bytes - 4, size_bytes + 100) == b"last"
    assert fetcher.fetch_log_segment(segment, size_bytes, size_bytes + 1) == b""
