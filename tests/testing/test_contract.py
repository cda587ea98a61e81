"""The contract suite: every built-in fetcher of this machine keeps it, and fetchers that break a promise are caught.

The fetchers of the clouds are examined beside their servers, in `tests/stores`.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest

from fetchers.any_fsspec import FsspecFetcher
from fetchers.http import HttpFetcher
from fetchers.local import LocalFetcher
from fetchers.memory import MemoryFetcher
from remote_fetch.errors import ConfigError, SegmentNotFound, StorageDenied, StorageTimeout, StorageUnavailable
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentMetadata, TopicIdPartition
from remote_fetch.testing import contract_parts as parts
from remote_fetch.testing.contract import (
    DenialContract,
    FetcherContract,
    ListingContract,
    StallContract,
    StatusContract,
    contract_segments,
)
from remote_fetch.testing.segments import BuiltSegment
from remote_fetch.testing.stores import SegmentStore
from tests.stores.range_server import Fault, FaultKind, RangeServer, stalled_connect

URL = "remote.storage.url"


class Directory:
    """A directory as the medium."""

    root: Path

    @pytest.fixture(autouse=True)
    def medium(self, tmp_path: Path) -> None:
        self.root = tmp_path

    def put(self, name: str, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class TestLocal(Directory, FetcherContract, ListingContract):
    def new_fetcher(self) -> RemoteStorageFetcher:
        return LocalFetcher()

    def configs(self) -> Mapping[str, str]:
        return {URL: str(self.root)}


class TestFsspecOnFiles(Directory, FetcherContract, ListingContract):
    def new_fetcher(self) -> RemoteStorageFetcher:
        return FsspecFetcher()

    def configs(self) -> Mapping[str, str]:
        return {URL: self.root.as_uri(), "remote.storage.options.auto_mkdir": "false"}


class InMemory:
    """fsspec's memory as the medium."""

    @pytest.fixture(autouse=True)
    def medium(self) -> Iterator[None]:
        yield
        fsspec.filesystem("memory").rm("/contract", recursive=True)

    def configs(self) -> Mapping[str, str]:
        return {URL: "memory://contract"}

    def put(self, name: str, data: bytes) -> None:
        fsspec.filesystem("memory").pipe_file(f"/contract/{name}", data)


class TestMemory(InMemory, FetcherContract, ListingContract):
    @pytest.fixture(autouse=True)
    def something_is_there(self) -> None:
        self.put("x", b"")

    def new_fetcher(self) -> RemoteStorageFetcher:
        return MemoryFetcher()


class TestFsspecOnMemory(TestMemory):
    def new_fetcher(self) -> RemoteStorageFetcher:
        return FsspecFetcher()


class TestHttp(FetcherContract, DenialContract, StatusContract, StallContract):
    """A signed URL on the range server."""

    server: RangeServer

    @pytest.fixture(autouse=True)
    def medium(self) -> Iterator[None]:
        with RangeServer(signature="s1gnature", wanted_headers={"Token": "s3cret"}) as self.server:
            yield

    def new_fetcher(self) -> RemoteStorageFetcher:
        return HttpFetcher()

    def configs(self, url: str | None = None, signature: str = "s1gnature") -> Mapping[str, str]:
        return {
            URL: f"{url or self.server.url}/tier?sig={signature}",
            "remote.storage.options.headers": '{"Token": "s3cret"}',
        }

    def put(self, name: str, data: bytes) -> None:
        self.server.files[f"tier/{name}"] = data

    @contextmanager
    def denied(self) -> Iterator[Mapping[str, str]]:
        yield self.configs(signature="expired")

    @contextmanager
    def answering(self, status: int) -> Iterator[Mapping[str, str]]:
        self.server.plan = lambda asked: Fault(FaultKind.STATUS, status, retry_after=1)
        yield self.configs()

    @contextmanager
    def stalled_connect(self) -> Iterator[Mapping[str, str]]:
        with stalled_connect() as url:
            yield self.configs(url)

    @contextmanager
    def stalled_body(self) -> Iterator[Mapping[str, str]]:
        self.server.plan = lambda asked: Fault(FaultKind.STALL_BODY)
        yield self.configs()


