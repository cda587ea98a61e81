"""Locations in custom metadata: their forms, their hosts, and their signatures, which no message shows."""

from __future__ import annotations

import dataclasses
import json
import pickle
import traceback
from typing import Any
from urllib.parse import unquote

import pytest

from fetchers.http import HttpFetcher
from fetchers.layouts import naming
from fetchers.layouts.url import UrlLayout, parse_locations
from remote_fetch.errors import ConfigError, CorruptSegment, SegmentNotFound, StorageDenied, UnsupportedFormat
from remote_fetch.model import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tests.fetchers.layouts.aiven_writer import Store
from tests.stores.range_server import RangeServer
from tests.stores.servers import PATIENCE

ROOT = "https://bucket.example/tier"
QUERY = "X-Amz-Signature=s3cret&X-Amz-Expires=60"
PARTITION = TopicIdPartition(Uuid(b"\x01" * 16), "orders", 0)
SEGMENT = RemoteLogSegmentMetadata(RemoteLogSegmentId(PARTITION, Uuid(b"\x02" * 16)), 0, 9, 3)


class Signed(Store):
    """A store that reads signed URLs too; an expired one is refused, with all of it in the SDK's message."""

    def get_url(self, url: str, start: int = 0, end: int = -1) -> bytes:
        path, _, query = url.partition("?")
        if query != QUERY:
            cause = OSError(f"403 for {url}")
            raise StorageDenied(f"refused: {url}", object_name=url) from cause
        return self.get(path.removeprefix(f"{ROOT}/"), start, end)


class Sized(Signed):
    """A store that tells sizes too."""

    def size(self, name: str) -> int:
        return len(self.get(name))

    def url_size(self, url: str) -> int:
        return len(self.get_url(url))


def segment(custom_metadata: object, **more: Any) -> RemoteLogSegmentMetadata:
    data = custom_metadata if isinstance(custom_metadata, bytes | None) else json.dumps(custom_metadata).encode()
    return dataclasses.replace(SEGMENT, custom_metadata=data, **more)


def opened() -> UrlLayout:
    layout = UrlLayout()
    layout.configure({"remote.storage.url": f"{ROOT}/"})
    return layout


@pytest.mark.parametrize("location", [b"orders/7.log", f"{ROOT}/orders/7.log".encode()])
def test_a_location_alone(location: bytes) -> None:
    store = Store({"orders/7.log": b"log", "orders/7.index": b"idx", "orders/7.txnindex": b"txn"})
    one = segment(location)
    assert opened().read_segment(store, one, 1, 3) == b"og"
    found = {kind: opened().read_index(store, one, kind) for kind in IndexType}
    assert {kind: data for kind, data in found.items() if data is not None} == {
        IndexType.OFFSET: b"idx",
        IndexType.TRANSACTION: b"txn",
    }


@pytest.mark.parametrize("location", ["orders/7?.log", "/mnt/a?b/orders/7?.log", "file:///mnt/a?b/orders/7?.log"])
@pytest.mark.parametrize("root", ["/mnt/a?b", "file:///mnt/a?b/"])
def test_a_path_of_this_machine_has_no_query(root: str, location: str) -> None:
    layout, store = UrlLayout(), Store({"orders/7?.log": b"log", "orders/7?.leader_epoch_checkpoint": b"epochs"})
    layout.configure({"remote.storage.url": root})
    one = segment(location.encode())
    assert layout.read_segment(store, one, 0, -1) == b"log"
    assert layout.read_index(store, one, IndexType.LEADER_EPOCH) == b"epochs"
    assert layout.read_index(store, one, IndexType.TRANSACTION) is None
    with pytest.raises(SegmentNotFound) as caught:
        layout.read_segment(Store({}), segment(location.encode()), 0, -1)
    assert caught.value.object_name == location
    with pytest.raises(UnsupportedFormat, match="does not lie below") as refused:
        layout.read_segment(store, segment(f"{ROOT}/7.log?{QUERY}".encode()), 0, -1)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("root", "location"),
    [
        ("https://me:s3cret@bucket.example/tier", "https://bucket.example/tier/7.log"),
        ("abfs://box@account.example/tier", "abfs://box@account.example/tier/7.log"),
    ],
)
def test_a_location_lacks_the_password_of_the_root(root: str, location: str) -> None:
    layout = UrlLayout()
    layout.configure({"remote.storage.url": root})
    assert layout.read_segment(Store({"7.log": b"log"}), segment(location.encode()), 0, -1) == b"log"
    with pytest.raises(UnsupportedFormat, match="does not lie below"):
        layout.read_segment(Store({"7.log": b"log"}), segment(location.replace("://", "://x@").encode()), 0, -1)


