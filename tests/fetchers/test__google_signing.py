"""Which of Google's credentials sign URLs, and how IAM is asked to sign for those that have no key.

Rules of the file:

- IAM is a double, because only Google has the real one.
- It signs with a key of this file, so that the signature that arrives in a URL can be verified.
"""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fetchers._google_signing import is_by_iam, signer_of
from fetchers._options import Timeouts
from fetchers.gcs import GcsFetcher
from remote_fetch.errors import ConfigError, StorageDenied
from remote_fetch.testing.contract import contract_segments

pytest.importorskip("google.auth")

from google.auth import credentials as google
from google.auth.exceptions import TransportError
from google.auth.transport import requests as transport

TIMEOUTS = Timeouts(1.5, 4.0)


class Machine(google.Scoped, google.Credentials):
    """Credentials of a machine, as the metadata server gives them: the address is known after the first token."""

    def __init__(self, scopes: tuple[str, ...] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.service_account_email = "default"
        self.granted = scopes

    @property
    def requires_scopes(self) -> bool:
        return False

    def with_scopes(self, scopes: Any, default_scopes: Any = None) -> Machine:
        return Machine(tuple(scopes))

    def refresh(self, request: Any) -> None:
        self.token = f"token of {self.granted}"
        self.service_account_email = "machine@project.example"


class Iam:
    """Answers `signBlob`, and remembers what it was asked."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, url: str, method: str = "GET", body: Any = None, headers: Any = None, **more: Any) -> Any:
        self.asked.append({"url": url, "method": method, "headers": dict(headers), **more})
        payload = base64.b64decode(json.loads(body)["payload"])
        document = {"signedBlob": base64.b64encode(b"signed:" + payload).decode()}
        status = self.statuses.pop(0) if self.statuses else 200
        return SimpleNamespace(status=status, data=json.dumps(document).encode())


@pytest.fixture
def iam(monkeypatch: pytest.MonkeyPatch) -> Iam:
    double = Iam()
    monkeypatch.setattr(transport, "Request", type("Request", (), {"__new__": lambda _: double}))
    return double


def test_a_machine_asks_iam_to_sign(iam: Iam) -> None:
    signer = signer_of(Machine(), TIMEOUTS)
    assert is_by_iam(signer)
    assert signer.signer_email == "machine@project.example"
    assert signer.sign_bytes(b"text") == b"signed:text"
    (asked,) = iam.asked
    assert asked["url"].endswith("/serviceAccounts/machine@project.example:signBlob")
    assert asked["timeout"] == (1.5, 4.0)
    assert "https://www.googleapis.com/auth/iam" in asked["headers"]["authorization"]


def test_iam_that_refuses(iam: Iam) -> None:
    for status in (401, 403, 404):
        iam.statuses = [status]
        with pytest.raises(StorageDenied, match="Service Account Token Creator"):
            signer_of(Machine(), TIMEOUTS).sign_bytes(b"text")


def test_iam_that_fails_is_an_error_of_google_auth(iam: Iam) -> None:
    iam.statuses = [400]
    with pytest.raises(TransportError, match="signBlob"):
        signer_of(Machine(), TIMEOUTS).sign_bytes(b"text")


def test_credentials_with_a_key_sign_alone() -> None:
    class Keyed(google.Signing):
        signer = None

        @property
        def signer_email(self) -> str:
            return "keyed@project.example"

        def sign_bytes(self, message: bytes) -> bytes:
            return message

    keyed = Keyed()
    assert signer_of(keyed, TIMEOUTS) is keyed
    assert not is_by_iam(keyed)


@pytest.mark.parametrize("credentials", [None, google.AnonymousCredentials()])  # type: ignore[no-untyped-call]
def test_no_credentials_sign_nothing(credentials: Any) -> None:
    with pytest.raises(ConfigError, match="there are no credentials"):
        signer_of(credentials, TIMEOUTS)


def test_a_users_credentials_sign_nothing() -> None:
    with pytest.raises(ConfigError, match="UserCredentials belong to no service account") as caught:
        signer_of(type("UserCredentials", (), {"token": "s3cret"})(), TIMEOUTS)
    assert caught.value.key == "remote.storage.options.token"
    assert "s3cret" not in str(caught.value)


def test_urls_that_iam_signs_live_twelve_hours_at_most(iam: Iam) -> None:
    from tests.stores.test_gcs import filesystem_of
    from tests.stores.test_signing import AS_PLAIN

    options = {"token": "anon", "endpoint_url": "https://127.0.0.1:9"}
    fetcher = GcsFetcher()
    named = {f"remote.storage.options.{name}": text for name, text in options.items()}
    fetcher.configure({"remote.storage.url": "gs://tier", **named, **AS_PLAIN})
    filesystem_of(fetcher).credentials.credentials = Machine()
    for expires_s, wanted in ((600, "600"), (10**9, "43200")):
        (url,) = fetcher.sign(contract_segments()[0].metadata, ["log"], expires_s).values()
        query = {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()}
        assert query["X-Goog-Credential"].startswith("machine@project.example/")
        assert query["X-Goog-Expires"] == wanted
        assert bytes.fromhex(query["X-Goog-Signature"]).startswith(b"signed:GOOG4-RSA-SHA256")
    iam.statuses = [403]
    with pytest.raises(StorageDenied):
        fetcher.sign(contract_segments()[0].metadata, ["log"], 60)
    fetcher.close()
