"""The first contact with a cluster: a client that a broker has answered, or an error that names the cause.

Rules of the file:

- librdkafka's reports about connections go into that error, and into one line of the log for a call that waits.
- The call waits for brokers that are away. It does not wait after refused credentials or certificates.
- An AdminClient stays with the broker that it has chosen, even if that has just died. So after a silence each second
  question is that of a new client, which may choose another broker. The first client is kept for slow connections.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.deadline import Deadline
from remote_fetch.errors import BrokerUnavailable, Cancelled
from remote_fetch.failures.broker_errors import NO_ANSWER, is_unanswered, lacks_token
from remote_fetch.kafka_clients import AdminClient

__all__ = ["SERVERS_KEY", "Causes", "calls_both", "first_contact", "setup_timeout_s"]

SERVERS_KEY = "bootstrap.servers"

_LOG = logging.getLogger("remote_fetch.contact")
_ANSWER_S = 1.0
_SILENT_S = 2.0
"""A call that waits longer says so, and asks with new clients too."""
_SETUP_TIMEOUT = "socket.connection.setup.timeout.ms"
_SETUP_TIMEOUT_MS = 30_000
"""librdkafka's default."""
_REFUSED = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
_NO_CONTACT = NO_ANSWER | _REFUSED
_SAYS_LITTLE = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})
_STATE = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")
_ADVERTISED = re.compile(r"(?:\w+://)?(\S+:\d+)/\d+: ")
"""librdkafka's name of a broker whose address comes from a broker. One of `bootstrap.servers` ends with /bootstrap."""
_BROKER = re.compile(r"(\S+:\d+)/\w+: ")
"""librdkafka's name of any broker. The same broker is /bootstrap for one client, and has its id for another."""
_GIVEN = re.compile(r"(?:\w+://)?([^\s,]+)")
"""An address of `bootstrap.servers`, in which librdkafka allows a protocol, and spaces between addresses."""
_SHOWN_CAUSES = 3
_KEPT_CAUSES = 64
_LATELY_S = 60.0


def setup_timeout_s(properties: Mapping[str, Any]) -> float:
    """How long a connection may take to open, by `socket.connection.setup.timeout.ms`."""
    return float(properties.get(_SETUP_TIMEOUT, _SETUP_TIMEOUT_MS)) / 1000


def first_contact(
    properties: Mapping[str, Any],
    is_closed: Callable[[], bool],
    servers_key: str = SERVERS_KEY,
    later: Callable[[KafkaError], object] = str,
) -> AdminClient:
    """A client that one broker of the cluster has answered. `properties` are those of an AdminClient.

    `servers_key` is the key under which the user gave the addresses. `later` takes the client's later reports about
    connections; those before go to the user's `error_cb`.

    Raises BrokerUnavailable, with addresses and causes, if no broker answers within `setup_timeout_s`. Raises Cancelled
    as soon as `is_closed`. After two seconds the log gets a warning with the same causes.
    """
    address, timeout_s = str(properties.get(SERVERS_KEY, "")), setup_timeout_s(properties)
    deadline, silence = Deadline.after(timeout_s), Deadline.after(_SILENT_S)
    heard: dict[str, int] = {}
    users_callback = properties.get("error_cb")
    has_answered = False

    def hear(error: KafkaError) -> None:
        if has_answered:
            later(error)
            return
        heard[_STATE.sub("", error.str())] = error.code()
        if callable(users_callback):
            users_callback(error)

    quiet: dict[str, Any] = {**properties, "log_level": 0, "error_cb": hear}
    place = f"{servers_key}={address}"
    first = client = _made(quiet, place)
    has_told = False
    while not is_closed():
        code = _error_code(client, min(max(deadline.left_s, 0.1), _ANSWER_S))
        if code not in _NO_CONTACT:
            has_answered = True
            return client  # a refusal is an answer too
        client.poll(0)  # which calls `hear`
        if (is_refusal := not _REFUSED.isdisjoint(heard.values())) or deadline.is_over:
            raise _unavailable(servers_key, address, heard, timeout_s, is_refusal=is_refusal)
        if silence.is_over and not has_told:
            _LOG.warning("waiting %g s at most for a broker at %s: %s", timeout_s, address, _causes(heard, _SILENT_S))
            has_told = True
        client = _made(quiet, place) if client is first and silence.is_over else first
    raise Cancelled("the connection to the cluster was closed")


