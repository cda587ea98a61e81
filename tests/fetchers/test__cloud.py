"""Bodies of answers, and the pages of a listing.

Rules of the file:

- The SDK is a fake that gives prepared answers.
- The tests with real SDKs are in `tests/stores`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import requests
from fsspec.asyn import get_loop
from google.auth.exceptions import RefreshError, TransportError
from google.auth.transport.requests import Request

from fetchers import _retries, gcs, s3
from fetchers._cloud import CloudFetcher, CloudStore, Page, receive
from fetchers._options import Timeouts
from fetchers._ranges import EndTold
from fetchers.azure import AzureFetcher
from fetchers.gcs import GcsFetcher
from fetchers.s3 import S3Fetcher
from remote_fetch.errors import ConfigError, SegmentNotFound, StorageDenied, StorageThrottled, StorageUnavailable
from remote_fetch.failures.store_errors import RefusedError, failure_of
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.model import Buffer
from tests.cases import each_of


async def body(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def test_a_body() -> None:
    assert bytes(asyncio.run(receive(body(b"abc", b"", b"de"), 5))) == b"abcde"
    assert bytes(asyncio.run(receive(body(), 0))) == b""
    with pytest.raises(StorageUnavailable, match="after 3 of 5"):
        asyncio.run(receive(body(b"abc"), 5))
    with pytest.raises(StorageUnavailable, match="more than the 5"):
        asyncio.run(receive(body(b"abc", b"def"), 5))


class Filesystem:
    loop = get_loop()


class Store(CloudStore):
    """Answers with what is left of `pages`, and notes what it was asked."""

    def __init__(self, root: str, pages: list[Page | Exception]) -> None:
        super().__init__(Filesystem(), root, 5)
        self.pages = pages
        self.asked: list[tuple[str, str, str | None]] = []

    async def get_range(self, bucket: str, key: str, start: int, end: int | None) -> Buffer:
        return f"{bucket} {key} {start} {end}".encode()

    async def list_page(self, bucket: str, prefix: str, page: str | None) -> Page:
        self.asked.append((bucket, prefix, page))
        found = self.pages.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.mark.parametrize(("root", "at"), [("b", ""), ("b/p/q", "p/q/")])
def test_a_listing_of_two_pages(root: str, at: str) -> None:
    first = Page((f"{at}a/x/",), (ObjectInfo(f"{at}a/", 0), ObjectInfo(f"{at}a/1", 5)), "next")
    second = Page((f"{at}a/y/",), (ObjectInfo(f"{at}a/2", 6),), None)
    store = Store(root, [first, second])
    assert list(store.folders("a")) == ["x", "y"]
    assert store.asked == [("b", f"{at}a/", None), ("b", f"{at}a/", "next")]
    empty = Page((), (), None)
    store.pages = [first, empty, second, empty]
    assert list(store.list("a")) == [ObjectInfo("a/1", 5), ObjectInfo("a/2", 6)]
    store.pages = [Page((f"{at}a/",), (ObjectInfo(f"{at}1", 5),), None), empty]
    assert list(store.list()) == [ObjectInfo("1", 5)]
    assert bytes(store.get("name", 2, 30)) == f"b {at}name 2 30".encode()


def test_an_error_of_a_listing_of_all_names_the_root() -> None:
    with pytest.raises(StorageDenied) as caught:
        list(Store("b/tier", [RefusedError(403)]).list())
    assert caught.value.object_name == "b/tier"


class Keys(Store):
    """Lists right below a prefix what its keys have there."""

    def __init__(self, root: str, keys: list[str]) -> None:
        super().__init__(root, [])
        self._keys = keys

    async def list_page(self, bucket: str, prefix: str, page: str | None) -> Page:
        assert (bucket, prefix, page) not in self.asked, "the listing goes into itself"
        self.asked.append((bucket, prefix, page))
        rests = [key.removeprefix(prefix) for key in self._keys if key.startswith(prefix)]
        folders = dict.fromkeys(f"{prefix}{rest.partition('/')[0]}/" for rest in rests if "/" in rest)
        return Page(tuple(folders), tuple(ObjectInfo(prefix + rest, 5) for rest in rests if "/" not in rest), None)


@pytest.mark.parametrize("root", ["b", "b/tier"])
def test_keys_with_empty_parts_are_listed(root: str) -> None:
    """Each `/` of a key ends a folder, also one without a name. One listing for each folder is enough."""
    names = ["/a", "//b", "c//d", "c/e", "f///g/h", "i/" * 2000 + "j"]
    at = f"{root.partition('/')[2]}/" if "/" in root else ""
    store = Keys(root, [at + name for name in names])
    assert sorted(info.name for info in store.list()) == sorted(names)
    store.asked = []
    assert list(store.list("c")) == [ObjectInfo("c//d", 5), ObjectInfo("c/e", 5)]
    store.asked = []
    assert list(store.folders("c")) == [""]
    assert set(store.folders()) == {"", "c", "f", "i"}


def test_each_request_is_prepared_in_the_thread_that_asks() -> None:
    """The loop serves all threads: credentials that are renewed there would hold up every read of the process."""
    prepared: list[threading.Thread] = []

    class Prepared(Store):
        def before_request(self) -> None:
            prepared.append(threading.current_thread())

        async def get_size(self, bucket: str, key: str) -> int | None:
            return 3

    store = Prepared("b", [Page((), (), "next"), Page((), (), None)])
    assert list(store.folders()) == []
    store.get("name")
    assert store.size("name") == 3
    assert prepared == [threading.current_thread()] * 4


def test_gcs_renews_credentials_before_it_asks() -> None:
    class Credentials:
        credentials = None
        threads: ClassVar[list[str]] = []

        def maybe_refresh(self) -> None:
            self.threads.append(threading.current_thread().name)

    class Google(Filesystem):
        credentials = Credentials()

    async def answer(*_: object) -> Page:
        return Page((), (), None)

    store = GcsFetcher.store_type(Google(), "b", 5)
    assert isinstance(store, CloudStore)
    store.wait_for(answer)
    assert Credentials.threads == [threading.current_thread().name]


def test_gcs_waits_for_a_token_no_longer_than_for_a_range() -> None:
    """google-auth waits 120 seconds, threads wait for each other, and a listing has no other deadline."""
    limits: list[object] = []

    class Session(requests.Session):
        def request(self, *args: Any, timeout: object = None, **kwargs: Any) -> Any:
            limits.append(timeout)
            raise requests.ConnectionError

    class Credentials:
        def refresh(self, request: Any) -> None:
            assert isinstance(request, Request)  # of others, a GDC service account makes no token
            assert request.session is session  # where google-auth adds the certificate for a machine's metadata server
            request("https://tokens.example", method="POST")

    session, credentials = Session(), Credentials()
    google = SimpleNamespace(credentials=SimpleNamespace(credentials=credentials), session_kwargs={}, base="http://s")
    for _ in range(2):  # gcsfs may share its credentials
        GcsFetcher().prepare(google, Timeouts(3, 7))
        with pytest.raises(TransportError):
            credentials.refresh(Request(session))
    assert limits == [(3, 7), (3, 7)]
    GcsFetcher().prepare(google, Timeouts(3, 0))  # google-auth asks a machine's server of tokens up to five times
    with pytest.raises(RefreshError) as caught:
        credentials.refresh(Request(session))
    assert isinstance(failure_of(caught.value, ""), StorageUnavailable)
    assert len(limits) == 2
    google.credentials.credentials = None
    GcsFetcher().prepare(google, Timeouts(3, 7))


@pytest.mark.parametrize("size_bytes", [0, 3, None])
def test_a_refused_range_is_the_end_only_if_the_object_has_no_byte_there(size_bytes: int | None) -> None:
    """Some servers refuse each range that ends behind the object. An index would be taken for an empty one."""

    class Refusing(Store):
        error: Exception = RefusedError(416)
        sizes = 0

        async def get_range(self, bucket: str, key: str, start: int, end: int | None) -> Buffer:
            raise self.error

        async def get_size(self, bucket: str, key: str) -> int | None:
            self.sizes += 1
            return size_bytes

    store = Refusing("b", [])
    assert store.get("name", 3, 5) == b""
    if size_bytes == 3:
        with pytest.raises(StorageUnavailable, match="refuses the range from 0") as caught:
            store.get("name", 0, 5)
        assert caught.value.object_name == "name"
    else:
        assert store.get("name", 0, 5) == b""
    assert store.sizes == 2
    store.error = EndTold()
    assert store.get("name", 0, 5) == b""
    assert store.sizes == 2, "the answer has told it"


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_retries, "_PAUSES_S", (0.001, 0.001))


def test_a_page_is_tried_three_times(no_pauses: None) -> None:
    page = Page(("a/",), (), None)
    store = Store("b", [RefusedError(503), RefusedError(500), page])
    assert list(store.folders()) == ["a"]
    store.pages = [RefusedError(429), RefusedError(503), RefusedError(429), page]
    with pytest.raises(StorageThrottled):
        list(store.folders())
    assert store.pages == [page]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RefusedError(403), StorageDenied),
        (RefusedError(404, "NoSuchBucket"), StorageDenied),
        (KeyError("Prefix"), StorageUnavailable),
        (ValueError("no JSON"), StorageUnavailable),
    ],
    ids=repr,
)
def test_a_listing_that_fails(error: Exception, expected: type[Exception], no_pauses: None) -> None:
    with pytest.raises(expected):
        list(Store("b", [error] * 3).folders())


@pytest.mark.parametrize(
    "error",
    [
        TypeError("NoneType and str"),
        ValueError("Invalid URL 'http://h/?sig=s3cret'"),
        RecursionError("while decoding a JSON array"),
        OverflowError("cannot convert float infinity to integer"),
    ],
)
def test_an_answer_that_an_sdk_fails_to_part_is_a_failure_of_the_store(error: Exception) -> None:
    """azure-core does so for an error without a message, and for a redirect to what is no URL. Parsers of JSON too."""

    class Parting(Store):
        async def get_range(self, bucket: str, key: str, start: int, end: int | None) -> Buffer:
            raise error

    with pytest.raises(StorageUnavailable, match="the store's answer cannot be understood") as caught:
        Parting("b", []).get("a/1", 0, 5)
    assert caught.value.object_name == "a/1"
    assert "s3cret" not in repr(caught.value.__cause__)


@pytest.mark.parametrize("url", ["https://h/?sig=s3cret", "none"])
def test_an_error_of_an_sdk_that_no_table_has_is_a_failure_of_the_store(url: str) -> None:
    class SdkError(Exception):
        pass

    class Failing(Store):
        async def get_range(self, bucket: str, key: str, start: int, end: int | None) -> Buffer:
            raise SdkError(url)

    with pytest.raises(StorageUnavailable, match=r"the store's client failed \(tests\..*SdkError\)") as caught:
        Failing("b", []).get("a/1", 0, 5)
    assert caught.value.object_name == "a/1"
    assert "s3cret" not in repr(caught.value.__cause__)


@pytest.mark.parametrize("status", [404, 410, 412])
@pytest.mark.parametrize("page", [[], [Page((), (ObjectInfo("a/1", 5),), "next")]], ids=["first", "later"])
def test_a_listing_that_is_missing_is_not_empty(page: list[Page | Exception], status: int, no_pauses: None) -> None:
    """A proxy answers so while it starts. Records would be missing in silence."""
    with pytest.raises(StorageUnavailable, match="no such listing") as caught:
        list(Store("b", [*page, *[RefusedError(status)] * 3]).list("a"))
    assert caught.value.object_name == "b/a/"
    assert caught.value.retriable
    store = Store("b", [*page, RefusedError(status), Page((), (ObjectInfo("a/2", 6),), None)])
    assert list(store.list("a"))[-1] == ObjectInfo("a/2", 6)


@pytest.mark.parametrize(
    "page",
    [
        Page((), (ObjectInfo("other/2", 5),), None),
        Page(("other/",), (), None),
        Page(("a/",), (), None),  # the folder in itself
        Page(("a/b/c/",), (), None),  # two folders deep
        Page(("a/b%2F",), (), None),  # encoded
        Page((), (ObjectInfo("a/b/c", 5),), None),  # without a delimiter
        Page((7,), (), None),  # type: ignore[arg-type]
        Page((), (ObjectInfo(None, 5),), None),  # type: ignore[arg-type]
    ],
)
def test_names_that_were_not_asked_for(page: Page) -> None:
    """A server that ignores the prefix or the delimiter.

    Names would be cut in the middle, folders listed without end, and a tier without folders taken for an empty one.
    """
    with pytest.raises(StorageUnavailable, match="names that were not asked for") as caught:
        list(Store("b", [page] * 9).list("a"))
    assert caught.value.object_name == "b/a/"


def test_a_listing_whose_next_page_is_the_same_one_ends() -> None:
    again = Page((), (ObjectInfo("a/1", 5),), "next")
    store = Store("b", [again, again, again])
    with pytest.raises(StorageUnavailable, match="the listing goes round"):
        list(store.list("a"))
    assert store.pages == [again]


@pytest.mark.parametrize("before", [0, 1, 7])
@pytest.mark.parametrize("round_of", [2, 3, 10])
def test_a_listing_that_goes_round_ends(before: int, round_of: int) -> None:
    """Pages that name each other, after some that do not."""
    names = [f"before-{at}" for at in range(before)] + [f"round-{at}" for at in range(round_of)] * 10
    store = Store("b", [Page((), (), name) for name in names])
    with pytest.raises(StorageUnavailable, match="the listing goes round"):
        list(store.list())
    store.pages = [*(Page((), (), str(at)) for at in range(100)), Page(("a/",), (), None)]
    assert list(store.folders()) == ["a"]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"ResponseMetadata": {"HTTPStatusCode": 200}},
        {"IsTruncated": True, "Contents": [{"Key": "a", "Size": 1}]},
        {"IsTruncated": True, "NextMarker": "a", "Contents": [{"Key": "a", "Size": 1}]},  # of the first version
        {"IsTruncated": True, "NextContinuationToken": "", "Contents": []},
    ],
)
def test_an_answer_of_s3_that_is_no_whole_page(answer: dict[str, Any]) -> None:
    with pytest.raises(StorageUnavailable, match="listing"):
        s3.page_of(answer)


def test_answers_of_s3() -> None:
    assert s3.page_of({"IsTruncated": False, "KeyCount": 0}) == Page((), (), None)
    contents = [{"Key": "a", "Size": 1}]
    assert s3.page_of({"Contents": contents, "NextContinuationToken": ""}) == Page((), (ObjectInfo("a", 1),), None)
    for told in ({}, {"IsTruncated": False}):  # botocore makes False of "True"
        page = s3.page_of({"Contents": contents, "NextContinuationToken": "x", **told})
        assert page == Page((), (ObjectInfo("a", 1),), "x")
    assert s3.page_of({"IsTruncated": False, "NextContinuationToken": "x"}) == Page((), (), None)
    for goes_on in ({"KeyCount": 0}, {"IsTruncated": True}):
        assert s3.page_of({"NextContinuationToken": "x", **goes_on}) == Page((), (), "x")
    more = {"IsTruncated": True, "NextContinuationToken": "x", "CommonPrefixes": [{"Prefix": "p/"}]}
    assert s3.page_of(more) == Page(("p/",), (), "x")


@pytest.mark.parametrize("answer", [{}, [], None, "text", {"error": {"code": 500}}])
def test_an_answer_of_gcs_that_is_no_listing(answer: object) -> None:
    with pytest.raises(StorageUnavailable, match="no listing"):
        gcs.page_of(answer)


@pytest.mark.parametrize("rest", [{}, {"nextPageToken": "", "prefixes": []}, {"nextPageToken": None, "prefixes": None}])
def test_the_last_page_of_gcs(rest: dict[str, Any]) -> None:
    """Some servers write fields without a value too. An empty token would ask for the first page again."""
    item = {"name": "b/1", "size": "5"}
    assert gcs.page_of({"items": [item], **rest}) == Page((), (ObjectInfo("b/1", 5),), None)


def test_an_empty_listing_of_gcs() -> None:
    assert gcs.page_of({"kind": "storage#objects"}) == Page((), (), None)


def test_a_url_in_the_cause_is_not_shown() -> None:
    store = Store("b", [])

    def fail() -> Any:
        raise ConnectionResetError("https://h/x?sig=c0ffee")

    with pytest.raises(StorageUnavailable) as caught:
        store._mapped("name", fail)
    assert "c0ffee" not in repr(caught.value.__cause__)
    assert "ConnectionResetError" in repr(caught.value.__cause__)


@pytest.mark.parametrize(("code", "is_absent"), [("NoSuchKey", True), (None, False), ("404", False)])
def test_a_missing_object(code: str | None, is_absent: bool) -> None:
    class Gone(Store):
        async def get_range(self, bucket: str, key: str, start: int, end: int | None) -> Buffer:
            raise RefusedError(404, code)

    with pytest.raises(SegmentNotFound) as caught:
        Gone("b", []).get("name")
    assert caught.value.is_absent == is_absent


@pytest.mark.parametrize(
    ("status", "text", "is_emulator", "code"),
    [
        (404, b"No such object: tier/a.log", False, "NoSuchKey"),
        (404, b'{"error": {"errors": [{"reason": "notFound"}]}}', False, "NoSuchKey"),
        (404, b"<Error><Code>NoSuchKey</Code></Error>", False, "NoSuchKey"),
        (404, b"The specified bucket does not exist.", False, "NoSuchBucket"),
        (404, b"404 page not found", True, None),
        (404, b"Not Found\n", False, None),
        (404, b"Not Found\n", True, "NoSuchKey"),
        (500, b"No such object: tier/a.log", True, None),
        (403, b'{"error": {"errors": [{"reason": "rateLimitExceeded"}]}}', False, "SlowDown"),
        (403, b'{"error": {"errors": [{"reason":"userRateLimitExceeded"}]}}', False, "SlowDown"),
        (403, b'{"error": {"errors": [{"reason": "forbidden"}]}}', False, None),
        (403, b"No access to tier/rateLimitExceeded.log", False, None),
    ],
)
def test_what_a_refusal_of_gcs_says(status: int, text: bytes, is_emulator: bool, code: str | None) -> None:
    assert gcs._code_of(status, text, is_emulator) == code


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [(404, b"No such object: tier/a.log", "NoSuchKey"), (403, b'{"reason": "rateLimitExceeded"}', "SlowDown")],
)
def test_a_refusal_of_gcs_in_pieces(status: int, text: bytes, code: str) -> None:
    """The words of the store may be in any piece of the text."""
    store = gcs.GcsFetcher.store_type(SimpleNamespace(base="https://gcs", loop=get_loop(), credentials=None), "b", 5)
    store._filesystem.credentials = SimpleNamespace(credentials=None)

    async def refused() -> str | None:
        content = asyncio.StreamReader()
        answer = SimpleNamespace(status=status, content=content)
        asked = asyncio.create_task(store._refused(answer))
        for piece in (text[:5], text[5:20], text[20:]):
            content.feed_data(piece)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        content.feed_eof()
        with pytest.raises(RefusedError) as caught:
            await asked
        return caught.value.error_code

    assert asyncio.run(refused()) == code


@pytest.mark.parametrize(
    ("options", "key", "said"),
    [
        ({}, "account_name", "no account is named"),
        ({"account_key": "czNjcmV0"}, "account_name", "no account is named"),
        ({"connection_string": "s3cret"}, "connection_string", "a part that is no NAME=VALUE"),
        ({"connection_string": "AccountName=x;AccountKey"}, "connection_string", "a part that is no NAME=VALUE"),
    ],
)
def test_an_account_of_azure_that_is_not_named(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], key: str, said: str
) -> None:
    for name in ("ACCOUNT_NAME", "CONNECTION_STRING"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    configs = {f"remote.storage.options.{name}": value for name, value in options.items()}
    with pytest.raises(ConfigError, match=said) as caught:
        AzureFetcher().configure({"remote.storage.url": "az://tier/x", **configs})
    assert caught.value.key == f"remote.storage.options.{key}"
    assert "s3cret" not in str(caught.value)


def test_closing_what_cannot_be_closed_does_no_harm() -> None:
    Store("b", []).close()


@pytest.mark.parametrize(
    ("fetcher", "url"),
    [(S3Fetcher, "s3:///logs"), (S3Fetcher, "s3a://"), (GcsFetcher, "gs:///logs"), (AzureFetcher, "abfs://")],
)
def test_a_url_without_a_bucket_is_refused_before_anything_is_opened(
    monkeypatch: pytest.MonkeyPatch, fetcher: type[CloudFetcher], url: str
) -> None:
    monkeypatch.setattr(fetcher, "open_filesystem", lambda *_: pytest.fail("it looks for credentials"))
    with pytest.raises(ConfigError, match="names no bucket"):
        fetcher().configure({"remote.storage.url": url})


@each_of(
    ("fetcher", "url"),
    [
        (AzureFetcher, "az://tier/prefix?sv=2021-08-06&SIG=s3cret%3D"),
        (AzureFetcher, "abfss://tier@account.dfs.core.windows.net?sig=s3cret"),
        (S3Fetcher, "s3://tier/prefix?X-Amz-Expires=60&X-Amz-Signature=s3cret"),
        (GcsFetcher, "gs://tier/prefix?X-Goog-Signature=s3cret"),
    ],
)
def test_a_signature_in_the_url_of_a_bucket_is_refused_and_not_shown(fetcher: type[CloudFetcher], url: str) -> None:
    """It is no prefix: listings below it were empty, and errors of listings showed it."""
    with pytest.raises(ConfigError, match="has a signature") as caught:
        fetcher().configure({"remote.storage.url": url})
    assert "s3cret" not in str(caught.value)
    assert fetcher().root_of(f"{url.partition('?')[0]}?signed=1").endswith("?signed=1")  # an odd prefix


@pytest.mark.parametrize(
    ("bucket", "with_colons"),
    [
        ("arn:aws:s3:eu-west-1:123456789012:accesspoint/ap", "arn:aws:s3:eu-west-1:123456789012:accesspoint:ap"),
        ("arn:aws:s3:eu-west-1:123456789012:accesspoint:ap", "arn:aws:s3:eu-west-1:123456789012:accesspoint:ap"),
        (
            "arn:aws:s3-outposts:us-west-2:1:outpost/o/accesspoint/ap",
            "arn:aws:s3-outposts:us-west-2:1:outpost:o:accesspoint:ap",
        ),
        ("accesspoint", "accesspoint"),
    ],
)
def test_the_arn_of_an_access_point_is_a_bucket(bucket: str, with_colons: str) -> None:
    """Amazon's console shows it with slashes, which would end the name of the bucket. botocore takes colons too."""
    assert S3Fetcher().root_of(f"s3://{bucket}/accesspoint/tier") == f"{with_colons}/accesspoint/tier"
