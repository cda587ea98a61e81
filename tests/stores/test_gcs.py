"""Features of Google Cloud Storage alone: tokens that are renewed, requester pays, a missing bucket.

Rules of the file:

- Answers of the real service that fake-gcs-server cannot give come from the server of `tests/stores/range_server.py`.
"""

from __future__ import annotations

import asyncio
import datetime
import gc
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fsspec.asyn import sync
from google.auth.exceptions import RefreshError, TransportError

from fetchers.gcs import GcsFetcher
from remote_fetch.errors import ConfigError, SegmentNotFound, StorageDenied, StorageUnavailable
from remote_fetch.session.filesystems import open_filesystem
from remote_fetch.testing.contract import contract_segments
from tests.answering import Quiet, serving
from tests.rig.certificates import Certificates, make_certificates
from tests.stores.range_server import Fault, FaultKind, RangeServer
from tests.stores.servers import StoreServer, configs_of

SEGMENT = contract_segments()[0]
PLACE = SEGMENT.metadata.topic_id_partition
OBJECT = (
    f"kafka-tiered-storage/{PLACE.topic}-{PLACE.partition}-{PLACE.topic_id}/"
    f"{SEGMENT.metadata.start_offset:020d}-{SEGMENT.metadata.segment_id.id}.log"
)
FILES = {f"download/storage/v1/b/tier/o/{OBJECT}": SEGMENT.log}


@contextmanager
def reading(server: RangeServer, **options: str) -> Iterator[GcsFetcher]:
    own = {"endpoint_url": server.url, "token": "anon", **options}
    fetcher = GcsFetcher()
    fetcher.configure(
        {
            "remote.storage.url": "gs://tier/kafka-tiered-storage",
            **{f"remote.storage.options.{name}": value for name, value in own.items()},
        }
    )
    try:
        yield fetcher
    finally:
        fetcher.close()


def filesystem_of(fetcher: GcsFetcher) -> Any:
    return fetcher._opened()[1]._filesystem  # type: ignore[attr-defined]


class Credentials:
    """Of google-auth's shape; every renewal gives another token."""

    def __init__(self) -> None:
        self.renewals = self.attempts = 0
        self.error: Exception | None = None
        self.expiry = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)

    @property
    def valid(self) -> bool:
        left = self.expiry - datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        return self.renewals > 0 and left > datetime.timedelta(minutes=3, seconds=45)

    def refresh(self, request: object) -> None:
        self.attempts += 1
        if self.error is not None:
            raise self.error
        self.renewals += 1
        self.expiry = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(hours=1)

    def apply(self, headers: dict[str, str]) -> None:
        headers["Authorization"] = f"Bearer token-{self.renewals}"


def test_a_token_is_renewed_before_it_expires() -> None:
    credentials = Credentials()
    with RangeServer(FILES) as server, reading(server) as fetcher:
        filesystem_of(fetcher).credentials.credentials = credentials
        for _ in range(3):
            assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)) == SEGMENT.log[:61]
        credentials.expiry -= datetime.timedelta(minutes=57)  # in less than five minutes
        assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)) == SEGMENT.log[:61]
    said = [headers["Authorization"] for headers in server.headers]
    assert said == ["Bearer token-1"] * 3 + ["Bearer token-2"]


def test_a_token_that_cannot_be_renewed_yet_is_used_until_it_expires() -> None:
    """The server of tokens may be away for a minute. It is asked again after a while, and by one thread alone."""
    credentials = Credentials()
    with RangeServer(FILES) as server, reading(server) as fetcher:
        filesystem_of(fetcher).credentials.credentials = credentials
        fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)
        credentials.expiry -= datetime.timedelta(minutes=57)  # it is renewed from now on
        credentials.error = TransportError("away")  # type: ignore[no-untyped-call]
        with fetcher._opened()[1]._renewing:  # type: ignore[attr-defined]
            fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)
        assert credentials.attempts == 1
        for _ in range(3):
            assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)) == SEGMENT.log[:61]
        assert credentials.attempts == 2
        credentials.expiry -= datetime.timedelta(minutes=5)
        with pytest.raises(StorageUnavailable):
            fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)
        credentials.error = None
        assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)) == SEGMENT.log[:61]
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer token-1", "Bearer token-2"}


def test_a_refused_range_is_no_end_if_the_object_has_a_byte_there() -> None:
    with RangeServer(FILES) as server, reading(server) as fetcher:
        server.plan = lambda asked: Fault(FaultKind.REFUSED_RANGE)
        with pytest.raises(StorageUnavailable, match="refuses the range from 5"):
            fetcher.fetch_log_segment(SEGMENT.metadata, 5, 61)
        server.plan = lambda asked: Fault(FaultKind.STATUS, 200)  # an empty answer of a proxy
        with pytest.raises(StorageUnavailable, match="without saying which"):
            fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)