class Causes:
    """Why brokers cannot be reached, with their addresses, as the clients of one cluster report it. Thread-safe.

    A client reports it when it is polled. `listener` is called with each cause, again and again while it lasts.
    """

    def __init__(self) -> None:
        self._heard: deque[tuple[float, str]] = deque(maxlen=_KEPT_CAUSES)
        self.listener: Callable[[str], object] = str

    def hear(self, error: KafkaError) -> None:
        """Take a client's report. If an open connection has ended, only the report about the next one has the cause.

        Clients may have different names for one broker. A cause keeps the name under which it was first reported. This
        method is the `error_cb` of a client.
        """
        text = error.str()
        if error.code() in _NO_CONTACT - _SAYS_LITTLE and " in state UP" not in text:
            cause = _STATE.sub("", text)
            spellings = {_without_name(before): before for _, before in list(self._heard)}
            cause = spellings.get(_without_name(cause), cause)
            self._heard.append((time.monotonic(), cause))
            self.listener(cause)

    def explain(self, error: KafkaException) -> None:
        """Raise the error with the causes of the last minute, if no broker has answered. librdkafka's text has none."""
        since_s = time.monotonic() - _LATELY_S
        causes = dict.fromkeys(cause for heard_s, cause in reversed(list(self._heard)) if heard_s > since_s)
        if causes and is_unanswered(error):
            text = f"{error.args[0].str()}: {'; '.join(list(causes)[:_SHOWN_CAUSES])}"
            raise KafkaException(KafkaError(error.args[0].code(), text)) from error


def calls_both(hear: Callable[[KafkaError], None], users_callback: object) -> Callable[[KafkaError], None]:
    """An `error_cb` that calls `hear`, and after it the user's own."""

    def both(error: KafkaError) -> None:
        hear(error)
        if callable(users_callback):
            users_callback(error)

    return both


def _made(properties: Mapping[str, Any], place: str) -> AdminClient:
    """A client of the brokers at `place`. Raises BrokerUnavailable if `oauth_cb` gives no token."""
    try:
        return AdminClient(properties)
    except KafkaException as error:
        if not lacks_token(error):
            raise
        text = f"no token for the brokers at {place}: {error.args[0].str()}"
        hint = "confluent_kafka hides the error that oauth_cb raises: call oauth_cb yourself to see it"
        raise BrokerUnavailable(text, hint=hint) from None


def _error_code(client: AdminClient, timeout_s: float) -> int | None:
    """The code of the error that a question to a broker ends with, None if it is answered."""
    asked = client.describe_cluster(request_timeout=timeout_s)
    try:
        asked.result()
        return None
    except KafkaException as error:
        return int(error.args[0].code())
    finally:
        # The error is in the future, and its frames are this one. Without this line they would hold each other, and the
        # client with its threads and sockets, until Python's collector runs.
        del asked


def _unavailable(
    key: str, address: str, heard: Mapping[str, int], timeout_s: float, *, is_refusal: bool
) -> BrokerUnavailable:
    options = " (-b, or --to of a target)" if key == SERVERS_KEY else ""
    hint = f"Check the address{options}, security.protocol with its credentials, and the network"
    advertised = {found[1] for said in heard if (found := _ADVERTISED.match(said))} - set(_GIVEN.findall(address))
    if advertised:
        names = ", ".join(sorted(advertised)[:_SHOWN_CAUSES])
        hint = f"A broker there has answered, and sends clients to {names} (advertised.listeners). {hint}"
    return BrokerUnavailable(
        f"no broker answers at {key}={address}: {_causes(heard, timeout_s)}", hint=hint, is_refusal=is_refusal
    )


def _causes(heard: Mapping[str, int], waited_s: float) -> str:
    causes = list({_without_name(said): said for said, code in heard.items() if code not in _SAYS_LITTLE}.values())
    if not causes and KafkaError._ALL_BROKERS_DOWN in heard.values():
        # librdkafka itself closes one on which nothing comes for 10 s (api.version.request.timeout.ms).
        return "each connection ended without an answer, as at a listener that wants TLS or SASL, or at no Kafka broker"
    return "; ".join(causes[:_SHOWN_CAUSES]) or f"nothing was heard within {waited_s:g} s"


def _without_name(cause: str) -> str:
    """The cause with the broker's address, but without the word or the id that librdkafka puts behind it."""
    found = _BROKER.match(cause)  # `sub` with a group in its template imports a module, which fails while Python ends
    return cause if found is None else f"{found[1]}: {cause[found.end() :]}"