@pytest.mark.parametrize("name", ["my%20orders/7%2B.log", "my orders/7+.log", "100%/7%25.log"])
def test_a_url_without_a_signature_is_encoded_as_a_url(name: str) -> None:
    files = {unquote(name): b"log", f"{unquote(name).removesuffix('.log')}.txnindex": b"txn"}
    with RangeServer(files) as server:
        fetcher = HttpFetcher()
        config = {"remote.storage.url": f"{server.url}/", "remote.storage.layout": "url"}
        fetcher.configure({**PATIENCE, **config})
        one = segment(f"{server.url}/{name}".encode())
        assert bytes(fetcher.fetch_log_segment(one, 0)) == b"log"
        assert fetcher.size(one) == 3
        assert bytes(fetcher.fetch_index(one, IndexType.TRANSACTION) or b"") == b"txn"
        fetcher.close()


@pytest.mark.parametrize(
    ("root", "location", "store"),
    [("s3://bucket/tier", "s3://bucket/tier/my%20orders/7.log", Store), (ROOT, "my%20orders/7.log", Signed)],
    ids=["no store of URLs", "no URL"],
)
def test_any_other_location_is_the_name_of_an_object(root: str, location: str, store: type[Store]) -> None:
    """Decoded, it would be the name of another object."""
    layout = UrlLayout()
    layout.configure({"remote.storage.url": root})
    objects = {"my%20orders/7.log": b"log", "my orders/7.log": b"another"}
    assert layout.read_segment(store(objects), segment(location.encode()), 0, -1) == b"log"


def test_a_location_for_each_file() -> None:
    store = Store({"a": b"log", "b": b"idx"})
    one = segment({"log": "a", "offset": f"{ROOT}/b", "transaction": None, "of no": "interest"})
    assert opened().read_segment(store, one, 0, -1) == b"log"
    assert opened().read_index(store, one, IndexType.OFFSET) == b"idx"
    assert opened().read_index(store, one, IndexType.TRANSACTION) is None
    assert opened().read_index(store, one, IndexType.TIMESTAMP) is None


def test_a_signed_location() -> None:
    store = Signed({"orders/7.log": b"log"})
    one = segment(f"{ROOT}/orders/7.log?{QUERY}".encode())
    assert opened().read_segment(store, one, 1, -1) == b"og"
    assert opened().read_index(store, one, IndexType.OFFSET) is None
    with pytest.raises(UnsupportedFormat, match="where the transaction index is"):
        opened().read_index(store, one, IndexType.TRANSACTION)
    assert opened().read_index(store, segment(one.custom_metadata, txn_index_empty=True), IndexType.TRANSACTION) is None


def test_what_signs_a_location_is_in_no_error() -> None:
    one = segment(f"{ROOT}/orders/7.log?{QUERY}-expired".encode())
    with pytest.raises(StorageDenied) as caught:
        opened().read_segment(Signed({}), one, 0, 1)
    error = caught.value
    told = "".join(traceback.format_exception(error)) + repr(error) + repr(pickle.loads(pickle.dumps(error)).__dict__)
    assert "s3cret" not in told
    assert (error.__cause__, error.__context__) == (None, None)
    assert error.object_name == f"{ROOT}/orders/7.log"
    with pytest.raises(UnsupportedFormat, match="fetcher 'http'") as plain:
        opened().read_segment(Store({}), one, 0, 1)
    assert "s3cret" not in str(plain.value)
    assert "s3cret" not in repr(parse_locations(one.custom_metadata, lambda _: True))