def test_connections_with_old_credentials_are_closed() -> None:
    """With the next renewal, for reads may be under way; all of them when the fetcher is closed."""
    with RangeServer(FILES) as server, reading(server) as fetcher:
        sessions = []
        for _ in range(3):
            fetcher.refresh_credentials()
            fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)
            sessions.append(fetcher._opened()[1]._session)  # type: ignore[attr-defined]
        assert [session.closed for session in sessions] == [True, False, False]
    assert [session.closed for session in sessions] == [True, True, True]


@pytest.mark.parametrize(("scheme", "presented"), [("http", False), ("https", True)])
def test_a_client_certificate_of_the_machine(monkeypatch: pytest.MonkeyPatch, scheme: str, presented: bool) -> None:
    """google-auth finds the certificate, and every connection of the session presents it."""
    import aiohttp
    from google.auth.transport import mtls

    certificate, given = ssl.create_default_context(), []
    connector = aiohttp.TCPConnector

    def noted(ssl: Any = True) -> aiohttp.TCPConnector:
        given.append(ssl)
        return connector(ssl=ssl)

    monkeypatch.setattr(mtls, "get_default_ssl_context", lambda: certificate)
    monkeypatch.setattr(aiohttp, "TCPConnector", noted)
    with (
        RangeServer(FILES) as server,
        reading(server, endpoint_url=server.url.replace("http", scheme)) as fetcher,
        suppress(StorageUnavailable),  # the server has no TLS
    ):
        fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)
    assert given == [certificate] * presented


def test_a_store_that_is_garbage_closes_its_session() -> None:
    with RangeServer(FILES) as server, reading(server) as fetcher:
        fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)
        store = fetcher._opened()[1]
        session, loop = store._session, store._filesystem.loop  # type: ignore[attr-defined]
        fetcher._store = None
        del store
        gc.collect()
        sync(loop, asyncio.sleep, 0)  # what was scheduled before has begun
        assert session.closed


def test_the_requester_pays() -> None:
    with RangeServer(FILES) as server, reading(server, requester_pays="my-project") as fetcher:
        assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 5, 61)) == SEGMENT.log[5:61]
    (path,) = server.paths
    assert "userProject=my-project" in path
    assert "alt=media" in path


@pytest.mark.parametrize("end", ["/", "//"])
def test_an_endpoint_that_ends_with_a_slash(
    gcs: StoreServer, opened: Callable[[dict[str, str]], Any], end: str
) -> None:
    """gcsfs asks for `//download/storage/v1/`, where the server has nothing. Python's own would take it."""
    fetcher = opened(gcs.configs(endpoint_url=gcs.server.endpoint + end))
    segment = next(fetcher.list_segments())
    assert len(fetcher.fetch_log_segment(segment, 5, 61)) == 56


def test_only_reading_is_asked_for() -> None:
    with RangeServer(FILES) as server, reading(server) as fetcher:
        assert filesystem_of(fetcher).credentials.scope.endswith("devstorage.read_only")


@pytest.mark.parametrize("token", ["/no/such/account.json", "account.json", "~/account"])
def test_a_file_that_is_not_there(token: str) -> None:
    """Is not sent to Google as a token."""
    with (
        RangeServer() as server,
        pytest.raises(ConfigError, match="a file that is not there"),
        reading(server, token=token),
    ):
        pass


def test_no_credentials_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with (
        RangeServer() as server,
        pytest.raises(StorageDenied, match="credentials"),
        reading(server, token="google_default"),
    ):
        pass


