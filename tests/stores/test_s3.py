"""Features of S3 alone: signatures and their age, users and bucket policies, profiles, and a secret that changes.

Rules of the file:

- The file has its own server, because its tests change users and policies.
- A wrong clock is set in botocore.
- versitygw answers 404 for a missing object, even to a user who may not list. Amazon answers 403, which the fetcher
  treats as any other refusal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import botocore.auth
import pytest
from botocore.loaders import JSONFileLoader

import remote_fetch
from fetchers.s3 import S3Fetcher
from remote_fetch.config import Config
from remote_fetch.errors import (
    ConfigError,
    MissingExtra,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.model import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, Uuid
from remote_fetch.observe import RangeFetched
from tests.eventually import eventually
from tests.stores.artifacts import MissingTool
from tests.stores.conftest import TOPIC, tree_of_one_topic
from tests.stores.range_server import Fault, FaultKind, RangeServer
from tests.stores.refusing_server import refusing
from tests.stores.s3_server import BUCKET, S3Server, s3_server
from tests.stores.servers import PATIENCE

OPTIONS = "remote.storage.options."
READER, SECRET = "reader", "reader-secret-1"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("own-s3")
    try:
        with s3_server(folder, tree_of_one_topic(folder / "tier")) as running:
            running.add_user(READER, SECRET)
            running.allow(READER, "s3:GetObject", "s3:ListBucket")
            yield running
    except MissingTool as error:
        pytest.skip(str(error))


@pytest.fixture
def segment(s3: S3Server) -> RemoteLogSegmentMetadata:
    fetcher = load_fetcher(Config.parse({"remote.storage.url": str(s3.directory)}))
    segments: list[RemoteLogSegmentMetadata] = list(fetcher.list_segments())  # type: ignore[attr-defined]
    return max(segments, key=lambda one: one.segment_size_in_bytes)


def refusal(fetcher: Any, segment: RemoteLogSegmentMetadata) -> RemoteFetchError:
    """A segment and an index that does not exist are refused alike."""
    with pytest.raises(StorageDenied):
        fetcher.fetch_index(dataclasses.replace(segment, start_offset=10**6), IndexType.TRANSACTION)
    with pytest.raises(StorageDenied) as caught:
        fetcher.fetch_log_segment(segment, 0, 100)
    return caught.value


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"secret": "another-secret"}, "does not accept the credentials"),
        ({"key": "nobody-we-know"}, "does not accept the credentials"),
        ({"token": "an-old-session-token"}, "does not accept the credentials"),
    ],
    ids=["wrong secret", "unknown key", "a session that is none"],
)
def test_who_asks(
    s3: S3Server,
    segment: RemoteLogSegmentMetadata,
    opened: Callable[[dict[str, str]], Any],
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    text: str,
) -> None:
    caplog.set_level("DEBUG", "s3fs")
    error = refusal(opened(s3.configs(**options)), segment)
    assert text in str(error)
    shown = "".join(traceback.format_exception(error))
    assert not any(value in shown + caplog.text for value in options.values())


@pytest.mark.parametrize("hours", [-1, 1], ids=["an hour behind", "an hour ahead"])
def test_a_wrong_clock(
    s3: S3Server,
    segment: RemoteLogSegmentMetadata,
    opened: Callable[[dict[str, str]], Any],
    monkeypatch: pytest.MonkeyPatch,
    hours: int,
) -> None:
    def wrong(remove_tzinfo: bool = True) -> datetime.datetime:
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)
        return now.replace(tzinfo=None) if remove_tzinfo else now

    monkeypatch.setattr(botocore.auth, "get_current_datetime", wrong)
    error = refusal(opened(s3.configs()), segment)
    assert "clock" in f"{error}"


def test_a_bucket_that_is_not_there(
    s3: S3Server, segment: RemoteLogSegmentMetadata, opened: Callable[[dict[str, str]], Any]
) -> None:
    """Is no absence of the objects in it: an index would be taken for empty."""
    configs = {**s3.configs(), "remote.storage.url": "s3://another/kafka-tiered-storage"}
    assert "no such bucket" in str(refusal(opened(configs), segment))
    with pytest.raises(StorageDenied):
        list(opened(configs).list_segments())


def test_s3a_is_s3(s3: S3Server, segment: RemoteLogSegmentMetadata, opened: Callable[[dict[str, str]], Any]) -> None:
    fetcher = opened({**s3.configs(), "remote.storage.url": f"s3a://{BUCKET}"})
    assert isinstance(fetcher, S3Fetcher)
    assert bytes(fetcher.fetch_log_segment(segment, 0, 61))


def test_reading_needs_no_permission_to_list(
    s3: S3Server, segment: RemoteLogSegmentMetadata, opened: Callable[[dict[str, str]], Any]
) -> None:
    s3.add_user("no-lister", "no-lister-secret")
    s3.allow("no-lister", "s3:GetObject")
    fetcher = opened(s3.configs(key="no-lister", secret="no-lister-secret"))
    assert bytes(fetcher.fetch_log_segment(segment, 0, 61))
    with pytest.raises(StorageDenied) as caught:
        list(fetcher.list_segments())
    assert "permission to list" in str(caught.value)
    gone = dataclasses.replace(segment, segment_id=RemoteLogSegmentId(segment.topic_id_partition, Uuid(b"g" * 16)))
    with pytest.raises((SegmentNotFound, StorageDenied)):
        fetcher.fetch_log_segment(gone, 0, 61)
    s3.allow("no-lister")
    refusal(opened(s3.configs(key="no-lister", secret="no-lister-secret")), segment)
    s3.allow(READER, "s3:GetObject", "s3:ListBucket")


@pytest.fixture
def profile(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, str]]:
    """Writes the secret into the credentials file of a profile, and gives a configuration that names the profile."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))

    def write(secret: str) -> dict[str, str]:
        text = f"[tier]\naws_access_key_id = {READER}\naws_secret_access_key = {secret}\n"
        (tmp_path / "credentials").write_text(text)
        return {
            "remote.storage.url": f"s3://{BUCKET}",
            f"{OPTIONS}profile": "tier",
            f"{OPTIONS}endpoint_url": s3.endpoint,
            **PATIENCE,
        }

    return write


