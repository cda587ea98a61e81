"""The clients of confluent_kafka for one cluster: made when they are first needed, replaced, and closed together.

Rules of the file:

- No call makes a client after `close`.
- A new AdminClient and a new consumer may be made at the same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from remote_fetch.errors import BrokerUnavailable, Cancelled
from remote_fetch.failures.broker_errors import lacks_token
from remote_fetch.failures.shared_failure import SharedQuestion
from remote_fetch.kafka_clients import AdminClient, Consumer
from remote_fetch.locate.client_properties import NO_LONG_POLL, PROBE, admin_properties, consumer_properties
from remote_fetch.locate.contact import Causes, calls_both, first_contact
from remote_fetch.model import IsolationLevel

__all__ = ["Clients"]

T = TypeVar("T")

_WAIT_FOR_TOKENS = ("oauth_cb", "sasl.oauthbearer.metadata.authentication.type")
"""If the properties have one of these, confluent_kafka makes a client in a second at least: it waits for the token."""


class Clients:
    """The clients for a configuration (librdkafka's properties).

    Thread-safe. A caller of `consumer` or `catcher` makes sure that one thread at a time uses the returned consumer.
    With `checks` the first client is made if a broker answers, else BrokerUnavailable is raised. `servers_key` is the
    key under which the user gave the addresses. `answered_s` is the time of the last answer of a broker
    (`time.monotonic`), 0 if there was none. Threads that read with the same consumer hold `reading` in turn.
    `causes` has what the clients hear about brokers that cannot be reached.
    """

    def __init__(self, properties: Mapping[str, Any], *, checks: bool, servers_key: str) -> None:
        self._properties = dict(properties)
        self._servers_key = servers_key
        self._is_unchecked = checks
        self._contact = SharedQuestion()
        self._admin: AdminClient | None = None
        self._consumers: dict[tuple[IsolationLevel, str], Consumer] = {}
        # For `_admin`; and for `_consumers`, `_properties` and `_is_closed`. They are taken in this order.
        self._making_admin, self._making = threading.Lock(), threading.Lock()
        self.reading = threading.Lock()
        self._is_closed = False
        self.causes = Causes()
        self.answered_s = 0.0

    @property
    def properties(self) -> dict[str, Any]:
        """The client configuration with the current credentials. It holds secrets."""
        return dict(self._properties)

    def answered(self) -> None:
        """Note that a broker has answered a client of this cluster."""
        self.answered_s = time.monotonic()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As `confluent_kafka.Consumer.set_sasl_credentials`: for new connections."""
        with self._making_admin, self._making:
            self._properties |= {"sasl.username": username, "sasl.password": password}
            clients = [client for client in (self._admin, *self._consumers.values()) if client is not None]
        for client in clients:  # a client that is answering a question takes them after the answer
            client.set_sasl_credentials(username, password)

    def _check(self) -> None:
        """Make the first contact, if it has not been made. Threads that wait for it share its error."""
        if not self._is_unchecked:
            return
        with self._contact.turn(BrokerUnavailable):
            if not self._is_unchecked:
                return
            properties = admin_properties(self.properties)
            client = first_contact(properties, lambda: self._is_closed, self._servers_key, self.causes.hear)
            with self._making_admin:
                self._check_open()
                self._admin, self._is_unchecked = client, False

    def admin(self) -> AdminClient:
        """The AdminClient. It is another one after `replace_admin`."""
        self._check()
        with self._making_admin:
            self._check_open()
            if self._admin is None:  # AdminClient defines __len__, so compare with None
                properties = {**admin_properties(self._properties), "error_cb": self.causes.hear}
                self._admin = _made(lambda: AdminClient(properties))
            return self._admin

    def replace_admin(self, admin: AdminClient) -> None:
        """Make a new AdminClient for the next question: this one stays with its broker, even after that has died."""
        with self._making_admin:
            if self._admin is admin:
                self._admin = None

    def consumer(self, isolation: IsolationLevel) -> Consumer:
        """The consumer of an isolation level. It joins no group, commits nothing and never resets its offset.

        It is another one after `replace`.
        """
        return self._consumer(isolation, "reader", {})

    def catcher(self) -> Consumer:
        """The consumer for topics that are read to their end again and again, such as `__remote_log_metadata`."""
        return self._consumer(IsolationLevel.READ_UNCOMMITTED, "catcher", NO_LONG_POLL)

    def prober(self) -> Consumer:
        """The consumer of an EpochProber."""
        return self._consumer(IsolationLevel.READ_UNCOMMITTED, "prober", PROBE)

    def _consumer(self, isolation: IsolationLevel, purpose: str, more: Mapping[str, Any]) -> Consumer:
        """The consumer for a purpose, made at its first use."""
        self._check()
        with self._making:
            self._check_open()
            if (isolation, purpose) not in self._consumers:
                properties = {**consumer_properties(self._properties, isolation), **more}
                properties["error_cb"] = calls_both(self.causes.hear, properties.get("error_cb"))
                self._consumers[isolation, purpose] = _made(lambda: Consumer(properties))
            return self._consumers[isolation, purpose]

    def replace(self, consumer: Consumer) -> None:
        """Make a new consumer when the next one is asked for: this one may have lost all brokers for ever.

        It is not closed, for another thread may still use it. It ends with its last reference.
        """
        with self._making:
            self._consumers = {key: known for key, known in self._consumers.items() if known is not consumer}

    def connect(self) -> None:
        """Begin to connect the clients that read a topic to its end, so that they connect at the same time.

        Waits for nothing. Does nothing before the first contact of a cluster that `checks`, and after `close`.
        """
        if self._is_unchecked:
            return
        is_slow = not self._properties.keys().isdisjoint(_WAIT_FOR_TOKENS)
        for make in (self.admin, self.catcher):
            if is_slow:
                threading.Thread(target=_begin, args=(make,), name="remote-fetch-connect", daemon=True).start()
            else:
                _begin(make)

    def _check_open(self) -> None:
        """Raise Cancelled after `close`: a client that a waiting thread made then would never be closed."""
        if self._is_closed:
            raise Cancelled("the connection to the cluster was closed")

    def close(self) -> None:
        """Close the clients. Later questions raise Cancelled."""
        with self._making_admin, self._making:
            self._is_closed = True
            consumers, self._consumers = self._consumers, {}
            self._admin = None
        for consumer in consumers.values():
            consumer.close()


def _made(make: Callable[[], T]) -> T:
    """A client, made once more if its `oauth_cb` has failed. A read that has gone well for hours may need it.

    confluent_kafka waits 10 s for the token, and after a failure librdkafka asks for it again after 10 s.
    """
    try:
        return make()
    except KafkaException as error:
        if not lacks_token(error):
            raise
    return make()


def _begin(make: Callable[[], object]) -> None:
    """Make a client. If that fails, the first question meets the same error, and raises it."""
    with suppress(KafkaException, Cancelled):
        make()
