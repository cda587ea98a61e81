"""The HTTP fetcher against a server that misbehaves: what is data, what is not, and what never leaves the process."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import ThreadingHTTPServer

import pytest

from fetchers import _ranges, http
from fetchers._options import Timeouts
from fetchers.http import HttpFetcher, open_urls
from remote_fetch.errors import (
    ConfigError,
    CorruptSegment,
    MissingExtra,
    RemoteFetchError,
    SegmentNotFound,
    StorageConnectTimeout,
    StorageDenied,
    StorageThrottled,
    StorageTimeout,
    StorageUnavailable,
    Unlocatable,
)
from remote_fetch.testing.contract import contract_segments
from remote_fetch.testing.stores import kafka_local_files
from tests.answering import Quiet, serving
from tests.stores.range_server import Asked, Fault, FaultKind, RangeServer, stalled_connect

URL = "remote.storage.url"
OPTIONS = "remote.storage.options."
SEGMENT = contract_segments()[1]
METADATA = SEGMENT.metadata
SECRET = "s3cret-signature"
PATIENCE = {"fetch.remote.connect.timeout.ms": "30000", "fetch.remote.read.timeout.ms": "30000"}
"""On a busy machine the defaults, one second and five, may pass before an answer comes."""


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with RangeServer() as server:
        for name, data in kafka_local_files(SEGMENT):
            server.files[f"a b/{name}"] = data
        yield server


def opened(server: RangeServer, *, query: str = "", url: str | None = None, **configs: str) -> HttpFetcher:
    fetcher = HttpFetcher()
    given = {name.replace("_", "."): value for name, value in configs.items() if name.startswith("fetch_")}
    options = {OPTIONS + name: value for name, value in configs.items() if not name.startswith("fetch_")}
    fetcher.configure({URL: url or f"{server.url}/a%20b{query}", **PATIENCE, **given, **options})
    return fetcher


def failure(server: RangeServer, fault: Fault, start: int = 100, end: int = 600, **configs: str) -> RemoteFetchError:
    """The error of a read if every request has this fault."""
    server.plan = lambda asked: fault
    fetcher = opened(server, query=f"?sig={SECRET}", **configs)
    with pytest.raises(RemoteFetchError) as caught:
        fetcher.fetch_log_segment(METADATA, start, end)
    fetcher.close()
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert str(METADATA.segment_id.id) in (caught.value.object_name or "")
    return caught.value


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        (FaultKind.WHOLE, StorageUnavailable, "whole object"),
        (FaultKind.WRONG_RANGE, StorageUnavailable, "bytes 101 to 600 of"),
        (FaultKind.SHORT_RANGE, StorageUnavailable, "bytes 100 to 349"),
        (FaultKind.UNNAMED_RANGE, StorageUnavailable, "without saying which"),
        (FaultKind.TRUNCATE, StorageUnavailable, "broke off"),
        (FaultKind.RESET, StorageUnavailable, "broke off"),
        (FaultKind.DROP, StorageUnavailable, "broke off"),
    ],
)
def test_what_is_no_data(server: RangeServer, kind: FaultKind, error: type[RemoteFetchError], text: str) -> None:
    found = failure(server, Fault(kind))
    assert type(found) is error
    assert text in str(found)


@pytest.mark.parametrize(("size_bytes", "text"), [(9, "broke off after 9 of 10 bytes"), (11, "more than the 10 bytes")])
def test_a_body_has_as_many_bytes_as_its_range(size_bytes: int, text: str) -> None:
    """Its Content-Length is right. A shorter body would be taken for the end of the object."""

    class Other(Quiet):
        def do_GET(self) -> None:
            self.answer(206, bytes(size_bytes), Content_Range="bytes 0-9/100", ETag='"1"')

    store = open_urls({}, Timeouts(30.0, 30.0))
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Other)) as url:
        with pytest.raises(StorageUnavailable, match=text):
            store.get_url(f"{url}/a", 0, 10)
        store.close()


@pytest.mark.parametrize("kind", [None, FaultKind.WHOLE])
def test_an_object_that_is_read_to_its_end_has_a_bound(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch, kind: FaultKind | None
) -> None:
    server.plan = lambda asked: None if kind is None else Fault(kind)
    fetcher = opened(server)
    monkeypatch.setattr(_ranges, "_MAX_WHOLE_BYTES", len(SEGMENT.log))
    assert bytes(fetcher.fetch_log_segment(METADATA, 0)) == SEGMENT.log
    monkeypatch.setattr(_ranges, "_MAX_WHOLE_BYTES", len(SEGMENT.log) - 1)
    with pytest.raises(CorruptSegment, match="was to be read whole"):
        fetcher.fetch_log_segment(METADATA, 0)
    if kind is None:
        assert bytes(fetcher.fetch_log_segment(METADATA, 0, len(SEGMENT.log))) == SEGMENT.log


@pytest.mark.parametrize("kind", [FaultKind.STALL_ANSWER, FaultKind.STALL_BODY])
def test_a_stall_ends_with_the_read_timeout(server: RangeServer, kind: FaultKind) -> None:
    assert type(failure(server, Fault(kind), fetch_remote_read_timeout_ms="300")) is StorageTimeout


def test_no_connection_is_a_timeout_of_its_own(server: RangeServer) -> None:
    with stalled_connect() as url:
        fetcher = opened(server, url=url, fetch_remote_connect_timeout_ms="200")
        with pytest.raises(StorageConnectTimeout):
            fetcher.fetch_log_segment(METADATA, 0, 10)
        fetcher.close()


def test_nobody_listens(server: RangeServer) -> None:
    with RangeServer() as gone:
        url = gone.url
    fetcher = opened(server, url=url)
    with pytest.raises(StorageUnavailable):
        fetcher.fetch_log_segment(METADATA, 0, 10)
    fetcher.close()


def test_a_body_that_trickles_ends_with_the_read_timeout(server: RangeServer) -> None:
    """Each byte comes in time; all of them do not."""
    found = failure(server, Fault(FaultKind.TRICKLE), fetch_remote_read_timeout_ms="300")
    assert type(found) is StorageTimeout
    assert "the store did not answer in time" in str(found)
    assert "raise fetch.remote.read.timeout.ms" in str(found)


@pytest.mark.parametrize("status", [201, 203, 204])
def test_a_status_that_no_store_answers_with(server: RangeServer, status: int) -> None:
    found = failure(server, Fault(FaultKind.STATUS, status))
    assert type(found) is StorageUnavailable
    assert f"the server answered with status {status}" in str(found)


def test_a_refused_range_is_the_end_only_if_the_object_has_no_byte_there(server: RangeServer) -> None:
    """Else an index that has bytes would be taken for an empty one."""
    store = HttpFetcher().open_store({"remote.storage.url": server.url})
    server.files |= {"empty": b"", "full": b"abc"}
    assert [store.get("empty", 0, 5), store.get("full", 3, 5)] == [b"", b""]
    server.plan = lambda asked: Fault(FaultKind.STATUS, 416)
    assert store.get("empty", 0, 5) == b"", "a server need not tell the size"
    refusals = (
        lambda asked: Fault(FaultKind.REFUSED_RANGE),
        lambda asked: Fault(FaultKind.STATUS, 416) if asked.end > 3 else None,  # as some gateways do
        lambda asked: Fault(FaultKind.STATUS, 416) if asked.end > 3 else Fault(FaultKind.UNNAMED_RANGE),
    )
    for server.plan in refusals:
        for start in (0, 2):
            with pytest.raises(StorageUnavailable, match=r"refuses the range from|without saying which"):
                store.get("full", start, 5)
    assert store.get("full", 3, 5) == b""
    store.close()


def test_an_object_may_come_whole_if_the_range_goes_on_behind_it(server: RangeServer) -> None:
    """Go's net/http answers a range of an empty file so, and Alibaba's OSS each range that ends behind the object.

    A broker leaves an offset index empty, and an index is asked for with an end behind it.
    """
    store = HttpFetcher().open_store({"remote.storage.url": server.url})
    server.files |= {"empty": b"", "full": b"abc"}
    server.plan = lambda asked: Fault(FaultKind.WHOLE)
    for name in ("empty", "full"):  # a proxy's own answer
        with pytest.raises(StorageUnavailable, match="the whole object"):
            store.get(name, 0, 5)
    server.etags = {"empty": '"1"', "full": '"2"'}
    assert [store.get("empty", 0, 5), store.get("empty"), store.size("empty")] == [b"", b"", 0]
    assert [store.get("full", 0, 5), store.get("full", 0, 3)] == [b"abc", b"abc"]
    for name, start, end in (("full", 0, 2), ("full", 1, 5), ("full", 3, 9), ("full", 1, -1), ("empty", 1, 5)):
        with pytest.raises(StorageUnavailable, match="the whole object"):
            store.get(name, start, end)
    store.close()


def test_an_object_that_the_server_compressed() -> None:
    encodings = {"/a": "gzip", "/b": "BR", "/c": "aws-chunked, gzip", "/d": "aws-chunked", "/e": "identity"}

    class Compresses(Quiet):
        def do_GET(self) -> None:
            self.answer(200, b"abc", ETag='W/"1"', Content_Encoding=encodings[self.path])

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Compresses)) as url:
        store = HttpFetcher().open_store({URL: url, **PATIENCE})
        for name in "abc":
            for end in (5, -1):
                with pytest.raises(StorageUnavailable, match="compressed the object"):
                    store.get(name, 0, end)
            assert store.size(name) is None
        assert [store.get("d", 0, 5), store.get("e"), store.size("d")] == [b"abc", b"abc", 3]
        store.close()


def test_a_redirect_to_what_is_no_url(server: RangeServer) -> None:
    for location in ("http://[bad/", "http://127.0.0.1:port/"):
        found = failure(server, Fault(FaultKind.REDIRECT, location=location))
        assert type(found) is StorageDenied
        assert "no URL" in str(found)


def test_one_get_for_one_range(server: RangeServer) -> None:
    fetcher = opened(server)
    server.asked.clear()
    assert bytes(fetcher.fetch_log_segment(METADATA, 100, 600)) == SEGMENT.log[100:600]
    fetcher.close()
    name = next(name for name, _ in kafka_local_files(SEGMENT) if name.endswith(".log"))
    assert server.asked == [Asked(f"a b/{name}", 100, 600, 0)]


def test_a_url_that_names_the_tree_itself(server: RangeServer) -> None:
    fetcher = opened(server, url=f"{server.url}/a%20b/kafka-tiered-storage/")
    assert bytes(fetcher.fetch_log_segment(METADATA, 5, 9)) == SEGMENT.log[5:9]
    fetcher.close()


def test_connections_are_used_again_after_answers_of_every_kind(server: RangeServer) -> None:
    fetcher = opened(server)
    statuses = iter([404, 503, 416, 403])
    for _ in range(4):
        status = next(statuses)
        server.plan = lambda asked, status=status: Fault(FaultKind.STATUS, status)  # type: ignore[misc]
        with suppress(RemoteFetchError):
            assert bytes(fetcher.fetch_log_segment(METADATA, 0, 10)) == b""
        server.plan = lambda asked: None
        assert bytes(fetcher.fetch_log_segment(METADATA, 0, 10)) == SEGMENT.log[:10]
    fetcher.close()
    assert len(server._http.connections) == 1


def test_a_redirect_is_followed_and_takes_the_headers_along(server: RangeServer) -> None:
    server.wanted_headers = {"Token": SECRET}
    name = next(name for name, _ in kafka_local_files(SEGMENT) if name.endswith(".log"))
    there = f"/a%20b/{name}?moved=1"
    moves = iter([Fault(FaultKind.REDIRECT, location=there), None])
    server.plan = lambda asked: next(moves)
    fetcher = opened(server, headers=f'{{"Token": "{SECRET}"}}')
    assert bytes(fetcher.fetch_log_segment(METADATA, 0, 10)) == SEGMENT.log[:10]
    assert server.paths[-1] == there
    fetcher.close()


def test_user_and_password_of_a_url_are_sent(server: RangeServer) -> None:
    """As curl sends them. A header of the user's wins."""
    name = next(name for name, _ in kafka_local_files(SEGMENT) if name.endswith(".log"))
    host = server.url.removeprefix("http://")
    for user, header in (
        ("me:s3cret", "bWU6czNjcmV0"),
        ("m%40e:%C3%BC%2F", "bUBlOsO8Lw=="),
        ("m%FFe:%FF", "bf9lOv8="),  # no UTF-8
        ("token", "dG9rZW46"),
    ):
        for url, options in (
            (f"http://{user}@{host}/a%20b", {}),
            (f"http://{user}@store.example/a%20b", {"proxy": f"http://{user}@{host}"}),
        ):
            server.wanted_headers = {"Proxy-Authorization" if options else "Authorization": f"Basic {header}"}
            fetcher = opened(server, url=url, **options)
            assert bytes(fetcher.fetch_log_segment(METADATA, 0, 10)) == SEGMENT.log[:10]
            assert server.paths[-1].endswith(name)
            assert "@" not in server.paths[-1]
            fetcher.close()
    server.wanted_headers = {"authorization": "Bearer x"}
    fetcher = opened(server, url=f"http://me:s3cret@{host}/a%20b", headers='{"authorization": "Bearer x"}')
    assert bytes(fetcher.fetch_log_segment(METADATA, 0, 10)) == SEGMENT.log[:10]
    assert "Authorization" not in server.headers[-1]
    fetcher.close()