@pytest.mark.parametrize(
    "location",
    [
        "https://elsewhere.example/tier/7.log",
        "https://bucket.example/tiers/7.log",
        "http://bucket.example/tier/7.log",
        "https://me:s3cret@bucket.example/tier/7.log",
        f"{ROOT}/../other/7.log",
        f"{ROOT}/%2e%2e/other/7.log",
        "../7.log",
        "a/../../7.log",
        "/etc/passwd",
        "a//b",
        "file:///etc/passwd",
        f"https://bucket.example/other/7.log?{QUERY}",
    ],
)
def test_locations_elsewhere_are_not_followed(location: str) -> None:
    store = Signed({})
    with pytest.raises(UnsupportedFormat, match=r"below remote\.storage\.url|fetcher 'http'") as caught:
        opened().read_segment(store, segment(location.encode()), 0, 1)
    assert store.gets == []
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "no custom metadata"),
        (b"", "no custom metadata"),
        (b"\xff", "neither a location nor a JSON object"),
        (b" ", "the location in the custom metadata is empty"),
        (b"a\nb", "the location in the custom metadata has U\\+000A at character 1, which cannot be printed"),
        (b"{", "neither a location nor a JSON object"),
        (b'{"log": 5}', "the location 'log' in the custom metadata is no text"),
        (b'{"log": ""}', "the location 'log' in the custom metadata is empty"),
        (b'{"log": "a", "offset": "a\\u0000"}', "the location 'offset' in the custom metadata has U\\+0000"),
        (b"{" * 9000, "neither a location nor a JSON object"),
        (b"x" * 70_000, "70000 bytes is no location"),
    ],
)
def test_metadata_that_is_no_location(data: bytes | None, said: str) -> None:
    with pytest.raises(UnsupportedFormat, match=said):
        opened().read_segment(Store({}), segment(data), 0, 1)


def test_a_space_belongs_to_the_name() -> None:
    store = Store({"my orders/7.log": b"log", "my orders/7.index": b"idx"})
    for location in ("my orders/7.log", f"{ROOT}/my orders/7.log"):
        one = segment(location.encode())
        assert opened().read_segment(store, one, 0, -1) == b"log"
        assert opened().read_index(store, one, IndexType.OFFSET) == b"idx"


def test_a_space_in_a_signed_location_is_sent_as_urls_have_it() -> None:
    store = Signed({"my%20orders/7.log": b"log"})
    for name in ("my orders", "my%20orders"):
        one = segment(f"{ROOT}/{name}/7.log?{QUERY}".encode())
        assert opened().read_segment(store, one, 0, -1) == b"log"


def test_without_a_location_of_the_log() -> None:
    for document in ({}, {"log": None}, {"offset": "a"}):
        with pytest.raises(UnsupportedFormat, match="where the log is"):
            opened().read_segment(Store({}), segment(document), 0, 1)


def test_an_index_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "MAX_INDEX_BYTES", 2)
    with pytest.raises(CorruptSegment, match="more than 2 bytes"):
        opened().read_index(Store({"b": b"idx"}), segment({"offset": "b"}), IndexType.OFFSET)


def test_a_segment_that_is_gone() -> None:
    with pytest.raises(SegmentNotFound):
        opened().read_segment(Store({}), segment(b"a.log"), 0, 1)


def test_nothing_is_listed_and_nothing_configured() -> None:
    with pytest.raises(UnsupportedFormat, match="cannot list segments"):
        opened().list_segments(Store({}), None)
    with pytest.raises(ConfigError, match="nor any other"):
        UrlLayout().configure({"remote.storage.layout.x": "y"})


