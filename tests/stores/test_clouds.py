"""The fetchers of the clouds on real servers: exact ranges by one GET each, listings, threads, and every way to fail.

Rules of the file:

- Each test runs on S3, GCS and Azure. Features of one store are tested in its own file.
- The files on disk are the oracle.
- No time is asserted, only that a call returns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import remote_fetch
from remote_fetch.config import Config
from remote_fetch.errors import RemoteFetchError, SegmentNotFound, StorageDenied, StorageTimeout, StorageUnavailable
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.model import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, Uuid
from tests.at_once import at_once
from tests.eventually import eventually
from tests.stores.conftest import TOPIC
from tests.stores.moto_server import MotoServer
from tests.stores.proxy import Fault, Proxy, proxy_of
from tests.stores.s3_server import S3Server
from tests.stores.servers import StoreServer, free_port

READ_TIMEOUT = {"fetch.remote.read.timeout.ms": "2000"}


@contextmanager
def opened(configs: dict[str, str]) -> Iterator[Any]:
    fetcher = load_fetcher(Config.parse(configs))
    try:
        yield fetcher
    finally:
        fetcher.close()


def log_of(segment: RemoteLogSegmentMetadata, tree: Path) -> bytes:
    place = segment.topic_id_partition
    folder = tree / "kafka-tiered-storage" / f"{place.topic}-{place.partition}-{place.topic_id}"
    return (folder / f"{segment.start_offset:020d}-{segment.segment_id.id}.log").read_bytes()


def a_segment(fetcher: Any) -> RemoteLogSegmentMetadata:
    segments: list[RemoteLogSegmentMetadata] = list(fetcher.list_segments(TOPIC))
    return max(segments, key=lambda segment: segment.segment_size_in_bytes)


def behind(store: StoreServer, endpoint: str, **more: str) -> dict[str, str]:
    """The configuration of a reader that finds the server at another endpoint."""
    configs = {**store.configs(), **more}
    port = endpoint.rpartition(":")[2]
    return {name: value.replace(f":{store.server.port}", f":{port}") for name, value in configs.items()}


@pytest.fixture
def proxy(store: StoreServer) -> Iterator[Proxy]:
    with proxy_of(store.server.port) as running:
        yield running


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, -1), (0, 1), (1, 62), (61, -1), (0, 10**9), (7, 7), (-1, -1), (-1, 10**9), (-2, 10**9), (10**12, -1)],
    ids=str,
)
def test_one_get_for_one_range(store: StoreServer, proxy: Proxy, tree: Path, start: int, end: int) -> None:
    with opened(behind(store, proxy.endpoint)) as fetcher:
        segment = a_segment(fetcher)
        log = log_of(segment, tree)
        start = start if start >= 0 else len(log) + start + 1  # -1 is the very end
        before = len(proxy.asked)
        data = memoryview(fetcher.fetch_log_segment(segment, start, end))
        assert data.contiguous
        assert bytes(data) == (log[start:] if end < 0 else log[start:end])
    assert len(proxy.asked) - before == (start != end)
    assert all(line.startswith("GET ") for line in proxy.asked)


def test_a_read_asks_for_ranges_and_indexes_and_nothing_else(store: StoreServer, proxy: Proxy) -> None:
    """One listing is the exception: the layout looks for the start of its tree.

    No request asks for sizes, kinds of buckets or tokens.
    """
    with opened(store.configs()) as fetcher:
        segments = list(fetcher.list_segments())
    with opened(behind(store, proxy.endpoint)) as fetcher:
        for segment in segments:
            fetcher.fetch_log_segment(segment, 10, 20)
            fetcher.fetch_index(segment, IndexType.TRANSACTION)
    assert len(proxy.asked) == 1 + 2 * len(segments)


def test_listings(store: StoreServer, tree: Path) -> None:
    logs = {path.name: path.stat().st_size for path in tree.rglob("*.log")}
    with opened(store.configs()) as fetcher:
        found = {f"{s.start_offset:020d}-{s.segment_id.id}.log": s for s in fetcher.list_segments()}
        assert {name: segment.segment_size_in_bytes for name, segment in found.items()} == logs
        assert list(fetcher.list_segments("another")) == []
    elsewhere = {**store.configs(), "remote.storage.url": f"{store.configs()['remote.storage.url']}/nothing"}
    with opened(elsewhere) as fetcher:
        assert list(fetcher.list_segments()) == []


def test_a_listing_of_several_pages(store: StoreServer) -> None:
    """A folder whose name begins like another, a folder in a folder, and more objects than a page has."""
    from fetchers._composed import ComposedFetcher

    names = {f"many/{number:04d}" for number in range(1200)} if isinstance(store, S3Server) else set()
    names |= {"many/deep/er/a", "many/b", "many-more/c"}
    for name in sorted(names):
        store.put(name, b"12345")
    with opened(store.configs()) as fetcher:
        assert isinstance(fetcher, ComposedFetcher)
        _, objects = fetcher._opened()
        infos = list(objects.list("many"))
        assert {info.name for info in infos} == names - {"many-more/c"}
        assert {info.size_bytes for info in infos} == {5}
        assert sorted(objects.folders("many")) == ["deep"]
        assert {"many", "many-more"} <= set(objects.folders())


def test_a_prefix_with_odd_letters(store: StoreServer, tree: Path) -> None:
    """The store gets the letters of the prefix complete and not decoded."""
    prefix = "env=a b+c%20d/ü#1"
    for path in sorted(tree.rglob("*")):
        if path.is_file():
            store.put(f"{prefix}/{path.relative_to(tree).as_posix()}", path.read_bytes())
    with opened(
        {**store.configs(), "remote.storage.url": f"{store.configs()['remote.storage.url']}/{prefix}"}
    ) as found:
        segment = a_segment(found)
        assert bytes(found.fetch_log_segment(segment, 0, 61)) == log_of(segment, tree)[:61]


def test_several_threads(store: StoreServer, tree: Path) -> None:
    wrong: list[object] = []
    with opened(store.configs()) as fetcher:
        segments = list(fetcher.list_segments(TOPIC))

        def read() -> None:
            wrong.extend(
                segment
                for segment in segments
                if bytes(fetcher.fetch_log_segment(segment, 10, 300)) != log_of(segment, tree)[10:300]
            )

        at_once([read] * 16)
    assert wrong == []


def test_both_isolation_levels_equal_the_directory(store: StoreServer, tree: Path) -> None:
    for isolation in ("read_committed", "read_uncommitted"):
        there = remote_fetch.read_arrow(TOPIC, isolation=isolation, config=store.configs()).read_all()
        here = remote_fetch.read_arrow(TOPIC, isolation=isolation, config={"remote.storage.url": str(tree)}).read_all()
        assert there.sort_by([("partition", "ascending"), ("offset", "ascending")]).equals(
            here.sort_by([("partition", "ascending"), ("offset", "ascending")])
        )
        assert there.num_rows > 0


def test_a_missing_object_and_a_missing_index(store: StoreServer) -> None:
    with opened(store.configs()) as fetcher:
        segment = a_segment(fetcher)
        gone = dataclasses.replace(segment, segment_id=RemoteLogSegmentId(segment.topic_id_partition, Uuid(b"g" * 16)))
        with pytest.raises(SegmentNotFound) as caught:
            fetcher.fetch_log_segment(gone, 0, 10)
        assert str(gone.segment_id.id) in (caught.value.object_name or "")
        assert fetcher.fetch_index(gone, IndexType.OFFSET) is None


def test_nobody_listens(store: StoreServer) -> None:
    configs = behind(store, f"http://127.0.0.1:{free_port()}")
    with opened(store.configs()) as fetcher:
        segment = a_segment(fetcher)
    with opened(configs) as fetcher:
        with pytest.raises(StorageUnavailable):
            fetcher.fetch_log_segment(segment, 0, 10)
        with pytest.raises(StorageUnavailable):
            fetcher.fetch_index(segment, IndexType.OFFSET)
        with pytest.raises(StorageUnavailable):
            list(fetcher.list_segments())


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault("stall", 0), (StorageTimeout,)),
        (Fault("stall", 2000), (StorageTimeout,)),
        (Fault("cut", 0), (StorageUnavailable,)),
        (Fault("cut", 2000), (StorageUnavailable, StorageTimeout)),
    ],
    ids=["no answer", "a body that stalls", "a reset", "a body that breaks off"],
)
def test_what_is_broken_on_the_way(
    store: StoreServer, proxy: Proxy, tree: Path, fault: Fault, expected: tuple[type[RemoteFetchError], ...]
) -> None:
    """The read raises the error of its cause. Afterwards the same fetcher reads as before.

    Azure's SDK asks again for a body that broke off, until the read timeout ends that.
    """
    with opened(store.configs()) as patient:
        segment = a_segment(patient)
    with opened(behind(store, proxy.endpoint, **({} if fault == Fault("cut", 0) else READ_TIMEOUT))) as fetcher:
        proxy.fault = fault
        failures: tuple[type[RemoteFetchError], ...] = (*expected, StorageTimeout)

        def is_broken() -> bool:  # on a busy machine the read timeout may come before the fault
            with pytest.raises(failures) as caught:
                fetcher.fetch_log_segment(segment, 0, 10**6)
            assert caught.value.object_name
            return bool(proxy.broken) and isinstance(caught.value, expected)

        assert eventually(is_broken)
        proxy.fault = None

        def reads_all() -> bool:  # on a busy machine an answer may still be late
            with contextlib.suppress(StorageTimeout):
                return bytes(fetcher.fetch_log_segment(segment, 0, 10**6)) == log_of(segment, tree)
            return False

        assert eventually(reads_all)


def refused_s3(store: StoreServer) -> dict[str, str]:
    return store.configs(secret="not-the-secret")


def refused_azure(store: StoreServer) -> dict[str, str]:
    wrong = "bm90LXRoZS1zZWNyZXQtYXQtYWxs"
    return {
        name: value.replace(value.rpartition("AccountKey=")[2], wrong) if "AccountKey=" in value else value
        for name, value in store.configs().items()
    }


@pytest.mark.servers  # the fixture is asked for by its name, so that pytest cannot see it
@pytest.mark.parametrize(
    ("kind", "refused", "secret"),
    [("s3", refused_s3, "not-the-secret"), ("azure", refused_azure, "bm90LXRoZS1zZWNyZXQ")],
    ids=["s3", "azure"],
)
def test_a_wrong_secret_is_denied_and_not_shown(
    request: pytest.FixtureRequest,
    kind: str,
    refused: Callable[[StoreServer], dict[str, str]],
    secret: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store: StoreServer = request.getfixturevalue(kind)
    if isinstance(store, MotoServer):
        pytest.skip("moto refuses nobody")
    with opened(store.configs()) as fetcher:
        segment = a_segment(fetcher)
    with opened(refused(store)) as fetcher:
        for call in (
            lambda: fetcher.fetch_log_segment(segment, 0, 10),
            lambda: fetcher.fetch_index(segment, IndexType.TRANSACTION),
            lambda: list(fetcher.list_segments()),
        ):
            with pytest.raises(StorageDenied) as caught:
                call()
            shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caplog.text
            assert secret not in shown
            assert caught.value.hint
        assert secret not in repr(vars(fetcher).get("_store"))