def test_the_password_stays_with_its_host(server: RangeServer) -> None:
    with RangeServer() as other:
        other.files["x"] = SEGMENT.log
        server.plan = lambda asked: Fault(FaultKind.REDIRECT, location=f"{other.url}/x")
        url = server.url.replace("http://", "http://me:s3cret@") + "/a%20b"
        fetcher = opened(server, url=url, redirect_hosts="127.0.0.1")
        assert bytes(fetcher.fetch_log_segment(METADATA, 0, 10)) == SEGMENT.log[:10]
        assert ("Authorization" in server.headers[0], "Authorization" in other.headers[0]) == (True, False)
        fetcher.close()


def test_the_headers_stay_with_their_host(server: RangeServer) -> None:
    with RangeServer() as other:
        other.files["x"] = SEGMENT.log
        server.plan = lambda asked: Fault(FaultKind.REDIRECT, location=f"{other.url}/x")
        fetcher = opened(server, headers=f'{{"Token": "{SECRET}"}}', redirect_hosts="elsewhere, 127.0.0.1")
        assert bytes(fetcher.fetch_log_segment(METADATA, 0, 10)) == SEGMENT.log[:10]
        assert server.headers[0]["Token"] == SECRET
        assert "Token" not in other.headers[0]
        fetcher.close()


