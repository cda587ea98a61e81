"""The fetcher of vended access: its contract, what it believes of a service, and what no error shows."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fetchers.layouts.kafka_local import KafkaLocalLayout
from fetchers.layouts.plain import PlainLayout
from fetchers.vended import VendedFetcher
from remote_fetch.errors import (
    ConfigError,
    CorruptSegment,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.fetch.spi import LocationTaker, RemoteStorageFetcher
from remote_fetch.model import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, Uuid
from remote_fetch.testing.contract import (
    DenialContract,
    FetcherContract,
    StallContract,
    StatusContract,
    contract_segments,
)
from remote_fetch.testing.stores import kafka_local_files
from tests.at_once import at_once
from tests.cases import each_of
from tests.fetchers.vending import Locate, Source, at, opened
from tests.stores.range_server import NO_KEY, Fault, FaultKind, RangeServer, stalled_connect

SECRET = "s3cret-signature"
SEGMENTS = contract_segments()
SEGMENT = SEGMENTS[0]
METADATA = SEGMENT.metadata
TREE = "kafka-tiered-storage"


class TestContract(FetcherContract, DenialContract, StatusContract, StallContract):
    """The promises of every fetcher, over signed URLs of an HTTP server."""

    @pytest.fixture(autouse=True)
    def medium(self) -> Iterator[None]:
        with RangeServer(signature=SECRET, missing=NO_KEY) as server:
            self.server = server
            self.base = server.url
            yield

    def new_fetcher(self) -> RemoteStorageFetcher:
        fetcher = VendedFetcher()
        fetcher.take_locations(Source(KafkaLocalLayout(), at(self.base, f"sig={SECRET}")))
        return fetcher

    def configs(self) -> Mapping[str, str]:
        return {"remote.locator.url": self.server.url}

    def put(self, name: str, data: bytes) -> None:
        self.server.files[name] = data

    @contextmanager
    def denied(self) -> Iterator[Mapping[str, str]]:
        self.server.signature = "another"
        yield self.configs()

    @contextmanager
    def answering(self, status: int) -> Iterator[Mapping[str, str]]:
        self.server.plan = lambda asked: Fault(FaultKind.STATUS, status=status)
        yield self.configs()

    @contextmanager
    def stalled_connect(self) -> Iterator[Mapping[str, str]]:
        with stalled_connect() as url:
            self.base = url
            yield self.configs()

    @contextmanager
    def stalled_body(self) -> Iterator[Mapping[str, str]]:
        self.server.plan = lambda asked: Fault(FaultKind.STALL_BODY)
        yield self.configs()


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with RangeServer(signature=SECRET, missing=NO_KEY) as running:
        for segment in SEGMENTS:
            running.files.update(kafka_local_files(segment))
        yield running


def source_of(server: RangeServer, **more: str) -> Source:
    return Source(KafkaLocalLayout(), at(server.url, f"sig={SECRET}"), **more)


def failure(fetcher: VendedFetcher, metadata: RemoteLogSegmentMetadata = METADATA) -> RemoteFetchError:
    """The error of a read, which shows no signature."""
    with pytest.raises(RemoteFetchError) as caught:
        fetcher.fetch_log_segment(metadata, 0, 100)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return caught.value


# ------------------------------------------------------------------------------------------------------- its parts


def test_it_takes_locations_before_and_after_its_configuration(server: RangeServer) -> None:
    assert isinstance(VendedFetcher(), LocationTaker)
    fetcher = VendedFetcher()
    fetcher.configure({"remote.locator.url": server.url})
    with pytest.raises(ConfigError, match="no service"):
        fetcher.fetch_log_segment(METADATA, 0, 10)
    fetcher.take_locations(source_of(server))
    assert bytes(fetcher.fetch_log_segment(METADATA, 0)) == SEGMENT.log
    fetcher.close()


def test_options_are_those_of_the_connections(server: RangeServer) -> None:
    with pytest.raises(ConfigError, match="no option 'headers'"):
        opened(source_of(server), remote__storage__options__headers="{}")
    opened(source_of(server), remote__storage__options__ca_certs=__file__).close()


def test_one_question_for_a_segment(server: RangeServer) -> None:
    source = source_of(server)
    fetcher = opened(source)
    at_once([partial(fetcher.fetch_log_segment, METADATA, n, n + 9) for n in range(8)])
    fetcher.fetch_index(METADATA, IndexType.OFFSET)
    assert source.asked == [(METADATA.segment_id, False)]
    assert source.layouts_asked == 1
    fetcher.close()


def test_an_empty_range_asks_the_store_nothing(server: RangeServer) -> None:
    fetcher = opened(source_of(server))
    assert fetcher.fetch_log_segment(METADATA, 5, 5) == b""
    assert server.asked == []
    fetcher.close()


# ------------------------------------------------------------------------------------------------------ the layout


def test_names_below_the_tree_or_without_it(server: RangeServer) -> None:
    """The names of the service show where they begin, as a listing does."""
    namer = KafkaLocalLayout()
    namer.configure({"remote.storage.url": f"s3://bucket/{TREE}"})
    fetcher = opened(Source(namer, at(f"{server.url}/{TREE}", f"sig={SECRET}")))
    assert bytes(fetcher.fetch_log_segment(METADATA, 0)) == SEGMENT.log
    fetcher.close()


def test_options_of_the_layout_come_from_the_service_unless_they_are_set(server: RangeServer) -> None:
    template = f"{TREE}/{{topic}}-{{partition}}-{{topic_id}}/{{start_offset}}-{{segment_id}}.{{file}}"
    key = "remote.storage.layout"
    namer = PlainLayout()
    namer.configure({f"{key}.template": template})
    plain = Source(namer, at(server.url, f"sig={SECRET}"), "plain", template=template)
    for source, configs in (
        (plain, {}),
        (Source(namer, plain.locate, "plain", template="{segment_id}/{file}"), {f"{key}.template": template}),
        (Source(namer, plain.locate, "plain", template=template), {key: "plain"}),
        (Source(namer, plain.locate, "kafka_local", other="x"), {key: "plain", f"{key}.template": template}),
        (Source(namer, plain.locate, "plain", template=template), {key: "kafka_local"}),
    ):
        fetcher = opened(source, **configs)
        assert bytes(fetcher.fetch_log_segment(METADATA, 0)) == SEGMENT.log
        fetcher.close()


@each_of(
    ("named", "said"),
    [
        (("iceberg", {}), "names the layout 'iceberg': no layout is called 'iceberg'"),
        (("kafka_local", {"shape": "round"}), "has no option remote.storage.layout.shape"),
        (("plain", {}), "needs remote.storage.layout.template"),
        (("aiven", {"encryption.key.pairs.x.private.key.file": "/etc/passwd"}), "only its user may set"),
    ],
)
def test_layouts_that_cannot_be_used(named: tuple[str, dict[str, str]], said: str, server: RangeServer) -> None:
    source = source_of(server)
    source.named = named
    fetcher = opened(source)
    error = failure(fetcher)
    assert isinstance(error, ConfigError)
    assert said in str(error)
    assert server.asked == []
    fetcher.close()


# ----------------------------------------------------------------------------------------- refused, expired, absent


def test_a_refused_url_is_asked_for_once_more(server: RangeServer) -> None:
    source = source_of(server)
    fetcher = opened(source)
    fetcher.fetch_log_segment(METADATA, 0, 10)
    server.signature = "renewed"  # the URLs that the fetcher knows have expired
    source.locate = at(server.url, "sig=renewed")
    assert bytes(fetcher.fetch_log_segment(METADATA, 0, 50)) == SEGMENT.log[:50]
    assert [refused for _, refused in source.asked] == [False, True]
    assert len(server.asked) == 3
    fetcher.close()


def test_a_url_that_is_refused_twice_is_denied(server: RangeServer) -> None:
    server.signature = "another"
    source = source_of(server)
    fetcher = opened(source)
    for kind in (None, *IndexType):
        server.asked.clear()
        with pytest.raises(StorageDenied) as caught:
            fetcher.fetch_log_segment(METADATA, 0, 9) if kind is None else fetcher.fetch_index(METADATA, kind)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        assert str(METADATA.segment_id.id) in (caught.value.object_name or "")
        assert len(server.asked) == 2
    fetcher.close()


def test_what_the_store_does_not_have_is_for_the_layout_to_judge(server: RangeServer) -> None:
    without = next(segment for segment in SEGMENTS if segment.transaction_index is None)
    fetcher = opened(source_of(server))
    assert fetcher.fetch_index(without.metadata, IndexType.TRANSACTION) is None
    gone = replace(METADATA, segment_id=RemoteLogSegmentId(METADATA.topic_id_partition, Uuid(b"not in the store")))
    assert isinstance(failure(fetcher, gone), SegmentNotFound)
    fetcher.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", SegmentNotFound),
        (b"<html>Not Found: NoSuchKey</html>", SegmentNotFound),
        (b"x" * 5000 + NO_KEY, SegmentNotFound),
        (NO_KEY.replace(b"NoSuchKey", b"NoSuchBucket"), StorageDenied),
    ],
    ids=["empty", "a proxy's", "too late", "no bucket"],
)
def test_a_404_without_the_stores_code_proves_no_absence(
    server: RangeServer, answer: bytes, error: type[RemoteFetchError]
) -> None:
    """All stores that sign URLs have codes. A proxy before them has none."""
    server.missing = answer
    without = next(segment for segment in SEGMENTS if segment.transaction_index is None)
    fetcher = opened(source_of(server))
    with pytest.raises(error) as caught:
        fetcher.fetch_index(without.metadata, IndexType.TRANSACTION)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    fetcher.close()


def test_what_the_service_does_not_name_is_denied_and_not_absent(server: RangeServer) -> None:
    """A transaction index that counts as absent would show aborted records."""

    def some(metadata: RemoteLogSegmentMetadata, names: Mapping[str, str]) -> Mapping[str, str]:
        return at(server.url, f"sig={SECRET}")(metadata, {"log": names["log"]})

    fetcher = opened(Source(KafkaLocalLayout(), some))
    assert bytes(fetcher.fetch_log_segment(METADATA, 0)) == SEGMENT.log
    for kind in IndexType:
        with pytest.raises(StorageDenied, match="gives no URL"):
            fetcher.fetch_index(METADATA, kind)
    fetcher.close()


def test_a_service_that_names_nothing(server: RangeServer) -> None:
    source = Source(KafkaLocalLayout(), lambda metadata, names: {})
    fetcher = opened(source)
    assert isinstance(failure(fetcher), StorageDenied)
    source.locate = at(server.url, f"sig={SECRET}")
    again = opened(source)
    assert bytes(again.fetch_log_segment(METADATA, 0)) == SEGMENT.log
    fetcher.close()
    again.close()


def test_a_segment_that_the_service_does_not_know(server: RangeServer) -> None:
    """No index of it counts as absent, before the first read and after a refusal."""
    source = source_of(server)
    fetcher = opened(source)
    source.error = SegmentNotFound("the service knows no such segment")
    for kind in IndexType:
        with pytest.raises(SegmentNotFound, match=str(METADATA.segment_id.id)):
            fetcher.fetch_index(METADATA, kind)
    source.error = None
    fetcher.fetch_log_segment(METADATA, 0, 10)
    server.signature = "another"
    source.error = SegmentNotFound("the service knows no such segment")
    for kind in IndexType:
        with pytest.raises((StorageDenied, SegmentNotFound)) as caught:
            fetcher.fetch_index(METADATA, kind)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    fetcher.close()


@each_of("error", [StorageDenied("no"), StorageTimeout("late"), StorageUnavailable("away"), ConfigError("wrong")])
def test_errors_of_the_service_are_those_of_the_read(error: RemoteFetchError, server: RangeServer) -> None:
    source = source_of(server)
    source.error = error
    fetcher = opened(source)
    assert type(failure(fetcher)) is type(error)
    assert server.asked == []
    fetcher.close()


# ------------------------------------------------------------------------------------------------------------- lies


def lying(change: Any) -> Locate:
    """The URL of each object by its name, as `change(metadata, name)` has it."""
    return lambda metadata, names: {name: change(metadata, name) for name in names.values()}


OTHER = SEGMENTS[1].metadata
NEIGHBOUR = f"{TREE}/other-0-{Uuid(b'other-topic-id..')}/{0:020d}-{OTHER.segment_id.id}.log"


@each_of(
    ("made", "said"),
    [
        (lambda base, name: f"{base}/secrets/passwords.txt?sig={SECRET}", "leads to another object"),
        (lambda base, name: f"{base}/{NEIGHBOUR}?sig={SECRET}", "leads to another object"),
        (lambda base, name: f"{base}/x?sig={SECRET}&prefix=/{name}", "leads to another object"),
        (lambda base, name: f"{base}/x?sig={SECRET}&y=/{name}", "leads to another object"),
        (lambda base, name: f"{base}/x?sig={SECRET}#/{name}", "a fragment"),
        (lambda base, name: f"{base}/x{name}?sig={SECRET}", "leads to another object"),
        (lambda base, name: f"{base}/{name}/?sig={SECRET}", "leads to another object"),
        (lambda base, name: f"{base}/{name}.bak?sig={SECRET}", "leads to another object"),
        (lambda base, name: f"{base}/{name.upper()}?sig={SECRET}", "leads to another object"),
        (lambda base, name: f"{base}/{name.replace('/', '%2F')}?sig={SECRET}", "leads to another object"),
        (lambda base, name: f"{base}/a/../{name}?sig={SECRET}", "a folder above"),
        (lambda base, name: f"{base}/a/%2e%2e/{name}?sig={SECRET}", "a folder above"),
        (lambda base, name: f"{base}\\@elsewhere/{name}?sig={SECRET}", "characters that a URL cannot have"),
        (lambda base, name: f"{base}/{name}?sig={SECRET}\r\nX: y", "characters that a URL cannot have"),
        (lambda base, name: f"{base}/{name}?sig={SECRET}{'x' * 20_000}", "too many"),
        (lambda base, name: f"http://user:{SECRET}@127.0.0.1/{name}", "a user"),
        (lambda base, name: f"http://192.0.2.1/{name}?sig={SECRET}", "is not https://"),
        (lambda base, name: f"http://store.example/{name}?sig={SECRET}", "is not https://"),
        (lambda base, name: f"ftp://127.0.0.1/{name}?sig={SECRET}", "is not https://"),
        (lambda base, name: f"file:///etc/{name}?sig={SECRET}", "has no host"),
        (lambda base, name: f"/{name}?sig={SECRET}", "has no host"),
        (lambda base, name: f"https://[::1/{name}?sig={SECRET}", "is no URL"),
        (lambda base, name: f"https://store.example:x/{name}?sig={SECRET}", "is no URL"),
    ],
)
def test_urls_that_are_not_followed(made: Any, said: str, server: RangeServer) -> None:
    fetcher = opened(Source(KafkaLocalLayout(), lying(lambda metadata, name: made(server.url, name))))
    error = failure(fetcher)
    assert isinstance(error, CorruptSegment)
    assert said in str(error)
    assert str(METADATA.segment_id.id) in (error.object_name or "")
    assert server.asked == []
    fetcher.close()


def test_http_is_accepted_from_a_service_on_http_alone(server: RangeServer) -> None:
    fetcher = opened(source_of(server), url="https://service.example")
    assert "is not https://" in str(failure(fetcher))
    assert server.asked == []
    fetcher.close()
    for base in (server.url, server.url.replace("127.0.0.1", "localhost")):
        fetcher = opened(Source(KafkaLocalLayout(), at(base, f"sig={SECRET}")))
        assert bytes(fetcher.fetch_log_segment(METADATA, 0)) == SEGMENT.log
        fetcher.close()


def test_metadata_that_names_an_object_of_another_topic(server: RangeServer) -> None:
    """The key in Aiven's custom metadata is checked here as the service checks it."""
    from remote_fetch.formats.tagged_fields import encode_compact_string
    from remote_fetch.testing.metadata_records import encode_tagged_fields
    from tests.fetchers.layouts.aiven_writer import Written

    written = Written(SEGMENT.log, prefix="tier/")
    server.files.update(written.objects())
    stolen = "tier/secrets-AAECAwQFBgcICQoLDA0ODw/0/00000000000000000000-AgICAgICAgICAgICAgICAg"
    metadata = replace(written.metadata, custom_metadata=encode_tagged_fields({2: encode_compact_string(stolen[5:])}))
    names = {name: f"{server.url}/{name}?sig={SECRET}" for name in written.objects()}
    names |= {f"{stolen}.log": f"{server.url}/{stolen}.log?sig={SECRET}"}
    source = Source(KafkaLocalLayout(), lambda *about: names, "aiven", **{"key.prefix": "tier/"})
    fetcher = opened(source)
    with pytest.raises(CorruptSegment, match="does not belong to the segment") as caught:
        fetcher.fetch_log_segment(metadata, 0, 10)
    assert caught.value.object_name == f"{stolen}.log"
    assert {asked.name for asked in server.asked} <= set(written.objects())
    fetcher.close()