def test_a_secret_that_changes_in_the_middle_of_a_read(s3: S3Server, profile: Callable[[str], dict[str, str]]) -> None:
    """The next GET is refused, the profile is read again, and nothing is lost or repeated."""
    config = {**profile(SECRET), "fetch.remote.range.bytes": "1024", "fetch.remote.max.bytes": "1024"}
    expected = remote_fetch.read_arrow(TOPIC, config={"remote.storage.url": str(s3.directory)}).read_all()
    counters, ranges = remote_fetch.Counters(), 0

    def observe(event: object) -> None:
        nonlocal ranges
        counters(event)  # type: ignore[arg-type]
        if isinstance(event, RangeFetched) and event.index_type is None:
            ranges += 1
            if ranges == 3:
                s3.add_user(READER, "reader-secret-2")
                profile("reader-secret-2")

    found = remote_fetch.read_arrow(TOPIC, config=config, observer=observe).read_all()
    s3.add_user(READER, SECRET)
    assert found.equals(expected)
    assert ranges > 5
    assert counters.report().retries == {"auth": 1}


def presigned(s3: S3Server, segment: RemoteLogSegmentMetadata) -> str:
    """The signed URL of the folder above the segment's partition, with the signature of the segment's log."""
    place = segment.topic_id_partition
    folder = f"{place.topic}-{place.partition}-{place.topic_id}"
    key = f"kafka-tiered-storage/{folder}/{segment.start_offset:020d}-{segment.segment_id.id}.log"
    url = s3.client().generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": key}, ExpiresIn=600)
    return f"{s3.endpoint}/{BUCKET}/kafka-tiered-storage?{url.partition('?')[2]}"