def test_a_server_of_tokens_that_is_away_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a node that has just started. gcsfs waits for it as it is made, and takes no other endpoint."""
    from google.auth.compute_engine import credentials

    def away(self: object, request: object) -> None:
        raise RefreshError("away") from TransportError("away")  # type: ignore[no-untyped-call]

    monkeypatch.setattr(credentials.Credentials, "refresh", away)
    with (
        RangeServer(FILES) as server,
        reading(server, token="cloud") as fetcher,
        pytest.raises(StorageUnavailable, match="no token"),
    ):
        fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)


def test_a_service_account_comes_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    from google.oauth2 import service_account

    seen: list[object] = []

    class Made(Credentials):
        pass

    def from_info(info: object, scopes: object) -> Made:
        seen.append(info)
        return Made()

    monkeypatch.setattr(service_account.Credentials, "from_service_account_info", from_info)
    account = {"type": "service_account", "client_email": "reader@tests.example"}
    with RangeServer(FILES) as server, reading(server, token=json.dumps(account)) as fetcher:
        assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)) == SEGMENT.log[:61]
    assert seen == [account]


def test_a_file_with_an_access_token_is_read_again(tmp_path: Path) -> None:
    """Aiven's plug-in takes one, alone in JSON, and reads the file again when it changes."""
    file = tmp_path / "token.json"
    file.write_text('{"access_token": "s3cret-1"}')
    with RangeServer(FILES) as server, reading(server, token=str(file)) as fetcher:
        fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)
        file.write_text('{"access_token": "s3cret-2"}')
        fetcher.refresh_credentials()
        fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)
    with RangeServer(FILES) as other, reading(other, token='{"access_token": "s3cret-3"}') as fetcher:
        fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)
    said = [headers["authorization"] for headers in (*server.headers, *other.headers)]
    assert said == ["Bearer s3cret-1", "Bearer s3cret-2", "Bearer s3cret-3"]
    renewed = {"access_token": "s3cret", "refresh_token": "s3cret-r", "client_id": "c", "client_secret": "s3cret"}
    with RangeServer() as server, reading(server, token=json.dumps(renewed)) as fetcher:
        store: Any = fetcher.opened_store()
        assert store._filesystem.credentials.credentials.refresh_token == "s3cret-r"  # gcsfs renews with it
    file.write_text("s3cret")
    with RangeServer() as server, pytest.raises(ConfigError) as caught, reading(server, token=str(file)):
        pass
    assert "s3cret" not in str(caught.value)


@contextmanager
def answered(
    answer: Callable[[str], tuple[int, bytes]], url: str, tls: Certificates | None = None
) -> Iterator[GcsFetcher]:
    """A fetcher over a server that answers each path with a status and a body."""

    class Handler(Quiet):
        def do_GET(self) -> None:
            self.answer(*answer(self.path))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server) as endpoint:
        fetcher = GcsFetcher()
        options = {"token": "anon", "endpoint_url": endpoint if tls is None else endpoint.replace("http", "https")}
        fetcher.configure(configs_of(url, options))
        yield fetcher
        fetcher.close()


@pytest.mark.parametrize(
    ("text", "error"),
    [(b"The specified bucket does not exist.", StorageDenied), (b"No such object: tier/x", SegmentNotFound)],
    ids=["bucket", "object"],
)
def test_a_404_says_what_is_missing(text: bytes, error: type[Exception]) -> None:
    """An index in a bucket that is not there is not absent."""

    def answer(path: str) -> tuple[int, bytes]:
        is_empty_listing = "prefix=" in path and text.startswith(b"No such object")
        return (200, b'{"kind": "storage#objects"}') if is_empty_listing else (404, text)

    with answered(answer, "gs://tier/kafka-tiered-storage") as fetcher:
        with pytest.raises(error) as caught:
            fetcher.fetch_log_segment(SEGMENT.metadata, 0, 61)
        assert getattr(caught.value, "is_absent", True)


@pytest.mark.parametrize("is_mutual", [False, True])
def test_a_listing_goes_on_after_credentials_were_looked_up_twice(
    is_mutual: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look-up closes the connections of the store from which the listing came."""
    from google.auth.transport import mtls

    tls = make_certificates(tmp_path / "tls") if is_mutual else None
    if tls is not None:
        monkeypatch.setattr(mtls, "get_default_ssl_context", lambda: ssl.create_default_context(cafile=tls.authority))

    def answer(path: str) -> tuple[int, bytes]:
        page = "2" if "pageToken" in path else "1"
        found = {"kind": "storage#objects", "items": [{"name": f"tier/{page}", "size": "1"}]}
        return 200, json.dumps(found if page == "2" else {**found, "nextPageToken": "2"}).encode()

    with answered(answer, "gs://tier/tier", tls) as fetcher:
        listing = iter(fetcher.list_objects())
        assert next(listing).name == "1"
        fetcher.refresh_credentials()
        fetcher.refresh_credentials()
        assert [found.name for found in listing] == ["2"]


def test_a_file_is_written_in_several_parts(gcs: StoreServer) -> None:
    """Google answers 308 to each part but the last one, which is no redirect."""
    configs = gcs.configs()
    options = {name.rpartition(".")[2]: value for name, value in configs.items() if ".options." in name}
    filesystem, path = open_filesystem(configs["remote.storage.url"], options, key="to")
    data = bytes(range(256)) * (5 << 10)
    with filesystem.open(f"{path}/written/large", "wb", block_size=512 << 10) as file:
        for start in range(0, len(data), 100_000):
            file.write(data[start : start + 100_000])
    assert filesystem.cat_file(f"{path}/written/large") == data
