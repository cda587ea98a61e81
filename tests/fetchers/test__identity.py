"""An object that is replaced while it is read ends as one that is gone: from no two of them are ranges put together."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fetchers import _identity
from fetchers._identity import Identities
from fetchers.http import HttpFetcher
from fetchers.local import LocalFetcher
from remote_fetch.errors import SegmentNotFound
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.model import IndexType
from remote_fetch.testing.contract import contract_segments
from remote_fetch.testing.stores import kafka_local_files
from tests.scan.bucket import plain_log
from tests.stores.range_server import RangeServer

(SEGMENT,) = plain_log(segments=1).segments()
TIMEOUTS = {"fetch.remote.connect.timeout.ms": "30000", "fetch.remote.read.timeout.ms": "30000"}
NAME = next(name for name, _ in kafka_local_files(SEGMENT) if name.endswith(".log"))


def test_ranges_have_to_agree() -> None:
    identities = Identities()
    identities.check("a", "1")
    identities.check("a", "1")
    identities.check("b", "2")
    with pytest.raises(SegmentNotFound, match="replaced"):
        identities.check("a", "2")
    identities.check("a", "2")  # the next read begins with the new object


def test_a_store_that_tells_nothing_is_believed() -> None:
    identities = Identities()
    identities.check("a", None)
    identities.check("a", "1")
    identities.check("a", None)


def test_only_the_objects_read_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_identity, "_MOST_OBJECTS", 2)
    identities = Identities()
    for path in ("a", "b", "a", "c"):
        identities.check(path, "1")
    identities.check("b", "2")  # forgotten, for a was read after it
    with pytest.raises(SegmentNotFound):
        identities.check("c", "2")


@pytest.mark.parametrize("is_refreshed", [False, True])
@pytest.mark.parametrize("is_same", [False, True], ids=["another file", "another inode"])
def test_a_file_that_is_replaced_by_one_of_the_same_size(tmp_path: Path, is_refreshed: bool, is_same: bool) -> None:
    """On sshfs a file that is not touched gets another inode, as soon as the kernel forgets the first one."""
    path = tmp_path / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(SEGMENT.log)
    fetcher = LocalFetcher()
    fetcher.configure({"remote.storage.url": str(tmp_path), **TIMEOUTS})
    assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 0, 10)) == SEGMENT.log[:10]
    assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 10, 20)) == SEGMENT.log[10:20]
    other = tmp_path / "other"
    other.write_bytes(SEGMENT.log if is_same else bytes(len(SEGMENT.log)))
    status = path.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns + (not is_same)))
    other.rename(path)
    if is_refreshed:
        fetcher.refresh_credentials()
    if is_same:
        assert path.stat().st_ino != status.st_ino
        assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 20, 30)) == SEGMENT.log[20:30]
    else:
        with pytest.raises(SegmentNotFound, match="replaced"):
            fetcher.fetch_log_segment(SEGMENT.metadata, 20, 30)
    fetcher.close()


@pytest.mark.parametrize("is_refreshed", [False, True])
@pytest.mark.parametrize("etag", ['"%d"', 'W/"%d"'])
def test_an_http_object_that_is_replaced(etag: str, is_refreshed: bool) -> None:
    with RangeServer() as server:
        server.files[NAME] = SEGMENT.log
        server.etags[NAME] = etag % 1
        fetcher = HttpFetcher()
        fetcher.configure({"remote.storage.url": f"{server.url}/", **TIMEOUTS, "remote.storage.layout": "kafka_local"})
        assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 0, 10)) == SEGMENT.log[:10]
        asked = len(server.asked)
        assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 10, 20)) == SEGMENT.log[10:20]
        assert len(server.asked) == asked + 1, "the identity costs no request"
        server.etags[NAME] = etag % 2
        if is_refreshed:
            fetcher.refresh_credentials()
        with pytest.raises(SegmentNotFound, match="replaced"):
            fetcher.fetch_log_segment(SEGMENT.metadata, 20, 30)
        fetcher.close()


TRANSACTIONAL = contract_segments()[0]
TXN_NAME, TXN_INDEX = next(file for file in kafka_local_files(TRANSACTIONAL) if file[0].endswith(".txnindex"))


def check_an_index_that_is_written_again(fetcher: RemoteStorageFetcher, write: Callable[[bytes], object]) -> None:
    """As "no such index" it would show the records of aborted transactions."""
    for data in (TXN_INDEX, TXN_INDEX, TXN_INDEX[:-1]):
        write(data)
        found = fetcher.fetch_index(TRANSACTIONAL.metadata, IndexType.TRANSACTION)
        assert found is not None
        assert bytes(found) == data
    fetcher.close()


def test_an_index_file_that_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / TXN_NAME
    path.parent.mkdir(parents=True)

    def write(data: bytes) -> None:
        (tmp_path / "new").write_bytes(data)
        (tmp_path / "new").rename(path)

    fetcher = LocalFetcher()
    fetcher.configure({"remote.storage.url": str(tmp_path), **TIMEOUTS})
    check_an_index_that_is_written_again(fetcher, write)


def test_an_index_over_http_that_is_written_again() -> None:
    with RangeServer() as server:

        def write(data: bytes) -> None:
            server.files[TXN_NAME] = data
            server.etags[TXN_NAME] = f"{len(server.asked)}"

        fetcher = HttpFetcher()
        fetcher.configure({"remote.storage.url": f"{server.url}/", **TIMEOUTS, "remote.storage.layout": "kafka_local"})
        check_an_index_that_is_written_again(fetcher, write)