# ------------------------------------------------------------------------------------- fetchers that break a promise


class Plain(SegmentStore):
    """Keeps the contract; the others are it, but for one thing."""

    def configure(self, configs: Mapping[str, str]) -> None:
        if not configs:
            raise ConfigError("nothing is configured")
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> memoryview:
        self.refuse_if_closed()
        return self.log(metadata, start_position, end_position)

    def log(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> memoryview:
        return super().fetch_log_segment(metadata, start, end)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        self.refuse_if_closed()
        return super().fetch_index(metadata, index_type)

    def refuse_if_closed(self) -> None:
        if self.closed:
            raise StorageUnavailable("closed")


class EndsInclusive(Plain):
    def log(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> memoryview:
        return super().log(metadata, start, end + 1 if end >= 0 else -1)


class RaisesPastTheEnd(Plain):
    def log(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> memoryview:
        found = super().log(metadata, start, end)
        if not found and end != start:
            raise StorageUnavailable("416")
        return found


class EmptyForMissing(Plain):
    def log(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> memoryview:
        try:
            return super().log(metadata, start, end)
        except LookupError:
            raise
        except Exception:
            return memoryview(b"")


class EmptyForNoIndex(Plain):
    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        return super().fetch_index(metadata, index_type) or b""


class StaysOpen(Plain):
    def close(self) -> None:
        pass


class TakesAnything(Plain):
    def configure(self, configs: Mapping[str, str]) -> None:
        self.closed = False


class LeaksTheSdk(Plain):
    def log(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> memoryview:
        try:
            return super().log(metadata, start, end)
        except Exception as error:
            raise FileNotFoundError("theirs") from error


class OneHandle(Plain):
    """Has one open file for each segment, which all calls share."""

    def configure(self, configs: Mapping[str, str]) -> None:
        super().configure(configs)
        self.files = {segment.metadata.segment_id: io.BytesIO(segment.log) for segment in parts.stored_segments()}

    def log(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> memoryview:
        super().log(metadata, 0, 1)
        file = self.files[metadata.segment_id]
        file.seek(start)
        return memoryview(file.read() if end < 0 else file.read(end - start))


class IndexByStart(Plain):
    """Remembers an index by the partition's number and the start offset."""

    def configure(self, configs: Mapping[str, str]) -> None:
        super().configure(configs)
        self.known: dict[object, bytes | None] = {}

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        found = super().fetch_index(metadata, index_type)
        place = metadata.topic_id_partition.partition, metadata.start_offset, index_type
        return self.known.setdefault(place, found)


class AbsentWhenWrittenAgain(IndexByStart):
    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        place = metadata.segment_id, index_type
        found = None if place in self.known else Plain.fetch_index(self, metadata, index_type)
        return self.known.setdefault(place, found) and found


class AbsentWhenDenied(Plain):
    def log(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> memoryview:
        raise StorageDenied("no")

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        return None


class Examined(FetcherContract, DenialContract):
    """The suite over one kind of fetcher, to be run by hand."""

    def __init__(self, kind: type[Plain]) -> None:
        self.kind = kind

    def new_fetcher(self) -> RemoteStorageFetcher:
        return self.kind(parts.stored_segments())

    def configs(self) -> Mapping[str, str]:
        return {"any": "thing"}

    def put_segment(self, segment: BuiltSegment) -> None:
        """They are there."""

    @contextmanager
    def denied(self) -> Iterator[Mapping[str, str]]:
        yield self.configs()


def promises(kind: type[Plain]) -> dict[str, Callable[..., None]]:
    """The tests of the suite by name, bound to a fetcher of that kind."""
    suite = Examined(kind)
    return {name: getattr(suite, name) for name in dir(suite) if name.startswith("test_")}


def broken_by(kind: type[Plain]) -> set[str]:
    """The tests that a fetcher fails."""
    found = set()
    segments: list[BuiltSegment] = contract_segments()
    for name, test in promises(kind).items():
        arguments: dict[str, Any] = {"segments": segments} if "segments" in test.__annotations__ else {}
        try:
            test(**arguments)
        except (Exception, pytest.fail.Exception):
            found.add(name)
    return found - {"test_what_is_refused_is_never_absent"} if kind is not AbsentWhenDenied else found


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (EndsInclusive, "test_ranges"),
        (RaisesPastTheEnd, "test_nothing_is_past_the_end"),
        (EmptyForMissing, "test_a_segment_that_is_not_there"),
        (EmptyForNoIndex, "test_indexes"),
        (StaysOpen, "test_closed"),
        (TakesAnything, "test_a_configuration_that_says_nothing"),
        (LeaksTheSdk, "test_a_segment_that_is_not_there"),
        (OneHandle, "test_several_threads_at_once"),
        (IndexByStart, "test_similar_segments"),
        (AbsentWhenWrittenAgain, "test_an_index_that_is_written_again"),
        (AbsentWhenDenied, "test_what_is_refused_is_never_absent"),
    ],
)
def test_a_broken_promise_is_noticed(kind: type[Plain], test: str) -> None:
    assert test in broken_by(kind)


def test_a_fetcher_that_keeps_all_promises_passes() -> None:
    assert broken_by(Plain) == set()


class OneAStart(LocalFetcher):
    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        return iter({each.start_offset: each for each in super().list_segments(topic)}.values())


class UpToTheFirstDash(LocalFetcher):
    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        found = super().list_segments()
        return (each for each in found if topic in (None, each.topic_id_partition.topic.partition("-")[0]))


class OneTopic(LocalFetcher):
    def list_partition(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        return super().list_segments(partition.topic)


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (OneAStart, "test_every_segment_is_listed_once"),
        (UpToTheFirstDash, "test_one_topic_alone"),
        (OneTopic, "test_one_partition_alone"),
    ],
)
def test_a_listing_that_mixes_up_segments_is_noticed(kind: type[LocalFetcher], test: str, tmp_path: Path) -> None:
    class Listed(Directory, ListingContract):
        root = tmp_path

        def new_fetcher(self) -> RemoteStorageFetcher:
            return kind()

        def configs(self) -> Mapping[str, str]:
            return {URL: str(self.root)}

    suite = Listed()
    for segment in parts.stored_segments():
        suite.put_segment(segment)
    with pytest.raises(AssertionError):
        getattr(suite, test)(contract_segments())


class Stalls(Plain):
    """Waits for longer than it may, and takes half of an index for the whole."""

    def log(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> memoryview:
        threading.Event().wait(2)
        raise StorageTimeout("too late")

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        found = super().fetch_index(metadata, index_type) or b""
        return found[: len(found) // 2]


def test_timeouts_that_are_not_obeyed_and_half_indexes_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stalled(StallContract):
        def new_fetcher(self) -> RemoteStorageFetcher:
            return Stalls(contract_segments())

        @contextmanager
        def stalled_body(self) -> Iterator[Mapping[str, str]]:
            yield {"any": "thing"}

        stalled_connect = stalled_body

    monkeypatch.setattr(parts, "_STALL_S", 0.1)
    suite, segments = Stalled(), contract_segments()
    for test in (suite.test_no_connection, suite.test_half_a_body):
        with pytest.raises(AssertionError, match="still waiting"):
            test(segments)
    monkeypatch.setattr(parts, "_STALL_S", 20)
    suite.test_half_a_body(segments)
    with pytest.raises(AssertionError):
        suite.test_half_an_index(segments)


def test_a_secret_in_an_error_is_noticed_and_a_short_value_is_none() -> None:
    options = {f"remote.storage.options.{name}": value for name, value in {"anon": "", "use_ssl": "0"}.items()}
    error = SegmentNotFound("no such object", object_name="00000.log")
    parts.examine(error, options)
    with pytest.raises(AssertionError, match=r"remote\.storage\.options\.key"):
        parts.examine(error, {**options, "remote.storage.options.key": "00000.log"})


def test_the_segments_cover_the_promises() -> None:
    segments = contract_segments()
    assert len(segments) == 3
    assert all(len(segment.log) > 2000 for segment in segments)
    assert [segment.transaction_index is None for segment in segments] == [False, True, True]
    assert isinstance(segments[0].log, Buffer)