def test_a_redirect_to_another_host_is_not_followed(server: RangeServer) -> None:
    with RangeServer() as other:
        other.files["x"] = SEGMENT.log
        found = failure(server, Fault(FaultKind.REDIRECT, location=f"{other.url}/x"))
        assert type(found) is StorageDenied
        assert "another host, '127.0.0.1'" in str(found)
        assert other.paths == []


@pytest.mark.parametrize(
    ("url", "is_same"),
    [("http://H:80/y", True), ("HTTP://me@h/y", True), ("http://h:8080/y", False), ("https://h:443/y", False)],
)
def test_a_host_is_the_same_with_the_port_that_its_scheme_has(url: str, is_same: bool) -> None:
    """Some servers name the port in each redirect to themselves."""
    assert (http._origin(url) == http._origin("http://h/x")) is is_same


@pytest.mark.parametrize("location", ["https://127.0.0.1/x", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_a_redirect_to_another_scheme_is_not_followed(server: RangeServer, location: str) -> None:
    found = failure(server, Fault(FaultKind.REDIRECT, location=location))
    assert type(found) is StorageDenied
    assert "another scheme" in str(found)


def test_redirects_end(server: RangeServer) -> None:
    assert "redirects more than" in str(failure(server, Fault(FaultKind.REDIRECT, location="/round")))


def test_a_signed_url_that_expires(server: RangeServer) -> None:
    server.signature = SECRET
    fetcher = opened(server, query=f"?v=1&sig={SECRET}")
    assert bytes(fetcher.fetch_log_segment(METADATA, 0, 10)) == SEGMENT.log[:10]
    assert server.paths[-1].endswith(f"?v=1&sig={SECRET}")
    server.signature = "another"
    with pytest.raises(StorageDenied) as caught:
        fetcher.fetch_log_segment(METADATA, 0, 10)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    fetcher.close()


def test_there_is_no_listing(server: RangeServer) -> None:
    fetcher = opened(server)
    with pytest.raises(Unlocatable, match="HTTP cannot list objects"):
        list(fetcher.list_segments())
    fetcher.close()


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ({URL: "ftp://host/x"}, "takes http"),
        ({URL: "http://"}, "takes http"),
        ({URL: "/tier"}, "takes http"),
        ({URL: "http://h/x", OPTIONS + "headers": "Token: s3cret"}, "options.headers is no JSON object of texts"),
        ({URL: "http://h/x", OPTIONS + "headers": '{"Token": 5}'}, "options.headers is no JSON object of texts"),
        ({URL: "http://h/x", OPTIONS + "header": "s3cret"}, "no option 'header'"),
        ({URL: "http://h:99999/x"}, "a port is a number"),
        ({URL: "http://h/x", OPTIONS + "headers": '{"Token": "s3cret\\r\\nX: y"}'}, "a header has a character"),
        ({URL: "http://h/x", OPTIONS + "headers": '{"Token": "s3cret \\u20ac"}'}, "a header has a character"),
        ({URL: "http://h/x", OPTIONS + "headers": '{"s3cret: x": "y"}'}, "a header has a character"),
        ({URL: "http://h/x", OPTIONS + "proxy": "s3cret@proxy:3128"}, "the proxy is no http://"),
        ({URL: "http://h/x", OPTIONS + "proxy": "http://me:s3cret@proxy:port"}, "the proxy is no http://"),
        ({URL: "https://h/x", OPTIONS + "ca_certs": "/no/such/file"}, "the file of certificates is not there"),
    ],
)
def test_what_is_refused(configs: Mapping[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HttpFetcher().configure(configs)
    assert text in str(caught.value)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://h/x", "https://h/x"])
def test_an_empty_option_is_none(url: str) -> None:
    HttpFetcher().configure({URL: url, OPTIONS + "ca_certs": "", OPTIONS + "proxy": ""})


def test_certificates_are_not_needed_without_tls() -> None:
    HttpFetcher().configure({URL: "HTTP://h/x", OPTIONS + "ca_certs": "/no/such/file"})


@pytest.mark.parametrize("url", ["https://h:99999/x?s3cret", "https://h:s3cret/x", "http://[::1/x", "ftp://h/x", "x"])
def test_an_address_that_is_no_url(url: str) -> None:
    """It stands in the metadata of a segment, or in the answer of a service: a broker has to be able to go on."""
    store = HttpFetcher().open_store({URL: "http://h/x"})
    for ask in (store.get_url, store.url_size):
        with pytest.raises(StorageDenied, match="address of the object is no"):
            ask(url)


def test_without_urllib3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(MissingExtra) as caught:
        HttpFetcher().configure({URL: "http://h/x"})
    assert caught.value.extra == "http"


def test_an_object_that_is_replaced_is_gone(server: RangeServer) -> None:
    assert type(failure(server, Fault(FaultKind.STATUS, 412))) is SegmentNotFound


class TestSizes:
    """By a GET of one byte: signatures are for one method, and servers answer HEAD as they like."""

    def test_the_header_of_the_range_has_it(self, server: RangeServer) -> None:
        fetcher = opened(server)
        assert fetcher.size(METADATA) == len(SEGMENT.log)
        assert (server.asked[-1].start, server.asked[-1].end) == (0, 1)

    def test_an_empty_object(self, server: RangeServer) -> None:
        server.files = dict.fromkeys(server.files, b"")
        assert opened(server).size(METADATA) == 0

    @pytest.mark.parametrize(
        ("kind", "size_bytes"), [(FaultKind.WHOLE, len(SEGMENT.log)), (FaultKind.UNNAMED_RANGE, None)]
    )
    def test_other_answers(self, server: RangeServer, kind: FaultKind, size_bytes: int | None) -> None:
        server.plan = lambda asked: Fault(kind)
        assert opened(server).size(METADATA) == size_bytes

    @pytest.mark.parametrize("status", [404, 403])
    @pytest.mark.parametrize(
        ("code", "error"),
        [
            ("NoSuchKey", SegmentNotFound),
            ("NoSuchBucket", StorageDenied),
            ("KMS.NotFoundException", StorageDenied),
            ("SlowDown", StorageThrottled),
        ],
    )
    def test_a_store_behind_it_says_by_a_code_what_it_refuses(
        self, server: RangeServer, status: int, code: str, error: type[RemoteFetchError]
    ) -> None:
        for answer in (Fault(FaultKind.STATUS, status, body=f"<Error><Code>{code}</Code></Error>".encode()),
                       Fault(FaultKind.STATUS, status, code=code)):  # fmt: skip
            server.plan = lambda asked, answer=answer: answer  # type: ignore[misc]
            with pytest.raises(error):
                opened(server).size(METADATA)

    @pytest.mark.parametrize(("status", "error"), [(403, StorageDenied), (404, SegmentNotFound)])
    def test_a_refusal(self, server: RangeServer, status: int, error: type[RemoteFetchError]) -> None:
        server.plan = lambda asked: Fault(FaultKind.STATUS, status)
        with pytest.raises(error):
            opened(server).size(METADATA)


@pytest.mark.parametrize("marker", [None, "x-amz-delete-marker", "X-OSS-Delete-Marker"])
def test_an_index_that_was_deleted_behind_a_signed_url_is_not_absent(marker: str | None) -> None:
    """A bucket with versions tells that there was one. Without it aborted records would be shown."""
    headers = {} if marker is None else {marker: "true"}

    class Refusal(Quiet):
        def do_GET(self) -> None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>", **headers)

    store = open_urls({}, Timeouts(1.0, 5.0))
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Refusal)) as url:
        for ask in (lambda: store.get_url(f"{url}/a.txnindex?sig=s", 0, 100), lambda: store.url_size(f"{url}/a")):
            with pytest.raises(SegmentNotFound) as caught:
                ask()
            assert caught.value.is_absent is (marker is None)
    store.close()


class Hinting(Quiet):
    """Sends interim answers before the answer, as many as the name of the object says."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        for _ in range(int(name)):
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        self.answer(206, name.zfill(10).encode(), Content_Range="bytes 0-9/100")


def test_interim_answers_are_passed_over() -> None:
    """Else the next request of the connection would read the answer to the one before."""
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Hinting)) as url:
        fetcher = HttpFetcher()
        fetcher.configure({URL: url})
        for name in ("1", "0", "16"):
            assert bytes(fetcher.opened_store().get(name, 0, 10)) == name.zfill(10).encode()
        with pytest.raises(StorageUnavailable):
            fetcher.opened_store().get("17", 0, 10)
        assert bytes(fetcher.opened_store().get("2", 0, 10)) == b"0000000002"
        fetcher.close()
