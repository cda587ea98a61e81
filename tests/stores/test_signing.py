"""URLs that the fetchers of the clouds sign: each permits GET of one object until it expires, and nothing else.

Rules of the file:

- versitygw and Azurite check signatures, methods and ages. fake-gcs-server checks nothing, so that the signatures for
  Google Cloud Storage are verified with the public key of the service account, over the canonical request that
  Google's documentation of V4 signing prescribes.
- The requests are urllib3's, without credentials.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest
import urllib3

from fetchers.vended import VendedFetcher
from remote_fetch.errors import ConfigError, SegmentNotFound, UnsupportedFormat
from remote_fetch.fetch.spi import ObjectSigner
from remote_fetch.formats.object_names import belongs_to
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from remote_fetch.testing.contract import contract_segments
from tests.cases import each_of
from tests.stores.azure_server import AzureServer
from tests.stores.conftest import TOPIC
from tests.stores.gcs_server import GcsServer
from tests.stores.s3_server import S3Server
from tests.stores.servers import StoreServer
from tests.stores.vended_reader import KINDS, SignedBy

OPTIONS = "remote.storage.options."
AS_PLAIN = {
    "remote.storage.layout": "plain",
    "remote.storage.layout.template": (
        "kafka-tiered-storage/{topic}-{partition}-{topic_id}/{start_offset}-{segment_id}.{file}"
    ),
}
"""The names of `kafka_local`. No listing is needed to find where they begin."""
SEGMENT = contract_segments()[0].metadata


def largest(fetcher: Any) -> RemoteLogSegmentMetadata:
    """The largest segment of the tier."""
    segments: list[RemoteLogSegmentMetadata] = list(fetcher.list_segments(TOPIC))
    return max(segments, key=lambda one: one.segment_size_in_bytes)


def ask(method: str, url: str, **headers: str) -> urllib3.BaseHTTPResponse:
    body = b"x" if method == "PUT" else None
    if method == "PUT":
        headers["x-ms-blob-type"] = "BlockBlob"
    return urllib3.request(method, url, headers=headers, body=body, retries=False, redirect=False, timeout=60)


def name_of(url: str) -> str:
    """The name of the object in the path of a URL."""
    path = unquote(urlsplit(url).path)
    return path[path.index("kafka-tiered-storage/") :]


@pytest.fixture(params=["s3", "azure"])
def checking(request: pytest.FixtureRequest) -> StoreServer:
    """Each server that checks signatures."""
    found: StoreServer = request.getfixturevalue(request.param)
    if not isinstance(found, S3Server | AzureServer):
        pytest.skip("moto checks no signatures")
    return found


# ------------------------------------------------------------------------------------------------- all clouds


def test_signed_urls_are_read_without_credentials(store: StoreServer, opened: Callable[..., Any]) -> None:
    fetcher = opened(store.configs())
    signer: ObjectSigner = fetcher
    assert isinstance(signer, ObjectSigner)
    segment = largest(fetcher)
    urls = fetcher.sign(segment, KINDS, 300)
    assert len(urls) == len(KINDS)
    whole = bytes(fetcher.fetch_log_segment(segment, 0))
    for name, url in urls.items():
        assert belongs_to(name, segment)
        assert name_of(url) == name
        answer = ask("GET", url)
        if name.endswith(".log"):
            assert (answer.status, answer.data) == (200, whole)
            part = ask("GET", url, Range="bytes=10-499")
            assert (part.status, part.data) == (206, whole[10:500])
        elif name.endswith(".txnindex"):
            assert answer.status in (200, 404)
        else:
            assert answer.status == 200


def test_a_reader_without_credentials_follows_them(store: StoreServer, opened: Callable[..., Any]) -> None:
    fetcher = opened(store.configs())
    reader = VendedFetcher()
    reader.configure({"remote.locator.url": "http://127.0.0.1:9"})
    reader.take_locations(SignedBy(fetcher, "kafka_local", {}))
    segments = sorted(fetcher.list_segments(TOPIC), key=lambda one: int(one.segment_size_in_bytes))
    assert {segment.txn_index_empty for segment in segments} == {True, False}
    for segment in (segments[0], segments[-1]):
        whole = bytes(fetcher.fetch_log_segment(segment, 0))
        assert bytes(reader.fetch_log_segment(segment, 0)) == whole
        assert bytes(reader.fetch_log_segment(segment, 7, 61)) == whole[7:61]
        for start in (len(whole) - 1, len(whole), len(whole) + 10):
            assert bytes(reader.fetch_log_segment(segment, start, start + 100)) == whole[start:]
    for segment in segments[:20]:
        for kind in IndexType:
            wanted = fetcher.fetch_index(segment, kind)
            if wanted is None and isinstance(store, GcsServer):
                with pytest.raises(SegmentNotFound, match="has no code of the store"):
                    reader.fetch_index(segment, kind)  # fake-gcs-server says "Not Found", and Google NoSuchKey
                continue
            found = reader.fetch_index(segment, kind)
            assert (None if found is None else bytes(found)) == (None if wanted is None else bytes(wanted))
    reader.close()


def test_only_the_kinds_that_are_asked_for(store: StoreServer, opened: Callable[..., Any]) -> None:
    fetcher = opened(store.configs())
    segment = largest(fetcher)
    assert [name.rpartition(".")[2] for name in fetcher.sign(segment, ["log"], 60)] == ["log"]
    assert [name.rpartition(".")[2] for name in fetcher.sign(segment, {"offset", "transaction"}, 60)] == [
        "index",
        "txnindex",
    ]
    with pytest.raises(ConfigError, match="'manifest' is no kind of object"):
        fetcher.sign(segment, ["log", "manifest"], 60)
    with pytest.raises(UnsupportedFormat, match="keeps no object of the kinds"):
        fetcher.sign(segment, [], 60)
    with pytest.raises(ConfigError, match="expires after 0 s"):
        fetcher.sign(segment, ["log"], 0)


# ---------------------------------------------------------------------------- servers that check signatures


def test_a_url_permits_nothing_but_get(checking: StoreServer, opened: Callable[..., Any]) -> None:
    fetcher = opened(checking.configs())
    segment = largest(fetcher)
    (url,) = fetcher.sign(segment, ["log"], 300).values()
    for method in ("PUT", "DELETE", "POST"):
        assert ask(method, url).status in (400, 403, 405), method
    assert ask("GET", url).data == bytes(fetcher.fetch_log_segment(segment, 0))


def test_a_url_permits_one_object(checking: StoreServer, opened: Callable[..., Any]) -> None:
    """The store refuses the same signature for another object, for the folder, and for a listing of the bucket."""
    fetcher = opened(checking.configs())
    first, second = list(fetcher.list_segments(TOPIC))[:2]
    (url,) = fetcher.sign(first, ["log"], 300).values()
    (other,) = fetcher.sign(second, ["log"], 300).values()
    assert ask("GET", other).status == 200
    base, _, query = url.partition("?")
    other_path = other.partition("?")[0]
    root = base[: base.index("/kafka-tiered-storage")]
    for path in (other_path, base.rpartition("/")[0], root, f"{root}/", base.replace(".log", ".index")):
        assert ask("GET", f"{path}?{query}").status in (400, 403), path
    listing = "&restype=container&comp=list" if isinstance(checking, AzureServer) else "&list-type=2"
    assert ask("GET", f"{root}?{query}{listing}").status == 403


def test_a_url_expires(checking: StoreServer, opened: Callable[..., Any]) -> None:
    fetcher = opened(checking.configs())
    segment = largest(fetcher)
    (url,) = fetcher.sign(segment, ["log"], 1).values()
    deadline = time.monotonic() + 60
    while ask("GET", url, Range="bytes=0-9").status == 206:
        assert time.monotonic() < deadline, "the URL does not expire"
        time.sleep(0.3)
    assert ask("GET", url, Range="bytes=0-9").status == 403
    name = "se" if "se=" in url else "X-Amz-Expires"
    longer = url.replace(f"{name}=", f"{name}=9", 1)
    assert ask("GET", longer, Range="bytes=0-9").status in (400, 403)


def test_custom_metadata_and_templates_name_no_other_object(s3: StoreServer, opened: Callable[..., Any]) -> None:
    segment = largest(opened(s3.configs()))
    layout = "remote.storage.layout"
    by_offset = opened(
        {**s3.configs(), layout: "plain", f"{layout}.template": "{topic}-{partition}/{start_offset}.{file}"}
    )
    with pytest.raises(ConfigError, match="no URL of it is signed"):
        by_offset.sign(segment, ["log"], 60)
    by_url = opened({**s3.configs(), layout: "url"})
    with pytest.raises(UnsupportedFormat, match="belongs to the segment"):
        by_url.sign(dataclasses.replace(segment, custom_metadata=b"secrets/passwords.txt"), ["log"], 60)


# ------------------------------------------------------------------------------------------------ S3 alone


def test_s3_urls_are_of_signature_version_4_and_of_a_week_at_most(s3: StoreServer, opened: Callable[..., Any]) -> None:
    fetcher = opened(s3.configs())
    segment = largest(fetcher)
    for expires_s, wanted in ((1, "1"), (900, "900"), (10**9, "604800")):
        (url,) = fetcher.sign(segment, ["log"], expires_s).values()
        query = parse_qs(urlsplit(url).query)
        assert query["X-Amz-Expires"] == [wanted]
        assert query["X-Amz-Algorithm"] == ["AWS4-HMAC-SHA256"]
        assert query["X-Amz-SignedHeaders"] == ["host"]


@each_of(
    ("more", "said"),
    [
        ({"anon": "true"}, "without credentials"),
        ({"requester_pays": "true"}, "cannot be signed by Signature Version 4"),
        ({"config_kwargs": '{"signature_version": "s3"}'}, "cannot be signed by Signature Version 4"),
    ],
)
def test_options_with_which_s3_does_not_sign(
    more: dict[str, str], said: str, s3: StoreServer, opened: Callable[..., Any]
) -> None:
    segment = largest(opened(s3.configs()))
    configs = {name: value for name, value in s3.configs(**more).items() if "anon" not in more or "ey" not in name}
    with pytest.raises(ConfigError, match=said) as caught:
        opened(configs).sign(segment, ["log"], 60)
    assert "root-secret" not in f"{caught.value} {caught.value.__cause__!r}"


def test_s3_urls_live_no_longer_than_temporary_credentials(
    s3: StoreServer, opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program gives credentials and their end, as workload identities do (credential_process)."""
    if not isinstance(s3, S3Server):
        pytest.skip("moto checks no signatures")
    own = s3.configs()
    key, secret = own[f"{OPTIONS}key"], own[f"{OPTIONS}secret"]
    given = tmp_path / "credentials.json"
    config = tmp_path / "config"
    config.write_text(f"[profile temporary]\ncredential_process = cat {given}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    segment = largest(opened(own))
    for lives_s, wanted in ((2000, range(1900, 2001)), (8000, range(3600, 3601))):
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + lives_s))
        document = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": secret, "Expiration": end}
        given.write_text(json.dumps(document))
        options = {f"{OPTIONS}endpoint_url": s3.endpoint, f"{OPTIONS}profile": "temporary"}
        fetcher = opened({"remote.storage.url": own["remote.storage.url"], **options})
        (url,) = fetcher.sign(segment, ["log"], 3600).values()
        assert int(parse_qs(urlsplit(url).query)["X-Amz-Expires"][0]) in wanted
        assert ask("GET", url).status == 200


