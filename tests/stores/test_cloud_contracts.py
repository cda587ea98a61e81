"""The contract of a fetcher, kept by those of the clouds: on their real servers, and on one that fails on purpose.

Rules of the file:

- A class for each store knows how to write to it, and how to reach a server at another endpoint.
- The promises are those of `remote_fetch.testing.contract`.
- fake-gcs-server never refuses a request, so denials of GCS come only from the failing server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from fetchers.azure import AzureFetcher
from fetchers.gcs import GcsFetcher
from fetchers.s3 import S3Fetcher
from remote_fetch.errors import RetriableError, SegmentNotFound, StorageDenied, StorageUnavailable
from remote_fetch.fetch.spi import RemoteStorageFetcher, SegmentLister, SegmentSizer
from remote_fetch.model import UNKNOWN_SIZE, IndexType, RemoteLogSegmentId, Uuid
from remote_fetch.testing.contract import (
    DenialContract,
    FetcherContract,
    ListingContract,
    StallContract,
    StatusContract,
    contract_segments,
)
from remote_fetch.testing.segments import BuiltSegment
from tests.stores.azure_server import KEY
from tests.stores.moto_server import MotoServer
from tests.stores.proxy import Fault, proxy_of
from tests.stores.range_server import Asked, FaultKind, RangeServer, stalled_connect
from tests.stores.range_server import Fault as Answer
from tests.stores.servers import StoreServer

FOLDER = "contract"
URL = "remote.storage.url"


class _Cloud(FetcherContract, ListingContract, StallContract, StatusContract):
    """One store's fetcher on its server, below a folder of its own. Subclasses name both."""

    fetcher: type[RemoteStorageFetcher]
    server: StoreServer

    def new_fetcher(self) -> RemoteStorageFetcher:
        return self.fetcher()

    def configs(self) -> Mapping[str, str]:
        configs = self.server.configs()
        return {**configs, URL: f"{configs[URL]}/{FOLDER}"}

    def put(self, name: str, data: bytes) -> None:
        self.server.put(f"{FOLDER}/{name}", data)

    def at(self, endpoint: str) -> Mapping[str, str]:
        """The configuration for another server that stands in for the real one; names are known without a listing."""
        here, there = f":{self.server.server.port}", f":{endpoint.rpartition(':')[2]}"
        configs = {name: value.replace(here, there) for name, value in self.configs().items()}
        return {**configs, URL: f"{configs[URL]}/kafka-tiered-storage"}

    @contextmanager
    def stalled_connect(self) -> Iterator[Mapping[str, str]]:
        with stalled_connect() as endpoint:
            yield self.at(endpoint)

    @contextmanager
    def stalled_body(self) -> Iterator[Mapping[str, str]]:
        with proxy_of(self.server.server.port) as proxy:
            proxy.fault = Fault("stall", 2000)
            yield self.at(proxy.endpoint)

    @contextmanager
    def answering(self, status: int) -> Iterator[Mapping[str, str]]:
        """The listing that looks for the tree is refused: for a listing 404 has another meaning."""

        def plan(asked: Asked) -> Answer:
            is_object = "kafka-tiered-storage" in asked.name
            return Answer(FaultKind.STATUS, status=status if is_object else 403)

        with RangeServer(plan=plan) as server:
            yield self.at(server.url)

    def test_a_404_without_the_stores_code_proves_no_absence(self, segments: list[BuiltSegment]) -> None:
        """It may be a proxy's. A transaction index that counts as absent shows aborted records."""
        with self.answering(404) as configs, self.opened(configs) as fetcher, pytest.raises(SegmentNotFound):
            fetcher.fetch_index(segments[0].metadata, IndexType.TRANSACTION)

    @pytest.mark.parametrize(
        "kind",
        [
            FaultKind.WHOLE, FaultKind.WRONG_RANGE, FaultKind.SHORT_RANGE, FaultKind.UNNAMED_RANGE, FaultKind.TRUNCATE,
            FaultKind.REFUSED_RANGE,
        ],
    )  # fmt: skip
    def test_another_range_is_never_taken_for_data(self, segments: list[BuiltSegment], kind: FaultKind) -> None:
        """An answer with another range, or with a part of the range, raises an error."""
        with self.of_logs(segments[0], Answer(kind)) as fetcher:
            for start in (0, 100):
                with pytest.raises(StorageUnavailable):
                    fetcher.fetch_log_segment(segments[0].metadata, start, 1000)

    @contextmanager
    def of_logs(self, segment: BuiltSegment, answer: Answer) -> Iterator[RemoteStorageFetcher]:
        """A fetcher from a server that has the segment's log alone, and this answer for it."""
        refused = Answer(FaultKind.STATUS, status=403)  # also the listing: the tree is where its name says
        with RangeServer(plan=lambda asked: refused) as server, self.opened(self.at(server.url)) as fetcher:
            with pytest.raises(StorageDenied):  # each protocol has paths of its own
                fetcher.fetch_log_segment(segment.metadata, 0, 1)
            server.files = {asked.name: segment.log for asked in server.asked if asked.name.endswith(".log")}
            server.etags = dict.fromkeys(server.files, '"1"')
            server.plan = lambda asked: answer if asked.name in server.files else refused
            yield fetcher

    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_retries_are_not_the_sdks(self, segments: list[BuiltSegment], status: int) -> None:
        """One GET for one call, also when it fails: the reader above knows what time is left."""
        refused = Answer(FaultKind.STATUS, status=403)
        failed = Answer(FaultKind.STATUS, status=status)
        with RangeServer(plan=lambda asked: failed if asked.name.endswith(".log") else refused) as server:
            with self.opened(self.at(server.url)) as fetcher, pytest.raises(RetriableError):
                fetcher.fetch_log_segment(segments[0].metadata, 0, 100)
            assert [asked.attempt for asked in server.asked if asked.name.endswith(".log")] == [0]

    def test_sizes(self, segments: list[BuiltSegment]) -> None:
        """`size` gives the true size, and reads no byte of the segment."""
        with self.opened() as fetcher:
            assert isinstance(fetcher, SegmentSizer)
            for segment in segments:
                unknown = replace(segment.metadata, segment_size_in_bytes=UNKNOWN_SIZE)
                assert fetcher.size(unknown) == len(segment.log)
            known = segments[0].metadata
            other = RemoteLogSegmentId(known.topic_id_partition, Uuid(b"not in the store"))
            with pytest.raises(SegmentNotFound):
                fetcher.size(replace(known, segment_id=other))

    @pytest.mark.parametrize("text", [b"", b"\x00\xff", b"[1]", b"{}", b"<a></a>", b'{"items": [{}]}'], ids=repr)
    def test_a_listing_that_is_none(self, text: bytes) -> None:
        """Is nothing, or an error of ours: foreign bytes are no reason to break down."""

        def answer(asked: Asked) -> None:
            server.files.setdefault(asked.name, text)

        with RangeServer(plan=answer) as server, self.opened(self.at(server.url)) as fetcher:
            assert isinstance(fetcher, SegmentLister)
            with suppress(StorageUnavailable):
                assert list(fetcher.list_segments()) == []
            assert isinstance(fetcher, SegmentSizer)
            with suppress(StorageUnavailable, SegmentNotFound):
                assert fetcher.size(contract_segments()[0].metadata) in (None, len(text))


