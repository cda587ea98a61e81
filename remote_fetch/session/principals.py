"""Asks the brokers as another principal: with credentials that a client has shown, over a connection of their own.

Rules of the file:

- The answer is the brokers' own. Nothing here decides on a permission.
- The connection authenticates by SASL alone. Without SASL the brokers would take the service's certificate, or its
  address, for the client.
- None of the service's own credentials is on that connection, and nothing of the client's is kept after the answer.
- Wrong credentials and brokers that are away are told apart: the first are the client's fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from remote_fetch.config.client import with_own
from remote_fetch.errors import BrokerUnavailable, ConfigError
from remote_fetch.locate.broker_settings import PASSWORD_MECHANISMS, TOKEN_MECHANISM
from remote_fetch.session.brokers import make_cluster
from remote_fetch.session.property_check import check_properties

if TYPE_CHECKING:
    from remote_fetch.locate.cluster import Topic

__all__ = ["PASSWORD_MECHANISMS", "TOKEN_MECHANISM", "Answer", "CredentialsRefused", "ask_as", "connection_properties"]

_SETUP_TIMEOUT = "socket.connection.setup.timeout.ms"
_LEAST_TIMEOUT_MS = 1_000
"""librdkafka's smallest value."""
_SOME_CREDENTIALS = {"sasl.mechanism": "PLAIN", "sasl.username": "user", "sasl.password": "password"}
"""Without credentials librdkafka refuses to check any other property."""
_OWN_CREDENTIALS = ("sasl.", "enable.sasl.", "oauth_cb")
"""Prefixes of properties that make a connection the service's own."""
_OF_THE_CLIENT_OBJECT = ("error_cb", "stats_cb", "throttle_cb", "logger", "client.id", "statistics.interval.ms")
"""Properties of the service's own client objects, left out of connections for one question."""


Answer: TypeAlias = "Topic | None"
"""The brokers' answer to a principal about a topic. None: no topic was asked for."""


class CredentialsRefused(BrokerUnavailable):
    """The brokers refuse the credentials that the client has shown."""


def connection_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """librdkafka's properties of a connection as another principal, without credentials.

    Raises ConfigError if the protocol is not one of SASL, and for a property that librdkafka refuses.
    """
    protocol = str(properties.get("security.protocol", "PLAINTEXT")).strip().upper()
    if not protocol.startswith("SASL_"):
        raise ConfigError(
            f"security.protocol={protocol}: the brokers cannot be asked as another principal without SASL",
            key="security.protocol",
            hint="Name a SASL listener of the brokers, with --client-property security.protocol=SASL_SSL and "
            "--client-property bootstrap.servers=... if the service's own connection uses another one",
        )
    check_properties(with_own(properties, _SOME_CREDENTIALS))
    left_out = (*_OWN_CREDENTIALS, *_OF_THE_CLIENT_OBJECT)
    return {name: value for name, value in properties.items() if not name.startswith(left_out)}


def ask_as(
    properties: Mapping[str, Any], credentials: Mapping[str, Any], topic: str | None, *, timeout_ms: int
) -> Answer:
    """Describe a topic (None: only authenticate) as the principal of `credentials`, librdkafka's SASL properties.

    `properties` are those of `connection_properties`. Raises CredentialsRefused, BrokerUnavailable if no broker answers
    within `timeout_ms`, and KafkaException with the brokers' error about the topic: UNKNOWN_TOPIC_OR_PART, or
    TOPIC_AUTHORIZATION_FAILED if the principal may not even know whether there is one. A principal that may describe
    the topic gets an answer, in which `may_read` tells of READ. May take twice `timeout_ms`.
    """
    heard: list[int] = []
    cluster = make_cluster(
        {
            **properties,
            **credentials,
            _SETUP_TIMEOUT: max(timeout_ms, _LEAST_TIMEOUT_MS),
            "error_cb": lambda error: heard.append(error.code()),
        },
        timeout_ms,
        checks=True,
    )
    try:
        if topic is None:
            cluster.names()
            return None
        return cluster.describe(topic)
    except BrokerUnavailable as error:
        failure = (CredentialsRefused if _is_refusal(heard) else BrokerUnavailable)(error.message)
    finally:
        cluster.close()
    # Raised here, without the first error: its frames hold the client, with its threads and sockets.
    raise failure


def _is_refusal(heard: list[int]) -> bool:
    from confluent_kafka import KafkaError  # noqa: PLC0415 - librdkafka has been loaded by then

    return KafkaError._AUTHENTICATION in heard
