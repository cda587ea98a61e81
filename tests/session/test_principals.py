"""Connections as another principal: nothing of the service's own credentials is on them. tests/rig has the brokers."""

from __future__ import annotations

import pytest

from remote_fetch.errors import ConfigError
from remote_fetch.session.principals import connection_properties
from tests.cases import each_of

OWN = {
    "bootstrap.servers": "broker:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "service",
    "sasl.password": "hunter2",
    "socket.timeout.ms": "5000",
    "client.id": "service",
}


def test_the_services_credentials_are_left_out() -> None:
    token = {"sasl.oauthbearer.config": "x", "enable.sasl.oauthbearer.unsecure.jwt": "true"}
    assert connection_properties({**OWN, **token, "error_cb": print, "oauth_cb": print, "logger": print}) == {
        "bootstrap.servers": "broker:9093",
        "security.protocol": "SASL_SSL",
        "socket.timeout.ms": "5000",
    }


@each_of("protocol", [{"security.protocol": "PLAINTEXT"}, {"security.protocol": "ssl"}, {}])
def test_without_sasl_the_service_would_be_asked_about_itself(protocol: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"security\.protocol=(PLAINTEXT|SSL): the brokers cannot be asked"):
        connection_properties({"bootstrap.servers": "broker", **protocol})


def test_a_property_that_librdkafka_refuses_is_named() -> None:
    with pytest.raises(ConfigError, match="No such configuration property") as caught:
        connection_properties({**OWN, "sasl.nothing": "hunter2"})
    assert "hunter2" not in str(caught.value)