def test_a_redirect_to_another_host_is_refused(server: RangeServer) -> None:
    server.plan = lambda asked: Fault(FaultKind.REDIRECT, location=f"http://192.0.2.1/{asked.name}?sig={SECRET}")
    fetcher = opened(source_of(server))
    error = failure(fetcher)
    assert isinstance(error, StorageDenied)
    assert "redirects to another host" in str(error)
    fetcher.close()


def test_names_that_a_service_adds_show_no_other_folder(server: RangeServer) -> None:
    def more(metadata: RemoteLogSegmentMetadata, names: Mapping[str, str]) -> Mapping[str, str]:
        added = {f"elsewhere/{TREE}/x": "https://store.example/x", f"{TREE}/secrets": "https://store.example/y"}
        return {**added, **at(server.url, f"sig={SECRET}")(metadata, names)}

    fetcher = opened(Source(KafkaLocalLayout(), more))
    assert bytes(fetcher.fetch_log_segment(METADATA, 0)) == SEGMENT.log
    fetcher.close()


def test_nothing_shows_a_url(server: RangeServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    source = source_of(server)
    fetcher = opened(source)
    fetcher.fetch_log_segment(METADATA, 0, 10)
    server.plan = lambda asked: Fault(FaultKind.STATUS, status=500)
    failure(fetcher)
    assert SECRET not in f"{fetcher!r}{vars(fetcher)!r}{caplog.text}"
    fetcher.close()


def test_the_size_comes_by_the_url_of_the_log(server: RangeServer) -> None:
    """A service signs GET, so that the size is asked for by a GET of one byte."""
    fetcher = opened(source_of(server))
    assert fetcher.size(METADATA) == len(SEGMENT.log)
    assert (server.asked[-1].start, server.asked[-1].end) == (0, 1)
    assert fetcher.stored_size(METADATA) is None
    fetcher.close()
