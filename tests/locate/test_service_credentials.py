"""The credentials that go to the service, and those that are refused."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest

from remote_fetch.errors import ConfigError, StorageDenied
from remote_fetch.locate.service_credentials import ServiceCredentials
from tests.at_once import at_once
from tests.cases import each_of
from tests.failures.askers import asked_by

PASSWORD = {"security.protocol": "SASL_SSL", "sasl.username": "me", "sasl.password": "s3cret"}
TOKEN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}


@each_of("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "plain"])
def test_a_user_with_a_password(mechanism: str) -> None:
    for name in ("sasl.mechanism", "sasl.mechanisms"):
        header = ServiceCredentials({**PASSWORD, name: mechanism}).authorization()
        scheme, _, text = header.partition(" ")
        assert (scheme, base64.b64decode(text)) == ("Basic", b"me:s3cret")


def test_a_mechanism_that_is_set_over_another_one_or_over_none() -> None:
    for unset in ("GSSAPI", None, ""):
        settings = {**PASSWORD, "sasl.mechanism": unset, "sasl.mechanisms": "PLAIN"}
        assert ServiceCredentials(settings).authorization().startswith("Basic ")


def test_another_password() -> None:
    credentials = ServiceCredentials({**PASSWORD, "sasl.mechanism": "PLAIN"})
    credentials.set_password("you", "pässword:")
    assert base64.b64decode(credentials.authorization().removeprefix("Basic ")).decode() == "you:pässword:"


def test_a_token_is_used_until_it_expires() -> None:
    asked: list[str] = []
    expiries = [time.time() + 10, time.time() + 1000, time.time() + 2000]

    def callback(config: str) -> tuple[str, float]:
        asked.append(config)
        return f"token-{len(asked)}", expiries[len(asked) - 1]

    credentials = ServiceCredentials({**TOKEN, "oauth_cb": callback, "sasl.oauthbearer.config": "what"})
    assert asked == []
    assert [credentials.authorization() for _ in range(4)] == ["Bearer token-1", *["Bearer token-2"] * 3]
    assert asked == ["what", "what"]
    credentials.set_password("me", "s3cret")
    assert credentials.authorization() == "Bearer token-2"


@each_of("token", ["", "two words", "new\nline", "ä"])
def test_a_token_that_cannot_be_sent(token: str) -> None:
    with pytest.raises(StorageDenied, match="cannot be sent"):
        ServiceCredentials({**TOKEN, "oauth_cb": lambda config: (token, time.time() + 100)}).authorization()


def test_a_callback_that_fails() -> None:
    def callback(config: str) -> tuple[str, float]:
        raise RuntimeError("s3cret")

    with pytest.raises(StorageDenied, match="RuntimeError") as raised:
        ServiceCredentials({**TOKEN, "oauth_cb": callback}).authorization()
    assert "s3cret" not in str(raised.value)


def test_a_callback_that_gives_no_pair_once() -> None:
    answers: list[Any] = [None, ("token",), ("token", None), ("token", time.time() + 100)]
    credentials = ServiceCredentials({**TOKEN, "oauth_cb": lambda config: answers.pop(0)})
    for _ in range(3):
        with pytest.raises(StorageDenied, match="oauth_cb gave no token for the service: it raised"):
            credentials.authorization()
    assert credentials.authorization() == "Bearer token"


def test_extensions_are_refused() -> None:
    answer = ("token", time.time() + 100, "principal", {"logicalCluster": "lkc"})
    with pytest.raises(ConfigError, match="extensions"):
        ServiceCredentials({**TOKEN, "oauth_cb": lambda config: answer}).authorization()
    plain: tuple[object, ...] = (*answer[:3], {})
    assert ServiceCredentials({**TOKEN, "oauth_cb": lambda config: plain}).authorization() == "Bearer token"


@each_of(
    ("properties", "key", "text"),
    [
        ({}, "security.protocol", "no credentials"),
        ({"security.protocol": "SSL", "ssl.certificate.location": "/c"}, "security.protocol", "client certificate"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism", "Kerberos"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "Kerberos"),
        ({**PASSWORD, "sasl.mechanism": "OTHER"}, "sasl.mechanism", "OTHER"),
        ({**PASSWORD, "sasl.mechanism": "PLAIN", "sasl.password": ""}, "sasl.password", "needs sasl.password"),
        ({**TOKEN, "sasl.mechanism": "SCRAM-SHA-512"}, "sasl.username", "needs sasl.username"),
        ({**PASSWORD, "sasl.mechanism": "PLAIN", "sasl.username": "a:b"}, "sasl.username", "colon"),
        (TOKEN, "oauth_cb", "needs oauth_cb"),
        ({**TOKEN, "sasl.oauthbearer.method": "oidc"}, "oauth_cb", "needs oauth_cb"),
    ],
)
def test_credentials_that_are_refused(properties: dict[str, Any], key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as raised:
        ServiceCredentials(properties)
    assert raised.value.key == key
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("fails", [False, True])
def test_threads_share_one_call_of_the_callback(monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
    """The callback is the application's, and may be made for one thread. A failing one may take seconds."""
    called: list[str] = []
    all_have_asked = asked_by(monkeypatch, 3)

    def callback(config: str) -> tuple[str, float]:
        called.append(config)
        assert all_have_asked()
        if fails:
            raise OSError
        return "token", time.time() + 100

    def ask() -> str:
        try:
            return credentials.authorization()
        except StorageDenied:
            return "denied"

    credentials = ServiceCredentials({**TOKEN, "oauth_cb": callback})
    assert at_once([ask] * 3) == ["denied" if fails else "Bearer token"] * 3
    assert len(called) == 1