def test_a_signed_url(
    s3: S3Server,
    segment: RemoteLogSegmentMetadata,
    opened: Callable[[dict[str, str]], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Is read by the fetcher `http`; one that has expired, or been changed, is refused and not shown."""
    url = presigned(s3, segment)
    assert bytes(opened({"remote.storage.url": url}).fetch_log_segment(segment, 0, 61))

    def an_hour_ago(remove_tzinfo: bool = True) -> datetime.datetime:
        now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
        return now.replace(tzinfo=None) if remove_tzinfo else now

    monkeypatch.setattr(botocore.auth, "get_current_datetime", an_hour_ago)
    for refused in (presigned(s3, segment), f"{url[:-4]}0000"):
        with pytest.raises(StorageDenied) as caught:
            opened({"remote.storage.url": refused}).fetch_log_segment(segment, 0, 61)
        assert "Signature=" not in "".join(traceback.format_exception(caught.value))


def test_options_for_every_request(
    s3: S3Server, segment: RemoteLogSegmentMetadata, opened: Callable[[dict[str, str]], Any]
) -> None:
    """A request takes those that its operation knows."""
    more = '{"ExpectedBucketOwner": "4711", "StorageClass": "GLACIER", "RequestPayer": null}'
    with RangeServer() as own:
        options = {"endpoint_url": own.url, "requester_pays": "true", "s3_additional_kwargs": more}
        configs = s3.configs(**options)
        fetcher = opened({**configs, "remote.storage.url": f"{configs['remote.storage.url']}/kafka-tiered-storage"})
        with pytest.raises(RemoteFetchError):
            fetcher.fetch_log_segment(segment, 0, 61)
        with pytest.raises(RemoteFetchError):
            list(fetcher.list_segments())
    assert len({path.partition("?")[0] for path in own.paths}) == 2
    for headers in own.headers:
        assert headers["x-amz-request-payer"] == "requester"
        assert headers["x-amz-expected-bucket-owner"] == "4711"
        assert "x-amz-storage-class" not in headers


def test_a_server_that_sends_every_request_elsewhere(opened: Callable[[dict[str, str]], Any]) -> None:
    """aiobotocore asks for the bucket's region, is sent elsewhere too, and asks again, until Python stops it."""
    config = {"remote.storage.url": "s3://bucket/tier", f"{OPTIONS}key": "key", f"{OPTIONS}secret": "secret"}
    config["fetch.remote.connect.timeout.ms"] = "60000"  # its thousand requests take long on a busy machine
    with refusing(301, "PermanentRedirect") as url:
        fetcher = opened({**config, f"{OPTIONS}endpoint_url": url})
        with pytest.raises(StorageDenied, match="asked for somewhere else") as raised:
            list(fetcher.list_segments("t"))
    assert raised.value.hint is not None
    assert "region or endpoint" in raised.value.hint


@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_index_that_was_deleted_is_not_absent(is_deleted: bool, opened: Callable[[dict[str, str]], Any]) -> None:
    """A bucket with versions tells that there was one. Without it aborted records would be shown."""
    config = {"remote.storage.url": "s3://bucket/tier", f"{OPTIONS}key": "key", f"{OPTIONS}secret": "secret"}
    with refusing(404, "NoSuchKey", is_deleted=is_deleted) as url:
        fetcher = opened({**config, f"{OPTIONS}endpoint_url": url})
        with pytest.raises(SegmentNotFound) as raised:
            fetcher.opened_store().get("a.txnindex", 0, 100)
    assert raised.value.is_absent is not is_deleted


def test_options_that_botocore_does_not_know(s3: S3Server, opened: Callable[[dict[str, str]], Any]) -> None:
    for options in ({"config_kwargs": '{"no_such_thing": 1}'}, {"profile": "no-such-profile"}, {"no_such": "1"}):
        with pytest.raises(ConfigError):
            opened(s3.configs(**options))


def test_without_the_extra(s3: S3Server, opened: Callable[[dict[str, str]], Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in [*(name for name in sys.modules if name.partition(".")[0] == "s3fs"), "s3fs"]:
            patch.setitem(sys.modules, name, None)
        patch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
        with pytest.raises(MissingExtra, match='pip install "remote-fetch\\[s3\\]"'):
            opened(s3.configs())


def test_a_second_fetcher_parses_nothing_again(
    s3: S3Server, opened: Callable[[dict[str, str]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of Spark's opens one of its own; the description of S3's operations is a megabyte of JSON."""
    opened(s3.configs(key=READER, secret=SECRET))
    loaded: list[str] = []
    load = JSONFileLoader.load_file

    def noted(loader: JSONFileLoader, path: str) -> Any:
        loaded.append(path)
        return load(loader, path)

    monkeypatch.setattr(JSONFileLoader, "load_file", noted)
    opened(s3.configs(key=READER, secret=SECRET))
    assert loaded == []


@pytest.mark.parametrize(
    ("options", "key", "said"),
    [
        ({"endpoint": "http://h"}, "*", "no option 'endpoint'. Usual options are key, secret,"),
        ({"client_kwargs": '{"s3cret": 1}'}, "*", "no option 's3cret'"),
        ({"client_kwargs": "{region_name:x}"}, "client_kwargs", "client_kwargs is no JSON object"),
        ({"config_kwargs": "[]"}, "config_kwargs", "no JSON object"),
        ({"endpoint_url": "127.0.0.1:9000"}, "endpoint_url", "endpoint_url is no URL"),
        ({"client_kwargs": '{"endpoint_url": "h:9000"}'}, "endpoint_url", "endpoint_url is no URL"),
        ({"endpoint_url": "http://me:s3cret-key/x@h"}, "endpoint_url", "endpoint_url is no URL"),
        ({"endpoint_url": "https://h:99999"}, "endpoint_url", "endpoint_url is no URL"),
        ({"endpoint_url": "http://[::1"}, "endpoint_url", "endpoint_url is no URL"),
        ({"endpoint_url": "ftp://h"}, "endpoint_url", "endpoint_url is no URL"),
        ({"endpoint_url": "http://h/x?sig=s3cret-key"}, "endpoint_url", "endpoint_url is no URL"),
        ({"client_kwargs": '{"verify": "/no/such/ca.pem"}'}, "client_kwargs", "a file that is not there"),
        ({"client_kwargs": '{"region_name": "no region"}'}, "client_kwargs", "the name of the region is none"),
        ({"profile": "of-nobody"}, "profile", "no such profile"),
    ],
)
def test_options_that_no_client_can_be_made_of_are_named(options: dict[str, str], key: str, said: str) -> None:
    given = options if "profile" in options else {"key": "k", "secret": "s3cret-key", **options}
    configs = {f"remote.storage.options.{name}": value for name, value in given.items()}
    with pytest.raises(ConfigError) as caught:
        S3Fetcher().configure({"remote.storage.url": "s3://tier/x", **configs})
    assert caught.value.key == f"remote.storage.options.{key}"
    assert said in str(caught.value)
    assert "s3cret-key" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["http://h:port", "h:9000", " http://h ", '"http://h"'])
def test_an_endpoint_that_the_environment_names(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(ConfigError, match=r"^the endpoint of AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or .* is no URL"):
        S3Fetcher().configure({"remote.storage.url": "s3://tier/x"})


def test_credentials_that_take_longer_than_a_read_are_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`credential_process` is a process. Each read that timed out began another one, and none ever had credentials."""
    calls, goes_on, program = tmp_path / "calls", tmp_path / "goes-on", tmp_path / "program.py"
    program.write_text(
        "import datetime, json, os, time\n"
        f"with open({str(calls)!r}, 'a') as file: file.write('x')\n"
        f"is_first = os.path.getsize({str(calls)!r}) == 1\n"
        f"while not (is_first or os.path.exists({str(goes_on)!r})): time.sleep(0.01)\n"
        "end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5 if is_first else 120)\n"
        "keys = {'AccessKeyId': 'a', 'SecretAccessKey': 'b', 'SessionToken': 'c'}\n"
        "print(json.dumps({'Version': 1, **keys, 'Expiration': end.isoformat()}))\n"
    )
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {sys.executable} {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with RangeServer({"bucket/a": b"0123456789"}) as server:
        fetcher = S3Fetcher()
        options = {"remote.storage.options.endpoint_url": server.url, "fetch.remote.read.timeout.ms": "500"}
        fetcher.configure({"remote.storage.url": "s3://bucket", **options})
        store = fetcher.opened_store()
        for _ in range(3):
            with pytest.raises(StorageTimeout):
                store.get("a", 0, 5)
        goes_on.touch()

        def is_read() -> bool:
            with contextlib.suppress(StorageTimeout):
                return bytes(store.get("a", 0, 5)) == b"01234"
            return False

        assert eventually(is_read)
        fetcher.close()
    assert calls.read_text() == "xx"


def test_a_refused_range_is_no_end_if_the_object_has_a_byte_there() -> None:
    fetcher = S3Fetcher()
    with RangeServer({"tier/x/a.index": b"abc"}, lambda asked: Fault(FaultKind.REFUSED_RANGE)) as own:
        own_options = {"endpoint_url": own.url, "key": "AKID", "secret": "secret"}
        options = {f"{OPTIONS}{name}": value for name, value in own_options.items()}
        fetcher.configure({"remote.storage.url": "s3://tier/x", **options})
        assert bytes(fetcher.opened_store().get("a.index", 3, 20)) == b""
        with pytest.raises(StorageUnavailable, match="refuses the range from 2"):
            fetcher.opened_store().get("a.index", 2, 20)
        own.plan = lambda asked: Fault(FaultKind.STATUS, 200)  # an empty answer of a proxy
        with pytest.raises(StorageUnavailable, match="without saying which"):
            fetcher.opened_store().get("a.index", 0, 20)
        fetcher.close()


def test_a_file_of_authorities_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/no/such/ca.pem")
    with pytest.raises(ConfigError, match="AWS_CA_BUNDLE, names a file that is not there"):
        S3Fetcher().configure({"remote.storage.url": "s3://tier/x"})
    plain = S3Fetcher()
    plain.configure({"remote.storage.url": "s3://tier/x", "remote.storage.options.endpoint_url": "http://127.0.0.1:1"})
    plain.close()