class TestRoots:
    """`remote.storage.roots`: the stores that metadata may choose from, and no other."""

    OTHER, NEAR = "s3://bucket-b/tier", f"{ROOT}/eu"

    def layout(self) -> tuple[UrlLayout, Store, Store, Store]:
        """The layout with two roots beside its own, and the three stores."""
        layout = opened()
        other, near = Store({"orders/7.log": b"other", "orders/7.index": b"idx"}), Sized({"7.log": b"near"})
        layout.take_roots({f"{self.OTHER}/": other, self.NEAR: near, "/mnt/tier": Store({"7.log": b"file"})})
        return layout, Store({"orders/7.log": b"main", "eu/7.log": b"hidden"}), other, near

    @pytest.mark.parametrize(
        ("location", "data"),
        [
            ("orders/7.log", b"main"),
            (f"{ROOT}/orders/7.log", b"main"),
            (f"{OTHER}/orders/7.log", b"other"),
            (f"{NEAR}/7.log", b"near"),
            ("/mnt/tier/7.log", b"file"),
            ("file:///mnt/tier/7.log", b"file"),
        ],
    )
    def test_the_location_chooses(self, location: str, data: bytes) -> None:
        layout, store, _, _ = self.layout()
        assert layout.read_segment(store, segment(location.encode()), 0, -1) == data

    def test_indexes_lie_beside_the_log(self) -> None:
        layout, store, other, _ = self.layout()
        one = segment(f"{self.OTHER}/orders/7.log".encode())
        assert layout.read_index(store, one, IndexType.OFFSET) == b"idx"
        assert layout.read_index(store, one, IndexType.TRANSACTION) is None
        assert store.gets == []
        assert [name for name, _, _ in other.gets] == ["orders/7.index", "orders/7.txnindex"]

    def test_each_file_may_have_its_root(self) -> None:
        layout, store, _, _ = self.layout()
        one = segment({"log": "orders/7.log", "offset": f"{self.OTHER}/orders/7.index"})
        assert layout.read_segment(store, one, 0, -1) == b"main"
        assert layout.read_index(store, one, IndexType.OFFSET) == b"idx"

    @pytest.mark.parametrize(
        "location",
        [
            "s3://bucket-b/tier-evil/7.log",
            "s3://bucket-b/tier",
            "s3://bucket-b/tier/",
            "s3://bucket-b/7.log",
            "s3://bucket-b/tier/../7.log",
            "s3://bucket-b/tier/%2e%2e/7.log",
            "s3://bucket-b/tier//7.log",
            "s3://bucket-b/tier/s3://bucket-c/7.log",
            "s3://bucket-b.evil/tier/7.log",
            "s3://me@bucket-b/tier/7.log",
            "S3://bucket-b/tier/7.log",
            "gs://bucket-b/tier/7.log",
            "/mnt/tier-evil/7.log",
            "/mnt/tier/../7.log",
            "file:///mnt/7.log",
            "file://mnt/tier/7.log",
            "https://bucket.example@evil.example/tier/eu/7.log",
        ],
    )
    def test_locations_below_no_root(self, location: str) -> None:
        layout, *stores = self.layout()
        for read in (
            lambda one: layout.read_segment(stores[0], one, 0, 1),
            lambda one: layout.segment_size(stores[0], one),
        ):
            with pytest.raises(UnsupportedFormat, match=r"below a root of remote\.storage\.roots") as caught:
                read(segment(location.encode()))
            assert "remote.storage.roots" in (caught.value.hint or "")
        assert [store.gets for store in stores] == [[], [], []]

    def test_a_signed_location_below_a_root(self) -> None:
        layout, store = opened(), Signed({})
        layout.take_roots({"https://b.example/tier": Signed({"https://b.example/tier/7.log": b"log"})})
        one = segment(f"https://b.example/tier/7.log?{QUERY}".encode())
        assert layout.read_segment(store, one, 0, -1) == b"log"
        layout.take_roots({"s3://b/tier": Store({})})
        with pytest.raises(UnsupportedFormat, match="fetcher 'http'") as caught:
            layout.read_segment(store, segment(f"s3://b/tier/7.log?{QUERY}".encode()), 0, -1)
        assert "s3cret" not in str(caught.value)


class TestSizes:
    def test_of_an_object(self) -> None:
        store = Sized({"orders/7.log": b"four"})
        assert opened().segment_size(store, segment(b"orders/7.log")) == 4
        assert opened().segment_size(Store({}), segment(b"orders/7.log")) is None
        with pytest.raises(SegmentNotFound):
            opened().segment_size(store, segment(b"orders/8.log"))

    def test_of_a_signed_url(self) -> None:
        one = segment(f"{ROOT}/orders/7.log?{QUERY}".encode())
        assert opened().segment_size(Sized({"orders/7.log": b"four"}), one) == 4
        assert opened().segment_size(Signed({"orders/7.log": b"four"}), one) is None
        expired = segment(f"{ROOT}/orders/7.log?{QUERY}-expired".encode())
        with pytest.raises(StorageDenied) as caught:
            opened().segment_size(Sized({}), expired)
        assert "s3cret" not in str(caught.value)

    def test_without_a_location_of_the_log(self) -> None:
        with pytest.raises(UnsupportedFormat, match="where the log is"):
            opened().segment_size(Sized({}), segment({"offset": "orders/7.index"}))