# ------------------------------------------------------------------------------------------------ Azure alone


def test_an_azure_url_has_read_permission_alone(azure: AzureServer, opened: Callable[..., Any]) -> None:
    fetcher = opened(azure.configs())
    (url,) = fetcher.sign(largest(fetcher), ["log"], 600).values()
    query = parse_qs(urlsplit(url).query)
    assert (query["sp"], query["sr"]) == (["r"], ["b"])
    left_s = time.mktime(time.strptime(query["se"][0], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone - time.time()
    assert 500 < left_s <= 600


def test_a_sas_signs_nothing(azure: AzureServer, opened: Callable[..., Any]) -> None:
    segment = largest(opened(azure.configs()))
    sas = azure.sas("rl")
    fetcher = opened(azure.configs(connection_string=azure.connection_string(f"SharedAccessSignature={sas}")))
    with pytest.raises(ConfigError, match="no URL can be signed") as caught:
        fetcher.sign(segment, ["log"], 60)
    assert sas not in str(caught.value)


class Identity:
    """A blob client of an identity, which Azure gives keys of user delegation. `asked` has their begins and ends."""

    account_name = "account"

    def __init__(self) -> None:
        self.credential = self
        self.asked: list[tuple[datetime, datetime]] = []

    async def get_token(self, *scopes: str) -> None:
        raise AssertionError("the SDK asks, not the fetcher")

    async def get_user_delegation_key(self, begin: datetime, end: datetime) -> Any:
        from azure.storage.blob import UserDelegationKey

        key = UserDelegationKey()  # type: ignore[no-untyped-call]
        key.signed_oid, key.signed_tid, key.signed_service, key.signed_version = "oid", "tid", "b", "2025-11-05"
        key.signed_start, key.signed_expiry = begin.isoformat(), end.isoformat()
        key.value = "a2V5"
        self.asked.append((begin, end))
        return key

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    def get_blob_client(self, container: str, name: str) -> Any:
        return SimpleNamespace(url=f"https://account.blob.core.windows.net/{container}/{quote(name)}")


def test_an_identity_signs_by_user_delegation() -> None:
    """Azurite gives such keys, but does not know the signatures of the SDK's newest version."""
    from fetchers.azure import AzureFetcher

    identity = Identity()

    class ByIdentity(AzureFetcher):
        def prepare(self, filesystem: Any, timeouts: Any) -> None:
            filesystem.service_client = identity

    fetcher = ByIdentity()
    fetcher.configure({"remote.storage.url": "az://tier", f"{OPTIONS}account_name": "account", **AS_PLAIN})
    urls = [url for _ in range(3) for url in fetcher.sign(SEGMENT, ["log", "offset"], 600).values()]
    for url in urls:
        query = {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()}
        assert (query["sp"], query["sr"], query["spr"], query["skoid"]) == ("r", "b", "https", "oid")
    assert len(identity.asked) == 1
    fetcher.sign(SEGMENT, ["log"], 5000)
    fetcher.sign(SEGMENT, ["log"], 10**9)
    assert len(identity.asked) == 3
    for begin, end in identity.asked:
        assert begin < datetime.now(UTC)
        assert timedelta(hours=1) <= end - begin <= timedelta(days=7)
    fetcher.close()


# -------------------------------------------------------------------------------------------------- stores without


@each_of("scheme", ["local", "memory", "http"])
def test_stores_without_signatures_say_so(scheme: str, opened: Callable[..., Any], tmp_path: Path) -> None:
    url = {"local": str(tmp_path), "memory": "memory://x", "http": "http://127.0.0.1:9/x"}[scheme]
    fetcher = opened({"remote.storage.url": url})
    with pytest.raises(ConfigError, match=r"cannot sign URLs.*s3, gcs and azure"):
        fetcher.sign(SEGMENT, ["log"], 60)


# ------------------------------------------------------------------------------------------------ GCS alone


def service_account(folder: Path) -> tuple[Any, str]:
    """The public key of a new service account, and the account's key file."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    file = folder / "account.json"
    document = {"type": "service_account", "project_id": "tests", "private_key_id": "1", "private_key": pem}
    document |= {"client_email": "signer@tests.example", "token_uri": "https://127.0.0.1:9/token"}
    file.write_text(json.dumps(document))
    return key.public_key(), str(file)


def verify_v4(url: str, public_key: Any) -> dict[str, str]:
    """The query of a URL whose V4 signature is right, by Google's "V4 signing process with your own program".

    Raises InvalidSignature.
    """
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    parts = urlsplit(url)
    pairs = [tuple(pair.split("=", 1)) for pair in parts.query.split("&")]
    signed = sorted(pair for pair in pairs if pair[0] != "X-Goog-Signature")
    query = {name: unquote(value) for name, value in pairs}
    pairs_text = "&".join("=".join(pair) for pair in signed)
    lines = ["GET", parts.path, pairs_text, f"host:{parts.netloc}", "", "host", "UNSIGNED-PAYLOAD"]
    canonical = "\n".join(lines)
    scope = query["X-Goog-Credential"].partition("/")[2]
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["GOOG4-RSA-SHA256", query["X-Goog-Date"], scope, digest])
    signature = bytes.fromhex(query["X-Goog-Signature"])
    public_key.verify(signature, text.encode(), padding.PKCS1v15(), hashes.SHA256())
    return query


def test_a_service_account_signs_by_its_own_key(gcs: GcsServer, opened: Callable[..., Any], tmp_path: Path) -> None:
    from cryptography.exceptions import InvalidSignature

    public_key, file = service_account(tmp_path)
    segment = largest(opened(gcs.configs()))
    fetcher = opened({**gcs.configs(token=file), **AS_PLAIN})
    for expires_s, wanted in ((600, "600"), (10**9, "604800")):
        (url,) = fetcher.sign(segment, ["log"], expires_s).values()
        query = verify_v4(url, public_key)
        assert (query["X-Goog-Expires"], query["X-Goog-SignedHeaders"]) == (wanted, "host")
        assert query["X-Goog-Credential"].startswith("signer@tests.example/")
        assert ask("GET", url).data == bytes(opened(gcs.configs()).fetch_log_segment(segment, 0))
        with pytest.raises(InvalidSignature):
            verify_v4(url.replace(".log?", ".index?"), public_key)


def test_the_requester_of_a_signed_url_pays(gcs: GcsServer, opened: Callable[..., Any], tmp_path: Path) -> None:
    public_key, file = service_account(tmp_path)
    segment = largest(opened(gcs.configs()))
    fetcher = opened({**gcs.configs(token=file, requester_pays="payer"), **AS_PLAIN})
    (url,) = fetcher.sign(segment, ["log"], 60).values()
    assert verify_v4(url, public_key)["userProject"] == "payer"


def test_google_itself_is_not_asked_without_a_signature(opened: Callable[..., Any], gcs: GcsServer) -> None:
    segment = largest(opened(gcs.configs()))
    fetcher = opened({"remote.storage.url": "gs://tier", f"{OPTIONS}token": "anon", **AS_PLAIN})
    with pytest.raises(ConfigError, match="no credentials"):
        fetcher.sign(segment, ["log"], 60)