class _Compatible(_Cloud):
    """A store with a protocol that others speak, too."""

    @pytest.mark.parametrize("kind", [FaultKind.WHOLE, FaultKind.UNNAMED_RANGE])
    def test_the_whole_object_may_be_the_range(self, segments: list[BuiltSegment], kind: FaultKind) -> None:
        """Alibaba's OSS answers so. An index is asked for with an end behind it."""
        log = segments[0].log
        with self.of_logs(segments[0], Answer(kind)) as fetcher:
            if kind is FaultKind.WHOLE:
                assert bytes(fetcher.fetch_log_segment(segments[0].metadata, 0, len(log) + 1)) == log
            else:  # of 206 it may be a part
                with pytest.raises(StorageUnavailable, match="without saying which"):
                    fetcher.fetch_log_segment(segments[0].metadata, 0, len(log) + 1)


class TestS3(_Compatible, DenialContract):
    """s3, on versitygw or moto."""

    fetcher = S3Fetcher

    @pytest.fixture(autouse=True)
    def medium(self, s3: StoreServer) -> None:
        self.server = s3

    @contextmanager
    def denied(self) -> Iterator[Mapping[str, str]]:
        if isinstance(self.server, MotoServer):
            pytest.skip("moto refuses nobody")
        yield {**self.configs(), "remote.storage.options.secret": "not-the-secret"}


class TestGcs(_Compatible):
    """gcs, on fake-gcs-server."""

    fetcher = GcsFetcher

    @pytest.fixture(autouse=True)
    def medium(self, gcs: StoreServer) -> None:
        self.server = gcs


class TestAzure(_Cloud, DenialContract):
    """azure, on Azurite."""

    fetcher = AzureFetcher

    @pytest.fixture(autouse=True)
    def medium(self, azure: StoreServer) -> None:
        self.server = azure

    @contextmanager
    def denied(self) -> Iterator[Mapping[str, str]]:
        yield {name: value.replace(KEY, "bm90LXRoZS1rZXk=") for name, value in self.configs().items()}
