"""Keys that are not ours are librdkafka's to judge."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from remote_fetch.errors import ConfigError
from remote_fetch.session.property_check import check_properties


def test_what_it_knows() -> None:
    check_properties({})
    check_properties({"session.timeout.ms": 6000, "bootstrap.servers": "nowhere:1", "debug": "all"})


@pytest.mark.parametrize("properties", [{"no.such.key": "1"}, {"session.timeout.ms": "soon"}, {"on_commit": 3}])
def test_what_it_refuses(properties: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="librdkafka refuses the configuration"):
        check_properties(properties)


def test_the_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.key") as raised:
        check_properties({"no.such.key": "1"})
    assert "remote-fetch config keys" in str(raised.value)


def test_sasl_without_a_mechanism() -> None:
    """librdkafka says "recompile" then, because its wheels have no GSSAPI."""
    with pytest.raises(ConfigError, match="set it, such as to SCRAM-SHA-512 or PLAIN"):
        check_properties({"security.protocol": "SASL_SSL"})
    with pytest.raises(ConfigError) as raised:
        check_properties({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})
    assert "set it, such as" not in str(raised.value)


def test_the_prefix_of_the_locators_keys_is_named() -> None:
    check_properties({"client.id": "c"}, {"client.id": "d"})
    with pytest.raises(ConfigError, match=r'a property under remote\.locator\.: No such .*"sasl\.usrname"'):
        check_properties({"client.id": "c"}, {"sasl.usrname": "u"})
    with pytest.raises(ConfigError, match=r'refuses the configuration: No such .*"sasl\.usrname"'):
        check_properties({"sasl.usrname": "c"}, {"client.id": "d"})


@pytest.mark.parametrize("mechanism", ["sasl.mechanisms", "sasl.mechanism"])
def test_no_callback_is_called(mechanism: str) -> None:
    """A token server that fails now must not refuse a consumer, and no token is wasted."""
    calls: list[object] = []

    def fails(*args: object) -> None:
        calls.append(args)
        raise OSError("token server: 503")

    callbacks = dict.fromkeys(("oauth_cb", "error_cb", "stats_cb", "throttle_cb", "on_commit"), fails)
    check_properties({"security.protocol": "sasl_plaintext", mechanism: "OAUTHBEARER", **callbacks})
    assert calls == []


def test_no_logger_is_called(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """librdkafka warns of a producer's property. The application's own client gives the same warning already."""
    check_properties({"linger.ms": 5, "logger": logging.getLogger("of the application")})
    assert (caplog.records, capfd.readouterr().err) == ([], "")


@pytest.mark.parametrize(
    "more",
    [
        {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"},
        {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.metadata.authentication.type": "aws_iam"},
        {"oauth_cb": print},
    ],
    ids=["librdkafka's", "for AWS", "the application's"],
)
def test_no_token_is_asked_for(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class Client:
        def __init__(self, properties: dict[str, Any]) -> None:
            made.append(properties)

        def close(self) -> None:
            pass

    monkeypatch.setattr("remote_fetch.kafka_clients.Consumer", Client)
    check_properties({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "client.id": "c", **more})
    (properties,) = made
    asks = {"security.protocol", "sasl.mechanism", "sasl.oauthbearer.metadata.authentication.type", "oauth_cb"}
    assert asks.isdisjoint(properties)
    assert properties["client.id"] == "c"


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_client_that_would_wait_for_a_token_for_ever(name: str) -> None:
    """librdkafka 2.16 makes such a client, opens no connection, and reports nothing."""
    waits = {"security.protocol": "sasl_ssl", name: "oauthbearer"}
    with pytest.raises(ConfigError, match=r"sasl\.mechanism=OAUTHBEARER: nothing gives tokens"):
        check_properties(waits)
    with pytest.raises(ConfigError, match="nothing gives tokens"):
        check_properties({"client.id": "c"}, {"security.protocol": "SASL_SSL", name: "OAUTHBEARER"})
    check_properties({**waits, "security.protocol": "ssl"})
    unsecured = {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": "principal=me"}
    check_properties({**waits, **unsecured})


def test_the_rest_is_checked_beside_an_oauth_callback() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.key"):
        check_properties({"sasl.mechanisms": "OAUTHBEARER", "oauth_cb": print, "no.such.key": "1"})
