"""Features of Azure alone: SAS of every kind, connection strings, accounts in URLs.

Rules of the file:

- Microsoft's own library makes the SAS.
- A test that is only about the client calls no server.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from fetchers import azure
from fetchers._options import Timeouts
from fetchers.azure import AzureFetcher
from remote_fetch.config import Config
from remote_fetch.errors import ConfigError, StorageDenied, StorageUnavailable
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from tests.answering import Quiet, serving
from tests.stores.azure_server import ACCOUNT, CONTAINER, KEY, AzureServer
from tests.stores.conftest import TOPIC

OPTIONS = "remote.storage.options."


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONNECTION_STRING", "ACCOUNT_NAME", "ACCOUNT_KEY", "SAS_TOKEN", "CLIENT_ID"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)


@pytest.fixture
def segment(azure: AzureServer, opened: Callable[[dict[str, str]], Any]) -> RemoteLogSegmentMetadata:
    segments: list[RemoteLogSegmentMetadata] = list(opened(azure.configs()).list_segments(TOPIC))
    return max(segments, key=lambda one: one.segment_size_in_bytes)


def with_sas(azure: AzureServer, sas: str) -> dict[str, str]:
    return azure.configs(connection_string=azure.connection_string(f"SharedAccessSignature={sas}"))


def test_a_sas_that_may_read_and_list(
    azure: AzureServer, segment: RemoteLogSegmentMetadata, opened: Callable[[dict[str, str]], Any]
) -> None:
    fetcher = opened(with_sas(azure, azure.sas("rl")))
    assert bytes(fetcher.fetch_log_segment(segment, 0, 61))
    assert segment in list(fetcher.list_segments())


def test_a_sas_that_may_only_read(
    azure: AzureServer, segment: RemoteLogSegmentMetadata, opened: Callable[[dict[str, str]], Any]
) -> None:
    fetcher = opened(with_sas(azure, azure.sas("r")))
    assert bytes(fetcher.fetch_log_segment(segment, 0, 61))
    with pytest.raises(StorageDenied):
        list(fetcher.list_segments())


@pytest.mark.parametrize(
    ("permission", "minutes"), [("l", 60), ("rl", -30)], ids=["without the right to read", "expired"]
)
def test_a_sas_that_is_refused(
    azure: AzureServer,
    segment: RemoteLogSegmentMetadata,
    opened: Callable[[dict[str, str]], Any],
    caplog: pytest.LogCaptureFixture,
    permission: str,
    minutes: int,
) -> None:
    """The error, its causes and the logs do not show the SAS."""
    caplog.set_level("DEBUG")
    sas = azure.sas(permission, minutes=minutes)
    fetcher = opened(with_sas(azure, sas))
    with pytest.raises(StorageDenied):
        fetcher.fetch_index(segment, IndexType.TRANSACTION)
    with pytest.raises(StorageDenied) as caught:
        fetcher.fetch_log_segment(segment, 0, 61)
    signature = sas.rpartition("sig=")[2].partition("&")[0]
    assert signature not in "".join(traceback.format_exception(caught.value)) + repr(caught.value.__cause__)
    assert signature not in caplog.text


def test_a_container_that_is_not_there(
    azure: AzureServer, segment: RemoteLogSegmentMetadata, opened: Callable[[dict[str, str]], Any]
) -> None:
    """Is no absence of the blobs in it."""
    fetcher = opened({**azure.configs(), "remote.storage.url": "az://another/kafka-tiered-storage"})
    with pytest.raises(StorageDenied, match="no such bucket or container"):
        fetcher.fetch_log_segment(segment, 0, 61)
    with pytest.raises(StorageDenied):
        fetcher.fetch_index(segment, IndexType.TRANSACTION)


@pytest.mark.parametrize(
    "url",
    [
        "abfs://tier@orders.dfs.core.windows.net/a/b",
        "abfss://tier@orders.dfs.core.windows.net/a/b/",
        "wasb://tier@orders.blob.core.windows.net/a/b",
        "wasbs://tier@orders.blob.core.windows.net/a/b",
    ],
)
def test_an_account_in_the_url(url: str, opened: Callable[[dict[str, str]], Any]) -> None:
    fetcher = opened({"remote.storage.url": url, f"{OPTIONS}account_key": KEY})
    assert isinstance(fetcher, AzureFetcher)
    _, store = fetcher._opened()
    assert store._root == "tier/a/b"  # type: ignore[attr-defined]
    client = store._filesystem.service_client  # type: ignore[attr-defined]
    assert client.url == "https://orders.blob.core.windows.net/"


@pytest.mark.parametrize(
    "options",
    [
        {"account_name": "orders", "account_key": KEY},
        {"account_name": "orders", "sas_token": "?sv=2024-01-01&sig=abc"},
        {"account_name": "orders", "sas_token": "sv=2024-01-01&sig=abc"},
        {"account_name": "orders", "anon": "true"},
        {"account_name": "orders", "tenant_id": "t", "client_id": "c", "client_secret": "s"},
        {"account_name": "orders", "sas_token": "sv=2024-01-01&sig=abc", "account_host": "orders.blob.example"},
        {"account_name": "orders"},
    ],
    ids=["key", "sas", "sas without its mark", "nobody", "service principal", "another host", "what the machine has"],
)
def test_who_asks(options: dict[str, str], opened: Callable[[dict[str, str]], Any]) -> None:
    configs = {f"{OPTIONS}{name}": value for name, value in options.items()}
    fetcher = opened({"remote.storage.url": "az://tier/a", **configs})
    client = fetcher._opened()[1]._filesystem.service_client
    assert client.url.startswith(f"https://{options.get('account_host', 'orders.blob.core.windows.net')}/")
    assert ("sig=abc" in client.url) == ("sas_token" in options)
    assert (client.credential is None) == bool({"sas_token", "anon"} & options.keys())


def test_no_account_at_all() -> None:
    with pytest.raises(ConfigError):
        load_fetcher(Config.parse({"remote.storage.url": f"az://{CONTAINER}", f"{OPTIONS}account_key": KEY}))


def test_an_account_alone_is_not_anonymous(monkeypatch: pytest.MonkeyPatch) -> None:
    """adlfs before 2026.4 takes it so, unless an option or the environment says otherwise."""
    alone, timeouts = {"account_name": "orders"}, Timeouts(1, 1)
    monkeypatch.delenv("AZURE_STORAGE_ANON", raising=False)
    assert AzureFetcher().options(alone, timeouts) == {**alone, "anon": False}
    assert AzureFetcher().options({**alone, "anon": True}, timeouts) == {**alone, "anon": True}
    monkeypatch.setenv("AZURE_STORAGE_ANON", "1")
    assert AzureFetcher().options(alone, timeouts) == alone


def test_a_connection_string_that_is_none() -> None:
    with pytest.raises(ConfigError) as caught:
        load_fetcher(
            Config.parse({"remote.storage.url": f"az://{CONTAINER}", f"{OPTIONS}connection_string": f"{ACCOUNT} {KEY}"})
        )
    assert KEY not in str(caught.value)


@contextlib.contextmanager
def answered_by(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[AzureFetcher]:
    """A fetcher whose account is a server on loopback, which answers each GET so."""

    class Handler(Quiet):
        def do_GET(self) -> None:
            answer(self)

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        fetcher = AzureFetcher()
        fetcher.configure(
            {
                "remote.storage.url": "abfs://tier/x",
                "remote.storage.options.connection_string": "DefaultEndpointsProtocol=http;AccountName=account;"
                f"AccountKey=a2V5;BlobEndpoint={url}/account;",
            }
        )
        yield fetcher
        fetcher.close()


@pytest.mark.parametrize("end", [10, -1])
def test_a_body_that_breaks_off_is_asked_for_once(end: int) -> None:
    """The reader repeats the GET, and counts it. The SDK does so too, up to three times."""
    asked: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers["x-ms-range"])
        handler.send_response(206)
        handler.send_header("Content-Range", "bytes 0-9/10")
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        handler.wfile.write(b"short")

    with answered_by(answer) as fetcher, pytest.raises(StorageUnavailable, match="broke off"):
        fetcher.opened_store().get("a.log", 0, end)
    assert len(asked) == 1


def test_a_refused_range_is_no_end_if_the_blob_has_a_byte_there() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(416)
        handler.send_header("Content-Range", "bytes */10")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with answered_by(answer) as fetcher:
        assert bytes(fetcher.opened_store().get("a.index", 10, 20)) == b""
        with pytest.raises(StorageUnavailable, match="refuses the range from 5"):
            fetcher.opened_store().get("a.index", 5, 20)


def test_an_empty_blob_is_read_whole() -> None:
    """The SDK asks for a range first, which an empty blob does not have."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(416 if "x-ms-range" in handler.headers else 200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with answered_by(answer) as fetcher:
        assert bytes(fetcher.opened_store().get("a.index")) == b""


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(status: int) -> None:
    """The bytes and the listings of another host would be taken for the store's."""
    asked: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        host, _, port = handler.headers["Host"].partition(":")
        asked.append(host)
        handler.send_response(status)
        handler.send_header("Location", f"http://localhost:{port}{handler.path}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with answered_by(answer) as fetcher:
        store = fetcher.opened_store()
        for ask in (lambda: store.get("a.log", 0, 10), lambda: store.get("a.log"), lambda: list(store.list())):
            with pytest.raises(StorageDenied, match="somewhere else"):
                ask()
    assert set(asked) == {"127.0.0.1"}


def test_a_listing_goes_on_after_credentials_were_looked_up_twice() -> None:
    """The second look-up closes the connections of the store from which the listing came."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        page = "2" if "marker" in handler.path else "1"
        more = "2" if page == "1" else ""
        properties = "<Content-Length>1</Content-Length><BlobType>BlockBlob</BlobType>"
        blob = f"<Blob><Name>x/{page}</Name><Properties>{properties}</Properties></Blob>"
        body = f"<EnumerationResults><Blobs>{blob}</Blobs><NextMarker>{more}</NextMarker></EnumerationResults>".encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/xml")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with answered_by(answer) as fetcher:
        listing = iter(fetcher.list_objects())
        assert next(listing).name == "1"
        fetcher.refresh_credentials()
        fetcher.refresh_credentials()
        assert [found.name for found in listing] == ["2"]


def test_a_read_whose_connections_are_closed_is_a_failure_of_the_store() -> None:
    """The second look-up of credentials closes them. aiohttp then fails an assertion of its own."""
    asked, ends = threading.Event(), threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.set()
        ends.wait(60)

    with answered_by(answer) as fetcher, ThreadPoolExecutor(1) as pool:
        read = pool.submit(fetcher.opened_store().get, "a.log", 0, 10)
        try:
            assert asked.wait(30)
            fetcher.refresh_credentials()
            fetcher.refresh_credentials()
            with pytest.raises(StorageUnavailable):
                read.result(30)
        finally:
            ends.set()


def test_a_token_that_takes_longer_than_a_read_is_asked_for_once() -> None:
    """The Azure CLI is a process, which takes seconds. Each read that timed out began another one, for ever."""

    class Slow:
        asked = 0
        is_closed = False

        async def get_token(self, *scopes: str, **options: Any) -> str:
            self.asked += 1
            number = self.asked
            await goes_on.wait()
            if number == 3:
                raise ValueError("no token")
            return f"{scopes[0]} {number}"

        async def close(self) -> None:
            self.is_closed = True

    async def ask() -> None:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(credential.get_token("storage", enable_cae=True), 0.01)
        assert slow.asked == 1
        goes_on.set()
        assert await credential.get_token("storage", enable_cae=True) == "storage 1"
        assert await credential.get_token("storage", enable_cae=True) == "storage 2"
        for expected in (pytest.raises(ValueError, match="no token"), contextlib.nullcontext()):
            with expected:
                assert await credential.get_token("storage") == "storage 4"
        await credential.close()

    slow, goes_on = Slow(), asyncio.Event()
    filesystem = SimpleNamespace(
        credential=slow, account_key=None, connection_string=None, account_url="https://h", sas_token=None
    )
    asyncio.run(_opened_and_closed(filesystem))
    credential = filesystem.credential
    asyncio.run(ask())
    assert slow.is_closed


async def _opened_and_closed(filesystem: Any) -> None:
    """Make the client twice: a listing may go on after it was closed."""
    for _ in range(2):
        await azure._client_of(filesystem, Timeouts(1.0, 5.0)).close()
